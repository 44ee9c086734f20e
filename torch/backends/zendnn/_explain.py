"""Explains an optimised module: its regions, what was built from them, what was left out, and why.

All of it comes from the plans in the module, which saving keeps. What depends on inputs
(implementations, memory, costs) is known once a plan has seen some.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
import subprocess
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.backends.zendnn._columns import table
from torch.backends.zendnn.frontends import CallReport, LeftOut, front_end_of

Strings = tuple[str, ...]
Integers = tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """The signature of a tensor that a plan was given."""

    dtype: str
    sizes: Integers
    strides: Integers

    def __str__(self) -> str:
        like = torch.empty_strided(self.sizes, self.strides, device="meta")
        strides = "" if like.is_contiguous() else f" strides {self.strides}"
        return f"{self.dtype} {self.sizes}{strides}"


@dataclass(frozen=True)
class Step:
    """A step of a built plan: the model's operators that it performs, and its implementation."""

    does: Strings
    implementation: str
    gflop: float


@dataclass(frozen=True)
class LeftToTorch:
    """Operators of the model for which a built plan calls torch, the reason, and the cost."""

    operator: Strings
    reason: str
    #: Milliseconds of one run, timed on operands of zeros when the plan was built.
    ms: float


@dataclass(frozen=True)
class Built:
    """What a plan built for one set of input shapes; nothing when it refused them."""

    inputs: tuple[Input, ...]
    numbers: Integers
    threads: int
    #: Why the model's own operators run for these inputs; empty when the plan does.
    refused: str = ""
    #: The layout of images inside, 'channels last' or 'blocked'; empty when there are none.
    layout: str = ""
    #: Steps that only copy an input or a result to another layout.
    border_copies: int = 0
    #: Operators that were taken over from what was built before, for other shapes.
    taken_over: int = 0
    arena_bytes: int = 0
    gflop: float = 0.0
    steps: tuple[Step, ...] = ()
    #: Implementations that computed wrong results in trials, each with its operator.
    wrong: Strings = ()
    left_to_torch: tuple[LeftToTorch, ...] = ()


@dataclass(frozen=True)
class OperatorReport:
    """One line of a region's description."""

    name: str
    #: The model's operators that it performs.
    does: Strings
    results: Strings
    operands: Strings
    attributes: dict[str, str]
    #: As a description writes them; see docs/plan.md.
    post_ops: Strings

    @property
    def title(self) -> str:
        """Its name and algorithm, with the post-ops that are fused into it."""
        words = [self.name, *filter(None, [self.attributes.get("algorithm")])]
        after = [re.split("[:@]", post)[0] for post in self.post_ops]
        return " ".join(words) + (f", then {', '.join(after)}" if after else "")


@dataclass(frozen=True)
class RegionReport:
    """Operators that run as one call, and what was built from them, the latest used first."""

    name: str
    inputs: Strings
    outputs: Strings
    constants: int
    operators: tuple[OperatorReport, ...]
    packed_bytes: int
    built: tuple[Built, ...]

    @staticmethod
    def read(plan: Mapping[str, Any]) -> RegionReport:
        """Read a plan's explanation."""
        return RegionReport(
            plan["name"],
            tuple(plan["inputs"]),
            tuple(plan["outputs"]),
            plan["constants"],
            _read(plan["operators"]),
            plan["packed_bytes"],
            _read(plan["built"]),
        )


def _labels(labels: str) -> Strings:
    return tuple(filter(None, labels.split("+")))


def _dtype(name: str) -> str:
    """Return Python's name of a type of elements, given C++'s name of its tensors."""
    tensors = getattr(torch, f"{name}Tensor", None)
    return name if tensors is None else str(tensors.dtype).removeprefix("torch.")


#: The fields that C++ writes in another form.
_READ: dict[str, Callable[[Any], Any]] = {
    "does": _labels,
    "operator": _labels,
    "dtype": _dtype,
    "attributes": dict,
}


def _read(item: Any) -> Any:
    """Convert lists to tuples, and a mapping to the dataclass that has its fields."""
    if isinstance(item, list):
        return tuple(map(_read, item))
    if not isinstance(item, dict):
        return item
    items = {key: _READ.get(key, _read)(part) for key, part in item.items()}
    kinds = (Input, Step, LeftToTorch, Built, OperatorReport)
    return next(kind(**items) for kind in kinds if items.keys() <= kind.__dataclass_fields__.keys())


@dataclass(frozen=True)
class Method:
    """The regions of one method, and the operators left out."""

    name: str
    regions: tuple[RegionReport, ...]
    #: None when unknown: the method has plans of a submodule, and none of its own.
    left_out: tuple[LeftOut, ...] | None
    #: Why and where Dynamo ended a compiled graph; empty where it did not have to.
    graph_break: str = ""
    #: The order in which regions and operators left out run; empty where it is unknown.
    calls: tuple[CallReport, ...] = ()


@dataclass(frozen=True, repr=False)
class Explanation:
    """An explained module; ``str()`` of it is in the requested format."""

    methods: tuple[Method, ...]
    format: str = "text"
    #: The text when there is nothing to explain.
    hint: str = ""

    def text(self) -> str:
        """Return text for people."""
        if not self.methods:
            return f"this module has no plan: {self.hint}"
        return "\n\n".join("\n".join(_lines(_method(method))) for method in self.methods)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as ``json()`` writes it, in dicts and lists."""
        return {"methods": [dataclasses.asdict(method) for method in self.methods]}

    def json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.as_dict(), indent=2)

    def dot(self) -> str:
        """Return Graphviz's text of the regions with their operators, and what is left out."""
        lines = ["digraph zendnn {", "  node [shape=box, style=rounded];"]
        first = 0
        for number, method in enumerate(self.methods):
            for index, region in enumerate(method.regions, first):
                lines += _cluster_lines(index, f"{method.name}: {region.name}", region)
            lines += _outside_lines(number, method, first)
            first += len(method.regions)
        return "\n".join([*lines, "}"])

    def svg(self) -> str:
        """Return the drawing of ``dot()`` as SVG.

        Raises:
            RuntimeError: where Graphviz is not installed, which draws it.
        """
        if shutil.which("dot") is None:
            raise RuntimeError(
                "Graphviz draws SVG, and its program 'dot' is not installed; "
                "dot() returns the text that it takes"
            )
        command = ["dot", "-Tsvg"]
        drawn = subprocess.run(
            command, input=self.dot(), capture_output=True, encoding="utf-8", check=True
        )
        return drawn.stdout

    def __str__(self) -> str:
        return str(getattr(self, self.format)())

    __repr__ = __str__


_FORMATS = ("text", "json", "dot", "svg")


def explain(module: object, format: str = "text") -> Explanation:
    """Return what ZenDNN runs of an optimised module, what it does not run, and why.

    Args:
        module: one that was optimised for inference or compiled, or a program that
            ``torch.backends.zendnn.export`` returned, or the same saved and loaded.
        format: the format of the result's ``str()``: 'text', 'json', 'dot' or 'svg'.

    Implementations, memory and costs are those of the inputs that the module has seen so far.
    """
    if format not in _FORMATS:
        raise ValueError(f"there is no format {format!r}; the formats are {', '.join(_FORMATS)}")
    front_end = front_end_of(module)
    methods = []
    for found in front_end.optimized(module):
        regions = tuple(RegionReport.read(plan.explain()) for plan in found.plans)
        methods.append(Method(found.name, regions, found.left_out, found.graph_break, found.calls))
    return Explanation(tuple(methods), format, front_end.HOW_TO_OPTIMIZE)


# For people. A block of text is a list of lines, and of blocks that are indented below them.

Block = list[Any]


def _lines(block: Block, indent: str = "") -> Iterator[str]:
    for item in block:
        if isinstance(item, str):
            yield indent + item if item else item
        else:
            yield from _lines(item, indent + "  ")


def _method(method: Method) -> Block:
    operators = sum(len(region.operators) for region in method.regions)
    left_out = method.left_out or ()
    left = _counted(sum(item.count for item in left_out), "operator") if left_out else "nothing"
    regions = _counted(len(method.regions), "region")
    inside = f"{regions} of {_counted(operators, 'operator')}" if method.regions else "no region"
    block: Block = [
        f"{method.name}: {inside}" + ("" if method.left_out is None else f", {left} left out")
    ]
    if method.graph_break:
        block += ["", [f"ended by a graph break: {method.graph_break}"]]
    for region in method.regions:
        block += ["", _region(region)]
    if left_out:
        rows = [
            (str(item.count), _short((item.op,)), item.reason, _places(item.lines))
            for item in left_out
        ]
        block += ["", ["left out", table(rows, "><<<")]]
    return block


def _region(region: RegionReport) -> Block:
    counts = {"input": len(region.inputs), "output": len(region.outputs)}
    counts["constant"] = region.constants
    facts = [_counted(count, noun) for noun, count in counts.items()]
    if region.packed_bytes:
        facts.append(f"{_bytes(region.packed_bytes)} of packed weights")
    kinds = Counter((x.title, _short(x.does)) for x in region.operators)
    rows = [(str(n), title, does if does != title else "") for (title, does), n in kinds.items()]
    built = [_built(built) for built in region.built]
    nothing = ["nothing built yet: it has seen no inputs"]
    return [f"{region.name}: {', '.join(facts)}", table(rows, "><<"), *(built or [nothing])]


def _built(built: Built) -> Block:
    same = itertools.groupby(map(str, built.inputs))
    facts = [_times(len(list(items)), text) for text, items in same]
    if built.numbers:
        noun = "numbers" if built.numbers[1:] else "number"
        facts.append(f"{noun} {', '.join(map(str, built.numbers))}")
    inputs = ", ".join([*facts, _counted(built.threads, "thread")])
    if built.refused:
        return [f"refused for {inputs}: {built.refused}"]
    costs = [_gflop(built.gflop), f"{_bytes(built.arena_bytes)} arena"]
    if built.layout:
        costs.append(f"images {built.layout}")
    if copies := built.border_copies:
        costs.append(f"{copies} {'copy' if copies == 1 else 'copies'} at its borders")
    wrong = [f"struck off, since its results are wrong: {name}" for name in built.wrong]
    kinds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for step in built.steps:
        kinds[_short(step.does), step.implementation].append(step.gflop)
    rows = [
        (str(len(gflops)), *kind, _gflop(sum(gflops)) if any(gflops) else "")
        for kind, gflops in kinds.items()
    ]
    left = [(_short(x.operator), x.reason, f"{x.ms:.2f} ms") for x in built.left_to_torch]
    block: Block = [f"built for {inputs}: {', '.join(costs)}", wrong, table(rows, "><<>")]
    return [*block, "left to torch", table(left, "<<>")] if left else block


#: How many lines of a model text shows for one reason.
_MOST_PLACES = 3


def _places(lines: Strings) -> str:
    """Return where lines of a model are, by the names of their files alone."""
    places = [Path(line.partition(": ")[0]).name for line in lines]
    more = len(places) - _MOST_PLACES
    return ", ".join(places[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


def _short(operators: Sequence[str]) -> str:
    """Return the names of a model's operators, without the namespace of torch's own."""
    counts = Counter(name.removeprefix("aten::") for name in operators)
    return " + ".join(_times(count, name) for name, count in counts.items())


def _times(count: int, text: str) -> str:
    return text if count == 1 else f"{count} x {text}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _bytes(count: int) -> str:
    if count < 1024:
        return _counted(count, "byte")
    power = min((count.bit_length() - 1) // 10, 3)
    return f"{count / 1024**power:.1f} {'KMG'[power - 1]}iB"


def _gflop(gflop: float) -> str:
    for unit in ("Gflop", "Mflop"):
        if gflop >= 0.1:
            return f"{gflop:.2f} {unit}"
        gflop *= 1e3
    return f"{gflop:.2f} kflop"


# For Graphviz.

#: Of a box of operators, in characters.
_WIDTH = 60


def _cluster_lines(number: int, label: str, region: RegionReport) -> Iterator[str]:
    """Yield a region; edges from constants and to the model's other operators are left out."""
    makers: dict[str, str] = {}
    yield f"  subgraph cluster_{number} {{"
    yield f"    label={_quoted(label)};"
    for index, value in enumerate(region.inputs):
        makers[value] = f"r{number}_input_{index}"
        yield f"    {makers[value]} [label={_quoted(f'input {index}')}, shape=ellipse];"
    for index, operator in enumerate(region.operators):
        node = f"r{number}_operator_{index}"
        label = "\n".join(filter(None, [operator.title, _short(operator.does)]))
        yield f"    {node} [label={_quoted(label)}];"
        sources = dict.fromkeys(makers[name] for name in operator.operands if name in makers)
        yield from (f"    {source} -> {node};" for source in sources)
        makers.update(dict.fromkeys(operator.results, node))
    for index, value in enumerate(region.outputs):
        node = f"r{number}_output_{index}"
        yield f"    {node} [label={_quoted(f'output {index}')}, shape=ellipse];"
        yield f"    {makers[value]} -> {node};"
    yield "  }"


def _outside_lines(number: int, method: Method, first: int) -> Iterator[str]:
    """Yield the operators left out and the edges between calls, or a list where none are known.

    ``first`` is the number of the method's first region.
    """
    left_out = method.left_out or ()
    if left_out and not method.calls:
        rows = [f"{_times(item.count, _short((item.op,)))}: {item.reason}" for item in left_out]
        label = _quoted("\n".join([f"{method.name}: left out", *rows]))
        yield f"  m{number}_left_out [label={label}, style=dashed];"
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for item in left_out:
        reasons[item.op].append(item.reason)
    for index, call in enumerate(method.calls):
        node = f"m{number}_call_{index}"
        if call.plan is None:
            lines = textwrap.wrap(_short(call.operators), _WIDTH)
            lines += ["compiled by Inductor"] if call.operators[1:] else []
            lines += dict.fromkeys(why for name in call.operators for why in reasons[name])
            label = _quoted("\n".join(lines))
            yield f"  {node} [label={label}, style=dashed];"
        for position, read in enumerate(call.reads):
            if read is None:
                continue
            at, result = read
            maker = method.calls[at].plan
            source = f"m{number}_call_{at}"
            source = source if maker is None else f"r{first + maker}_output_{result}"
            target = node if call.plan is None else f"r{first + call.plan}_input_{position}"
            yield f"  {source} -> {target};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
