"""Convolutions, linear layers and matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.backends.zendnn.frontends.aten.elementwise import scaled
from torch.backends.zendnn.frontends.aten.mappings import operands
from torch.backends.zendnn.frontends.calls import Call, Refused
from torch.backends.zendnn.ir.node import SOME_FLOAT, SOME_INTEGER, Operand, Value
from torch.backends.zendnn.passes import _match
from torch.backends.zendnn.table.notation import Attribute


def linear(call: Call) -> None:
    """A linear layer: a matrix and, if any, a bias for each of its rows."""
    rows = call.weight("weight").shape[:-1]
    if len(rows) != 1:
        raise Refused("weight is no matrix")
    if not call.absent("bias") and call.weight("bias").shape != rows:
        raise Refused("bias has not one number for each row of weight")
    call.result("linear", operands(call, "linear", "input", "weight", "bias"))


def convolution(call: Call) -> None:
    """A convolution with constant weights."""
    kernel = call.weight("weight")
    spatial = kernel.dim() - 2
    if spatial not in (1, 2, 3):
        raise Refused(f"it has {spatial} spatial dimensions")
    # Of those that say nothing of it, only transposed ones have padding of their results.
    named = call.has("transposed")
    transposed = call.python("transposed") if named else call.has("output_padding")
    stride, dilation = (call.integers(name, spatial) for name in ("stride", "dilation"))
    attributes: dict[str, Attribute] = {"stride": stride, "dilation": dilation}
    attributes["groups"] = call.integer("groups")
    word = call.constant("padding")
    if isinstance(word, str):
        attributes |= padding_of_word(word, kernel.shape[2:], stride, dilation)
    else:
        attributes["padding"] = call.integers("padding", spatial)
    if transposed:
        attributes["transposed"] = True
        attributes["output_padding"] = call.integers("output_padding", spatial)
    inputs = operands(call, "convolution", "input", "weight", "bias")
    call.result("convolution", inputs, **attributes)


def padding_of_word(
    word: str, kernel: Sequence[int], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> dict[str, Attribute]:
    """Return what 'same' or 'valid' stands for."""
    if word == "valid":
        return {"padding": (0,) * len(stride)}
    if word != "same" or any(step != 1 for step in stride):
        raise Refused(f"padding is {word} and stride {stride}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    begin, end = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    padding: dict[str, Attribute] = {"padding": begin}
    return padding if begin == end else padding | {"padding_end": end}


def factors(call: Call, left: Value, right: Value) -> tuple[str, list[Operand]]:
    """Return the operator and the operands of a product; a constant matrix makes it a layer."""
    if len({left.dtype, right.dtype} - {None, SOME_FLOAT, SOME_INTEGER}) > 1:
        raise Refused("its factors have two dtypes")  # torch's error names its operator
    matrix = _matrix(right)
    if matrix is None or matrix.dim() != 2:
        matrix = _repeated_matrix(left, right)
    if matrix is None:
        return "matmul", [left, right]
    if not matrix.numel():
        raise Refused("its matrix is empty")
    return "linear", [left, call.graph.constant(matrix.t()), None]


def _matrix(value: Value) -> Tensor | None:
    """Return the constant that a value is or, as a matrix, the transpose of."""
    node = value.producer
    if node is None or not _match.is_swap(node, 0, 1, rank=2):
        return value.constant
    matrix = _match.constant(node.inputs[0])
    return matrix.t() if matrix is not None and matrix.dim() == 2 else None


def _repeated_matrix(left: Value, right: Value) -> Tensor | None:
    """Return the constant matrix that ``right`` repeats for each matrix of ``left``."""
    expand = _match.producer(right, "expand", "expand_as")
    matrix = right.constant if expand is None else _match.constant(expand.inputs[0])
    if matrix is None or left.dims is None or right.dims is None or None in left.dims[:-2]:
        return None
    while matrix.dim() > 2 and (matrix.shape[0] == 1 or matrix.stride(0) == 0):
        matrix = matrix[0]
    same = (matrix.shape, left.dims[:-2]) == (right.dims[-2:], right.dims[:-2])
    return matrix if same else None


def product(call: Call, *, a: str, b: str, rank: int | None = None) -> None:
    """A matrix product, of this rank; one with a constant matrix is a linear layer."""
    result = call.result(*factors(call, call.tensor(a), call.tensor(b)))
    if rank is not None:
        result.learn_dims((None,) * rank)


def product_and_sum(call: Call, *, a: str, b: str, rank: int) -> None:
    """``beta·self + alpha·(a @ b)``, of this rank, or a linear layer of constants."""
    alpha, beta = call.real("alpha"), call.real("beta")
    if beta == 0.0:  # self is not read, and may depend on what a region would not hand over
        raise Refused("beta is 0")
    added = call.tensor("self")
    op, operands = factors(call, call.tensor(a), call.tensor(b))
    vector = None if alpha != 1.0 or beta != 1.0 else added.constant
    weight = _match.constant(operands[1]) if op == "linear" else None
    if vector is not None and weight is not None and vector.shape == weight.shape[:1]:
        result = call.step(op, [*operands[:2], added])
    else:
        product = call.step(op, operands)
        if None not in (product.dtype, added.dtype) and product.dtype != added.dtype:
            raise Refused("self has another dtype than the product")
        result = scaled(call, product, alpha)
        result = call.step("binary", [result, scaled(call, added, beta)], algorithm="add")
    call.identity(result)
    result.learn_dims((None,) * rank)


def einsum(call: Call) -> None:
    """A product of matrices or of elements, whatever the order of their dimensions."""
    elements = call.elements("tensors")
    terms, _, result = call.python("equation").replace(" ", "").partition("->")
    left, _, right = terms.partition(",")
    a, b, c = (set(term) for term in (left, right, result))
    batch = [letter for letter in left if letter in b & c]
    inner = [letter for letter in left if letter in b - c]
    rows = [letter for letter in left if letter not in b]
    columns = [letter for letter in right if letter not in a]
    if (
        len(elements) != 2
        or not all(t.isalpha() and len(t) == len(set(t)) for t in (left, right, result))
        or c != (a | b).difference(inner)
    ):
        raise Refused("it is not a product of two matrices")
    x, y = (call.as_tensor(element, "tensors") for element in elements)
    weight = y.constant
    if inner and not batch and rows and columns and weight is not None:
        # Several dimensions of a weight are one of the layer.
        weight = weight.permute([right.index(letter) for letter in (*inner, *columns)])
        sizes = weight.shape[len(inner) :]
        x = _permuted(call, x, left, [*rows, *inner])
        if len(inner) > 1:
            x = call.step("flatten", [x, len(rows), len(left) - 1])
        matrix = call.graph.constant(weight.reshape(-1, sizes.numel()))
        product = call.step(*factors(call, x, matrix))
        if len(columns) > 1:
            product = call.step("unflatten", [product, len(rows), *sizes])
        call.identity(_permuted(call, product, "".join([*rows, *columns]), list(result)))
        return
    # What else one of them has is one more batch, which the other is broadcast along.
    if inner and (len(inner), min(len(rows), len(columns))) != (1, 1):
        raise Refused("it is not a product of two matrices")
    if not inner:
        spread = [_spread(call, x, left, result), _spread(call, y, right, result)]
        call.result("binary", spread, algorithm="mul")
        return
    x = _permuted(call, x, left, [*rows[:-1], *batch, rows[-1], *inner])
    y = _permuted(call, y, right, [*columns[:-1], *batch, *inner, columns[-1]])
    output = [*rows[:-1], *columns[:-1], *batch, rows[-1], columns[-1]]
    product = call.step(*factors(call, x, y))
    call.identity(_permuted(call, product, "".join(output), list(result)))


def _permuted(call: Call, x: Value, dims: str, order: Sequence[str]) -> Value:
    if list(dims) == order:
        return x
    places = [dims.index(letter) for letter in order]
    if x.constant is not None:
        return call.graph.constant(x.constant.permute(places))
    return call.step("permute", [x, *places])


def _spread(call: Call, x: Value, dims: str, result: str) -> Value:
    """Return a tensor with all dimensions of a result, of which it may be broadcast along some."""
    x = _permuted(call, x, dims, [letter for letter in result if letter in dims])
    for place, letter in enumerate(result):
        if letter not in dims:
            x = call.step("unsqueeze", [x, place])
    return x
