"""Listening to the backend of torch.compile."""

from __future__ import annotations

import logging

import pytest
import torch

from tools.backend_log import first_line, listening

LOG = logging.getLogger("torch.backends.zendnn._compile")


def test_a_listener_receives_first_lines_and_leaves_the_log_as_it_was() -> None:
    before = LOG.level, LOG.propagate, list(LOG.handlers)
    with listening() as lines:
        LOG.info("a graph stays as it is\nand more")
    assert lines == ["a graph stays as it is"]
    assert (LOG.level, LOG.propagate, list(LOG.handlers)) == before


def test_a_graph_that_stays_as_it_is_is_heard_of() -> None:
    layer = torch.nn.Linear(2, 2)
    with listening() as lines:
        torch.compile(layer, backend="zendnn", options={"rest": "eager"})(torch.rand(1, 2))
    reason = "since it records gradients: call it under torch.no_grad() for plans"
    assert lines == [f"a graph stays as it is, {reason}"]


@pytest.mark.parametrize(
    ("told", "line"),
    [("\n  a \nb", "a"), ("", ""), (ValueError("no\nmore"), "ValueError: no")],
)
def test_a_line_names_the_type_of_an_error(told: object, line: str) -> None:
    assert first_line(told) == line
