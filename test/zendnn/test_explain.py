"""torch.backends.zendnn.explain: regions, built executables, and operators outside regions."""

from __future__ import annotations

import copy
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn
from torch.backends.zendnn import _explain
from torch.backends.zendnn._explain import CallReport, Explanation, LeftOut, Method, RegionReport

from .common import run_python, values

ZENDNN = torch.backends.zendnn

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# A made-up plan: the expected text must not depend on this machine's kernels.

DESCRIPTION = """\
zendnn-plan 3
%1 = input tensor
%2 = input number
%3 = constant 0
%4 = constant 1
%5 = convolution(%1, %3, %4) groups=1 stride=2,2 post=relu:0.0:0.0 # aten::conv2d+aten::relu
%6 = convolution(%5, %3, none, %5) groups=1 stride=1,1 post=add@3;clip:0.0:6.0 \
# aten::conv2d+aten::add+aten::hardtanh
%7 = convolution(%6, %3, %4) groups=1 stride=1,1 post=relu:0.0:0.0 # aten::conv2d+aten::relu
%8, %9 = embedding_bags(%3, %3, %7, %7) mode=sum # aten::embedding_bag+aten::embedding_bag
%10 = eltwise(%8) algorithm=gelu alpha=0.0 beta=0.0 # custom::"act"
%11 = view(%10, %2, -1) # aten::view
return %11, %9
"""


def step(does: str, implementation: str, gflop: float = 0) -> dict[str, Any]:
    return {"does": does, "implementation": implementation, "gflop": gflop}


def tensor(dtype: str, sizes: list[int], strides: list[int]) -> dict[str, Any]:
    return {"dtype": dtype, "sizes": sizes, "strides": strides}


BUILT = {
    "inputs": [tensor("Float", [1, 3, 8, 8], [192, 1, 24, 3])],
    "numbers": [1],
    "threads": 2,
    "arena_bytes": 5 << 20,
    "gflop": 0.75,
    "steps": [
        step("reorder", "copy"),
        step("aten::conv2d+aten::relu", "brgconv:avx512_core", 0.25),
        step("aten::conv2d+aten::add+aten::hardtanh", "jit:avx512_core", 0.00025),
        step("aten::conv2d+aten::relu", "brgconv:avx512_core", 0.25),
    ],
    "left_to_torch": [
        {"operator": "aten::conv2d+aten::relu", "reason": "why", "ms": 12.5},
        {"operator": "aten::mean", "reason": "why not", "ms": 0.043},
    ],
}
REFUSED = {
    "inputs": [*[tensor("Long", [0], [1])] * 3, tensor("BFloat16", [2, 1, 5], [5, 9, 1])],
    "numbers": [],
    "threads": 1,
    "refused": "an empty tensor",
}


def region(**changes: Any) -> RegionReport:
    """The region read from a plan's explanation with these changes."""
    plan = torch.classes.zendnn.Plan(DESCRIPTION, [torch.ones(1)] * 2, "plan_0").explain()
    return RegionReport.read(plan | {"packed_bytes": 2560} | changes)


def explanation(
    *regions: RegionReport, left_out: tuple[LeftOut, ...] | None = (), **more: Any
) -> str:
    """The printed explanation of one method."""
    return str(Explanation((Method("forward", regions, left_out),), **more))


def test_a_region_is_one_block_of_operators_and_of_what_was_built() -> None:
    left_out = (LeftOut("aten::cumprod", "no such operator", 12), LeftOut("x::sort", "why not", 1))
    expected = """\
forward: 1 region of 6 operators, 13 operators left out

  plan_0: 2 inputs, 2 outputs, 2 constants, 2.5 KiB of packed weights
    2  convolution, then relu       conv2d + relu
    1  convolution, then add, clip  conv2d + add + hardtanh
    1  embedding_bags               2 x embedding_bag
    1  eltwise gelu                 custom::"act"
    1  view
    built for float32 (1, 3, 8, 8) strides (192, 1, 24, 3), number 1, 2 threads: \
0.75 Gflop, 5.0 MiB arena
      1  reorder                  copy
      2  conv2d + relu            brgconv:avx512_core  0.50 Gflop
      1  conv2d + add + hardtanh  jit:avx512_core      0.25 Mflop
    left to torch
      conv2d + relu  why      12.50 ms
      mean           why not   0.04 ms
    refused for 3 x int64 (0,), bfloat16 (2, 1, 5), 1 thread: an empty tensor

  left out
    12  cumprod  no such operator
     1  x::sort  why not"""
    assert explanation(region(built=[BUILT, REFUSED]), left_out=left_out) == expected


def test_lines_of_the_model_are_printed_where_they_are_known() -> None:
    lines = tuple(f"/home/models/net.py:{number}: y = sort(x)" for number in (3, 5, 7, 8, 9))
    left_out = (LeftOut("x::a", "why", 9, lines), LeftOut("x::b", "why not", 2, lines[:2]))
    assert explanation(left_out=left_out).splitlines()[-2:] == [
        "    9  x::a  why      net.py:3, net.py:5, net.py:7 and 2 more",
        "    2  x::b  why not  net.py:3, net.py:5",
    ]


def test_a_graph_break_is_printed() -> None:
    method = Method("graph 0", (), (), "/net.py:3: a call of print")
    assert "\n  ended by a graph break: /net.py:3: a call of print" in str(Explanation((method,)))


def test_the_layout_of_images_and_copies_at_the_borders_are_printed() -> None:
    built = BUILT | {"layout": "blocked", "border_copies": 2}
    assert "arena, images blocked, 2 copies at its borders\n" in explanation(region(built=[built]))
    assert region(built=[built]).built[0].layout == "blocked"


def test_a_plan_without_inputs_yet_says_so() -> None:
    assert "nothing built yet: it has seen no inputs" in explanation(region())
    assert "packed" not in explanation(region(packed_bytes=0))


@pytest.mark.parametrize(
    ("left_out", "line"),
    [
        ((), "forward: no region, nothing left out"),
        (None, "forward: no region"),
        ((LeftOut("a", "b", 1),), "forward: no region, 1 operator left out"),
    ],
)
def test_a_method_without_a_region_is_one_line(
    left_out: tuple[LeftOut, ...] | None, line: str
) -> None:
    assert explanation(left_out=left_out).splitlines()[0] == line


def test_a_built_plan_may_have_no_steps() -> None:
    nothing = BUILT | {"steps": [], "gflop": 0, "arena_bytes": 0}
    assert "2 threads: 0.00 kflop, 0 bytes arena" in explanation(region(built=[nothing]))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (3 << 19, "1.5 MiB"),
        (5 << 42, "20480.0 GiB"),
    ],
)
def test_sizes_have_the_unit_that_fits(count: int, text: str) -> None:
    assert _explain._bytes(count) == text


def test_json_holds_everything() -> None:
    left_out = (LeftOut("aten::sort", "why not", 1, ("net.py:3: sort(x)",)),)
    whole = json.loads(
        explanation(region(built=[BUILT, REFUSED]), left_out=left_out, format="json")
    )
    (method,) = whole["methods"]
    assert method["left_out"] == [
        {"op": "aten::sort", "reason": "why not", "count": 1, "lines": ["net.py:3: sort(x)"]}
    ]
    assert method["graph_break"] == ""
    (one,) = method["regions"]
    assert (one["inputs"], one["outputs"], one["constants"]) == (["%0", "%1"], ["%10", "%8"], 2)
    assert one["operators"][1] == {
        "name": "convolution",
        "does": ["aten::conv2d", "aten::add", "aten::hardtanh"],
        "results": ["%5"],
        "operands": ["%4", "%2", "none", "%4"],
        "attributes": {"stride": "1,1"},
        "post_ops": ["add@3", "clip:0:6"],
    }
    assert [item["refused"] for item in one["built"]] == ["", "an empty tensor"]
    assert one["built"][0]["steps"][1]["implementation"] == "brgconv:avx512_core"


def test_dot_draws_each_region_as_a_cluster() -> None:
    text = explanation(region(), region(name="plan_1"), format="dot")
    assert text.startswith("digraph zendnn {")
    assert text.count("{") == text.count("}") == 3
    assert re.findall(r"subgraph (\w+)", text) == ["cluster_0", "cluster_1"]
    assert 'label="forward: plan_1"' in text
    assert r'r0_operator_1 [label="convolution, then add, clip\nconv2d + add + hardtanh"]' in text
    assert r'[label="eltwise gelu\ncustom::\"act\""]' in text
    edges = re.findall(r"(r0_\w+) -> (r0_\w+);", text)
    assert ("r0_input_0", "r0_operator_0") in edges
    assert edges.count(("r0_operator_0", "r0_operator_1")) == 1, "an operand may be read twice"
    assert ("r0_input_1", "r0_operator_5") in edges
    assert ("r0_operator_3", "r0_output_1") in edges
    drawn = set(re.findall(r"^ +(r0_\w+) \[", text, re.MULTILINE))
    assert {name for edge in edges for name in edge} == drawn


#: A region, two operators after it and one of the model's own inputs, and a region that reads one.
CALLS = (
    CallReport((None, None), plan=0),
    CallReport(((0, 1),), operators=("aten::sort", "aten::cumprod")),
    CallReport(((0, 0), None), operators=("custom::act",)),
    CallReport(((1, 1), None), plan=1),
)
LEFT_OUT = (
    LeftOut("aten::sort", "no such operator", 1),
    LeftOut("aten::cumprod", "no such operator", 1),
    LeftOut("custom::act", "why", 1),
    LeftOut("custom::act", "why not", 1),
)


def test_dot_draws_operators_left_out_between_regions_with_their_reasons() -> None:
    method = Method("forward", (region(), region(name="plan_1")), LEFT_OUT, calls=CALLS)
    other = Method("other", (region(),), (), calls=(CallReport((None, None), plan=0),))
    text = Explanation((other, method)).dot()
    boxes = re.findall(r"(m\d_call_\d) \[label=\"(.*)\", style=dashed\]", text)
    assert boxes == [
        ("m1_call_1", r"sort + cumprod\ncompiled by Inductor\nno such operator"),
        ("m1_call_2", r"custom::act\nwhy\nwhy not"),
    ]
    edges = re.findall(r"^  (\w+) -> (\w+);", text, re.MULTILINE)
    assert edges == [
        ("r1_output_1", "m1_call_1"),
        ("r1_output_0", "m1_call_2"),
        ("m1_call_1", "r2_input_0"),
    ]
    assert {"r1_output_0", "r1_output_1", "r2_input_0"} <= set(re.findall(r"(r\d\w+) \[", text))


def test_dot_lists_operators_left_out_where_their_order_is_unknown() -> None:
    text = explanation(region(), left_out=LEFT_OUT[:2], format="dot")
    label = r"forward: left out\nsort: no such operator\ncumprod: no such operator"
    assert f'm0_left_out [label="{label}", style=dashed]' in text


def test_svg_is_what_graphviz_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "<svg $@>"\nexec /bin/cat\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    whole = Explanation((Method("forward", (region(),), ()),), "svg")
    assert str(whole) == whole.svg() == f"<svg -Tsvg>\n{whole.dot()}"


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_takes_the_text() -> None:
    method = Method("forward", (region(), region(name="plan_1")), LEFT_OUT, calls=CALLS)
    root = ElementTree.fromstring(Explanation((method,)).svg())
    assert root.tag.endswith("svg")
    assert "sort + cumprod" in {text.strip() for text in root.itertext()}


def test_svg_without_graphviz_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RuntimeError, match="Graphviz draws SVG, and its program 'dot' is not inst"):
        Explanation((Method("forward", (region(),), ()),)).svg()


# Modules


class TwoMethods(nn.Module):
    """Two methods to optimise; the first has an operator that the engine lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.last = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x).relu()).cumprod(0)
        return out

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        out: Tensor = self.first(x).tanh()
        return out


def optimised() -> Any:
    frozen = torch.jit.freeze(torch.jit.script(TwoMethods().eval()), ["other"])
    return torch.jit.optimize_for_inference(frozen, ["other"])


def loaded(module: Any) -> Any:
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def test_each_method_lists_its_regions_and_left_out_operators() -> None:
    forward, other = ZENDNN.explain(optimised()).methods
    assert (forward.name, other.name) == ("forward", "other")
    titles = [operator.title for region in forward.regions for operator in region.operators]
    assert titles == ["linear, then relu", "linear"]
    assert [(item.op, item.count) for item in forward.left_out] == [("aten::cumprod", 1)]
    assert other.left_out == ()


def test_each_set_of_input_shapes_is_listed_latest_first() -> None:
    module, x = optimised(), values(4, 6)
    with torch.no_grad():
        for inputs in (x, values(6, 5).t(), x, x[:0]):
            module(inputs)
    forward, other = ZENDNN.explain(module).methods
    (region,) = forward.regions
    refused, *built = region.built
    assert [item.inputs[0].sizes for item in region.built] == [(0, 6), (4, 6), (5, 6)]
    assert [item.inputs[0].strides for item in built] == [(6, 1), (1, 5)]
    assert refused.refused
    assert not refused.steps
    for item in built:
        assert item.threads == torch.get_num_threads()
        assert item.gflop == pytest.approx(sum(step.gflop for step in item.steps), rel=1e-4)
        assert item.gflop == pytest.approx(item.inputs[0].sizes[0] * 2 * 2 * 48 / 1e9, rel=1e-4)
        assert all(step.implementation for step in item.steps)
        assert {name for step in item.steps for name in step.does} >= {"aten::linear", "aten::relu"}
    assert not other.regions[0].built
    assert "refused for float32 (0, 6)" in str(ZENDNN.explain(module))


def test_a_saved_or_copied_module_explains_the_same_without_builds() -> None:
    module = optimised()
    before = str(ZENDNN.explain(module))
    with torch.no_grad():
        module(values(4, 6))
    assert str(ZENDNN.explain(module)) != before
    for same in (loaded(module), copy.deepcopy(module)):
        assert str(ZENDNN.explain(same)) == before
        with torch.no_grad():
            same(values(4, 6))
        assert "built for float32 (4, 6)" in str(ZENDNN.explain(same))


class Outer(nn.Module):
    """Holds an optimised module."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x).exp()
        return out


def test_the_plans_of_a_submodule_are_included() -> None:
    outer = torch.jit.script(Outer(loaded(optimised())).eval())
    for module in (outer, torch.jit.freeze(outer)):
        (method,) = ZENDNN.explain(module).methods
        assert len(method.regions) == 1
        assert method.left_out is None
        assert str(ZENDNN.explain(module)).startswith("forward: 1 region of 2 operators\n")


def test_optimising_again_does_not_change_the_explanation() -> None:
    module = optimised()
    before = str(ZENDNN.explain(module))
    assert str(ZENDNN.explain(torch.jit.optimize_for_inference(module, ["other"]))) == before


def test_a_module_without_a_plan_gets_instructions() -> None:
    stock = torch.jit.freeze(torch.jit.script(TwoMethods().eval()))
    with ZENDNN.flags(enabled=False):
        disabled = torch.jit.optimize_for_inference(stock)
    for module in (torch.jit.script(nn.ReLU()), stock, disabled):
        text = str(ZENDNN.explain(module))
        assert text.startswith("this module has no plan: torch.jit.optimize_for_inference")
        assert len(text.splitlines()) == 1
        assert ZENDNN.explain(module).as_dict() == {"methods": []}
        assert re.fullmatch(r"digraph zendnn \{\n.*\n\}", ZENDNN.explain(module).dot())


@pytest.mark.parametrize("thing", [nn.ReLU(), None, "model.pt", TwoMethods])
def test_anything_else_is_refused_in_one_sentence(thing: object) -> None:
    with pytest.raises(TypeError, match=f"ScriptModule.*of type {type(thing).__name__}$") as error:
        ZENDNN.explain(thing)
    assert len(str(error.value).splitlines()) == 1


def test_the_format_spec_selects_the_output() -> None:
    module = optimised()
    whole = ZENDNN.explain(module)
    assert str(whole) == repr(whole) == whole.text() == str(ZENDNN.explain(module, "text"))
    assert str(ZENDNN.explain(module, format="json")) == whole.json()
    assert str(ZENDNN.explain(module, format="dot")) == whole.dot()
    assert json.loads(whole.json()) == json.loads(json.dumps(whole.as_dict()))
    with pytest.raises(ValueError, match="no format 'html'; the formats are text, json, dot, svg"):
        ZENDNN.explain(module, format="html")


# The package


def test_import_torch_does_not_import_explain() -> None:
    code = """
import sys, torch
z = torch.backends.zendnn
print([name for name in sys.modules if "zendnn.passes" in name or "zendnn._explain" in name])
print(callable(z.explain), z.passes.names()[0], z.passes is sys.modules[z.passes.__name__])
print(hasattr(z, "no_such_name"))
"""
    assert run_python(code).splitlines() == ["[]", "True round_as_eager True", "False"]
