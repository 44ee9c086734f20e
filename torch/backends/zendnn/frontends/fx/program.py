"""Writes exported programs: in the place of each region a program calls ``zendnn::run_region``.

The operator is given what a plan is made from, as tensors, numbers and text, since these are what
``torch.export.save`` writes and what AOTInductor calls operators with.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch.backends.zendnn import _C
from torch.backends.zendnn.frontends import Optimized, count_left_out
from torch.backends.zendnn.frontends import fx as front_end
from torch.backends.zendnn.frontends.constants import place_of, without_gradient
from torch.backends.zendnn.frontends.fx import autocast, report
from torch.backends.zendnn.frontends.fx.calls import CODES, hint_of, name_of
from torch.backends.zendnn.frontends.fx.logs import line_of
from torch.backends.zendnn.frontends.fx.reader import attribute, output_of
from torch.backends.zendnn.frontends.fx.writer import PlannedRegion
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputSpec,
    TensorArgument,
)
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

#: One of sympy's.
Expression = Any
#: The description, the constants and the name of a region's plan.
Texts = tuple[str, list[Tensor], str]

#: The operator, and what it is given.
CALL = torch.ops.zendnn.run_region.default
#: That, and what it is taken apart into, which does not obey autocast.
_CALLS = frozenset({CALL, torch.ops.zendnn.run_region.typed})
_ARGUMENTS = tuple(argument.name for argument in CALL._schema.arguments)
#: Under which key a program's ``meta['custom']``, which is saved with it, has each operator that
#: was left out, why, and its line in the model.
_LEFT_OUT = "zendnn_left_out"
#: Added to the dtype of a result that autocast lowers; Region.cpp has the same.
_LOWERED = 1 << 8


def with_plans(program: ExportedProgram) -> ExportedProgram:
    """Return a program that computes what another one does, with calls of planned regions.

    Args:
        program: a functional one of aten operators, as ``run_decompositions`` returns it.

    Its weights are the program's, but need no gradient. Those that plans have folded into others
    are left out, and new ones are constants.
    """
    return _Writer(program).written()


class Unstated(Exception):
    """What the operator cannot be told of a region."""


class _Writer:
    def __init__(self, program: ExportedProgram) -> None:
        signature = program.graph_signature
        self.program = program
        self.held: dict[str, Any] = {**program.state_dict, **program.constants}
        self.written_to = set(signature.buffers_to_mutate.values())
        known = {
            spec.arg.name: self.held[spec.target].detach()
            for spec in signature.input_specs
            if spec.target not in self.written_to
            and isinstance(self.held.get(spec.target or ""), Tensor)
        }
        self.texts: dict[str, Texts] = {}
        autocast.note_lowered(program.graph_module)
        self.module = front_end.optimize(program.graph_module, known, self._make_plan)
        self.graph = self.module.graph
        notes = front_end.noted(self.module)
        self.left_out = [] if notes is None else list(notes.left_out)
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        self.first = next(iter(self.graph.nodes))
        #: The nodes that hold constants, by what tells these apart.
        self.constants = {place_of(known[n.target]): n for n in placeholders if n.target in known}
        self.added: dict[fx.Node, Tensor] = {}
        #: The nodes that hold sizes.
        self.sizes: dict[Expression, fx.Node] = {}

    def _make_plan(self, description: str, constants: list[Tensor], name: str) -> Any:
        self.texts[name] = description, constants, name
        return front_end.make_plan(description, constants, name)

    def written(self) -> ExportedProgram:
        for node in list(self.graph.nodes):
            region = self._region(node)
            if region is None:
                continue
            with self.graph.inserting_before(node):
                try:
                    self._call(node, region)
                except Unstated as error:
                    self._inline(node, region.original, str(error))
        self.graph.eliminate_dead_code()
        self._name_constants()
        self.graph.lint()
        inputs = [self._input(node) for node in self.graph.nodes if node.op == "placeholder"]
        kept = {spec.target for spec in inputs if spec is not None}
        added = {node.name: tensor for node, tensor in self.added.items()}
        result = ExportedProgram(
            _attributes(self.module),
            self.graph,
            ExportGraphSignature([spec for spec in inputs if spec is not None], self._outputs()),
            {
                name: without_gradient(held)
                for name, held in self.program.state_dict.items()
                if name in kept
            },
            self.program.range_constraints,
            self.program.module_call_graph,
            self.program.example_inputs,
            {**{n: c for n, c in self.program.constants.items() if n in kept}, **added},
            verifiers=self.program.verifiers,
        )
        custom = self.program.graph_module.meta.get("custom", {})
        result.graph_module.meta["custom"] = {**custom, _LEFT_OUT: self.left_out}
        return result

    def _region(self, node: fx.Node) -> PlannedRegion | None:
        called = attribute(self.module, node) if node.op == "call_module" else None
        return called if isinstance(called, PlannedRegion) else None

    # Regions

    def _call(self, node: fx.Node, region: PlannedRegion) -> None:
        """Put the operator's call in the place of a region's."""
        description, constants, name = texts = self.texts[str(node.target)]
        users = sorted(node.users, key=lambda it: it.args[1])
        results = [user.meta["val"] for user in users]
        count, numbers, _ = region.signature
        arguments = [read for read in node.args if isinstance(read, fx.Node)]
        tensors, counts = arguments[:count], arguments[count : count + numbers]
        _check(texts, [n.meta["val"] for n in tensors], [n.meta["val"] for n in counts], results)
        if not tensors and not constants:
            raise Unstated("a region that reads numbers only")
        types = [part for user in users for part in self._type(user)]
        call = self.graph.call_function(
            CALL,
            # AOTInductor takes no empty lists.
            (
                [*tensors, *map(self._constant, constants)],
                counts or None,
                types,
                len(constants),
                description,
                name,
            ),
        )
        call.meta["val"] = results
        node.replace_all_uses_with(call)
        self.graph.erase_node(node)

    def _inline(self, node: fx.Node, original: fx.GraphModule, why: str) -> None:
        """Put a region's own operators in the place of its call."""
        arguments = iter(node.args)
        copies: dict[fx.Node, Any] = {}
        for inner in original.graph.nodes:
            if inner.op == "placeholder":
                copies[inner] = next(arguments)
            elif inner.op == "get_attr":
                copies[inner] = self._constant(attribute(original, inner))
            elif inner.op != "output":
                copies[inner] = self.graph.node_copy(inner, copies.__getitem__)
                if inner.target != operator.getitem:
                    self.left_out.append((name_of(inner), why, line_of(inner)))
        (results,) = output_of(original.graph).args
        assert isinstance(results, tuple)
        for user in list(node.users):
            user.replace_all_uses_with(copies[results[user.args[1]]])
            self.graph.erase_node(user)
        self.graph.erase_node(node)

    def _name_constants(self) -> None:
        """Make the tensors that were folded, and are read outside of regions, constants."""
        for node in self.graph.find_nodes(op="get_attr"):
            held = attribute(self.module, node)
            if isinstance(held, Tensor):
                node.replace_all_uses_with(self._constant(held))
                self.graph.erase_node(node)

    def _constant(self, tensor: Tensor) -> fx.Node:
        """Return the input of the graph that holds a constant."""
        key = place_of(tensor)
        if key not in self.constants:
            with self.graph.inserting_before(self.first):
                node = self.graph.placeholder(f"zendnn_constant_{len(self.added)}")
            if tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size():
                tensor = tensor.clone()  # of a part, and not of all that it is a part of
            fake_mode = torch._guards.detect_fake_mode(
                [read.meta.get("val") for read in self.graph.nodes if read.op == "placeholder"]
            )
            assert fake_mode is not None
            node.meta["val"] = fake_mode.from_tensor(tensor, static_shapes=True)
            self.constants[key] = node
            self.added[node] = tensor
        return self.constants[key]

    # Sizes

    def _type(self, result: fx.Node) -> list[int | fx.Node]:
        """Return what the operator is told of a result: dtype, rank, sizes and strides."""
        output = result.meta["val"]
        dtype = CODES[output.dtype] + (_LOWERED if result.meta.get(autocast.LOWERS) else 0)
        return [dtype, output.dim(), *map(self._size, (*output.shape, *output.stride()))]

    def _size(self, size: int | SymInt) -> int | fx.Node:
        if not isinstance(size, SymInt):
            return size
        expression = size.node.expr
        if expression.is_Integer:
            return int(expression)
        if expression not in self.sizes:
            node = self._known_size(expression)
            if node is None:
                symbols = {symbol: self._known_size(symbol) for symbol in expression.free_symbols}
                if not all(symbols.values()):
                    raise Unstated(f"the size {expression} depends on data")
                proxies = {symbol: fx.Proxy(n) for symbol, n in symbols.items() if n is not None}
                node = sympy_interp(PythonReferenceAnalysis, proxies, expression).node
                _infer(node)
            self.sizes[expression] = node
        return self.sizes[expression]

    def _known_size(self, expression: Expression) -> fx.Node | None:
        """Return a node with the size that an input of the graph has, or is."""
        if expression in self.sizes:
            return self.sizes[expression]
        for node in self.graph.nodes:
            value = node.meta.get("val") if node.op == "placeholder" else None
            if isinstance(value, SymInt) and value.node.expr == expression:
                return node
            for dim, size in enumerate(value.shape if isinstance(value, Tensor) else ()):
                if isinstance(size, SymInt) and size.node.expr == expression:
                    found = self.graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
                    found.meta["val"] = size
                    self.sizes[expression] = found
                    return found
        return None

    # The signature

    def _input(self, node: fx.Node) -> InputSpec | None:
        """Return what an input of the graph is; None for one that was erased, a weight unused."""
        if node in self.added:
            argument = TensorArgument(name=node.name)
            return InputSpec(InputKind.CONSTANT_TENSOR, argument, target=node.name)
        specs = self.program.graph_signature.input_specs
        # A name may have become another; what it was made from has not.
        spec = next(spec for spec in specs if spec.arg.name == node.target)
        is_weight = isinstance(self.held.get(spec.target or ""), Tensor)
        if is_weight and not node.users and spec.target not in self.written_to:
            self.graph.erase_node(node)
            return None
        return replace(spec, arg=replace(spec.arg, name=node.name))

    def _outputs(self) -> list[OutputSpec]:
        (results,) = output_of(self.graph).args
        assert isinstance(results, tuple | list)
        return [
            replace(spec, arg=replace(spec.arg, name=result.name))
            if isinstance(result, fx.Node)
            else spec
            for spec, result in zip(self.program.graph_signature.output_specs, results, strict=True)
        ]


def _attributes(module: fx.GraphModule) -> dict[str, Any]:
    """Return what a graph reads of its module: the graphs of control flow."""
    read = (node for node in module.graph.nodes if node.op == "get_attr")
    return {str(node.target): attribute(module, node) for node in read}


def _infer(node: fx.Node) -> None:
    """Note the values of a node of arithmetic and of those that it reads."""
    waiting = [node]
    while waiting:
        last = waiting[-1]
        if unknown := [read for read in last.all_input_nodes if "val" not in read.meta]:
            waiting += unknown
            continue
        assert callable(last.target)
        last.meta["val"] = last.target(*fx.map_arg(last.args, lambda read: read.meta["val"]))
        waiting.pop()


def _check(
    texts: Texts, tensors: Sequence[Tensor], numbers: Sequence[Any], results: Sequence[Tensor]
) -> None:
    """Raise Unstated unless torch's own operators can stand in for a plan of a region.

    They are asked for the sizes that the program was exported with.
    """
    description, constants, name = texts
    on_meta = [constant.to("meta") for constant in constants]
    plan = torch.classes.zendnn.Plan(description, on_meta, name)
    arguments = [_example(tensor) for tensor in tensors]
    try:
        output = plan.interpret(arguments, [_hint(number) for number in numbers])
    except (RuntimeError, ValueError, IndexError) as error:
        raise Unstated(str(error)) from error
    wanted = [(result.dtype, _hints(result.shape)) for result in results]
    if [(result.dtype, tuple(result.shape)) for result in output] != wanted:
        raise Unstated("torch's own operators make other results")


def _example(tensor: Tensor) -> Tensor:
    sizes, strides = _hints(tensor.shape), _hints(tensor.stride())
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="meta")


def _hints(sizes: Sequence[Any]) -> tuple[int, ...]:
    return tuple(map(_hint, sizes))


def _hint(size: Any) -> int:
    known = hint_of(size)
    if known is None:
        raise Unstated(f"the size {size} depends on data")
    return int(known)


# What a program says of itself.


def is_planned(model: object) -> bool:
    """Return whether a model is a program that this made, or the module of one."""
    if not isinstance(model, ExportedProgram | fx.GraphModule):
        return False
    return _noted(model) is not None or any(True for _ in _calls(model))


def planned(program: ExportedProgram | fx.GraphModule) -> Optimized:
    """Return the plans of a program's regions, and what was left out if the program has noted it.

    A region that has not run has a plan that nobody else knows.
    """
    holds = _holds(program)
    plans: dict[fx.Node, Any] = {}

    def call_of(node: fx.Node) -> tuple[Any, Sequence[fx.Node], Sequence[fx.Node]] | None:
        if node.target not in _CALLS:
            return None
        arguments = {**dict(zip(_ARGUMENTS, node.args, strict=False)), **node.kwargs}
        tensors: Any = arguments["tensors"]
        numbers: Any = arguments["numbers"] or ()
        count = len(tensors) - arguments["constants"]
        constants = [holds(read) for read in tensors[count:]]
        text, name = str(arguments["description"]), str(arguments["name"])
        plan = _C._plan_of_region(constants, text, name)
        plans[node] = front_end.make_plan(text, constants, name) if plan is None else plan
        return plans[node], tensors[:count], numbers

    calls = report.calls_of(_graph_module(program), call_of)
    left_out = _noted(program)
    noted = None if left_out is None else count_left_out(map(tuple, left_out))
    return Optimized("program", tuple(plans.values()), noted, calls=calls)


def _graph_module(program: ExportedProgram | fx.GraphModule) -> fx.GraphModule:
    return program.graph_module if isinstance(program, ExportedProgram) else program


def _noted(program: ExportedProgram | fx.GraphModule) -> list[list[str]] | None:
    noted: list[list[str]] | None = (
        _graph_module(program).meta.get("custom", {}).get(_LEFT_OUT, None)
    )
    return noted


def _calls(program: ExportedProgram | fx.GraphModule) -> Iterator[fx.Node]:
    return (node for node in _graph_module(program).graph.nodes if node.target in _CALLS)


def _holds(program: ExportedProgram | fx.GraphModule) -> Callable[[fx.Node], Tensor]:
    """Return what gives the tensor that a node of a program stands for."""
    if isinstance(program, fx.GraphModule):
        return functools.partial(attribute, program)
    held = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    of = {spec.arg.name: held[spec.target] for spec in specs if spec.target in held}
    return lambda node: of[node.name]
