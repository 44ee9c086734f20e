"""What became of a model: its regions, what was built of them, what was left out, and why.

All of it comes from the plans that a module holds, so one that was saved and loaded is as good.
What depends on inputs (implementations, memory, costs) is known once a plan has seen some.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.backends.zendnn.frontends import LeftOut, front_end_of

#: How C++ calls the types of elements, where torch's Python calls them otherwise.
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}


@dataclass(frozen=True)
class Input:
    """A tensor's signature, as a plan has seen it."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        text = f"{self.dtype} {_tuple(self.sizes)}"
        return text if self._is_contiguous() else f"{text} strides {_tuple(self.strides)}"

    def _is_contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return 0 in self.sizes
            expected *= size
        return True


@dataclass(frozen=True)
class Step:
    """Something that a built plan runs: for which operators of the model, and how."""

    does: tuple[str, ...]
    implementation: str
    gflop: float


@dataclass(frozen=True)
class LeftToTorch:
    """Operators of the model that a built plan calls torch for, why, and what that costs."""

    operator: tuple[str, ...]
    reason: str
    #: Milliseconds of one run, timed on stand-ins for the operands when the plan was built.
    ms: float


@dataclass(frozen=True)
class Built:
    """What a plan made for one set of input shapes; nothing when it refused them."""

    inputs: tuple[Input, ...]
    numbers: tuple[int, ...]
    threads: int
    #: Why the model's own operators run for these inputs; empty when the plan does.
    refused: str = ""
    #: How images lie inside, 'channels last' or 'blocked'; empty when there are none.
    layout: str = ""
    #: Steps of a run that only bring an input or a result into another layout.
    border_copies: int = 0
    arena_bytes: int = 0
    gflop: float = 0.0
    steps: tuple[Step, ...] = ()
    #: Implementations that computed wrong results when they were tried, each with what for.
    wrong: tuple[str, ...] = ()
    left_to_torch: tuple[LeftToTorch, ...] = ()

    @staticmethod
    def read(entry: Mapping[str, Any]) -> Built:
        """Read an entry of what a plan explains."""
        steps = entry.get("steps", ())
        return Built(
            tuple(
                Input(_DTYPES.get(x["dtype"], x["dtype"]), tuple(x["sizes"]), tuple(x["strides"]))
                for x in entry["inputs"]
            ),
            tuple(entry["numbers"]),
            entry["threads"],
            entry.get("refused", ""),
            entry.get("layout", ""),
            entry.get("border_copies", 0),
            entry.get("arena_bytes", 0),
            entry.get("gflop", 0.0),
            tuple(Step(_labels(x["does"]), x["implementation"], x["gflop"]) for x in steps),
            tuple(entry.get("wrong", ())),
            tuple(
                LeftToTorch(_labels(x["operator"]), x["reason"], x["ms"])
                for x in entry.get("left_to_torch", ())
            ),
        )


@dataclass(frozen=True)
class Operator:
    """One line of a region's description."""

    name: str
    #: The operators of the model that it does.
    does: tuple[str, ...]
    results: tuple[str, ...]
    operands: tuple[str, ...]
    attributes: dict[str, str]
    #: As a description writes them; see docs/plan.md.
    post_ops: tuple[str, ...]

    @property
    def title(self) -> str:
        """What it is, with what is fused into it."""
        words = [self.name, *filter(None, [self.attributes.get("algorithm")])]
        after = [re.split("[:@]", post)[0] for post in self.post_ops]
        return " ".join(words) + (f", then {', '.join(after)}" if after else "")


@dataclass(frozen=True)
class Region:
    """Operators that run as one call, and what was built of them, the latest used first."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: int
    operators: tuple[Operator, ...]
    packed_bytes: int
    built: tuple[Built, ...]

    @staticmethod
    def read(text: str) -> Region:
        """Read what a plan explains."""
        plan = json.loads(text)
        inputs, outputs, constants, operators = [], [], 0, []
        for line in plan["description"].splitlines()[1:]:
            made, _, rest = line.partition(" = ")
            if made.startswith("return "):
                outputs = made.removeprefix("return ").split(", ")
            elif rest.startswith("input "):
                inputs.append(made)
            elif rest.startswith("constant "):
                constants += 1
            elif rest:
                operators.append(_operator(made, rest))
        return Region(
            plan["name"],
            tuple(inputs),
            tuple(outputs),
            constants,
            tuple(operators),
            plan["packed_bytes"],
            tuple(map(Built.read, plan["built"])),
        )


@dataclass(frozen=True)
class Method:
    """What became of one method."""

    name: str
    regions: tuple[Region, ...]
    #: None when nobody noted it: a method that has plans of a submodule, and none of its own.
    left_out: tuple[LeftOut, ...] | None


@dataclass(frozen=True, repr=False)
class Explanation:
    """What became of a module; ``str()`` of it is in the format that was asked for."""

    methods: tuple[Method, ...]
    format: str = "text"
    #: What to say when there is nothing to explain.
    hint: str = ""

    def text(self) -> str:
        """Return what people read."""
        if not self.methods:
            return f"this module has no plan: {self.hint}"
        return "\n\n".join("\n".join(_method_lines(method)) for method in self.methods)

    def as_dict(self) -> dict[str, Any]:
        """Return all that is known, in the shape that ``json()`` writes."""
        return {"methods": [dataclasses.asdict(method) for method in self.methods]}

    def json(self) -> str:
        """Return all that is known, as JSON."""
        return json.dumps(self.as_dict(), indent=2)

    def dot(self) -> str:
        """Return Graphviz's text of the regions and their operators."""
        lines = ["digraph zendnn {", "  node [shape=box, style=rounded];"]
        regions = ((method, region) for method in self.methods for region in method.regions)
        for number, (method, region) in enumerate(regions):
            lines += _cluster_lines(number, method, region)
        return "\n".join([*lines, "}"])

    def __str__(self) -> str:
        return _FORMATS[self.format](self)

    __repr__ = __str__


_FORMATS: dict[str, Callable[[Explanation], str]] = {
    "text": Explanation.text,
    "json": Explanation.json,
    "dot": Explanation.dot,
}


def explain(module: object, format: str = "text") -> Explanation:
    """Return what ZenDNN does of an optimised module, and what it does not, and why.

    Args:
        module: one that was optimised for inference, or the same saved and loaded.
        format: what ``str()`` and ``print`` make of the result: 'text', 'json' or 'dot'.

    Implementations, memory and costs are those of the inputs that the module has seen so far.
    """
    if format not in _FORMATS:
        raise ValueError(f"there is no format {format!r}; the formats are {', '.join(_FORMATS)}")
    front_end = front_end_of(module)
    methods = [
        Method(
            method.name,
            tuple(Region.read(plan.explain()) for plan in method.plans),
            method.left_out,
        )
        for method in front_end.optimized(module)
    ]
    return Explanation(tuple(methods), format, front_end.HOW_TO_OPTIMIZE)


def _labels(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split("+")))


def _operator(made: str, text: str) -> Operator:
    """Read ``operator(operands) key=value… # label``."""
    call, _, label = text.partition(" # ")
    name, _, rest = call.partition("(")
    operands, _, words = rest.partition(")")
    attributes = dict(word.split("=", 1) for word in words.split())
    post_ops = attributes.pop("post", "").split(";")
    return Operator(
        name,
        _labels(label),
        tuple(made.split(", ")),
        tuple(filter(None, operands.split(", "))),
        attributes,
        tuple(filter(None, post_ops)),
    )


# For people.


def _method_lines(method: Method) -> Iterator[str]:
    operators = sum(len(region.operators) for region in method.regions)
    left_out = method.left_out or ()
    left = _counted(sum(item.count for item in left_out), "operator") if left_out else "nothing"
    regions = _counted(len(method.regions), "region")
    inside = f"{regions} of {_counted(operators, 'operator')}" if method.regions else "no region"
    yield f"{method.name}: {inside}" + ("" if method.left_out is None else f", {left} left out")
    for region in method.regions:
        yield ""
        yield from _indented(_region_lines(region))
    if left_out:
        yield ""
        yield "  left out"
        rows = [(str(x.count), _short((x.op,)), x.reason) for x in left_out]
        yield from _indented(_table(rows, "><<"), "    ")


def _region_lines(region: Region) -> Iterator[str]:
    facts = [
        _counted(len(region.inputs), "input"),
        _counted(len(region.outputs), "output"),
        _counted(region.constants, "constant"),
    ]
    if region.packed_bytes:
        facts.append(f"{_bytes(region.packed_bytes)} of packed weights")
    yield f"{region.name}: {', '.join(facts)}"
    kinds = Counter((x.title, _short(x.does)) for x in region.operators)
    rows = [
        (str(count), title, "" if does == title else does) for (title, does), count in kinds.items()
    ]
    yield from _indented(_table(rows, "><<"))
    if not region.built:
        yield "  nothing built yet: it has seen no inputs"
    for built in region.built:
        yield from _indented(_built_lines(built))


def _built_lines(built: Built) -> Iterator[str]:
    same = itertools.groupby(map(str, built.inputs))
    facts = [_times(len(list(items)), text) for text, items in same]
    if built.numbers:
        facts.append(f"{'numbers' if built.numbers[1:] else 'number'} {_list(built.numbers)}")
    facts.append(_counted(built.threads, "thread"))
    inputs = ", ".join(facts)
    if built.refused:
        yield f"refused for {inputs}: {built.refused}"
        return
    costs = [_gflop(built.gflop), f"{_bytes(built.arena_bytes)} arena"]
    if built.layout:
        costs.append(f"images {built.layout}")
    if copies := built.border_copies:
        costs.append(f"{copies} {'copy' if copies == 1 else 'copies'} at its borders")
    yield f"built for {inputs}: {', '.join(costs)}"
    for name in built.wrong:
        yield f"  struck off, since its results are wrong: {name}"
    kinds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for step in built.steps:
        kinds[_short(step.does), step.implementation].append(step.gflop)
    rows = [
        (str(len(gflops)), *kind, _gflop(sum(gflops)) if any(gflops) else "")
        for kind, gflops in kinds.items()
    ]
    yield from _indented(_table(rows, "><<>"))
    if built.left_to_torch:
        yield "left to torch"
        left = [(_short(x.operator), x.reason, f"{x.ms:.2f} ms") for x in built.left_to_torch]
        yield from _indented(_table(left, "<<>"))


def _table(rows: Sequence[Sequence[str]], alignments: str) -> list[str]:
    """Return rows as lines, with each column aligned to the left (<) or to the right (>)."""
    columns = zip(*rows, strict=True) if rows else [()] * len(alignments)
    widths = [max(map(len, column), default=0) for column in columns]
    formats = [f"{side}{width}" for side, width in zip(alignments, widths, strict=True)]
    return ["  ".join(map(format, row, formats)).rstrip() for row in rows]


def _indented(lines: Iterable[str], by: str = "  ") -> Iterator[str]:
    return (by + line for line in lines)


def _short(operators: Sequence[str]) -> str:
    """Return the names of a model's operators, without the namespace of torch's own."""
    counts = Counter(name.removeprefix("aten::") for name in operators)
    return " + ".join(_times(count, name) for name, count in counts.items())


def _times(count: int, text: str) -> str:
    return text if count == 1 else f"{count} x {text}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _tuple(numbers: Sequence[int]) -> str:
    return str(tuple(numbers))


def _bytes(count: int) -> str:
    if count < 1024:
        return _counted(count, "byte")
    size, units = count / 1024, iter(("KiB", "MiB", "GiB"))
    unit = next(units)
    while size >= 1024 and unit != "GiB":
        size, unit = size / 1024, next(units)
    return f"{size:.1f} {unit}"


def _gflop(gflop: float) -> str:
    for unit in ("Gflop", "Mflop"):
        if gflop >= 0.1:
            return f"{gflop:.2f} {unit}"
        gflop *= 1e3
    return f"{gflop:.2f} kflop"


# For Graphviz.


def _cluster_lines(number: int, method: Method, region: Region) -> Iterator[str]:
    """Yield a region; edges from constants and to the model's other operators are left out."""
    makers: dict[str, str] = {}
    yield f"  subgraph cluster_{number} {{"
    yield f"    label={_quoted(f'{method.name}: {region.name}')};"
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


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
