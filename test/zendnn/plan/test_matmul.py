"""Linear layers and matrix products in plans: any size, layout and implementation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from test.drawing import property_test

from ..common import (
    HAS_TILES,
    HAS_WIDE_VECTORS,
    PRIMITIVE_DTYPES,
    PRODUCT_DTYPES,
    primitive_dtypes,
)
from ..support.choices import Choices
from ..support.graphs import Builder
from ..support.plans import (
    FLOOR,
    arena_bytes,
    check,
    copies_of,
    implementations,
    interpret,
    left_of,
    make_plan,
    region_of,
    tensor,
    then,
)
from ..support.samples import arrangements, joined, lengths, made


@property_test
@given(data=st.data())
def test_linear_layers(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, inputs, outputs = draw(primitive_dtypes), draw(lengths), draw(lengths)
    shape = (*draw(st.lists(st.sampled_from([1, 2, 5, 17]), max_size=3)), inputs)
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    check(b, b.linear(x, outputs, inputs, bias=draw(st.booleans())), dtype=dtype)


def has_own_tiles_only(dtype: torch.dtype, depth: int) -> bool:
    """Whether weights are multiplied on AMX tiles in their own layout only: oneDNN 3.12 and later.

    Tiles take pairs of rows.
    """
    version = tuple(map(int, torch.backends.zendnn._C._version().split(".")))
    return HAS_TILES and dtype == torch.bfloat16 and depth % 2 == 0 and version >= (3, 12)


@pytest.mark.parametrize("dtype", PRODUCT_DTYPES)
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 33, 70), (37, 96, 129), (64, 768, 768)]
)
def test_every_candidate_of_a_linear_layer(
    rows: int,
    inputs: int,
    outputs: int,
    dtype: torch.dtype,
    choices: Choices,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Plain and packed weights, panels of any width, and BLIS: the tuning cache selects each."""
    zendnn = torch.backends.zendnn

    def run() -> str:
        b = Builder()
        y = b.linear(b.input(tensor(rows, inputs, dtype=dtype)), outputs, inputs, bias=True)
        y = then(b, y, "relu", ("add", b.input(tensor(rows, outputs, dtype=dtype))))
        plan = check(b, y, dtype=dtype)
        return next(name for name in implementations(plan) if not name.startswith("copy"))

    with zendnn.verbose(zendnn.VERBOSE_ON):
        run()
    timed = [x.split(",")[2] for x in capfd.readouterr().out.splitlines() if ",tune," in x]
    assert len(timed) == len(set(timed))
    takes_panels = HAS_WIDE_VECTORS and not has_own_tiles_only(dtype, inputs)
    assert any("panels of 32" in way for way in timed) == takes_panels
    assert any("plain" in way and "gemm" in way for way in timed)
    assert len(choices.keys()) == 1
    for way in timed:
        choices.choose(way)
        assert run() == way


@pytest.mark.parametrize("shape", [(4, 1, 16), (1, 4, 16), (4, 16), (4, 3, 16), (16,)])
def test_linear_layers_of_rows_that_repeat(b: Builder, shape: tuple[int, ...]) -> None:
    """As a class token, which the whole batch shares."""
    base = tensor(*[1] * (len(shape) - 1), 16)
    x = b.input(base.expand(shape))
    check(b, b.linear(x, 8, 16))


def test_linear_layers_of_windows_that_overlap(b: Builder) -> None:
    """Each row starts one element after the previous one."""
    check(b, b.linear(b.input(tensor(40).unfold(0, 16, 1)), 8, 16))


@property_test
@given(data=st.data())
def test_matrix_products(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, rows, inner, columns = (
        draw(primitive_dtypes),
        draw(lengths),
        draw(lengths),
        draw(lengths),
    )
    batch = draw(st.lists(st.sampled_from([2, 3]), max_size=3))
    fewer = [
        [size if draw(st.booleans()) else 1 for size in batch[draw(st.integers(0, len(batch))) :]]
        for _ in range(2)
    ]
    layouts = [draw(arrangements) for _ in range(2)]
    left = b.input(tensor(*fewer[0], rows, inner, dtype=dtype, layout=layouts[0]))
    right = b.input(tensor(*fewer[1], inner, columns, dtype=dtype, layout=layouts[1], seed=1))
    check(b, b("matmul", left, right), dtype=dtype)


@property_test
@given(data=st.data())
def test_products_of_repeated_matrices(data: st.DataObject) -> None:
    """Of any of 3 to 6 dimensions, of either operand or both, with post-ops of the result."""
    b, draw = Builder(), data.draw
    dtype = draw(primitive_dtypes)
    rows, inner, columns = (draw(st.sampled_from((1, 2, 5, 16, 33))) for _ in range(3))
    batch = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=4))
    factors, batches = [], []
    for seed, matrix in enumerate([(rows, inner), (inner, columns)]):
        own = [size if draw(st.booleans()) else 1 for size in batch]
        transposed, expands = draw(st.booleans()), draw(st.booleans())
        shape = (*own, *matrix[::-1]) if transposed else (*own, *matrix)
        x = b.input(tensor(*shape, dtype=dtype, seed=seed))
        x = b("transpose", x, -1, -2) if transposed else x
        factors.append(b("expand", x, *batch, -1, -1) if expands else x)
        batches.append(batch if expands else own)
    result = (*torch.broadcast_shapes(*batches), rows, columns)
    posts: list[str | tuple[Any, ...]] = []
    for seed in range(draw(st.integers(0, 2))):
        added = [size if draw(st.booleans()) else 1 for size in result]
        posts += [("add", b.input(tensor(*added, dtype=dtype, seed=seed + 7))), "relu"]
    check(b, then(b, b("matmul", *factors), *posts), dtype=dtype)


#: Shapes of two factors before and after they are expanded, the one that is left whole.
REPEATED = {
    "right": ((64, 1, 128), (64, 1, 128), (1, 128, 96), (64, 128, 96)),
    "right of several rows": ((64, 3, 128), (64, 3, 128), (128, 96), (64, 128, 96)),
    "left": ((1, 8, 128), (512, 8, 128), (512, 128, 16), (512, 128, 16)),
    "both": ((1, 2, 128), (64, 2, 128), (1, 128, 96), (64, 128, 96)),
    "right of heads": ((8, 8, 4, 128), (8, 8, 4, 128), (8, 1, 128, 16), (8, 8, 128, 16)),
    "right of images": ((8, 8, 4, 128), (8, 8, 4, 128), (1, 8, 128, 16), (8, 8, 128, 16)),
    "each once": ((8, 1, 4, 128), (8, 8, 4, 128), (1, 8, 128, 16), (8, 8, 128, 16)),
    "five": ((4, 4, 4, 4, 64), (4, 4, 4, 4, 64), (4, 1, 1, 64, 16), (4, 4, 4, 64, 16)),
    "six": ((4, 4, 8, 4, 4, 64), (4, 4, 8, 4, 4, 64), (64, 16), (4, 4, 8, 4, 64, 16)),
}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("expands", [False, True])
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("name", REPEATED)
def test_repeated_matrices_are_not_made_whole(
    b: Builder, name: str, dtype: torch.dtype, expands: bool, transposed: bool
) -> None:
    factors, whole = [], 0
    for seed, (own, wide) in enumerate((REPEATED[name][:2], REPEATED[name][2:])):
        turned = seed == 1 and transposed
        x = tensor(*own[:-2], *reversed(own[-2:]) if turned else own[-2:], dtype=dtype, seed=seed)
        value = b.input(x)
        value = b("transpose", value, -1, -2) if turned else value
        factors.append(b("expand", value, *wide) if expands else value)
        if math.prod(own) < math.prod(wide):
            whole = max(whole, math.prod(wide) * dtype.itemsize)
    product = b("matmul", *factors)
    plan = check(b, b.eltwise("relu", product) if name == "six" else product, dtype=dtype)
    assert not left_of(plan)
    assert whole
    assert arena_bytes(plan) <= whole // 4, implementations(plan)
    assert not any("ref" in step for step in implementations(plan)), implementations(plan)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_constants_that_are_repeated_are_not_made_whole(b: Builder, dtype: torch.dtype) -> None:
    matrix = tensor(1, 128, 96, dtype=dtype, seed=1)
    x = b.input(tensor(64, 1, 128, dtype=dtype))
    out = b("matmul", x, b.graph.constant(matrix.expand(64, -1, -1)))
    plan = make_plan(region_of(b, out), dtype)
    assert plan.takes(b.examples, [])
    (got,) = plan.run(b.examples, [])
    exact = b.examples[0].double() @ matrix.double()
    assert (got.double() - exact).abs().max() <= 2 * FLOOR[dtype] * exact.abs().max()
    assert arena_bytes(plan) <= 64 * 128 * 96 * dtype.itemsize // 8


def test_products_of_views(b: Builder) -> None:
    """Scores of an attention that is not fused."""
    x = made(b, 3, 7, 4 * 6)
    q = b("transpose", b("view", x, 3, 7, 4, 6), 1, 2)
    scores = b("matmul", q, b("transpose", q, -1, -2))
    out = b("transpose", b("matmul", b("softmax", scores, dim=-1), q), 1, 2)
    check(b, b("view", out, 3, 7, -1))


@pytest.mark.parametrize("post", ["", "abs"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 1), (1, 7)),
        ((2, 3, 5, 1), (1, 7)),
        ((1, 1), (1, 1)),
        ((1, 1), (1, 7)),
        ((5, 1), (1, 1)),
        ((2, 3, 1), (1, 1)),
    ],
)
def test_products_of_a_column_and_a_row_have_zeros_of_the_same_sign(
    b: Builder, shapes: tuple[tuple[int, ...], ...], post: str
) -> None:
    """As in torch, in float32: 1 divided by them is an infinity of that sign."""
    left, right = (b.input(tensor(*shape, seed=seed)) for seed, shape in enumerate(shapes))
    b.examples[0].view(-1)[::2] = 0
    b.examples[1].view(-1)[::2] = -1
    product = b("matmul", left, right)
    region = region_of(b, then(b, product, post) if post else product)
    plan = make_plan(region)
    (got,) = plan.run(b.examples, [])
    (want,) = interpret(region, b.examples, torch.float32, torch.float32)
    assert not left_of(plan)
    assert torch.equal(got, want)
    assert torch.equal(got.signbit(), want.signbit())


@pytest.mark.parametrize(("rows", "outputs"), [(3, 6), (1, 6), (3, 1)])
def test_linear_layers_of_one_input_have_zeros_of_the_same_sign(
    b: Builder, rows: int, outputs: int
) -> None:
    x = b.input(torch.tensor([[0.0], [-0.0], [1.0]])[:rows])
    region = region_of(b, b.linear(x, outputs, 1))
    (got,) = make_plan(region).run(b.examples, [])
    (want,) = interpret(region, b.examples, torch.float32, torch.float32)
    assert torch.equal(got.signbit(), want.signbit())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_linear_layers_with_a_result_in_float32(b: Builder, dtype: torch.dtype, bias: bool) -> None:
    """It is never rounded to the layer's dtype."""
    x = b.input(tensor(3, 5, 33, dtype=dtype))
    out = b("linear", x, b.constant(17, 33), b.constant(17) if bias else None, dtype="float32")
    region = region_of(b, then(b, out, "relu"))
    (got,) = make_plan(region, dtype).run(b.examples, [])
    (exact,) = interpret(region, b.examples, torch.float64, dtype)
    assert got.dtype == torch.float32
    assert (got.double() - exact).abs().max() <= 1e-5 * exact.abs().max()


#: Shapes of operands for a product of (2, 3, 5, 7), and whether the primitive accepts them.
PRODUCT_OPERANDS: dict[tuple[int, ...], bool] = {
    **dict.fromkeys([(2, 3, 5, 7), (2, 3, 1, 7), (1, 1, 5, 7), (5, 7), (1, 7), (7,)], True),
    **dict.fromkeys([(1,), (), (1, 1, 1, 1)], True),
    **dict.fromkeys([(2, 1, 1, 7), (2, 1, 5, 7), (1, 3, 5, 7)], False),
}


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("shape", PRODUCT_OPERANDS, ids=str)
def test_products_scale_and_mask_their_result(
    b: Builder, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """In one step if the mask's matrices are a constant stride apart."""
    q, k = b.input(tensor(2, 3, 5, 8, dtype=dtype)), b.input(tensor(2, 3, 8, 7, dtype=dtype))
    mask = b.input(tensor(*shape, dtype=dtype, seed=3))
    out = then(b, b("matmul", q, k), ("affine", 0.5, 0.0), ("add", mask))
    plan = check(b, out, dtype=dtype)
    steps = implementations(plan)
    if dtype in PRODUCT_DTYPES:
        assert len(steps) == (1 if PRODUCT_OPERANDS[shape] else 2), steps


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("use", ["dies", "read later", "result"])
def test_products_are_added_to_a_residual(
    b: Builder, use: str, shared: bool, dtype: torch.dtype
) -> None:
    x = b.input(tensor(2, 3, 5, 8, dtype=dtype))
    y = b.input(tensor(*(() if shared else (2, 3)), 8, 7, dtype=dtype))
    residual = made(b, 2, 3, 5, 7, dtype=dtype, seed=3)
    out = then(b, b("matmul", x, y), ("add", residual), "relu")
    if use == "read later":
        out = b.binary("mul", out, residual)
    results = [residual, out] if use == "result" else [b.eltwise("tanh", out)]
    plan = check(b, *results, dtype=dtype)
    assert len(implementations(plan)) == {"dies": 3, "read later": 3, "result": 2}[use]


def test_interleaved_matrices_are_multiplied_in_place(b: Builder) -> None:
    """Heads of one image or sentence, interleaved in one tensor."""
    x, y = b.input(tensor(1, 7, 4, 8)), b.input(tensor(1, 7, 4, 8, seed=1))
    plan = check(b, b("matmul", b("permute", x, 0, 2, 1, 3), b("permute", y, 0, 2, 3, 1)))
    assert copies_of(plan) == 0, implementations(plan)


@pytest.mark.parametrize("strides", [(1, 2), (2, 16), (1, 8)], ids=str)
def test_a_matrix_of_any_strides(b: Builder, strides: tuple[int, int]) -> None:
    x = b.input(tensor(200).as_strided((8, 6), strides))
    check(b, b("matmul", x, b.input(tensor(6, 5))))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES, ids=str)
@pytest.mark.parametrize("wide", ["left", "right", "both"])
@pytest.mark.parametrize("batch", [(2, 3), (3, 2), (2, 4), (2, 2, 3)], ids=str)
def test_batches_with_gaps_between_them(
    b: Builder, batch: tuple[int, ...], wide: str, dtype: torch.dtype
) -> None:
    """The stride of the first dimension is as many of the last one's as there are matrices."""
    rows, depth, columns = 1, 4, 4
    count = math.prod(batch)

    def spread(*matrix: int) -> torch.Tensor:
        inner = 4 * math.prod(matrix)
        strides = [inner * math.prod(batch[dim + 1 :]) for dim in range(len(batch))]
        strides[0] = inner * count
        x = torch.empty_strided((*batch, *matrix), (*strides, matrix[1], 1), dtype=dtype)
        return x.copy_(torch.randn(x.shape))

    narrow = (1, *batch[1:])
    left = spread(rows, depth) if wide != "right" else tensor(*narrow, rows, depth, dtype=dtype)
    right = (
        spread(depth, columns) if wide != "left" else tensor(*narrow, depth, columns, dtype=dtype)
    )
    check(b, b("matmul", b.input(left), b.input(right)), dtype=dtype)


@pytest.mark.parametrize("apart", [0, 1, 5, 47], ids=str)
def test_matrices_that_share_memory(b: Builder, apart: int) -> None:
    x = b.input(tensor(400).as_strided((3, 8, 6), (apart, 6, 1)))
    check(b, b("matmul", x, b.input(tensor(3, 6, 5))))


@pytest.mark.parametrize("op", ["linear", "matmul"])
@pytest.mark.parametrize("dies", [False, True])
def test_a_residual_with_gaps(b: Builder, dies: bool, op: str) -> None:
    wide = made(b, 5, 12) if dies else b.input(tensor(5, 12))
    residual = b("slice", wide, 1, 0, 6, 1)
    x = b.input(tensor(5, 7))
    y = b.linear(x, 6, 7) if op == "linear" else b("matmul", x, b.input(tensor(7, 6)))
    check(b, b.eltwise("relu", then(b, y, ("add", residual))))


def test_one_matrix_as_weight_operand_and_term(b: Builder) -> None:
    weight, x = b.constant(32, 32), b.input(tensor(32, 32))
    layer = b("linear", x, weight, None)
    check(b, layer, b("matmul", x, weight), b.binary("add", x, weight))


def test_layers_that_share_a_part_of_their_weights(b: Builder) -> None:
    first, *others = b.constant(4, 5), b.constant(6, 5), b.constant(6, 5)
    x = b.input(tensor(3, 5))
    check(b, *(b("linear", x, joined(b, first, other, dim=0), None) for other in others))


@pytest.mark.parametrize("use", ["result", "columns", "float64"])
def test_a_layer_with_computed_weights(b: Builder, use: str) -> None:
    """It is left to torch, which multiplies by the plan's result."""
    x = b.input(tensor(3, 5))
    if use == "columns":
        weight = joined(b, b.constant(4, 2), b.constant(4, 3), dim=1)
    else:
        first = b.graph.constant(torch.randn(5, 4, dtype=torch.float64).t())
        weight = joined(b, first if use == "float64" else b.constant(4, 5), b.constant(6, 5), dim=0)
    layer = b("linear", x, weight, None)
    results = [layer, weight] if use == "result" else [layer]
    (left,) = left_of(check(b, *results))
    assert "weights are computed" in left["reason"]
