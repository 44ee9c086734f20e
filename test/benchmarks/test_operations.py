"""benchmarks/operations.py: its problems, its options and its table."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import operations as module  # noqa: E402 (torch may be missing)

zendnn = pytest.mark.skipif(
    getattr(torch.backends, "zendnn", None) is None, reason="a torch without ZenDNN"
)


def test_names_tell_problems_apart() -> None:
    names = [problem.name for problem in module.PROBLEMS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("problem", "size"),
    [
        (module.linear(3, 4, 5), (3, 5)),
        (module.bmm(2, 3, 4, 5), (2, 3, 5)),
        (module.conv2d(4, 6, 9, 3), (1, 6, 9, 9)),
        (module.conv2d(4, 6, 9, 3, stride=2, groups=2), (1, 6, 5, 5)),
        (module.lstm(7, 3, 4), (7, 1, 4)),
    ],
    ids=lambda x: x.name if isinstance(x, module.Problem) else "",
)
@pytest.mark.parametrize("dtype", module.DTYPES.values(), ids=str)
def test_a_problem_is_what_its_name_says(
    problem: module.Problem, size: tuple[int, ...], dtype: Any
) -> None:
    with torch.inference_mode():
        result = problem.make(dtype)()
    out = result[0] if isinstance(result, tuple) else result
    assert isinstance(out, torch.Tensor)
    assert (tuple(out.shape), out.dtype) == (size, dtype)


@zendnn
def test_stock_kernels_and_zendnn_take_turns() -> None:
    states = []
    stock, ours, calls = module.compare(
        lambda: states.append(torch.backends.zendnn.enabled), seconds=0.001
    )
    assert states == [False, True] * (len(states) // 2)
    assert len(states) >= 4
    assert stock > 0
    assert ours > 0
    assert calls == 0


@zendnn
def test_a_row_for_each_problem_with_its_ratio_and_calls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert module.main(["--only", "linear 128x768x", "--seconds", "0.01", "--threads", "1"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["problem", "stock", "us", "ZenDNN", "us", "ratio", "calls"]
    assert len(rows) == sum("linear 128x768x" in problem.name for problem in module.PROBLEMS) > 0
    for row in rows:
        *_, stock, ours, ratio, calls = row.split()
        assert float(ratio) == pytest.approx(float(ours) / float(stock), abs=0.02)
        assert int(calls) == 1


@pytest.mark.parametrize(
    "options",
    [["--only", "no such"], ["--seconds", "0"], ["--threads", "0"], ["--dtype", "int8"]],
    ids=" ".join,
)
def test_wrong_options_end_with_code_2_and_one_reason(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        module.main(options)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error:" in captured.err.splitlines()[-1]
