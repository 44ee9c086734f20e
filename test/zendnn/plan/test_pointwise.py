"""Functions, binary operators, choices, prelu and conversions in plans."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.table import dtypes as table_dtypes
from torch.backends.zendnn.table import functions

from test.drawing import property_test

from ..common import DTYPES, PRIMITIVE_DTYPES, dtypes, stock
from ..cpu.ulps import floats, ulps
from ..support.graphs import Builder
from ..support.interpreter import BINARY
from ..support.plans import (
    check,
    copies_of,
    implementations,
    interpret,
    make_plan,
    refusal,
    region_of,
    tensor,
    tensors_and_numbers,
    then,
)
from ..support.samples import (
    BEFORE,
    FUNCTIONS,
    ONCE,
    arrangements,
    convolved,
    is_round,
    lengths,
    made,
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(b: Builder, name: str, dtype: torch.dtype) -> None:
    """On an input, and in place on a value without other readers."""
    if is_round(name, dtype):
        pytest.skip("an error of half a unit in the last place may round to a whole unit")
    results = []
    for layout in ("contiguous", "transposed", "strided", "channels_last", "repeated"):
        x = b.input(tensor(3, 17, 5, 7, dtype=dtype, layout=layout))
        for before in BEFORE.get(name, ()):
            x = b.eltwise(before[0], x, *before[1:])
        results.append(b.eltwise(name, x, *FUNCTIONS[name]))
        results.append(b.eltwise(name, b.eltwise("abs", results[-1]), *FUNCTIONS[name]))
    if name in ONCE:
        results = results[::2]
    check(b, *results, dtype=dtype)


def in_torch(name: str, x: Tensor) -> Tensor:
    """What torch's own operator makes of x, by the first mapping of a function."""
    mapping = functions.FUNCTIONS[name].mappings[0]
    values = dict(zip(("alpha", "beta"), FUNCTIONS[name], strict=True))
    arguments = mapping.arguments_for({"x": x, **values})
    del arguments["self"]
    result: Tensor = getattr(torch.ops.aten, mapping.name.removeprefix("aten::"))(x, **arguments)
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("x", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", [x for x in FUNCTIONS if functions.FUNCTIONS[x].aten])
def test_functions_of_infinity_and_nan_are_torchs(
    b: Builder, name: str, x: float, dtype: torch.dtype
) -> None:
    argument = torch.full((37,), x, dtype=dtype)
    (got,) = make_plan(region_of(b, b.eltwise(name, b.input(argument), *FUNCTIONS[name]))).run(
        [argument], []
    )
    with stock():
        want, alone = in_torch(name, argument), in_torch(name, argument[:1]).expand(37)
    # torch's vector and scalar code differ in gelu(∞).
    options = {"rtol": 0, "atol": 0, "equal_nan": True}
    assert any(torch.allclose(got, other, **options) for other in (want, alone))


@pytest.mark.parametrize(("name", "most"), [("exp", 0.57), ("tanh", 0.57), ("atan", 1.02)])
def test_functions_are_precise(b: Builder, name: str, most: float) -> None:
    """In units in the last place, of which stock torch's errors are 0.572, 0.569 and 0.51."""
    x = floats(torch.float32)
    (got,) = make_plan(region_of(b, b.eltwise(name, b.input(x)))).run([x], [])
    exact = in_torch(name, x.double())
    normal = exact.isfinite() & (exact.abs() >= torch.finfo(x.dtype).tiny)
    assert ulps(got[normal], exact[normal]).max() <= most


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_images_in_blocks(b: Builder, name: str) -> None:
    """17 channels leave padding in the block, which must stay 0 for the next convolution."""
    x = convolved(b, b.input(tensor(2, 17, 6, 6)), 17, 17, 3)
    for before in BEFORE.get(name, ()):
        x = b.eltwise(before[0], x, *before[1:])
    y = b.eltwise(name, x, *FUNCTIONS[name])
    check(b, convolved(b, y, 17, 17, 3), b.eltwise("sigmoid", y))


@property_test
@given(data=st.data())
def test_binary_operators(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, name = draw(dtypes), draw(st.sampled_from(sorted(BINARY)))
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 33]), max_size=5))
    operands = []
    for seed in range(2):
        own = [n if draw(st.booleans()) else 1 for n in shape[draw(st.integers(0, len(shape))) :]]
        layout = draw(arrangements) if own else "contiguous"
        x = tensor(*own, dtype=dtype, layout=layout, seed=seed)
        x = x.abs() + 0.5 if name == "div" and seed else x
        operands.append(b.input(x))
        if draw(st.booleans()):
            operands[-1] = b.eltwise("abs", operands[-1])
    check(b, b.binary(name, *operands), dtype=dtype)


@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_is_the_larger_and_the_smaller_number(b: Builder, name: str) -> None:
    numbers = torch.tensor([math.nan, 1.0, -math.inf, math.inf, 0.0])
    x, y = b.input(numbers.repeat(5)), b.input(numbers.repeat_interleave(5))
    region = region_of(b, b.binary(name, x, y))
    (got,) = make_plan(region).run(b.examples, [])
    torch.testing.assert_close(got, BINARY[name](*b.examples), equal_nan=True)


OVERLAPPING: dict[str, Callable[[Builder, Value], tuple[Value, Value]]] = {
    "next and this": lambda b, x: (b("slice", x, 0, 1, None, 1), b("slice", x, 0, 0, -1, 1)),
    "this and next": lambda b, x: (b("slice", x, 0, 0, -1, 1), b("slice", x, 0, 1, None, 1)),
    "all and the first": lambda b, x: (x, b("slice", x, 0, 0, 1, 1)),
    "all and the last": lambda b, x: (x, b("select", x, 0, -1)),
    "the first and all": lambda b, x: (b("slice", x, 0, 0, 1, 1), x),
    "all and a column": lambda b, x: (x, b("slice", x, 1, 0, 1, 1)),
    "all and transposed": lambda b, x: (x, b("transpose", x, 0, 1)),
    "transposed and all": lambda b, x: (b("transpose", x, 0, 1), x),
    "all and one element": lambda b, x: (x, b("select", b("select", x, 0, 3), 0, 3)),
    "all and the same": lambda b, x: (x, b("view", x, 40, 40)),
}


@pytest.mark.parametrize("how", OVERLAPPING)
@pytest.mark.parametrize("name", ["sub", "mul"])
def test_two_views_of_one_value(b: Builder, name: str, how: str) -> None:
    """The result must not overwrite elements that are still to be read."""
    check(b, b.eltwise("relu", b.binary(name, *OVERLAPPING[how](b, made(b, 40, 40)))))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("slopes", [1, 17])
@pytest.mark.parametrize("shape", [(3, 17), (3, 17, 5), (3, 17, 5, 6), (2, 17, 3, 4, 5)])
def test_prelu(b: Builder, shape: tuple[int, ...], slopes: int, dtype: torch.dtype) -> None:
    results = []
    for layout in ("contiguous", "transposed", "padded", "channels_last", "repeated"):
        x = b.input(tensor(*shape, dtype=dtype, layout=layout))
        results.append(b("prelu", x, b.constant(slopes)))
    check(b, *results, dtype=dtype)


@pytest.mark.parametrize("slopes", [1, 17])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_prelu_of_dimensions_in_any_order(b: Builder, rank: int, batch: int, slopes: int) -> None:
    sizes = (batch, 17, 3, 4, 5)[:rank]
    results = []
    for order in itertools.permutations(range(rank)):
        lying = tensor(*(sizes[dim] for dim in order))
        back = [order.index(dim) for dim in range(rank)]
        results.append(b("prelu", b.input(lying.permute(back)), b.constant(slopes)))
    check(b, *results)


@pytest.mark.usefixtures("images")
def test_prelu_of_a_convolution(b: Builder) -> None:
    x = convolved(b, b.input(tensor(2, 3, 6, 6)), 3, 17, 3)
    check(b, convolved(b, b("prelu", x, b.constant(17)), 17, 8, 3))


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("count", [16, 17, 48])
def test_vectors_of_channels_meet_images(b: Builder, count: int, dtype: torch.dtype) -> None:
    """The fast path runs where channels fill their blocks."""
    x = convolved(b, b.input(tensor(2, 3, 6, 6, dtype=dtype)), 3, count, 3)
    y = b("prelu", x, b.constant(count))
    y = b.binary("mul", b.binary("sub", y, b.constant(count, 1, 1)), b.constant(1, count, 1, 1))
    y = then(b, b.binary("add", y, b.input(tensor(1, count, 1, 1, dtype=dtype))), "relu")
    plan = check(b, convolved(b, y, count, 8, 3), dtype=dtype)
    if count % 16 == 0:
        assert not [name for name in implementations(plan) if "ref" in name]


#: Those that kernels convert.
CONVERTED = [getattr(torch, name) for name in table_dtypes.CONVERTED]


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "repeated"])
@pytest.mark.parametrize("to", table_dtypes.CONVERTED)
@pytest.mark.parametrize(
    "dtype",
    [*CONVERTED, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8],
)
def test_conversions(b: Builder, dtype: torch.dtype, to: str, layout: str) -> None:
    x = b.input(tensor(3, 17, dtype=dtype, layout=layout))
    plan = make_plan(region_of(b, b("to", x, dtype=to)))
    (got,) = plan.run(b.examples, [])
    assert torch.equal(got, b.examples[0].to(getattr(torch, to)))


def test_all_numbers_of_float16(b: Builder) -> None:
    """Each of them, as float32 and as bfloat16, and what many floats are rounded to."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    many = torch.cat([floats(torch.float32), every.float() * 1.0001])
    x, y = b.input(every), b.input(many)
    results = b("to", x, dtype="float32"), b("to", x, dtype="bfloat16"), b("to", y, dtype="float16")
    got = make_plan(region_of(b, *results)).run([every, many], [])
    for mine, want in zip(got, (every.float(), every.bfloat16(), many.half()), strict=True):
        torch.testing.assert_close(mine, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("like", [*DTYPES, torch.int64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions_to_the_dtype_of_another(
    b: Builder, dtype: torch.dtype, like: torch.dtype
) -> None:
    x, y = b.input(tensor(3, 17, dtype=dtype)), b.input(tensor(2, dtype=like))
    plan = make_plan(region_of(b, b("to_like", b.eltwise("abs", x), y)))
    (got,) = plan.run(b.examples, [])
    assert torch.equal(got, b.examples[0].abs().to(like))


#: Sizes of images; their channels fill blocks, or do not.
RESIDUALS = [
    (1, 16, 6, 5),
    (3, 32, 6, 5),
    (1, 24, 6, 5),
    (2, 24, 1, 7),
    (1, 16, 1, 1),
    (2, 3, 4, 4),
]


def residuals(b: Builder, shape: tuple[int, ...]) -> tuple[Value, Value, Value]:
    """Two residuals of a network under autocast, in float32, and what the next layer reads."""
    channels = shape[1]
    narrow = convolved(b, b.input(tensor(*shape, dtype=torch.bfloat16)), channels, channels)
    totals: list[Value] = []
    for _ in range(2):
        y = convolved(b, narrow, channels, channels, 3)
        before = totals[-1] if totals else b("to", narrow, dtype="float32")
        totals.append(b.binary("add", before, b("to", y, dtype="float32")))
        narrow = b("to", totals[-1], dtype="bfloat16")
    return totals[0], totals[1], narrow


@pytest.mark.skipif(torch.bfloat16 not in PRIMITIVE_DTYPES, reason="bfloat16 needs AVX-512")
@pytest.mark.parametrize("shape", RESIDUALS)
def test_conversions_of_images(b: Builder, images: str, shape: tuple[int, ...]) -> None:
    *_, narrow = residuals(b, shape)
    plan = check(b, convolved(b, narrow, shape[1], 8), dtype=torch.bfloat16)
    if images == "channels_last":
        # The conversions and sums of a residual are one step, and none moves the image.
        steps = [name for name in implementations(plan) if "convert" in name]
        assert steps == ["convert, convert, binary add, convert", "convert, binary add, convert"]
    if shape[1] % 16 == 0 or images == "channels_last":
        assert copies_of(plan) <= 2, implementations(plan)  # at the borders


@pytest.mark.skipif(torch.bfloat16 not in PRIMITIVE_DTYPES, reason="bfloat16 needs AVX-512")
@pytest.mark.parametrize("shape", RESIDUALS)
@pytest.mark.parametrize("joins", [False, True])
def test_conversions_of_images_to_results(
    b: Builder, images: str, shape: tuple[int, ...], joins: bool
) -> None:
    """Results, and parts of one, lie as torch has them."""
    one, two, narrow = residuals(b, shape)
    result = b("cat", b("to", one, dtype="bfloat16"), narrow, dim=1) if joins else narrow
    check(b, result, two, dtype=torch.bfloat16)


def test_conversions_between_layers(b: Builder) -> None:
    x = b.eltwise("abs", b.input(tensor(5, 33)))
    narrow = b("to", x, dtype="bfloat16")
    same = b("to", narrow, dtype="bfloat16")
    wide = b("to", b.eltwise("tanh", same), dtype="float32")
    region = region_of(b, narrow, b.binary("add", wide, x))
    got = make_plan(region).run(b.examples, [])
    want = b.examples[0].abs()
    assert torch.equal(got[0], want.bfloat16())
    torch.testing.assert_close(got[1], want.bfloat16().tanh().float() + want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("layout", ["repeated", "repeated_last"])
def test_prelu_of_repeated_elements(b: Builder, layout: str) -> None:
    check(b, b("prelu", b.input(tensor(2, 3, 4, 5, layout=layout)), b.constant(3)))


# Choices between values and numbers.


@property_test
@given(data=st.data())
def test_choices(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    whole = tuple(draw(st.lists(lengths, min_size=1, max_size=4)))

    def operand(seed: int) -> Tensor:
        sizes = whole[draw(st.integers(0, len(whole))) :]
        shape = [n if draw(st.booleans()) else 1 for n in sizes]
        layout = draw(arrangements) if shape else "contiguous"
        return tensor(*shape, dtype=dtype, layout=layout, seed=seed)

    condition = b.input(operand(0) > 0)
    numbers = draw(st.sampled_from([(), (1,), (2,)]))
    x, y = (None if i in numbers else b.input(operand(i)) for i in (1, 2))
    value = draw(st.sampled_from([0.0, -1.5, -math.inf, 1e-9]))
    check_bits(b, b("where", condition, x, y, value=value))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool], ids=str
)
def test_nonzero_numbers_count_as_true(b: Builder, dtype: torch.dtype) -> None:
    numbers = b.input(torch.tensor([[0, 1, -2, 0, 3]]).to(dtype))
    x = b.input(tensor(7, 5))
    check_bits(b, b("where", b("nonzero", numbers), None, x, value=-1.0))


def check_bits(b: Builder, out: Value) -> None:
    """Check a plan that only selects values: its bits are exact."""
    (want,) = interpret(region_of(b, out), b.examples, torch.float64, torch.float32)
    plan = make_plan(region_of(b, out))
    tensors, _ = tensors_and_numbers(b.examples)
    assert plan.takes(tensors, []), refusal(plan)
    for _ in range(2):
        (got,) = plan.run(tensors, [])
        assert torch.equal(got, want.to(got.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_keep_nan_and_overwrite_nothing_that_is_read(
    b: Builder, dtype: torch.dtype
) -> None:
    condition, x = b.input(torch.rand(3, 70) < 0.5), b.input(tensor(3, 70, dtype=dtype))
    b.examples[1][:, ::7] = math.nan
    chosen = b("where", condition, x, None, value=math.inf)
    region = region_of(b, chosen, b("where", condition, None, x, value=-math.inf))
    got = make_plan(region).run(b.examples, [])
    want = [
        torch.where(b.examples[0], b.examples[1], math.inf),
        torch.where(b.examples[0], -math.inf, b.examples[1]),
    ]
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_several_numbers_to_choose(b: Builder) -> None:
    """Each number has its own memory."""
    x, condition = b.input(tensor(4, 5)), b.input(torch.rand(4, 5) < 0.5)
    chosen = [b("where", condition, None, x, value=value) for value in (1e-8, 2e-8, -1e-8)]
    out = b.binary("add", b.binary("add", chosen[0], chosen[1]), chosen[2])
    check(b, b.eltwise("affine", out, 1e6, 0.0))


REFUSED_CHOICES: dict[str, Callable[[Builder], Value]] = {
    "a condition of float": lambda b: b(
        "where", b.input(tensor(2)), b.input(tensor(2)), None, value=0.0
    ),
    "two types": lambda b: b(
        "where",
        b.input(torch.ones(2, dtype=torch.bool)),
        b.input(tensor(2)),
        b.input(tensor(2, dtype=torch.bfloat16)),
    ),
    "sizes that do not broadcast": lambda b: b(
        "where", b.input(torch.ones(2, dtype=torch.bool)), b.input(tensor(3)), None, value=0.0
    ),
    "an empty tensor": lambda b: b(
        "where", b.input(torch.ones(1, dtype=torch.bool)), b.input(tensor(0)), None, value=0.0
    ),
    "a number that bfloat16 does not hold": lambda b: b(
        "where",
        b.input(torch.ones(2, dtype=torch.bool)),
        b.input(tensor(2, dtype=torch.bfloat16)),
        None,
        value=3.4e38,
    ),
    "heads of several ranks": lambda b: b(
        "attention",
        *(b.input(tensor(*shape)) for shape in ((1, 2, 3, 8), (2, 3, 8), (2, 3, 8))),
        None,
        scale=0.5,
    ),
}


@pytest.mark.parametrize("why", REFUSED_CHOICES)
def test_choices_that_a_plan_refuses(b: Builder, why: str) -> None:
    plan = make_plan(region_of(b, REFUSED_CHOICES[why](b)))
    assert not plan.takes(b.examples, [])
    assert refusal(plan)


def test_one_number_of_two_types(b: Builder) -> None:
    where, x = b.input(torch.tensor([True, False, True])), b.input(tensor(3))
    y = b.input(tensor(3, dtype=torch.bfloat16))
    region = region_of(b, *(b("where", where, z, None, value=2.5) for z in (x, y)))
    examples = dict(zip(b.graph.inputs, b.examples, strict=True))
    for result in make_plan(region).run([examples[value] for value in region.inputs], []):
        assert result[1] == 2.5
