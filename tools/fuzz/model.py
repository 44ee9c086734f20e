"""A model as data (nodes, weights, inputs), and its Python source."""

from __future__ import annotations

import dataclasses
import itertools
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Data:
    """A tensor's name, shape, dtype and elements.

    ``kind`` selects the distribution of elements (``KINDS``), ``layout`` the strides
    (``LAYOUTS``), and ``limit`` is the upper bound of integers.
    """

    name: str
    shape: Shape
    dtype: str = "float32"
    kind: str = "normal"
    limit: int = 4
    layout: str = "contiguous"

    @staticmethod
    def read(entry: Mapping[str, Any]) -> Data:
        """Read the form of ``dataclasses.asdict`` and JSON."""
        return Data(**{**entry, "shape": tuple(entry["shape"])})


@dataclass(frozen=True)
class Node:
    """One operator: ``result = expression``, in which ``{0}`` is the first argument.

    ``{w0}`` stands for the first weight and ``{float}`` for the model's floating-point dtype.
    ``under`` names the header of the block that it runs in, if it does.
    """

    result: str
    operator: str
    arguments: tuple[str, ...]
    expression: str
    weights: tuple[Data, ...]
    shape: Shape
    dtype: str
    under: str = ""

    @property
    def writes(self) -> bool:
        """Whether it writes to an argument or a weight; its name tells, as torch's names do."""
        return self.operator.endswith("_")

    @property
    def is_header(self) -> bool:
        """Whether its result is the number of times that a block runs."""
        return self.dtype == "int"

    @staticmethod
    def read(entry: Mapping[str, Any]) -> Node:
        """Read the form of ``dataclasses.asdict`` and JSON."""
        return Node(
            entry["result"],
            entry["operator"],
            tuple(entry["arguments"]),
            entry["expression"],
            tuple(Data.read(weight) for weight in entry["weights"]),
            tuple(entry["shape"]),
            entry["dtype"],
            entry.get("under", ""),
        )


@dataclass(frozen=True)
class Model:
    """A model and its sets of inputs, which differ only in shapes and layouts."""

    seed: int
    nodes: tuple[Node, ...]
    #: Each set has an entry for each input; the model is traced with the first set.
    inputs: tuple[tuple[Data, ...], ...]
    outputs: tuple[str, ...]
    bf16: bool = False

    @staticmethod
    def read(entry: Mapping[str, Any]) -> Model:
        """Read the form of ``dataclasses.asdict`` and JSON."""
        return Model(
            entry["seed"],
            tuple(Node.read(node) for node in entry["nodes"]),
            tuple(tuple(Data.read(data) for data in one) for one in entry["inputs"]),
            tuple(entry["outputs"]),
            entry["bf16"],
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the form that ``read`` reads, ready for JSON."""
        return dataclasses.asdict(self)

    def weights(self) -> dict[str, Data]:
        """Return all weights by their names."""
        return {weight.name: weight for node in self.nodes for weight in node.weights}

    def operators(self) -> tuple[str, ...]:
        """Return the names of its operators, in order."""
        return tuple(node.operator for node in self.nodes)


#: The placeholder in a model's source for the dtype that it computes in.
FLOAT = "FLOAT"


def source(model: Model) -> str:
    """Return the source of a class ``Model`` that takes the weights and computes in ``FLOAT``.

    A second class, ``Nudged``, also applies ``nudge`` to each floating-point result.
    """
    return "\n\n".join(_class(model, name, name == "Nudged") for name in ("Model", "Nudged"))


def _class(model: Model, name: str, nudged: bool) -> str:
    weights = list(model.weights())
    inputs = [data.name for data in model.inputs[0]]
    lines = [f"class {name}(torch.nn.Module):"]
    lines += ["    def __init__(self, weights: Dict[str, torch.Tensor]) -> None:"]
    lines += ["        super().__init__()"]
    for weight in weights:
        lines += [f"        self.register_buffer({weight!r}, weights[{weight!r}])"]
    typed = "".join(f", {name}: torch.Tensor" for name in inputs)
    results = ", ".join(["torch.Tensor"] * len(model.outputs))
    lines += ["", f"    def forward(self{typed}) -> Tuple[{results}]:"]
    headers = {node.result: node.operator for node in model.nodes if node.is_header}
    for under, nodes in itertools.groupby(model.nodes, lambda node: node.under):
        block = list(nodes)
        inner = [line for node in block for line in _lines(node, nudged)]
        if under:
            for node in block:
                dtype = FLOAT if node.dtype == "float32" else f"torch.{node.dtype}"
                lines += [f"        {node.result} = torch.zeros({node.shape}, dtype={dtype})"]
            is_loop = headers[under].startswith("for")
            head = f"for _ in range({under}):" if is_loop else f"if {under} > 0:"
            inner = [head, *(f"    {line}" for line in inner)]
        lines += [f"        {line}" for line in inner]
    lines += [f"        return ({', '.join(model.outputs)},)"]
    return "\n".join(lines) + "\n"


def _lines(node: Node, nudged: bool) -> Iterator[str]:
    named = {f"w{i}": f"self.{weight.name}" for i, weight in enumerate(node.weights)}
    yield f"{node.result} = {node.expression.format(*node.arguments, float=FLOAT, **named)}"
    if nudged and node.dtype == "float32":
        yield f"{node.result} = nudge({node.result})"


def tensors(model: Model, which: Sequence[Data]) -> dict[str, torch.Tensor]:
    """Return tensors of the model, each drawn only from the model's seed and its own name."""
    return {data.name: _tensor(data, model.seed, model.bf16) for data in which}


def _tensor(data: Data, seed: int, bf16: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {data.name}".encode()))
    dtype = getattr(torch, data.dtype)
    if dtype.is_floating_point:
        result = KINDS[data.kind](data.shape, generator)
        result = result.to(torch.bfloat16 if bf16 else dtype)
    elif dtype == torch.bool:
        result = torch.rand(data.shape, generator=generator) < 0.5
    elif data.kind == "permutation":
        result = torch.randperm(data.shape[0], generator=generator)
    elif data.kind in INTEGERS:
        result = INTEGERS[data.kind](data, generator)
    else:
        low = 0 if data.kind == "index" else -data.limit
        result = torch.randint(low, data.limit, data.shape, generator=generator).to(dtype)
    return LAYOUTS[data.layout](result)


def _normal(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def _scaled(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    depth = max(1, _normal(shape[1:], generator).numel())
    return _normal(shape, generator) / depth**0.5


def _special(values: Sequence[float]) -> Any:
    """Return a distribution in which a tenth of the elements are the given values."""

    def draw(shape: Shape, generator: torch.Generator) -> torch.Tensor:
        result = _normal(shape, generator)
        chosen = torch.tensor(values)[torch.randint(len(values), shape, generator=generator)]
        return torch.where(torch.rand(shape, generator=generator) < 0.1, chosen, result)

    return draw


#: Integers that no table has as an id.
NO_IDS = (-5, -6, -1000, 1000, 2**31, -(2**40))


def _one_wrong(data: Data, generator: torch.Generator) -> torch.Tensor:
    """Return integers of which one is no id."""
    result = torch.randint(-data.limit, data.limit, data.shape, generator=generator)
    place = torch.randint(max(result.numel(), 1), (), generator=generator)
    wrong = torch.tensor(NO_IDS)[torch.randint(len(NO_IDS), (), generator=generator)]
    return torch.where(torch.arange(result.numel()).view(result.shape) == place, wrong, result)


def _offsets(data: Data, generator: torch.Generator) -> torch.Tensor:
    result = torch.randint(0, data.limit, data.shape, generator=generator).sort()[0]
    result[:1] = 0
    return result


def _wrong_offsets(data: Data, generator: torch.Generator) -> torch.Tensor:
    """Return offsets that do not begin at 0, or exceed the number of ids."""
    result = _offsets(data, generator)
    if torch.rand((), generator=generator) < 0.5:
        result[-1:] = data.limit + 1
    else:
        result += 1
    return result


#: Distributions of the elements of integer tensors, beside uniform ones.
INTEGERS: Mapping[str, Any] = {
    "offsets": _offsets,
    "wrong_normal": _one_wrong,
    "wrong_index": _one_wrong,
    "wrong_offsets": _wrong_offsets,
}


#: Distributions of the elements of floating-point tensors.
KINDS: Mapping[str, Any] = {
    "normal": _normal,
    "scaled": _scaled,
    "positive": lambda shape, generator: torch.rand(shape, generator=generator) + 0.5,
    "integral": lambda shape, generator: _normal(shape, generator).mul(2).round(),
    "constant": lambda shape, generator: _normal((), generator).expand(shape).clone(),
    "large": lambda shape, generator: _normal(shape, generator) * 1e4,
    "nan": _special([float("nan")]),
    "infinite": _special([float("inf"), float("-inf")]),
    "subnormal": _special([1e-40, -1e-40, 1e-45, 0.0, -0.0]),
    "all": _special([float("nan"), float("inf"), float("-inf"), 1e-40, 0.0, -0.0]),
}


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    wide = (
        tensor.new_zeros((*tensor.shape[:-1], tensor.shape[-1] * 2 + 1)) if tensor.dim() else None
    )
    if wide is None:
        return tensor
    part = wide[..., 1::2]
    part.copy_(tensor)
    return part


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.dim():
        return tensor
    wide = tensor.new_zeros((tensor.shape[0] + 2, *[size + 3 for size in tensor.shape[1:]]))
    for dim, size in enumerate(tensor.shape):
        wide = wide.narrow(dim, 1, size)
    wide.copy_(tensor)
    return wide


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.dim() > 1 else tensor


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1) if tensor.dim() > 2 else tensor


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:1].expand(tensor.shape) if tensor.dim() else tensor


#: Strides of a tensor; each function takes any number of dimensions.
LAYOUTS: Mapping[str, Any] = {
    "contiguous": lambda tensor: tensor,
    "strided": _strided,
    "offset": _offset,
    "transposed": _transposed,
    "channels_last": _channels_last,
    "expanded": _expanded,
}


def draw_layout(rng: random.Random) -> str:
    """Return a layout, contiguous in most cases."""
    return rng.choice(list(LAYOUTS)) if rng.random() < 0.35 else "contiguous"
