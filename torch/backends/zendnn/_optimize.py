"""``torch.backends.zendnn.optimize`` and ``export``: models and exported programs on plans."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch
import torch._inductor.compiler_bisector  # first, as torch.compile does in other threads

# isort: split
import torch._dynamo  # whole, before parts of it, which another thread may wait for
from torch import fx, nn
from torch._dynamo.convert_frame import compile_lock
from torch.backends.zendnn._options import Options
from torch.backends.zendnn.frontends import fx as front_end
from torch.backends.zendnn.frontends.fx.autocast import (
    PlannedProgram,
    autocast_dtype,
    keep_autocast,
)
from torch.backends.zendnn.frontends.fx.composites import functional
from torch.backends.zendnn.frontends.fx.program import with_plans
from torch.backends.zendnn.frontends.fx.release import read_from_plans
from torch.export import ExportedProgram, _trace
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP
from torch.utils._pytree import keystr, tree_leaves_with_path
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

log = logging.getLogger(__name__)


def optimize(
    model: nn.Module | ExportedProgram,
    inputs: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return a module for inference that computes what the model does, on ZenDNN's plans.

    Its weights are the model's of now. It is called as the model is, and it can be copied and
    pickled. It is made for autocast as that is now: under another state, the model runs as
    ``torch.export`` captured it, on eager operations.

    Args:
        model: a module in eval mode, or what ``torch.export.export`` returned.
        inputs: what a module is called with; also for its sizes, unless these are dynamic.
        kwargs: the arguments by name.
        dynamic_shapes: the sizes that may change, as ``torch.export.export`` takes them.
        options: ``passes``, ``precision``, ``emulate_precision_casts`` and ``tune``, as
            ``torch.compile`` takes them.

    A module that cannot be exported is traced with ``inputs``. A program that torch cannot make
    functional runs on eager operations. A warning says so in both cases.

    Raises:
        TypeError: for another kind of model, or of value of an option.
        ValueError: for a module in training mode, for inputs beside an exported program, and for an
            option that there is not.
    """
    checked, chosen = _checked(model, inputs, kwargs, dynamic_shapes), Options.of(options)
    with compile_lock:  # what torch traces is one thread's at a time
        if isinstance(checked, ExportedProgram):
            return _optimized(checked, chosen)
        try:
            program = _exported(checked, inputs, kwargs, dynamic_shapes)
        except Exception as error:
            _warn(
                "torch.export cannot capture the model, and it is traced: write the model so that "
                "it can, unless each input takes the branches that these inputs take "
                '(TORCH_LOGS="+zendnn" shows the graph so far)',
                error,
                level=3,
            )
            with torch.no_grad():
                traced: nn.Module = torch.jit.trace(
                    copy.copy(checked),
                    tuple(inputs),
                    example_kwarg_inputs=kwargs,
                    check_trace=False,
                )
                with chosen.applied():
                    return torch.jit.optimize_for_inference(torch.jit.freeze(traced))
        return _optimized(program, chosen)


def export(
    model: nn.Module | ExportedProgram,
    inputs: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] | None = None,
) -> ExportedProgram:
    """Return a program for inference that computes what the model does, on ZenDNN's plans.

    ``torch.export.save`` saves it, and ``torch._inductor.aoti_compile_and_package`` compiles it;
    both run wherever ZenDNN is loaded. Its weights are the model's, without gradients.

    Args:
        model: a module in eval mode, or what ``torch.export.export`` returned.
        inputs: what a module is called with; also for its sizes, unless these are dynamic.
        kwargs: the arguments by name.
        dynamic_shapes: the sizes that may change, as ``torch.export.export`` takes them.
        options: ``passes``, ``precision``, ``emulate_precision_casts`` and ``tune``, as
            ``torch.compile`` takes them.

    Raises:
        TypeError: for another kind of model, or of value of an option.
        ValueError: for a module in training mode, for inputs beside an exported program, and for an
            option that there is not.
        Exception: torch.export's, where that cannot capture the module or make it functional.
    """
    program, chosen = _checked(model, inputs, kwargs, dynamic_shapes), Options.of(options)
    # As in torch's own programs, autocast around the export changes nothing.
    with compile_lock, torch.autocast("cpu", enabled=False):
        if not isinstance(program, ExportedProgram):
            program = _exported(program, inputs, kwargs, dynamic_shapes)
        with chosen.applied():
            return _with_conditions(with_plans(functional(program)), program)


def _checked(
    model: nn.Module | ExportedProgram,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> nn.Module | ExportedProgram:
    """Return the model, if it can be taken with these arguments."""
    if isinstance(model, ExportedProgram):
        if inputs or kwargs or dynamic_shapes:
            raise ValueError(
                "an exported program has inputs and dynamic sizes of its own: leave out inputs, "
                "kwargs and dynamic_shapes"
            )
    elif not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise TypeError(
            "optimize and export take a torch.nn.Module or an ExportedProgram, not an object of "
            f"type {kind}: call a function in the forward of a module"
        )
    elif model.training:
        raise ValueError("the module is in training mode: call eval() first")
    return model


def _exported(
    model: nn.Module,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> ExportedProgram:
    _trace.print = _print_unless_quiet
    before = _quiet.set(True)
    try:
        with torch.no_grad():
            return torch.export.export(
                model, tuple(inputs), dict(kwargs or {}), dynamic_shapes=dynamic_shapes
            )
    except Exception as error:
        if graph := getattr(error, "partial_fx_graph", ""):
            log.debug("what torch.export captured before it failed:\n%s", graph)
        raise
    finally:
        _quiet.reset(before)


#: Whether this thread keeps torch.export from printing the graph so far where it fails.
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def _print_unless_quiet(*arguments: Any, **named: Any) -> None:
    """Print, in the place of Python's ``print`` in the module of torch.export that does so."""
    if not _quiet.get():
        print(*arguments, **named)


def _with_conditions(made: ExportedProgram, program: ExportedProgram) -> ExportedProgram:
    """Return what was made of a program, with what that asks of its inputs' sizes.

    torch writes the conditions anew for each program, and finds none where that was loaded.
    """
    if hasattr(program, "_guards_code"):  # older torches have none
        made._guards_code = program._guards_code
    return made


def _warn(what: str, error: Exception, level: int) -> None:
    if log.isEnabledFor(logging.WARNING):
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(f"{what}; torch says: {reason}", stacklevel=level)


def _optimized(program: ExportedProgram, options: Options) -> nn.Module:
    try:
        result = _with_conditions(functional(program), program)
    except Exception as error:
        _warn(
            "torch cannot make the program functional, and it runs as it is, on eager operations: "
            "write the operator that torch names without a write to a view",
            error,
            level=4,
        )
        return _as_it_is(program)
    source = _checking(result)
    with options.applied():
        planned = front_end.optimize(source, {})
    captured = _as_it_is(program)
    read_from_plans(planned, captured)
    return PlannedProgram(planned, captured, autocast_dtype())


def _as_it_is(program: ExportedProgram) -> fx.GraphModule:
    source = _checking(program)
    keep_autocast(source)
    # A plain module and graph can be pickled; torch's classes of both cannot.
    graph = fx.Graph()
    graph.set_codegen(copy.copy(source.graph._codegen))
    graph.output(graph.graph_copy(source.graph, {}))
    return fx.GraphModule(source, graph)


def _checking(program: ExportedProgram) -> fx.GraphModule:
    """Return a program's module, with a check of its inputs."""
    # torch's own check of the inputs cannot be pickled; older torches have none to switch off.
    switches = {"check_guards"} & inspect.signature(program.module).parameters.keys()
    source = program.module(**dict.fromkeys(switches, False))
    assert isinstance(source, fx.GraphModule)
    placeholders = [node for node in source.graph.nodes if node.op == "placeholder"]
    if placeholders:
        check = InputCheck.of(placeholders, program.range_constraints, _conditions(program, source))
        source.add_module(front_end.INPUT_CHECK, check)
        with source.graph.inserting_after(placeholders[-1]):
            source.graph.call_module(front_end.INPUT_CHECK, tuple(placeholders))
    return source


def _conditions(program: ExportedProgram, source: fx.GraphModule) -> list[str]:
    """Return what the model's code asked of its inputs' sizes, as Python texts with their names.

    The program has them in terms of the arguments that the user or, where export has flattened
    them, its tracer gave.
    """
    conditions = getattr(program, "_guards_code", ())  # older torches have none
    if not conditions or program.example_inputs is None:
        return []
    args, kwargs = program.example_inputs
    bound = inspect.signature(source.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    paths = [keystr(path) for path, _ in tree_leaves_with_path(bound.arguments)]
    names = [node.name for node in source.graph.nodes if node.op == "placeholder"]
    known: dict[str, str] = {}
    for i, (path, name) in enumerate(zip(paths, names, strict=True)):
        # An element of *args is an argument of its own here.
        star = re.sub(r"^\['(.+)_(\d+)'\]", r"['\1'][\2]", path)
        known |= {f"L{star}": name, f"L{path}": name, f"L['flat_args'][{i}]": name}
    texts = []
    for condition in conditions:
        for place, name in known.items():
            condition = condition.replace(place, name)
        texts.append(condition)
    return texts


@functools.lru_cache(maxsize=1024)
def _predicate(condition: str, names: tuple[str, ...]) -> Callable[..., bool]:
    """Return the function of the inputs that a text of torch's computes."""
    known = {**SYMPY_INTERP, "inf": math.inf}
    function: Callable[..., bool] = eval(f"lambda {', '.join(names)}: {condition}", known)
    return function


#: An input: a tensor's name, dtype and sizes, or another's name and value; None is not checked.
Expected = tuple[str, torch.dtype, list[int | str]] | tuple[str, Any] | None


#: What to do with other inputs.
_AGAIN = ": export the model again for it, or with dynamic_shapes for other sizes"


class InputCheck(nn.Module):
    """Refuses inputs of other dtypes, sizes and values than a program was exported for.

    A size that may change has a name, and is the same wherever that name is. Inputs that are not
    tensors have the values of the export. Where the model's code asked something of sizes, the
    answer is that of the export.
    """

    #: Keeps a call whose result nobody reads in its graph.
    _is_impure = True

    def __init__(
        self,
        expected: list[Expected],
        ranges: dict[str, tuple[float, float]],
        names: Sequence[str],
        conditions: Sequence[str],
    ) -> None:
        super().__init__()
        self.expected = expected
        #: The least and the largest number that a named size may be.
        self.ranges = ranges
        self.names = tuple(names)
        #: Texts, since functions made of them could not be pickled.
        self.conditions = list(conditions)

    @staticmethod
    def of(
        placeholders: Sequence[fx.Node],
        ranges: Mapping[Any, ValueRanges[Any]],
        conditions: Sequence[str],
    ) -> InputCheck:
        """Return the check of a graph's inputs, of which symbols have ranges."""
        expected: list[Expected] = []
        named: dict[str, tuple[float, float]] = {}
        for node in placeholders:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                sizes = [size if isinstance(size, int) else str(size) for size in value.shape]
                expected.append((node.name, value.dtype, sizes))
                for size in value.shape:
                    if isinstance(size, torch.SymInt) and size.node.expr.free_symbols:
                        named[str(size)] = _bounds(size.node.expr, ranges)
            elif isinstance(value, int | float | str):
                expected.append((node.name, value))
            else:
                expected.append(None)
        return InputCheck(expected, named, [node.name for node in placeholders], conditions)

    def forward(self, *arguments: Any) -> None:
        """Raise ValueError for an input of another dtype, size or value."""
        named: dict[int | str, int] = {}
        for x, expected in zip(arguments, self.expected, strict=True):
            match expected:
                case (name, dtype, sizes):
                    self._check(x, name, dtype, sizes, named)
                case (name, value) if not (x == value or (x != x and value != value)):
                    raise ValueError(
                        f"{name} is {x!r}; the program was exported for {value!r}{_AGAIN}"
                    )
        for condition in self.conditions:
            if not _predicate(condition, self.names)(*arguments):
                raise ValueError(f"the program was exported for inputs with {condition}{_AGAIN}")

    def _check(
        self,
        x: Any,
        name: str,
        dtype: torch.dtype,
        sizes: list[int | str],
        named: dict[int | str, int],
    ) -> None:
        fits = isinstance(x, torch.Tensor) and x.dtype == dtype and x.dim() == len(sizes)
        if not fits or any(
            size != (wanted if isinstance(wanted, int) else named.setdefault(wanted, size))
            for size, wanted in zip(x.shape, sizes, strict=True)
        ):
            is_tensor = isinstance(x, torch.Tensor)
            what = f"{x.dtype} {tuple(x.shape)}" if is_tensor else type(x).__name__
            wanted = ", ".join(map(str, sizes))
            raise ValueError(f"{name} is {what}; the program takes {dtype} ({wanted}){_AGAIN}")
        for size, symbol in zip(x.shape, sizes, strict=True):
            least, most = self.ranges.get(str(symbol), (0, math.inf))
            if not least <= size <= most:
                raise ValueError(
                    f"{name} is {tuple(x.shape)}; the program takes {symbol} from {least} to "
                    f"{most}{_AGAIN}"
                )


def _bounds(size: Any, ranges: Mapping[Any, ValueRanges[Any]]) -> tuple[float, float]:
    """Return the least and the largest number that a size may be.

    Export takes 0 and 1 for a size from 2 on, as torch's own check does.
    """
    known = bound_sympy(size, dict(ranges))
    least, most = (
        math.inf if bound > 2**62 else int(bound) for bound in (known.lower, known.upper)
    )
    return (0 if least <= 2 else least), most
