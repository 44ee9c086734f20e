"""Random modules, traced or scripted, frozen and optimised, compared with stock torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.backends.zendnn.frontends import torchscript

from test.drawing import Draw, examples

from ..common import PRIMITIVE_DTYPES, SLACK, stock, values

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

some = examples(60, phases=[Phase.generate, Phase.shrink])

Step = Callable[[list[Tensor]], Tensor]
Shape = tuple[int, ...]


@pytest.fixture(autouse=True)
def quickly_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Implementations are timed briefly, so that not only the first one runs."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0.02")


class Program(nn.Module):
    """A sequence of steps, each of which adds a tensor to the previous ones."""

    def __init__(self, layers: list[nn.Module], steps: list[Step], results: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.steps = steps
        self.results = results

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        result = [x]
        for step in self.steps:
            result.append(step(result))
        # Every tensor is read, if not as a result then one step later.
        return (*(result[i] for i in self.results), *(F.relu(y) for y in result[1:]))


@dataclass
class Writer:
    """A program under construction; shapes have a batch of 3."""

    draw: Draw
    shapes: list[Shape]
    layers: list[nn.Module] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def chance(self, of: int = 2) -> bool:
        return self.number(1, of) == 1

    def pick(self) -> int:
        """The index of a random tensor, more often a late one."""
        first = max(0, len(self.shapes) - 3) if self.chance() else 0
        return self.number(first, len(self.shapes) - 1)

    def like(self, shape: Shape) -> int:
        found = [i for i, other in enumerate(self.shapes) if other == shape]
        return found[self.number(0, len(found) - 1)]

    def layer(self, make: Callable[[], nn.Module], kind: type[nn.Module]) -> nn.Module:
        """A new layer, or one that is already in use."""
        fresh = make()
        for old in self.layers:
            if isinstance(old, kind) and repr(old) == repr(fresh) and self.chance(3):
                return old
        self.layers.append(fresh)
        return fresh

    def add(self, step: Step, *shape: int) -> None:
        self.steps.append(step)
        self.shapes.append(shape)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "relu6": F.relu6,
    "elu": F.elu,
    "mish": F.mish,
    "leaky": F.leaky_relu,
    "clamp": lambda x: torch.clamp(x * 2, -0.5, 1.0),
    "swish": lambda x: x * torch.sigmoid(x),
    "scaled": lambda x: 0.5 * x - 0.25,
    "square": lambda x: x.tanh().pow(2),
}
IN_PLACE: list[Callable[[Tensor, Tensor], Any]] = [
    lambda x, y: x.relu_(),
    lambda x, y: x.add_(y),
    lambda x, y: x.mul_(0.5),
    lambda x, y: x[:, :1].mul_(2.0),
    lambda x, y: x[1:].add_(1.0),
    lambda x, y: x.clamp_(-1, 1),
    lambda x, y: x.sub_(y.mean()),
]


def activation(w: Writer) -> None:
    i, function = w.pick(), w.draw(st.sampled_from(sorted(ACTIVATIONS)))
    w.add(lambda made: ACTIVATIONS[function](made[i]), *w.shapes[i])


def binary(w: Writer) -> None:
    i = w.pick()
    j = w.like(w.shapes[i])
    functions = (torch.add, torch.sub, torch.maximum, lambda x, y: x * y.sigmoid())
    function = functions[w.number(0, 3)]
    w.add(lambda made: function(made[i], made[j]), *w.shapes[i])


def in_place(w: Writer) -> None:
    """Changes a tensor other than the input in place, and reads it again."""
    if len(w.shapes) < 2:
        return
    i = w.number(1, len(w.shapes) - 1)
    j = w.like(w.shapes[i])
    change = IN_PLACE[w.number(0, len(IN_PLACE) - 1)]

    def step(made: list[Tensor]) -> Tensor:
        made[i] = made[i].clone() if made[i]._base is not None else made[i]
        change(made[i], made[j] * 1.0)
        return made[i] + 1.0

    w.add(step, *w.shapes[i])


def joined(w: Writer) -> None:
    i = w.pick()
    shape = w.shapes[i]
    others = [k for k, s in enumerate(w.shapes) if (s[0], *s[2:]) == (shape[0], *shape[2:])]
    parts = [i, *(others[w.number(0, len(others) - 1)] for _ in range(w.number(1, 2)))]
    total = sum(w.shapes[k][1] for k in parts)
    if total <= 96:
        w.add(lambda made: torch.cat([made[k] for k in parts], 1), shape[0], total, *shape[2:])


def sliced(w: Writer) -> None:
    i = w.pick()
    n, c, *rest = w.shapes[i]
    if c < 2:
        return
    start = w.number(0, c // 2)
    stop = w.number(start + 1, c)
    w.add(lambda made: made[i][:, start:stop], n, stop - start, *rest)


def neighbours(w: Writer) -> None:
    """The differences of neighbouring channels."""
    i = w.pick()
    n, c, *rest = w.shapes[i]
    if c > 1:
        w.add(lambda made: made[i][:, 1:] - made[i][:, :-1], n, c - 1, *rest)


def centred(w: Writer) -> None:
    """All channels minus the first."""
    i = w.pick()
    w.add(lambda made: made[i] - made[i][:, :1], *w.shapes[i])


COMMON = [activation, activation, binary, binary, in_place, joined, sliced, neighbours, centred]


# Images.


def convolution(w: Writer) -> None:
    i = w.pick()
    n, c, h, width = w.shapes[i]
    out = (3, 8, 16, 17)[w.number(0, 3)]
    size, stride = (1, 3)[w.number(0, 1)], 2 if w.chance(4) else 1
    groups = c if w.chance(4) else 1
    out = c if groups > 1 else out
    layer = w.layer(
        lambda: nn.Conv2d(c, out, size, stride, size // 2, groups=groups, bias=bool(out % 2)),
        nn.Conv2d,
    )
    w.add(lambda made: layer(made[i]), n, out, (h - 1) // stride + 1, (width - 1) // stride + 1)


def transposed_convolution(w: Writer) -> None:
    i = w.pick()
    n, c, h, width = w.shapes[i]
    if max(h, width) > 12:
        return
    layer = w.layer(lambda: nn.ConvTranspose2d(c, 8, 2, 2), nn.ConvTranspose2d)
    w.add(lambda made: layer(made[i]), n, 8, 2 * h, 2 * width)


def batch_norm(w: Writer) -> None:
    i = w.pick()
    layer = w.layer(lambda: nn.BatchNorm2d(w.shapes[i][1]), nn.BatchNorm2d)
    w.add(lambda made: layer(made[i]), *w.shapes[i])


def pool(w: Writer) -> None:
    i, kind = w.pick(), w.number(0, 3)
    n, c, h, width = w.shapes[i]
    if min(h, width) < 3:
        return
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: F.max_pool2d(x, 3, 1, 1),
        lambda x: F.avg_pool2d(x, 3, 1, 1),
        lambda x: F.avg_pool2d(x, 2, count_include_pad=False),
        lambda x: F.max_pool2d(x, 2),
    ]
    size = (h, width) if kind < 2 else (h // 2, width // 2)
    w.add(lambda made: functions[kind](made[i]), n, c, *size)


def gate(w: Writer) -> None:
    i = w.pick()
    c = w.shapes[i][1]
    layer = w.layer(lambda: nn.Conv2d(c, c, 1), nn.Conv2d)
    w.add(
        lambda made: made[i] * torch.sigmoid(layer(F.adaptive_avg_pool2d(made[i], 1))),
        *w.shapes[i],
    )


def transposed(w: Writer) -> None:
    i = w.pick()
    n, c, h, width = w.shapes[i]
    w.add(lambda made: made[i].transpose(2, 3), n, c, width, h)


def flattened(w: Writer) -> None:
    """A view of rows with the dimensions of an image."""
    i = w.pick()
    n, c, h, width = w.shapes[i]
    w.add(lambda made: made[i].flatten(1).unflatten(1, (width, c, h)), n, width, c, h)


def part_and_view(w: Writer) -> None:
    """A part of a concatenation, and a view of it that is read after a function of the part."""
    i = w.pick()
    n, c, h, width = w.shapes[i]
    if min(h, width) < 3:
        return
    h, width = h // 2, width // 2
    one, two = (ACTIVATIONS[w.draw(st.sampled_from(sorted(ACTIVATIONS)))] for _ in range(2))

    def step(made: list[Tensor]) -> Tensor:
        part = F.max_pool2d(made[i], 2)
        whole = torch.cat([part, part.neg()], 1).mean((2, 3))
        flat = part.flatten(1)
        means = one(part).mean((2, 3)) * whole[:, c:]
        return two(flat).unflatten(1, (c, h, width)) + means[:, :, None, None]

    w.add(step, n, c, h, width)


def shuffled(w: Writer) -> None:
    i = w.pick()
    n, c, h, width = w.shapes[i]
    if c % 2:
        return

    def step(made: list[Tensor]) -> Tensor:
        x = made[i]
        return x.view(x.size(0), 2, c // 2, h, width).transpose(1, 2).reshape(x.shape)

    # The trace records image sizes as constants: only the batch changes between calls.
    w.add(lambda made: step([y.contiguous() for y in made]), n, c, h, width)


def prelu(w: Writer) -> None:
    i = w.pick()
    c = w.shapes[i][1]
    layer = w.layer(lambda: nn.PReLU(c), nn.PReLU)
    w.add(lambda made: layer(made[i]), *w.shapes[i])


IMAGES = [
    *[convolution] * 5,
    *(transposed_convolution, batch_norm, pool, pool, gate, transposed, shuffled, prelu),
    *(flattened, part_and_view, part_and_view),
    *COMMON,
]


# Rows.


def linear(w: Writer) -> None:
    i = w.pick()
    shape = w.shapes[i]
    out = (shape[-1], 16, 5)[w.number(0, 2)]
    layer = w.layer(lambda: nn.Linear(shape[-1], out, bias=bool(out % 2)), nn.Linear)
    w.add(lambda made: layer(made[i]), *shape[:-1], out)


def layer_norm(w: Writer) -> None:
    i = w.pick()
    shape = w.shapes[i]
    j = w.like(shape)
    layer = w.layer(lambda: nn.LayerNorm(shape[-1], eps=0.25), nn.LayerNorm)
    alone = w.chance()
    w.add(lambda made: layer(made[i] if alone else made[i] + made[j]), *shape)


def softmax(w: Writer) -> None:
    i, last = w.pick(), w.chance()
    w.add(lambda made: F.softmax(made[i], -1 if last else 1), *w.shapes[i])


def attention(w: Writer) -> None:
    i = w.pick()
    shape = w.shapes[i]
    if shape[-1] % 4:
        return
    size = shape[-1]
    project = w.layer(lambda: nn.Linear(size, 3 * size), nn.Linear)
    fused = w.chance()

    def step(made: list[Tensor]) -> Tensor:
        x = made[i]
        n, t = x.size(0), x.size(1)
        q, k, v = (y.view(n, t, 2, size // 2).transpose(1, 2) for y in project(x).chunk(3, -1))
        if fused:
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            out = (q @ k.transpose(-2, -1) * (size / 2) ** -0.5).softmax(-1) @ v
        return out.transpose(1, 2).reshape(n, t, size)

    w.add(step, *shape)


def product(w: Writer) -> None:
    i = w.pick()
    n, t, _ = w.shapes[i]
    w.add(lambda made: torch.tanh(made[i] @ made[i].transpose(1, 2)), n, t, t)


def swapped(w: Writer) -> None:
    i = w.pick()
    n, t, size = w.shapes[i]
    w.add(lambda made: made[i].transpose(1, 2), n, size, t)


def reshaped(w: Writer) -> None:
    i = w.pick()
    n, t, size = w.shapes[i]
    if t % 2 == 0:
        w.add(lambda made: made[i].reshape(made[i].size(0), t // 2, 2 * size), n, t // 2, 2 * size)


def averaged(w: Writer) -> None:
    i = w.pick()
    n, t, size = w.shapes[i]
    w.add(lambda made: made[i] - made[i].mean(1, keepdim=True), n, t, size)


def repeated(w: Writer) -> None:
    """One row, like a class token, expanded to the batch."""
    i = w.pick()
    n, _, size = w.shapes[i]
    w.add(lambda made: made[i][:1, :1].expand(made[i].size(0), -1, -1), n, 1, size)


ROWS = [
    *[linear] * 5,
    *(layer_norm, layer_norm, softmax, attention, attention, product, swapped, reshaped),
    *(averaged, repeated, *COMMON),
]


# The property.


def program(draw: Draw, kinds: Sequence[Callable[[Writer], None]], shape: Shape) -> Program:
    w = Writer(draw, [shape])
    kinds[0](w)
    for _ in range(draw(st.integers(2, 9))):
        kinds[draw(st.integers(0, len(kinds) - 1))](w)
    results = [draw(st.integers(1, len(w.steps))) for _ in range(draw(st.integers(0, 2)))]
    torch.manual_seed(0)
    net = Program(w.layers, w.steps, results).eval()
    for layer in net.modules():
        for parameter in layer.parameters(recurse=False):
            if parameter.dim() == 1:
                nn.init.normal_(parameter)
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
    return net


def arranged(x: Tensor, how: str) -> Tensor:
    """The same sizes in another memory layout; 'repeated' changes values."""
    if how == "channels last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    if how == "transposed":
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if how == "sliced":
        return torch.cat((x, x), -1)[..., 1 : x.shape[-1] + 1]
    if how == "repeated":
        return x[:1].expand_as(x)
    return x


#: Errors below these, relative to the largest element, need no comparison with torch's.
FLOORS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def at_once(module: Any, inputs: list[Tensor]) -> list[Any]:
    """The results of concurrent calls, one thread per input, from one start."""
    barrier = threading.Barrier(len(inputs))

    def call(x: Tensor) -> Any:
        barrier.wait(timeout=60)
        with torch.no_grad():
            return module(x)

    with ThreadPoolExecutor(len(inputs)) as pool:
        return [future.result(120) for future in [pool.submit(call, x) for x in inputs]]


def check_calls(
    module: Any,
    net: nn.Module,
    shape: Shape,
    draw: Draw,
    dtype: torch.dtype = torch.float32,
) -> int:
    """Call an optimised module with several batches and layouts, from one thread or several.

    Returns the number of its plans' steps, so that no test compares torch with itself.
    """
    hows = st.sampled_from(["plain", "channels last", "transposed", "sliced", "repeated"])
    for turn in range(4):
        batch, how = draw(st.integers(1, 4)), draw(hows)
        inputs = [
            arranged(values(batch, *shape[1:], seed=10 * turn + caller, dtype=dtype), how)
            for caller in range(draw(st.sampled_from([1, 1, 3])))
        ]
        torch.set_num_threads(draw(st.integers(1, 2)))
        copies = [x.clone() for x in inputs]
        results = at_once(module, inputs) if inputs[1:] else [module(inputs[0])]
        for x, copy, got in zip(inputs, copies, results, strict=True):
            assert torch.equal(x, copy), "the input was changed"
            check_call(module, net, x, got, f"call {turn}, by {len(inputs)} threads")
    (method,) = torch.backends.zendnn.explain(module).methods
    return sum(len(built.steps) for region in method.regions for built in region.built)


def check_call(module: Any, net: nn.Module, x: Tensor, got: Any, which: str) -> None:
    """Check a module's result for an input."""
    with stock():
        want, exact = net(x), net.double()(x.double())
        net.to(x.dtype)
    if isinstance(got, Tensor):
        got, want, exact = (got,), (want,), (exact,)
    assert len(got) == len(want)
    for number, (ours, theirs, true) in enumerate(zip(got, want, exact, strict=True)):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        error = (ours.double() - true).abs().max().item()
        their_error = (theirs.double() - true).abs().max().item()
        floor = FLOORS[x.dtype] * max(true.abs().max().item(), 1e-2)
        assert error <= max(floor, SLACK * their_error), (
            f"result {number} of {which}, {list(x.shape)} with strides {x.stride()}: "
            f"error {error:.2e}, torch's {their_error:.2e}\n"
            + "\n".join(plan.description() for plan in torchscript.plans(module._c))
        )


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["images", "rows"])
def test_any_traced_module_is_right(kind: str, dtype: torch.dtype) -> None:
    kinds = IMAGES if kind == "images" else ROWS
    steps: list[int] = []

    @some
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        shapes = [(3, 3, 8, 8), (3, 16, 5, 7)] if kind == "images" else [(3, 6, 16), (3, 5, 8)]
        shape = shapes[data.draw(st.integers(0, 1))]
        net = program(data.draw, kinds, shape).to(dtype)
        with torch.no_grad():
            trace = torch.jit.trace(net, values(*shape, dtype=dtype), check_trace=False)
            module = torch.jit.optimize_for_inference(torch.jit.freeze(trace))
            steps.append(check_calls(module, net, shape, data.draw, dtype))

    holds()
    assert sum(count > 0 for count in steps) > 0.8 * len(steps), steps


# Scripted.


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1)
        self.two = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.two(F.relu(self.one(x)))
        y += x
        return F.relu_(y)


class Dense(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width + 8 * i, 8, 3, padding=1) for i in range(3))
        self.last = nn.Conv2d(width + 24, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x]
        for conv in self.convs:
            parts.append(F.silu(conv(torch.cat(parts, 1))))
        out: Tensor = self.last(torch.cat(parts, 1))
        return out


class Branch(nn.Module):
    """Control flow that depends on values, and a loop that depends on sizes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, width, 1)
        self.two = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) > 2:  # noqa: SIM108 (a statement with blocks is what this is about)
            x = F.gelu(self.one(x))
        else:
            x = self.two(x) * 0.5
        for _ in range(x.size(0) - 1):
            x = F.hardswish(self.one(x)) + x
        return x


class Squeeze(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, 4), nn.Linear(4, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))
        return x * gate[:, :, None, None]


class Mixer(nn.Module):
    """Images as rows and back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        rows = x.flatten(2).transpose(1, 2)
        rows = rows + F.gelu(self.mix(self.norm(rows)))
        return rows.transpose(1, 2).reshape(n, c, h, w)


class Halves(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width // 2, width // 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        right = self.conv(right) + left
        left = self.conv(left).sub_(right)
        return torch.cat((right, left), 1)


BLOCKS: list[type[nn.Module]] = [Residual, Dense, Branch, Squeeze, Mixer, Halves]


def test_any_scripted_module_is_right() -> None:
    @settings(some, max_examples=25)
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        torch.manual_seed(0)
        width = data.draw(st.sampled_from([8, 16]))
        numbers = data.draw(st.lists(st.integers(0, len(BLOCKS) - 1), min_size=1, max_size=3))
        blocks = [BLOCKS[number](width) for number in numbers]
        net = nn.Sequential(
            nn.Conv2d(3, width, 3), *blocks, *blocks[: data.draw(st.integers(0, 1))]
        )
        net.eval()
        with torch.no_grad():
            module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
            assert check_calls(module, net, (3, 3, 8, 9), data.draw)

    holds()
