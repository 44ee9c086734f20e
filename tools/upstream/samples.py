"""Upstream's sample inputs of each operator (its OpInfos) through the backend `zendnn`.

    python -m tools.upstream.samples [--imported] [--most N] [--dynamo] [NAME…]

Each sample runs up to three ways: all of its tensors are inputs, all but the first one are weights,
and in place. The backend gets the calls as Dynamo would hand them over, and makes plans of even the
lightest; with `--dynamo` they come from Dynamo itself, and all is as users have it. A case is lost
when its results, its writes or the memory that they share differ from stock torch's in eager mode.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import sys
import warnings
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.backends.zendnn import _compile
from torch.backends.zendnn.frontends.aten import IMPORTERS
from torch.backends.zendnn.passes import partition
from torch.utils import _pytree as pytree

from tools.backend_log import first_line, listening
from tools.setup_helpers.options import positive

DTYPES = (torch.float32, torch.bfloat16, torch.int64)
WAYS = ("inputs", "weights", "in place")
#: OpInfos whose results hold what nobody wrote.
UNDEFINED = frozenset(
    ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)
#: Names of OpInfos that the engine imports under other names, such as index.Tensor.
COMPOSED = frozenset(
    (
        "__getitem__",
        "__radd__",
        "__rmul__",
        "__rsub__",
        "interpolate",
        "upsample_bilinear",
        "upsample_nearest",
        "multi_head_attention_forward",
        "softmin",
        "softsign",
        "normalize",
    )
)
#: What plans do not hold runs as in eager mode.
OPTIONS = {"rest": "eager"}
#: How many times as far from float64's result as stock's a result may be.
WORSE = 4
#: Cases that one graph has, at most.
TOGETHER = 16


class Call(nn.Module):  # type: ignore[misc]
    """A call of an operator, some of whose tensors are weights; the others are its inputs."""

    def __init__(self, function: Callable[..., Any], tree: Any, weights: Sequence[int]) -> None:
        super().__init__()
        self.function = function
        leaves, self.spec = pytree.tree_flatten(tree)
        places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.weights = [places[number] for number in weights]
        self.places = [at for at in places if at not in self.weights]
        self.others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        for at in self.weights:
            self.register_buffer(f"weight_{at}", leaves[at])

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        leaves = list(self.others)
        for at in self.weights:
            leaves[at] = getattr(self, f"weight_{at}")
        for at, x in zip(self.places, inputs, strict=True):
            leaves[at] = x
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.function(*args, **kwargs))
        return [leaf for leaf in results if isinstance(leaf, Tensor)]


class Calls(nn.Module):  # type: ignore[misc]
    """Several calls, one after the other."""

    def __init__(self, calls: Iterable[Call]) -> None:
        super().__init__()
        self.calls = nn.ModuleList(calls)
        #: How many results each of them has.
        self.counts: list[int] = []

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        arguments, results, counts = list(inputs), [], []
        for call in self.calls:
            own = call(*[arguments.pop(0) for _ in call.places])
            counts.append(len(own))
            results += own
        self.counts = counts
        return results


@dataclass(frozen=True)
class Case:
    """One way to run one sample of an OpInfo."""

    name: str
    dtype: torch.dtype
    number: int
    way: str
    call: Call = field(repr=False)
    inputs: list[Tensor] = field(repr=False)

    def is_odd(self) -> bool:
        """Whether it has empty tensors, or those of no dimensions, which plans may refuse."""
        return not all(x.numel() and x.dim() for x in (*self.inputs, *self.call.buffers()))

    def __str__(self) -> str:
        return f"{self.name} {_words(self.dtype)} {self.number} ({self.way})"


@dataclass(frozen=True)
class Verdict:
    """What became of a case.

    ``outcome``: passed; lost; left (passed, but the backend left the graph as it was); skipped
    (stock raises or does not repeat its results, or AOTAutograd changes them without plans).
    """

    case: Case
    outcome: str
    detail: str = ""
    #: Whether steps of plans ran in its graph.
    planned: bool = False


@dataclass(frozen=True)
class Run:
    """What a call returned, its inputs and weights afterwards, and which of these share memory."""

    results: list[Tensor]
    given: list[Tensor]
    shared: frozenset[tuple[int, int]]

    @staticmethod
    def of(results: list[Tensor], arguments: list[Tensor], *, defined: bool = True) -> Run:
        """Look at what a call made of its inputs and weights."""
        memory = [
            x.untyped_storage().data_ptr() if x.numel() else 0 for x in (*results, *arguments)
        ]
        pairs = itertools.product(range(len(results)), range(len(memory)))
        same = ((i, j) for i, j in pairs if i != j and memory[i] and memory[i] == memory[j])
        return Run(results if defined else [x.zero_() for x in results], arguments, frozenset(same))


#: Returns calls with these inputs, compiled.
Compiler = Callable[[Calls, Sequence[Tensor]], Callable[..., Any]]


def infos() -> list[Any]:
    """Return upstream's OpInfos."""
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def imported() -> list[Any]:
    """Return those of operators that the engine imports, by name."""
    names = {key.removeprefix("aten::").partition(".")[0] for key in IMPORTERS} | COMPOSED
    return [info for info in infos() if names & {info.aten_name, info.name.rpartition(".")[2]}]


def cases(info: Any, most: int | None = None) -> Iterator[Case]:
    """Yield the cases of an OpInfo: of all samples, or for each dtype of ``most`` of them.

    A hash draws these.
    """
    name = info.formatted_name
    for dtype in DTYPES:
        if dtype not in info.dtypes:
            continue
        torch.manual_seed(0)
        samples = list(info.sample_inputs("cpu", dtype))
        numbers: Sequence[int] = range(len(samples))
        if most is not None:
            drawn = {zlib.crc32(f"{name} {dtype} {n}".encode()): n for n in numbers}
            numbers = sorted(drawn[key] for key in sorted(drawn)[:most])
        for way, number in itertools.product(WAYS, numbers):
            result = _case(info, samples[number], way)
            if result is not None:
                yield Case(name, dtype, number, way, *result)


def _case(info: Any, sample: Any, way: str) -> tuple[Call, list[Tensor]] | None:
    """Return the call that a sample makes one way, and its inputs; None if there is none."""
    function = info.inplace_variant if way == "in place" else info.op
    tree = (sample.input, *sample.args), sample.kwargs
    tensors = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
    weights = range(1, len(tensors)) if way == "weights" else ()
    if function is None or not all(_is_dense(x) for x in tensors):
        return None
    if (way == "weights" and not weights) or (way == "in place" and sample.broadcasts_input):
        return None
    return Call(function, tree, weights), tensors[:1] if weights else tensors


def _is_dense(x: Tensor) -> bool:
    return bool(x.layout == torch.strided and x.device.type == "cpu")


# Ways to compile.


def _captured(calls: Calls, count: int) -> fx.GraphModule:
    """Return a graph of calls, which says of itself that its buffers are weights."""
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(f"input_{number}") for number in range(count))
    graph.output(graph.call_module("calls", inputs))
    root = nn.Module()
    root.add_module("calls", calls)
    module = fx.GraphModule(root, graph)
    module.meta["dynamo_compile_id"] = None
    return module


def directly(calls: Calls, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    """Compile with the backend, without Dynamo."""
    with tracing(TracingContext(FakeTensorMode())):
        result: Callable[..., Any] = _compile.compile_graph(
            _captured(calls, len(inputs)), inputs, options=OPTIONS
        )
    return result


def through_dynamo(calls: Calls, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    """Compile with ``torch.compile``."""
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(
        calls, backend="zendnn", dynamic=False, options=OPTIONS
    )
    return compiled


def without_plans(calls: Calls, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    """Compile with AOTAutograd alone."""
    with tracing(TracingContext(FakeTensorMode())):
        result: Callable[..., Any] = aot_module_simplified(
            _captured(calls, len(inputs)),
            inputs,
            fw_compiler=lambda graph, _: graph.forward,
            keep_inference_input_mutations=True,
        )
    return result


@contextlib.contextmanager
def plans_of_all() -> Iterator[None]:
    """Make plans of all that plans can hold, however light."""
    with mock.patch.multiple(partition, LIGHT=frozenset(), ENOUGH=1):
        yield


# Comparison.


def check(some: Sequence[Case], compiler: Compiler = directly) -> list[Verdict]:
    """Run cases in one compiled graph, and compare them with stock torch's eager mode."""
    unfit = {id(case): reason for case in some if (reason := _unfit(case))}
    fit = [case for case in some if id(case) not in unfit]
    verdicts = [Verdict(case, "skipped", unfit[id(case)]) for case in some if id(case) in unfit]
    if not fit:
        return verdicts
    for verdict in _compare(fit, compiler):
        case = verdict.case
        if verdict.outcome != "passed" and len(fit) > 1:
            verdicts += check([case], compiler)
        elif verdict.outcome == "lost" and _compare([case], without_plans)[0].outcome == "lost":
            verdicts.append(Verdict(case, "skipped", f"without plans, too: {verdict.detail}"))
        else:
            verdicts.append(verdict)
    return verdicts


def _copied(cases: Sequence[Case]) -> tuple[Calls, list[list[Tensor]]]:
    """Return the calls and the inputs of cases, in memory of their own."""
    calls, inputs = zip(*(copy.deepcopy((case.call, case.inputs)) for case in cases), strict=True)
    return Calls(calls), list(inputs)


def _stock(cases: Sequence[Case]) -> list[Run]:
    """Run cases on stock torch in eager mode, with random numbers that start anew."""
    calls, inputs = _copied(cases)
    torch.manual_seed(0)
    with torch.no_grad(), torch.backends.zendnn.flags(enabled=False):
        return [
            Run.of(
                call(*arguments), [*arguments, *call.buffers()], defined=case.name not in UNDEFINED
            )
            for case, call, arguments in zip(cases, calls.calls, inputs, strict=True)
        ]


def _unfit(case: Case) -> str:
    """Return why a case says nothing, if it does not."""
    try:
        first, second = _stock([case]), _stock([case])
    except Exception as error:
        return f"stock raises {first_line(error)}"
    return "stock does not repeat its results" if _difference(case, *first, *second) else ""


def _compare(cases: Sequence[Case], compiler: Compiler) -> list[Verdict]:
    """Run cases, compiled, and compare them; what is said of one may be the fault of another."""
    stock = _stock(cases)
    calls, inputs = _copied(cases)
    flat = [x for arguments in inputs for x in arguments]
    with torch.no_grad(), listening() as left, torch.backends.zendnn.record() as events:
        try:
            compiled = compiler(calls, flat)
            torch.manual_seed(0)
            results = list(compiled(*flat))
        except Exception as error:
            return [Verdict(case, "lost", first_line(error)) for case in cases]
    planned = any(event.route == "plan" for event in events)
    verdicts = []
    for case, call, arguments, theirs in zip(cases, calls.calls, inputs, stock, strict=True):
        own = [results.pop(0) for _ in theirs.results]
        ours = Run.of(own, [*arguments, *call.buffers()], defined=case.name not in UNDEFINED)
        difference = _difference(case, ours, theirs)
        outcome = "lost" if difference else "left" if left else "passed"
        verdicts.append(Verdict(case, outcome, difference or next(iter(left), ""), planned))
    return verdicts


def _difference(case: Case, ours: Run, stock: Run) -> str:
    """Return how a run differs from stock's beyond rounding; nothing if it does not."""
    if ours.shared != stock.shared:
        return f"shares memory as {sorted(ours.shared)}, stock as {sorted(stock.shared)}"
    pairs = zip((*ours.results, *ours.given), (*stock.results, *stock.given), strict=True)
    for number, (mine, theirs) in enumerate(pairs):
        if _type(mine) != _type(theirs):
            return f"tensor {number} is {_type(mine)}, of stock {_type(theirs)}"
        try:
            torch.testing.assert_close(mine, theirs, equal_nan=True, check_stride=False)
        except AssertionError as error:
            right = _exact(case, number)
            if right is None or not _is_near(mine, theirs, right):
                return f"tensor {number}: {' '.join(str(error).split())[:300]}"
    return ""


#: What float64 stands for, where it decides.
_NARROW = (torch.float32, torch.bfloat16)


def _exact(case: Case, number: int) -> Tensor | None:
    """Return a tensor of a case as stock torch computes it in float64; None if it does not."""
    calls, (inputs,) = _copied([case])
    (call,) = calls.double().calls
    assert isinstance(call, Call)
    call.others = [torch.float64 if leaf in _NARROW else leaf for leaf in call.others]
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad(), torch.backends.zendnn.flags(enabled=False):
        try:
            return [*call(*wide), *wide, *call.buffers()][number]
        except Exception:
            return None


def _is_near(ours: Tensor, stock: Tensor, right: Tensor) -> bool:
    """Whether a result is right, or about as far from float64's as stock's."""
    if right.dtype != torch.float64 or right.shape != ours.shape:
        return False
    rounded = right.to(ours.dtype)
    finite = ours.isfinite() & rounded.isfinite()
    if not torch.equal(ours[~finite].nan_to_num(7), rounded[~finite].nan_to_num(7)):
        return False
    mine, theirs = ((x.double() - right)[finite].abs() for x in (ours, stock))
    rtol, atol = torch.testing._comparison.default_tolerances(ours)
    noise = WORSE * theirs.nan_to_num(0, 0, 0).max() if len(theirs) else 0
    return bool((mine <= noise + atol + rtol * right[finite].abs()).all())


def _words(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _type(x: Tensor) -> str:
    return f"{_words(x.dtype)}{list(x.shape)}"


def run(
    chosen: Iterable[Any], compiler: Compiler = directly, most: int | None = None
) -> Iterator[Verdict]:
    """Check OpInfos, with several cases of one in a graph; odd ones apart."""
    for info in chosen:
        of_one = sorted(cases(info, most), key=Case.is_odd)
        for _, alike in itertools.groupby(of_one, key=Case.is_odd):
            while batch := list(itertools.islice(alike, TOGETHER)):
                yield from check(batch, compiler)


def report(verdicts: Iterable[Verdict]) -> Counter[str]:
    """Print what was lost as it comes, then why cases say little, and counts; return these."""
    counts: Counter[str] = Counter()
    others: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    operators: defaultdict[bool, set[str]] = defaultdict(set)
    for verdict in verdicts:
        counts[verdict.outcome] += 1
        operators[verdict.planned].add(verdict.case.name)
        if verdict.outcome == "lost":
            print(f"lost: {verdict.case}: {verdict.detail}", flush=True)
        elif verdict.detail:
            others[verdict.outcome, verdict.detail][verdict.case.name] = None
    for (outcome, detail), names in sorted(others.items()):
        print(f"{outcome}: {', '.join(names)}: {detail}")
    total = len(operators[True] | operators[False])
    print(f"{total} operators, {len(operators[True])} of them in plans; cases: {dict(counts)}")
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (1 for lost cases)."""
    parser = argparse.ArgumentParser(prog="python -m tools.upstream.samples", description=__doc__)
    parser.add_argument("--most", type=positive(int), help="samples of each OpInfo and dtype")
    parser.add_argument("--imported", action="store_true", help="operators that we import only")
    parser.add_argument("--dynamo", action="store_true", help="compile through Dynamo")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of an OpInfo (default: all)")
    parsed = parser.parse_args(arguments)
    known = {info.formatted_name: info for info in (imported if parsed.imported else infos)()}
    if unknown := parsed.names and set(parsed.names) - known.keys():
        parser.error(f"there is no OpInfo '{min(unknown)}'")
    chosen = [known[name] for name in parsed.names] or known.values()
    warnings.simplefilter("ignore")
    with contextlib.nullcontext() if parsed.dynamo else plans_of_all():
        compiler = through_dynamo if parsed.dynamo else directly
        return int(report(run(chosen, compiler, parsed.most))["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
