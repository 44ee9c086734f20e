"""tools/upstream/operators.py: which operators are ours, and which OpInfos reach them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from pathlib import Path

import pytest
from hypothesis import settings

from tools.upstream import operators as module


@pytest.fixture(autouse=True)
def our_profile() -> Iterator[None]:
    """Restores hypothesis' profile, which torch.testing replaces."""
    name = settings.get_current_profile_name()
    yield
    settings.load_profile(name)


def reaching(operators: Set[str], *names: str) -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    infos = [info for info in op_db if info.formatted_name in names]
    assert len(infos) == len(names)
    return sorted(module.reaching(operators, infos))


def test_the_dispatcher_lists_our_operators() -> None:
    ours = module.overridden()
    assert {"aten::mm", "aten::addmm", "aten::bmm", "aten::_convolution"} <= ours
    assert not {"aten::add", "aten::matmul", "aten::relu"} & ours


def test_an_operator_is_reached_directly_indirectly_and_backward() -> None:
    names = "mm", "nn_functional_conv2d", "linalg_solve_triangular", "add"
    assert reaching({"aten::mm"}, *names) == ["linalg_solve_triangular", "mm"]
    assert reaching({"aten::_convolution"}, *names) == ["nn_functional_conv2d"]
    assert not reaching(set(), *names)


def test_the_command_writes_the_names_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "reaching", lambda operators, infos: iter(["mm", "add"]))
    module.main([str(tmp_path / "names.json")])
    assert json.loads((tmp_path / "names.json").read_text()) == ["add", "mm"]


def test_the_command_without_a_file_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "reaching", lambda *_: pytest.fail("must not be run"))
    with pytest.raises(SystemExit) as stopped:
        module.main([])
    assert stopped.value.code == 2
