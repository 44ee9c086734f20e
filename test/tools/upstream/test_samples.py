"""tools/upstream/samples.py: upstream's samples, and what counts as lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from tools.upstream import samples as module
from tools.upstream.samples import Calls, Case, Verdict

#: What a function that does not repeat its results counts with.
NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def our_profile() -> Iterator[None]:
    """Restores hypothesis' profile, which torch.testing replaces."""
    name = settings.get_current_profile_name()
    yield
    settings.load_profile(name)


def info(name: str) -> Any:
    (found,) = (info for info in module.infos() if info.formatted_name == name)
    return found


def case(function: Callable[..., Any], *inputs: Any, name: str = "it") -> Case:
    return Case(name, torch.float32, 0, "inputs", *split(function, *inputs))


def split(function: Callable[..., Any], *arguments: Any) -> tuple[module.Call, list[Tensor]]:
    call = module.Call(function, (arguments, {}), ())
    return call, [x for x in arguments if isinstance(x, Tensor)]


def changed(change: Callable[[list[Tensor], Sequence[Tensor]], Any]) -> module.Compiler:
    """A compiler whose results are changed."""

    def compiler(calls: Calls, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        def run(*arguments: Tensor) -> Any:
            results = calls(*arguments)
            return change(results, arguments) or results

        return run

    return compiler


def test_samples_run_all_ways_and_with_other_leaves() -> None:
    found = list(module.cases(info("addmm")))
    assert {(case.way, case.dtype) for case in found} == {
        (way, dtype) for way in module.WAYS for dtype in module.DTYPES
    }
    assert {len(case.inputs) for case in found if case.way == "weights"} == {1}
    assert {len(case.call.weights) for case in found if case.way == "weights"} == {2}
    (verdict,) = module.check([case(torch.softmax, torch.rand(2, 3), 1)])
    assert verdict.outcome == "passed"


def test_as_many_samples_are_drawn_as_asked_for_and_always_the_same() -> None:
    drawn = [[str(case) for case in module.cases(info("sum"), most=2)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 2 * len(module.DTYPES)
    assert set(drawn[0]) < {str(case) for case in module.cases(info("sum"))}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda results, given: results[0].add_(1e-3), "tensor 0: Tensor-likes are not close"),
        (lambda results, given: results[0][0].fill_(torch.nan), "Tensor-likes are not close"),
        (lambda results, given: [results[0].double()], "is float64[2, 3], of stock float32[2, 3]"),
        (lambda results, given: [results[0][:1]], "is float32[1, 3], of stock float32[2, 3]"),
        (lambda results, given: [given[0]], "shares memory as [(0, 1)], stock as []"),
        (lambda results, given: given[0].add_(1), "tensor 1: Tensor-likes are not close"),
        (lambda results, given: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
    ids=["numbers", "nan", "dtype", "shape", "memory", "written input", "error"],
)
def test_what_differs_from_eager_mode_is_lost(
    change: Callable[[list[Tensor], Sequence[Tensor]], Any], reason: str
) -> None:
    def wrong(results: list[Tensor], arguments: Sequence[Tensor]) -> Any:
        result = change(results, arguments)
        return result if isinstance(result, list) else results

    (verdict,) = module.check([case(torch.abs, -torch.rand(2, 3))], changed(wrong))
    assert verdict.outcome == "lost"
    assert reason in verdict.detail


def test_float64_decides_where_stock_is_inexact() -> None:
    x = torch.tensor([1.0, 1e8, -1e8])

    def inexact(x: Tensor) -> Tensor:
        return (x + x[1]) - x[1]

    exact = changed(lambda results, arguments: [torch.tensor([1.0, 1e8, -1e8])])
    assert [v.outcome for v in module.check([case(inexact, x)], exact)] == ["passed"]
    wrong = changed(lambda results, arguments: [torch.tensor([1.0, 1e8, -2e8])])
    assert [v.outcome for v in module.check([case(inexact, x)], wrong)] == ["lost"]


def test_one_lost_case_of_a_graph_is_told_from_the_others() -> None:
    def compiler(calls: Calls, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        if len(inputs) > 2 or inputs[0].dim() == 2:
            raise ValueError("two dimensions")
        return module.directly(calls, inputs)

    cases = [case(torch.abs, torch.rand(*sizes)) for sizes in ((2,), (2, 3), (4,))]
    verdicts = module.check(cases, compiler)
    assert [verdict.outcome for verdict in verdicts] == ["passed", "lost", "passed"]


@pytest.mark.parametrize(
    ("function", "outcome", "reason"),
    [
        (lambda x: x.int() @ x, "skipped", "stock raises RuntimeError"),
        (lambda x: x.int() + next(NUMBERS), "skipped", "stock does not repeat"),
        (lambda x: torch.full((2,), x.sum().item()), "skipped", "without plans, too: "),
    ],
    ids=["stock raises", "changes", "depends on data"],
)
def test_cases_that_say_little_are_told_apart(
    function: Callable[[Tensor], Any], outcome: str, reason: str
) -> None:
    (verdict,) = module.check([case(function, torch.rand(2, 2))])
    assert verdict.outcome == outcome
    assert reason in verdict.detail


def test_a_graph_that_the_backend_leaves_is_told_apart() -> None:
    def switched_off(calls: Calls, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        with torch.backends.zendnn.flags(enabled=False):
            return module.directly(calls, inputs)

    (verdict,) = module.check([case(torch.abs, torch.rand(2, 2))], switched_off)
    assert verdict.outcome == "left"
    assert "ZenDNN is switched off" in verdict.detail


def test_memory_that_nobody_wrote_is_not_compared() -> None:
    verdicts = module.check([case(torch.empty_like, torch.rand(50), name="empty_like")])
    assert [verdict.outcome for verdict in verdicts] == ["passed"]


def test_plans_are_made_of_light_operators_unless_dynamo_compiles() -> None:
    cases = [case(torch.abs, torch.rand(2, 3)), case(torch.add, torch.rand(3), torch.rand(3))]
    with module.plans_of_all():
        assert all(verdict.planned for verdict in module.check(cases))
    verdicts = module.check(cases, module.through_dynamo)
    assert [(v.outcome, v.planned) for v in verdicts] == [("passed", False)] * 2


def test_imported_operators_are_found_by_name() -> None:
    names = {found.formatted_name for found in module.imported()}
    assert {"mm", "nn_functional_linear", "__getitem__", "nn_functional_gelu"} <= names
    assert not {"cumprod", "linalg_svd"} & names


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_case_is_the_exit_code(
    lost: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = case(torch.abs, torch.rand(2))
    verdicts = [Verdict(example, "passed"), Verdict(example, "left", "why")]
    verdicts += [Verdict(example, "lost", "it differs")] * lost
    monkeypatch.setattr(module, "run", lambda *_: iter(verdicts))
    assert module.main([]) == lost
    printed = capsys.readouterr().out
    assert "left: it: why" in printed
    assert ("lost: it float32 0 (inputs): it differs" in printed) == bool(lost)


def test_a_name_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        module.main(["no_such_operator"])
    assert "there is no OpInfo 'no_such_operator'" in capsys.readouterr().err
