"""Which aten operators the engine takes: a table from an operator's name to an importer.

An importer reads one call and adds the engine's nodes that do the same, or raises ``Refused`` with
a reason for people. Most are read off the mappings of ``operators.py``; here are those that have
more to decide. Dtypes and ranks are mostly unknown before anything runs: plans check them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn.frontends.calls import (
    ANY,
    BOOL,
    FLOATING,
    INDEX,
    MISSING,
    Call,
    Dtypes,
    Refused,
)
from torch.backends.zendnn.graph import Attribute, Operand, Value
from torch.backends.zendnn.operators import (
    COMBINATIONS,
    FUNCTIONS,
    OPERATORS,
    Argument,
    AttributeSpec,
    Function,
    Mapping,
    Operator,
)
from torch.backends.zendnn.operators import Operand as OperandSpec
from torch.backends.zendnn.passes import _match

Importer = Callable[[Call], None]

#: From here on, the end of a slice means 'to the last element'.
NO_END = 1 << 31


# Mappings.


_DTYPES: dict[str, Dtypes] = {"Any": ANY, "Index": INDEX, "Bool": BOOL}


def _read_operand(call: Call, argument: Argument, spec: OperandSpec) -> list[Operand]:
    """What an argument is as an operand of a signature."""
    name, dtypes = argument.name, _DTYPES.get(spec.type, FLOATING)
    if spec.optional and call.absent(name):
        return [None]
    if spec.many and spec.is_number:
        return list(call.numbers(name) if spec.type == "int" else call.integers(name))
    if spec.many:
        return list(call.tensors(name, dtypes))
    if spec.is_number:
        return [call.number(name) if spec.type == "int" else call.integer(name)]
    operand = call.tensor(name, dtypes)
    if spec.type in ("Constant", "Float"):
        constant = call.weight(name, dtypes)
        if spec.type == "Float":
            operand = call.graph.constant(constant.float())
    return [operand]


def _read_attribute(call: Call, argument: Argument, spec: AttributeSpec) -> Attribute:
    """What an argument is as an attribute of a signature."""
    name = argument.name
    if argument.literal is not None and call.absent(name):
        return argument.literal
    read: dict[str, Callable[[str], Attribute]] = {
        "int": call.integer,
        "float": call.real,
        "bool": lambda name: bool(call.python(name)),
        "int[]": call.integers,
    }
    return read[spec.type](name)


def _import_mapping(call: Call, row: Operator, mapping: Mapping) -> None:
    """Add the one node that a mapping stands for."""
    arguments = mapping.arguments(operand.name for operand in row.operands)
    operands: dict[str, list[Operand]] = {}
    attributes: dict[str, Attribute] = {}
    for argument in arguments:
        if not argument.target:
            call.require(argument.name, argument.literal)
    call.require_defaults({argument.name for argument in arguments})
    specs = {operand.name: operand for operand in row.operands}
    for argument in arguments:
        if argument.target in specs:
            operands[argument.target] = _read_operand(call, argument, specs[argument.target])
        elif argument.target in row.attributes:
            spec = row.attributes[argument.target]
            value = _read_attribute(call, argument, spec)
            if value != ():
                attributes[argument.target] = value
    for name, value in mapping.fixed.items():
        if name in specs:
            assert isinstance(value, int)
            operands[name] = [value]
        else:
            attributes[name] = value
    inputs = [x for operand in row.operands for x in operands.get(operand.name, [None])]
    call.results(
        row.name,
        inputs,
        call.outputs[:1],
        "number" if row.results == "number" else "tensor",
        **attributes,
    )


def _import_function(call: Call, function: Function, mapping: Mapping) -> None:
    """Add the ``eltwise`` that a mapping to a function stands for."""
    attributes: dict[str, Attribute] = {"alpha": 0.0, "beta": 0.0, **mapping.fixed}
    arguments = mapping.arguments(function.operands)
    for argument in arguments:
        if argument.target in ("alpha", "beta"):
            default = argument.literal
            absent = default is not None and call.absent(argument.name)
            attributes[argument.target] = default if absent else call.real(argument.name)
        elif not argument.target:
            call.require(argument.name, argument.literal)
    (name,) = (argument.name for argument in arguments if argument.target == "x")
    call.result("eltwise", [call.tensor(name)], algorithm=function.name, **attributes)


def _import_combination(call: Call, algorithm: str, mapping: Mapping) -> None:
    names = [argument.name for argument in mapping.arguments(("a", "b"))]
    call.result("binary", [call.tensor(name) for name in names], algorithm=algorithm)


def from_mappings() -> dict[str, Importer]:
    """Return the importers of all mappings of the table, by aten operator."""
    found: dict[str, list[Importer]] = {}
    for row in OPERATORS.values():
        for mapping in row.mappings:
            importer = functools.partial(_import_mapping, row=row, mapping=mapping)
            found.setdefault(mapping.name, []).append(importer)
    for function in FUNCTIONS.values():
        for mapping in map(Mapping, function.aten):
            importer = functools.partial(_import_function, function=function, mapping=mapping)
            found.setdefault(mapping.name, []).append(importer)
    for name in ("max", "min"):
        mapping = Mapping(COMBINATIONS[name].aten)
        importer = functools.partial(_import_combination, algorithm=name, mapping=mapping)
        found[mapping.name] = found[f"aten::{name}.other"] = [importer]
    return {name: first_of(*importers) for name, importers in found.items()}


def first_of(*importers: Importer) -> Importer:
    """The first importer that does not refuse the call; the reason is the first one's."""
    first, *others = importers
    if not others:
        return first

    def importer(call: Call) -> None:
        try:
            first(call)
        except Refused:
            for other in others:
                try:
                    return other(call)
                except Refused:
                    continue
            raise

    return importer


def first_that(takes: Callable[[Call], bool], yes: Importer, no: Importer) -> Importer:
    """One importer or another."""
    return lambda call: yes(call) if takes(call) else no(call)


def same_number(name: str) -> Importer:
    """A number that the model only moves: into a tensor, out of it, from one type to another."""
    return lambda call: call.identity(call.number(name))


def same_tensor(name: str, **required: Any) -> Importer:
    """A result that is the argument."""

    def importer(call: Call) -> None:
        for key, value in required.items():
            call.require(key, value)
        call.identity(call.tensor(name, ANY))

    return importer


# Functions of elements.


def scalar(call: Call, name: str) -> float | None:
    """Return a constant argument that is one number, also in a tensor without dimensions.

    torch's executor makes numbers of such tensors, too: their dtype does not matter.
    """
    constant = call.constant(name)
    if isinstance(constant, torch.Tensor):
        real_number = not (constant.dtype == torch.bool or constant.is_complex())
        if constant.dim() or not real_number or constant.layout != torch.strided:
            return None
        constant = constant.item()
    if isinstance(constant, bool) or not isinstance(constant, int | float):
        return None
    return float(constant)


def is_tensor(call: Call, name: str, dtype: torch.dtype) -> bool:
    """Whether an argument is a constant tensor of this dtype."""
    constant = call.constant(name)
    return isinstance(constant, torch.Tensor) and constant.dtype == dtype


def eltwise(algorithm: str, name: str = "self", alpha: float = 0.0, beta: float = 0.0) -> Importer:
    """A function of each element, with fixed parameters."""
    return lambda call: call.result(
        "eltwise", [call.tensor(name)], algorithm=algorithm, alpha=alpha, beta=beta
    )


def binary(algorithm: str, *, swapped: bool = False) -> Importer:
    """``self ∘ alpha·other``, or ``other ∘ alpha·self`` when swapped.

    A constant number makes it alpha·x + beta.
    """
    names = ("other", "self") if swapped else ("self", "other")

    def importer(call: Call) -> None:
        alpha = call.real("alpha") if call.has("alpha") else 1.0
        numbers = [scalar(call, name) for name in names]
        left, right = numbers
        if right is not None:
            of_number(call, *names, _match.as_affine(algorithm, alpha * right))
        elif left is not None:
            found = _match.as_affine(algorithm, left, left=True)
            of_number(call, *names[::-1], found and (alpha * found[0], found[1]))
        else:
            a, b = (call.tensor(name) for name in names)
            # A number in a tensor takes the dtype of the other one.
            if _match.producer(b, "power") is not None:
                b = call.step("to_like", [b, a])
            elif _match.producer(a, "power") is not None:
                a = call.step("to_like", [a, b])
            if alpha != 1.0:
                b = call.step("eltwise", [b], algorithm="affine", alpha=alpha, beta=0.0)
            call.result("binary", [a, b], algorithm=algorithm)

    return importer


def of_number(call: Call, name: str, number: str, found: tuple[float, float] | None) -> None:
    """alpha·x + beta of the argument ``name``; the argument ``number`` made it."""
    if found is None or not all(map(_match.is_sound, found)):
        raise Refused(f"{number} is {scalar(call, number)}")
    call.result("eltwise", [call.tensor(name)], algorithm="affine", alpha=found[0], beta=found[1])


def cube(call: Call) -> None:
    """The third power, which spelled-out activations take."""
    x = call.tensor("self")
    squared = call.step("eltwise", [x], algorithm="square", alpha=0.0, beta=0.0)
    call.result("binary", [squared, x], algorithm="mul")


def on_numbers(op: str, otherwise: Importer, *, swapped: bool = False) -> Importer:
    """Arithmetic of sizes, which traced graphs do on tensors without dimensions."""
    names = ("other", "self") if swapped else ("self", "other")

    def arithmetic(call: Call) -> None:
        if call.has("alpha"):
            call.require("alpha", 1)
        call.number_result(op, [call.number(name) for name in names])

    return first_that(lambda call: call.are_numbers(*names), arithmetic, otherwise)


#: What ``x ** exponent`` is.
POWERS: dict[float, Importer] = {
    0.5: eltwise("sqrt"),
    1: same_tensor("self"),
    2: eltwise("square"),
    3: cube,
}


def power(call: Call) -> None:
    """A power of a tensor, or of a size, such as the scale of attention: a float32 tensor."""
    exponent = call.python("exponent")
    if not call.are_numbers("self"):
        if exponent not in POWERS:
            raise Refused(f"exponent is {exponent}")
        POWERS[exponent](call)
    elif isinstance(exponent, float):
        call.result("power", [call.number("self")], exponent=call.real("exponent"))
    else:
        raise Refused(f"exponent is {exponent}")


def scalar_of(call: Call) -> None:
    """A number that was made into a tensor: of a size, or of a power of one."""
    if call.are_numbers("a"):
        call.identity(call.number("a"))
        return
    made = call.operand_of(call.arguments["a"])
    if _match.producer(made, "power") is None:
        raise Refused("a is neither an integer nor a power of one")
    call.identity(made)


def full(call: Call) -> None:
    """The power of a size again, in a tensor without dimensions."""
    if call.numbers("size"):
        raise Refused("it makes more than one number")
    made = call.operand_of(call.arguments["fill_value"])
    if _match.producer(made, "power") is None:
        raise Refused("fill_value is not a power of a size")
    call.result("to", [made], dtype=engine_dtype(call, "dtype"))


def fill_value(number: float) -> float:
    """Return a number to fill with; torch raises an error where float32 has none so large."""
    if math.isfinite(number) and abs(number) > torch.finfo(torch.float32).max:
        raise Refused("a number is larger than any of float32")
    return number


def masked_fill(call: Call) -> None:
    """A number where a mask says so, the tensor elsewhere."""
    fill = scalar(call, "value")
    if fill is None:
        raise Refused("value is not a constant number")
    operands = [call.tensor("mask", BOOL), None, call.tensor("self")]
    call.result("where", operands, value=fill_value(fill), filled=True)


def where(call: Call) -> None:
    """One of two tensors, or a tensor or a constant number."""
    names = ("self", "other")
    numbers = [scalar(call, name) for name in names]
    if None not in numbers:
        raise Refused("both self and other are numbers")
    operands = [
        call.tensor(name) if given is None else None
        for name, given in zip(names, numbers, strict=True)
    ]
    # A tensor without dimensions has a say in the result's dtype if the other has none, too.
    wide = any(is_tensor(call, name, torch.float64) for name in names)
    if wide and not any(x is not None and x.rank for x in operands):
        raise Refused("a number of float64 meets what may have no dimensions")
    fill = next((given for given in numbers if given is not None), 0.0)
    call.result("where", [call.tensor("condition", BOOL), *operands], value=fill_value(fill))


# Convolutions, products.


def convolution(*, transposed: bool | None = None, words_for_padding: bool = False) -> Importer:
    """A convolution with constant weights; ``transposed`` None reads it from the call."""

    def importer(call: Call) -> None:
        kernel = call.weight("weight")
        spatial = kernel.dim() - 2
        if spatial not in (1, 2, 3):
            raise Refused(f"it has {spatial} spatial dimensions")
        is_transposed = bool(call.python("transposed")) if transposed is None else transposed
        attributes: dict[str, Attribute] = {
            name: call.integers(name, spatial) for name in ("stride", "dilation")
        }
        attributes["groups"] = call.integer("groups")
        if words_for_padding:
            attributes.update(padding_of_word(call, kernel.shape[2:], attributes))
        else:
            attributes["padding"] = call.integers("padding", spatial)
        if is_transposed:
            attributes["transposed"] = True
            attributes["output_padding"] = call.integers("output_padding", spatial)
        inputs = [call.tensor("input"), call.tensor("weight"), call.optional_weight("bias")]
        call.result("convolution", inputs, **attributes)

    return importer


def padding_of_word(
    call: Call, kernel: Sequence[int], attributes: dict[str, Attribute]
) -> dict[str, Attribute]:
    """Return what 'same' or 'valid' stands for."""
    word, stride, dilation = call.python("padding"), attributes["stride"], attributes["dilation"]
    assert isinstance(stride, tuple)
    assert isinstance(dilation, tuple)
    if word == "valid":
        return {"padding": (0,) * len(stride)}
    if word != "same" or any(step != 1 for step in stride):
        raise Refused(f"padding is {word} and stride {stride}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    begin, end = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    padding: dict[str, Attribute] = {"padding": begin}
    return padding if begin == end else padding | {"padding_end": end}


def factors(call: Call, a: str, b: str) -> tuple[str, list[Operand]]:
    """Return the operator and the operands of a product; a constant matrix makes it a layer."""
    left, right = call.tensor(a), call.tensor(b)
    matrix = right.constant
    if matrix is None or matrix.dim() != 2:
        return "matmul", [left, right]
    return "linear", [left, call.graph.constant(matrix.t()), None]


def product(a: str, b: str, rank: int | None = None) -> Importer:
    """A matrix product, of this rank; one with a constant matrix is a linear layer."""

    def importer(call: Call) -> None:
        call.result(*factors(call, a, b))
        if rank is not None:
            call.has_rank(rank)

    return importer


def product_and_sum(a: str, b: str, rank: int) -> Importer:
    """``self + a @ b``, of this rank; with a constant matrix and vector it is a linear layer."""

    def importer(call: Call) -> None:
        if call.real("alpha") != 1.0 or call.real("beta") != 1.0:
            raise Refused("alpha or beta is not 1")
        added = call.tensor("self")
        op, operands = factors(call, a, b)
        vector = added.constant
        if op == "linear" and vector is not None and vector.shape == call.weight(b).shape[1:]:
            call.result(op, [*operands[:2], added])
        else:
            call.result("binary", [call.step(op, operands), added], algorithm="add")
        call.has_rank(rank)

    return importer


def einsum(call: Call) -> None:
    """A product of matrices, whatever the order of their dimensions."""
    elements = call.elements("tensors")
    terms, _, result = call.python("equation").replace(" ", "").partition("->")
    left, _, right = terms.partition(",")
    a, b, c = (set(term) for term in (left, right, result))
    rows, columns, inner = a - b, b - a, a & b - c
    if (
        len(elements) != 2
        or not all(t.isalpha() and len(t) == len(set(t)) for t in (left, right, result))
        or not len(rows) == len(columns) == len(inner) == 1
        or c != (a | b) - inner
    ):
        raise Refused("it is not a product of two matrices")
    x, y = (call.as_tensor(element, "tensors") for element in elements)
    batch = [letter for letter in left if letter in b & c]
    x = _permuted(call, x, left, [*batch, *rows, *inner])
    y = _permuted(call, y, right, [*batch, *inner, *columns])
    made = [*batch, *rows, *columns]
    if made == list(result):
        call.result("matmul", [x, y])
    else:
        call.result("permute", [call.step("matmul", [x, y]), *map(made.index, result)])


def _permuted(call: Call, x: Value, dims: str, order: Sequence[str]) -> Value:
    return x if list(dims) == order else call.step("permute", [x, *map(dims.index, order)])


def normalized(call: Call) -> dict[str, Attribute]:
    """How many trailing dimensions are normalised, and their sizes if they are known."""
    sizes = call.numbers("normalized_shape")
    known = tuple(size for size in sizes if isinstance(size, int))
    return {"dims": len(sizes), **({"sizes": known} if len(known) == len(sizes) else {})}


def layer_norm(call: Call) -> None:
    """Normalise the trailing dimensions; there is no residual yet."""
    inputs = [
        call.tensor("input"),
        call.optional_weight("weight"),
        call.optional_weight("bias"),
        None,
    ]
    call.result("layer_norm", inputs, eps=call.real("eps"), **normalized(call))


def rms_norm(call: Call) -> None:
    """Divide the trailing dimensions by the root of their mean square."""
    if call.absent("eps") and not _C._has_one_default_eps():
        raise Refused("eps is not given, and depends on the dtype in this torch")
    eps = torch.finfo(torch.float32).eps if call.absent("eps") else call.real("eps")
    inputs = [call.tensor("input"), call.optional_weight("weight"), None, None]
    call.result("rms_norm", inputs, eps=eps, **normalized(call))


def softmax(*, log: bool) -> Importer:
    """Softmax, of a converted tensor if a dtype is given."""

    def importer(call: Call) -> None:
        x: Operand = call.tensor("self")
        if not call.absent("dtype"):
            x = call.step("to", [x], dtype=engine_dtype(call, "dtype"))
        call.result("softmax", [x], dim=call.integer("dim"), log=log)

    return importer


def attention(call: Call) -> None:
    """Scaled dot product attention, with a mask or a causal one, not both."""
    scale = 0.0 if call.absent("scale") else call.real("scale")
    if scale == 0.0 and not call.absent("scale"):
        raise Refused("scale is 0")
    if call.real("dropout_p") != 0.0:
        raise Refused("dropout_p is not 0")
    causal = bool(call.python("is_causal"))
    if causal and not call.absent("attn_mask"):
        raise Refused("it is causal and has a mask")
    grouped = call.has("enable_gqa") and bool(call.python("enable_gqa"))
    mask = None if call.absent("attn_mask") else call.tensor("attn_mask", FLOATING | BOOL)
    inputs = [call.tensor("query"), call.tensor("key"), call.tensor("value"), mask]
    more: dict[str, Attribute] = {"grouped": True} if grouped else {}
    call.result("attention", inputs, scale=scale, causal=causal, **more)


def linear_step(
    call: Call, x: Operand, weight_: str, bias: str, part: slice | None = None
) -> Value:
    """One of the linear layers of an operator, with its weights or with some rows of them."""
    rows = slice(None) if part is None else part
    constants = [call.weight(name)[rows] for name in (weight_, bias)]
    return call.step("linear", [x, *map(call.graph.constant, constants)])


def self_attention(call: Call, query: Operand, key: Operand, value: Operand) -> Value:
    """Multi-head attention with its projections, of (batch, time, features)."""
    heads = call.integer("num_heads" if call.has("num_heads") else "num_head")
    features = call.integer("embed_dim")
    if call.weight("qkv_weight").shape != (3 * features, features) or features % heads:
        raise Refused("qkv_weight has another shape")
    projected = []
    for position, x in enumerate((query, key, value)):
        part = slice(position * features, (position + 1) * features)
        y = linear_step(call, x, "qkv_weight", "qkv_bias", part)
        y = call.step("unflatten", [y, -1, heads, features // heads])
        projected.append(call.step("transpose", [y, 1, 2]))
    inputs: list[Operand] = [*projected, None]
    attributes: dict[str, Attribute] = {"scale": 0.0, "causal": False, "additive": True}
    if not call.absent("mask"):
        # Whatever is not 0 hides.
        hidden: Operand = call.step("nonzero", [call.tensor("mask", FLOATING | BOOL)])
        mask_type = None if call.absent("mask_type") else call.integer("mask_type")
        if mask_type == 1:  # (batch, source)
            hidden = call.step("unsqueeze", [call.step("unsqueeze", [hidden, 1]), 1])
        elif mask_type not in (0, 2):  # (target, source), or for each head
            raise Refused(f"mask_type is {mask_type}")
        inputs.append(hidden)
        attributes |= {"fill": -math.inf, "fill_where": True}
    y = call.step("transpose", [call.step("attention", inputs, **attributes), 1, 2])
    return linear_step(call, call.step("flatten", [y, 2, 3]), "proj_weight", "proj_bias")


def multi_head_attention(call: Call) -> None:
    """What nn.MultiheadAttention is when it is not trained."""
    if call.is_used(1):
        raise Refused("its weights are used")
    result = self_attention(call, *(call.tensor(name) for name in ("query", "key", "value")))
    call.rename(result)


def encoder_layer(call: Call) -> None:
    """What nn.TransformerEncoderLayer is when it is not trained."""
    first = bool(call.python("norm_first"))

    def norm(x: Operand, number_: int) -> Value:
        names = (f"norm_weight_{number_}", f"norm_bias_{number_}")
        inputs = [x, *(_weight(call, name) for name in names), None]
        return call.step("layer_norm", inputs, eps=call.real("eps"), dims=1)

    def feed_forward(x: Operand) -> Value:
        y = linear_step(call, x, "ffn_weight_1", "ffn_bias_1")
        name = "gelu" if call.python("use_gelu") else "relu"
        y = call.step("eltwise", [y], algorithm=name, alpha=0.0, beta=0.0)
        return linear_step(call, y, "ffn_weight_2", "ffn_bias_2")

    x: Value = call.tensor("src")
    for position, layer in ((1, lambda y: self_attention(call, y, y, y)), (2, feed_forward)):
        y = layer(norm(x, position) if first else x)
        x = call.step("binary", [x, y], algorithm="add")
        x = x if first else norm(x, position)
    call.rename(x)


BAG_MODES = {0: "sum", 1: "mean", 2: "max"}


def embedding_bag(call: Call) -> None:
    """Sums, means or maxima of bags; what else the operator returns is for training."""
    if any(map(call.is_used, range(1, len(call.outputs)))):
        raise Refused("its offsets, sizes or indices are used")
    if call.has("padding_idx"):
        call.require("padding_idx", None)
    mode = call.integer("mode")
    if mode not in BAG_MODES:
        raise Refused(f"mode is {mode}")
    inputs = [
        _weight(call, "weight"),
        call.tensor("indices", INDEX),
        call.tensor("offsets", INDEX),
    ]
    if not call.absent("per_sample_weights"):
        inputs.append(call.tensor("per_sample_weights"))
    last = {"last_offset": True} if call.python("include_last_offset") else {}
    call.result("embedding_bag", inputs, mode=BAG_MODES[mode], **last)


def arange(call: Call) -> None:
    """Whole numbers in order; only the passes' patterns read it."""
    call.require("dtype", None, 4)  # 4 is int64
    given = [call.number(name) for name in ("start", "end", "step") if call.has(name)]
    defaults: dict[int, tuple[list[Operand], list[Operand]]] = {
        1: ([0], [1]),
        2: ([], [1]),
        3: ([], []),
    }
    before, after = defaults[len(given)]
    call.result("arange", [*before, *given, *after])


def index(call: Call) -> None:
    """Pairs of the last two dimensions, chosen by constant rows and columns."""
    given: list[Value | None]
    constant = call.constant("indices")
    if constant is not MISSING:
        given = [None if item is None else call.graph.constant(item) for item in constant]
    else:
        elements = call.elements("indices")
        given = [
            None if call.constant_of(e) is None else call.as_tensor(e, "an index", ANY)
            for e in elements
        ]
    leading, pair = given[:-2], given[-2:]
    constants = [i.constant for i in pair if i is not None and i.constant is not None]
    if len(constants) != 2 or not leading or any(i is not None for i in leading):
        raise Refused("its indices are not two constants at the end")
    rows, columns = constants
    chosen_pairs = all(
        i.dtype == torch.int64 and i.dim() == 1 and not (i < 0).any() for i in constants
    )
    if not chosen_pairs or rows.shape != columns.shape:
        raise Refused("its indices are not two lists of int64")
    x = call.tensor("self")
    if x.rank != len(given):
        raise Refused("how many dimensions it indexes is not known")
    if len(given) > 3:
        raise Refused(f"it indexes {len(given)} dimensions")
    call.result("gather_pairs", [x, *pair])


# Pooling, padding, joining.


def pool(op: Literal["max_pool", "avg_pool"], spatial: int) -> Importer:
    """A window that moves; without a stride it moves by its own size."""

    def importer(call: Call) -> None:
        kernel = call.integers("kernel_size", spatial)
        attributes: dict[str, Attribute] = {
            "kernel": kernel,
            "stride": call.integers("stride", spatial) or kernel,
            "padding": call.integers("padding", spatial),
            "ceil": bool(call.python("ceil_mode")),
        }
        if call.has("dilation"):
            attributes["dilation"] = call.integers("dilation", spatial)
        if op == "avg_pool":
            attributes["include_pad"] = bool(call.python("count_include_pad"))
        if call.has("divisor_override"):
            call.require("divisor_override", None)
        call.result(op, [call.tensor("self")], **attributes)

    return importer


def resample(algorithm: str) -> Importer:
    """An image or a signal in another size, or by factors."""

    def importer(call: Call) -> None:
        keys = ("scales",) if call.has("scales") else ("scales_h", "scales_w")
        if call.has("scale_factors"):
            factors = call.python("scale_factors") or ()
        else:
            factors = [0.0 if call.absent(name) else call.real(name) for name in keys]
        sizes = [] if call.absent("output_size") else call.numbers("output_size")
        # A signal has no height.
        height, width = [0.0, 0.0, *factors][-2:]
        call.result(
            "resample",
            [call.tensor("input" if call.has("input") else "self"), *[None, None, *sizes][-2:]],
            algorithm=algorithm,
            align_corners=call.has("align_corners") and bool(call.python("align_corners")),
            scale_height=float(height),
            scale_width=float(width),
        )

    return importer


#: torch's own numbers of the engine's dtypes.
DTYPES = {6: "float32", 15: "bfloat16"}
BOOL_NUMBER = 11


def engine_dtype(call: Call, name: str) -> str:
    """Return what the engine calls a dtype that a constant argument states."""
    number_ = call.python(name)
    if number_ not in DTYPES:
        raise Refused(f"{name} is not float32 or bfloat16")
    return DTYPES[number_]


#: torch's own numbers of memory formats: of a tensor's own, and of the order of its dimensions.
PRESERVED = (None, 1)
CONTIGUOUS = 0


def to_dtype(call: Call) -> None:
    """A conversion between the engine's dtypes, or to the truth of numbers."""
    number_ = call.python("dtype")
    if number_ not in DTYPES and number_ != BOOL_NUMBER:
        raise Refused("dtype is not float32, bfloat16 or bool")
    if call.has("device") and torch.device(call.python("device")).type != "cpu":
        raise Refused("device is not the CPU")
    call.require("memory_format", *PRESERVED)
    if number_ == BOOL_NUMBER:
        call.result("nonzero", [call.tensor("self", ANY)])
    else:
        call.result("to", [call.tensor("self", ANY)], dtype=DTYPES[number_])


def to_layout(call: Call) -> None:
    """A conversion, or none, to a dtype and to the order of dimensions."""
    call.require("layout", None, 0)
    call.require("pin_memory", None, False)
    call.require("memory_format", *PRESERVED, CONTIGUOUS)
    device = call.python("device")
    if device is not None and torch.device(device).type != "cpu":
        raise Refused("device is not the CPU")
    x = call.tensor("self", ANY)
    if call.python("memory_format") == CONTIGUOUS:
        x = call.step("contiguous", [x])
    if call.absent("dtype"):
        call.identity(x)
    else:
        call.result("to", [x], dtype=engine_dtype(call, "dtype"))


def autocast(dtype: str | None) -> Importer:
    """What autocast does to a floating tensor: to its own dtype, or back to float32."""

    def importer(call: Call) -> None:
        if not call.python("cpu_enabled"):
            call.identity(call.tensor("self", ANY))
            return
        wanted = dtype or engine_dtype(call, "cpu_dtype")
        call.result("to", [call.tensor("self")], dtype=wanted, floating=True)

    return importer


# Views.


def view_as(call: Call) -> None:
    """The sizes of another tensor."""
    sizes = call.sizes(call.tensor("other", ANY), "other")
    call.result("view", [call.tensor("self", ANY), *sizes])


def slice_(call: Call) -> None:
    """A part of a dimension."""
    start, end = call.optional_number("start"), call.optional_number("end")
    if isinstance(end, int) and end >= NO_END:
        end = None
    x = call.tensor("self", ANY)
    call.result("slice", [x, call.integer("dim"), start, end, call.number("step")])


def split_equal(call: Call) -> None:
    """Parts of one size; the last may be smaller."""
    parts = call.parts()
    sizes = (call.integer("split_size"),)
    dim = call.integer("dim")
    call.results("split", [call.tensor("self", ANY)], parts, dim=dim, sizes=sizes)


def split_sizes(name: str) -> Importer:
    """Parts of stated sizes."""

    def importer(call: Call) -> None:
        sizes = call.integers(name)
        parts = call.parts(len(sizes))
        if len(sizes) != len(parts):
            raise Refused(f"{len(sizes)} sizes make {len(parts)} parts")
        dim = call.integer("dim")
        call.results("split", [call.tensor("self", ANY)], parts, dim=dim, sizes=sizes)

    return importer


def chunk(call: Call) -> None:
    """Equal parts."""
    chunks = call.integer("chunks")
    parts = call.parts(chunks)
    if chunks != len(parts):
        raise Refused(f"{chunks} chunks make {len(parts)} parts")
    dim = call.integer("dim")
    call.results("split", [call.tensor("self", ANY)], parts, dim=dim, chunks=chunks)


def unbind(call: Call) -> None:
    """All slices of a dimension."""
    x, dim = call.tensor("self", ANY), call.integer("dim")
    for position, part in call.parts_read():
        call.results("select", [x, dim, position], [part])


def _weight(call: Call, name: str) -> Value:
    """A constant tensor, as an operand."""
    call.weight(name)
    return call.tensor(name)


def linear(call: Call) -> None:
    """A linear layer: a matrix and, if any, a bias for each of its rows."""
    rows = call.weight("weight").shape[:-1]
    if len(rows) != 1:
        raise Refused("weight is no matrix")
    if not call.absent("bias") and call.weight("bias").shape != rows:
        raise Refused("bias has not one number for each row of weight")
    inputs = [call.tensor("input"), call.tensor("weight"), call.optional_weight("bias")]
    call.result("linear", inputs)


def adaptive_pool(spatial: int) -> Importer:
    """Means of windows, of which there are so many."""

    def importer(call: Call) -> None:
        sizes = call.integers("output_size", spatial)
        call.result("adaptive_avg_pool", [call.tensor("self")], sizes=sizes)

    return importer


def pad(call: Call) -> None:
    """Padding with a number; sizes that are known now are not below 0."""
    known = tuple(size for size in call.numbers("pad") if isinstance(size, int))
    if min(known, default=0) < 0:
        raise Refused(f"pad is {known}")
    MAPPED[call.name](call)


def roll(call: Call) -> None:
    """Dimensions that are shifted; without any, torch shifts the flattened tensor."""
    if not call.integers("dims"):
        raise Refused("dims is empty")
    MAPPED[call.name](call)


# The table.

MAPPED = from_mappings()
WITH_EITHER = ("Tensor", "Scalar")
RESAMPLINGS = (
    ("nearest2d", "nearest"),
    ("linear1d", "linear"),
    ("bilinear2d", "linear"),
    ("bicubic2d", "cubic"),
)
PLAIN_POOL = ((1, "1d"), (2, "2d"), (3, "3d"))

IMPORTERS: dict[str, Importer] = MAPPED | {
    # Convolutions
    "aten::_convolution": convolution(),
    "aten::_convolution.deprecated": convolution(),
    **{f"aten::conv{n}d": convolution(transposed=False) for n in (1, 2, 3)},
    **{
        f"aten::conv{n}d.padding": convolution(transposed=False, words_for_padding=True)
        for n in (1, 2, 3)
    },
    "aten::_convolution_mode": convolution(transposed=False, words_for_padding=True),
    "aten::conv_transpose1d": convolution(transposed=True),
    "aten::conv_transpose2d.input": convolution(transposed=True),
    "aten::conv_transpose3d.input": convolution(transposed=True),
    # Products
    "aten::linear": linear,
    "aten::addmm": product_and_sum("mat1", "mat2", 2),
    "aten::baddbmm": product_and_sum("batch1", "batch2", 3),
    "aten::matmul": product("self", "other"),
    "aten::einsum": einsum,
    "aten::mm": product("self", "mat2", 2),
    "aten::bmm": product("self", "mat2", 3),
    # Functions of elements
    "aten::neg": eltwise("affine", alpha=-1.0),
    "aten::pow.Tensor_Scalar": power,
    **{
        f"aten::{name}.{overload}": on_numbers(f"number_{name}", binary(name))
        for name in ("add", "sub", "mul")
        for overload in WITH_EITHER
    },
    **{
        f"aten::rsub.{overload}": on_numbers(
            "number_sub", binary("sub", swapped=True), swapped=True
        )
        for overload in WITH_EITHER
    },
    **{f"aten::div.{overload}": binary("div") for overload in WITH_EITHER},
    "aten::masked_fill.Scalar": masked_fill,
    "aten::masked_fill.Tensor": masked_fill,
    **{f"aten::where.{overload}": where for overload in ("self", "ScalarSelf", "ScalarOther")},
    # Along dimensions
    "aten::softmax.int": softmax(log=False),
    "aten::log_softmax.int": softmax(log=True),
    "aten::layer_norm": layer_norm,
    "aten::rms_norm": rms_norm,
    "aten::scaled_dot_product_attention": attention,
    "aten::_native_multi_head_attention": multi_head_attention,
    "aten::_transformer_encoder_layer_fwd": encoder_layer,
    # Tables
    "aten::embedding_bag": embedding_bag,
    "aten::embedding_bag.padding_idx": embedding_bag,
    "aten::arange": arange,
    "aten::arange.start": arange,
    "aten::arange.start_step": arange,
    "aten::index.Tensor": index,
    # Windows
    **{f"aten::max_pool{name}": pool("max_pool", n) for n, name in PLAIN_POOL},
    **{f"aten::avg_pool{name}": pool("avg_pool", n) for n, name in PLAIN_POOL},
    **{f"aten::adaptive_avg_pool{name}": adaptive_pool(n) for n, name in PLAIN_POOL},
    **{
        f"aten::upsample_{name}{overload}": resample(algorithm)
        for name, algorithm in RESAMPLINGS
        for overload in ("", ".vec")
    },
    "aten::pad": pad,
    "aten::constant_pad_nd": pad,
    "aten::roll": roll,
    # The same tensor or number
    **{
        f"aten::{name}": same_tensor("input", train=False)
        for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    },
    "aten::detach": same_tensor("self"),
    "aten::to.dtype": to_dtype,
    "aten::to.dtype_layout": to_layout,
    "aten::to.device": to_dtype,
    "aten::_autocast_to_reduced_precision": autocast(None),
    "aten::_autocast_to_full_precision": autocast("float32"),
    "aten::Int.Tensor": same_number("a"),
    "aten::Int.Scalar": same_number("a"),
    "aten::IntImplicit": same_number("a"),
    "aten::ScalarImplicit": scalar_of,
    "aten::full": full,
    # Views
    "aten::view_as": view_as,
    "aten::reshape_as": view_as,
    "aten::slice.Tensor": slice_,
    "aten::split.Tensor": split_equal,
    "aten::split.sizes": split_sizes("split_size"),
    "aten::split": split_sizes("split_sizes"),
    "aten::split_with_sizes": split_sizes("split_sizes"),
    "aten::chunk": chunk,
    "aten::unbind.int": unbind,
}
