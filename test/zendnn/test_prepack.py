"""``torch.backends.zendnn.prepack``: right and as documented in all modes, and never stale."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from .common import (
    HAS_BFLOAT16,
    PRIMITIVE_DTYPES,
    assert_as_exact,
    counting,
    of_bfloat16,
    outcome,
    run_python,
    stock,
    values,
)

prepack = torch.backends.zendnn.prepack


@pytest.fixture(autouse=True)
def packed_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuning budget of 0 selects packed weights, so that tests cover these."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Layers of every packed kind, and some others."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.Conv2d(32, 256, 3, stride=2, padding=1, groups=2),
        nn.ReLU(),
        nn.BatchNorm2d(256),
        nn.Conv2d(256, 96, 1, padding="same"),
        nn.Flatten(),
        nn.Linear(96 * 25, 160),
        nn.LayerNorm(160),
        nn.Linear(160, 250, bias=False),
    ).to(dtype)


def images(batch: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    return values(batch, 3, 12, 12, dtype=dtype)


def assert_as_plain(plain: nn.Module, packed: nn.Module, x: Tensor, close: float) -> None:
    """Asserts that both give close results, or the same error."""
    with torch.no_grad():
        kind, ours = outcome(lambda: packed(x))
        plain_kind, theirs = outcome(lambda: plain(x))
    assert kind == plain_kind
    if kind != "value":
        assert ours == theirs
    else:
        torch.testing.assert_close(ours, theirs, rtol=close, atol=close)


def assert_close_to(module: nn.Module, packed: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(packed(x), module(x), rtol=1e-4, atol=1e-4)


def packed_layers(module: nn.Module) -> list[nn.Module]:
    return [layer for layer in module.modules() if hasattr(layer, "_layer")]


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(190, 210), (5, 190)),
    "one row": (lambda: nn.Linear(190, 210), (1, 190)),
    "a vector": (lambda: nn.Linear(190, 210), (190,)),
    "many dimensions": (lambda: nn.Linear(190, 210, bias=False), (2, 3, 4, 190)),
    "many rows": (lambda: nn.Linear(256, 140), (700, 256)),
    "no rows": (lambda: nn.Linear(190, 210), (0, 190)),
    "conv1d": (lambda: nn.Conv1d(128, 96, 3, padding=1, stride=2), (2, 128, 30)),
    "conv1d reflected": (
        lambda: nn.Conv1d(128, 96, 3, padding=1, padding_mode="reflect"),
        (2, 128, 30),
    ),
    "conv2d": (lambda: nn.Conv2d(64, 64, 3, padding=(1, 2), dilation=2), (2, 64, 14, 13)),
    "conv2d in groups": (lambda: nn.Conv2d(64, 256, 3, groups=4, bias=False), (1, 64, 9, 9)),
    "one image without a batch": (lambda: nn.Conv2d(64, 64, 3), (64, 9, 9)),
    "depthwise": (lambda: nn.Conv2d(2048, 4096, 3, groups=2048), (1, 2048, 6, 6)),
    "no images": (lambda: nn.Conv2d(64, 64, 3), (0, 64, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(32, 40, 3, padding=1), (2, 32, 5, 6, 7)),
    "one volume": (lambda: nn.Conv3d(32, 40, 3), (1, 32, 5, 6, 7)),
}


#: Each layer, and whether its images are channels-last (only with two spatial dimensions).
CASES = [(name, False) for name in LAYERS] + [
    (name, True) for name, (_, shape) in LAYERS.items() if len(shape) > 3 and "dimen" not in name
]
#: Cases that may use plain weights: one row of float32, empty results, or another torch kernel.
PLAIN = {
    ("one row", False),
    ("a vector", False),
    ("no rows", False),
    ("no images", False),
    ("no images", True),
    ("one volume", True),
}


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize(("name", "channels_last"), CASES)
def test_packed_layer_is_right(name: str, channels_last: bool, dtype: torch.dtype) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(1)
    layer = make().to(dtype)
    x = values(*shape, dtype=dtype)
    if channels_last:
        form = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        x, layer = x.contiguous(memory_format=form), layer.to(memory_format=form)
    packed = prepack(layer)
    assert packed_layers(packed) == [packed]
    with torch.no_grad():
        with counting() as calls:
            ours = packed(x)
        with stock():
            theirs, exact = layer(x), copy.deepcopy(layer).double()(x.double())
            bound = copy.deepcopy(layer).double()
            for parameter in bound.parameters():
                parameter.abs_()
            magnitude = bound(x.double().abs())
        assert_as_exact(ours, theirs, exact, magnitude.max().item() if x.numel() else 0.0)
        again = packed(x)
        torch.testing.assert_close(again, ours, rtol=0, atol=0)
    assert ((name, channels_last) in PLAIN) or calls


@pytest.mark.parametrize(
    "arrange",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
        lambda x: torch._neg_view(-x),
        lambda x: x.double(),
        lambda x: x.to_sparse(),
    ],
)
def test_unusual_inputs_match_the_plain_layer(
    arrange: Callable[[Tensor], Tensor],
) -> None:
    layer = nn.Linear(190, 210)
    assert_as_plain(layer, prepack(layer), arrange(values(9, 190)), 1e-5)


@pytest.mark.parametrize("shape", [(5, 191), (2, 3, 8, 8), (2, 64)])
def test_inputs_of_wrong_sizes_give_the_errors_of_the_plain_layer(shape: tuple[int, ...]) -> None:
    for layer in (nn.Linear(190, 210), nn.Conv2d(64, 64, 3)):
        texts = []
        for module in (layer, prepack(layer)):
            with pytest.raises(RuntimeError) as caught, torch.no_grad():
                module(values(*shape))
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["stride", "padding", "dilation"])
@pytest.mark.parametrize("value", [-1, 0, (2,)])
def test_unusual_windows_match_the_plain_layer(name: str, value: Any) -> None:
    layer, x = nn.Conv2d(64, 64, 3), values(2, 64, 9, 9)
    setattr(layer, name, value if isinstance(value, tuple) else (value, value))
    assert_as_plain(layer, prepack(layer), x, 1e-4)


def test_prepack_returns_a_copy_with_the_same_state() -> None:
    module = network().train()
    before = copy.deepcopy(module.state_dict())
    packed = prepack(module)
    assert list(packed.state_dict()) == list(before)
    for name, value in packed.state_dict().items():
        assert torch.equal(value, before[name])
        assert torch.equal(value, module.state_dict()[name])
    assert module.training
    assert all(p.requires_grad for p in module.parameters())
    assert not packed.training
    assert not any(p.requires_grad for p in packed.parameters())
    assert not packed_layers(module)
    pointers = {p.data_ptr() for p in module.parameters()}
    assert pointers.isdisjoint(p.data_ptr() for p in packed.parameters())


def test_worthwhile_layers_are_packed_and_say_so() -> None:
    packed = prepack(network())
    kinds = [type(layer).__name__ for layer in packed_layers(packed)]
    # One of the convolutions is too small, and one has padding by name.
    assert kinds == ["PrepackedConv2d", "PrepackedLinear", "PrepackedLinear"]
    assert repr(packed).count("packed for inference") == 3
    assert isinstance(packed[6], nn.Linear)

    class Mine(nn.Linear):
        """A user's class, whose forward must not change."""

    assert not packed_layers(prepack(Mine(200, 200)))
    assert not packed_layers(prepack(nn.Linear(200, 200).double()))


@pytest.mark.parametrize("thing", [3, None, nn.Linear])
def test_anything_but_a_module_is_refused_in_one_sentence(thing: Any) -> None:
    with pytest.raises(TypeError, match=rf"a torch\.nn\.Module.*of type {type(thing).__name__}$"):
        prepack(thing)


def test_a_packed_module_does_not_train() -> None:
    packed = prepack(network())
    with pytest.raises(RuntimeError, match="for inference"):
        packed.train()
    packed.eval()
    x = images()
    assert not packed(x).requires_grad
    with pytest.raises(RuntimeError, match="for inference"):
        packed(x.requires_grad_())
    with torch.no_grad():
        packed(x)
    layer = prepack(nn.Linear(200, 200))
    layer.weight.requires_grad_()
    with pytest.raises(RuntimeError, match="for inference"):
        layer(values(3, 200))
    with pytest.raises(RuntimeError, match="for inference"):
        torch.func.grad(lambda y: packed(y).sum())(images())
    with pytest.raises(RuntimeError, match="for inference"):
        torch.func.jvp(packed, (images(),), (images(),))


def test_changed_weights_are_packed_again() -> None:
    module = network().eval()
    packed, x = prepack(module), images()
    assert_close_to(module, packed, x)
    other = network().eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    packed.load_state_dict(other.state_dict())
    assert_close_to(other, packed, x)
    with torch.inference_mode():
        packed.load_state_dict(module.state_dict())
    assert_close_to(module, packed, x)
    packed.load_state_dict(other.state_dict(), assign=True)
    assert_close_to(other, packed, x)
    with torch.no_grad():
        packed[6].weight.mul_(2)
        packed[6].bias.add_(1)
        other[6].load_state_dict(packed[6].state_dict())
    assert_close_to(other, packed, x)


def test_weights_that_a_fused_optimizer_has_written_are_packed_again() -> None:
    layer, x = prepack(nn.Linear(256, 256)), values(16, 256)
    with torch.no_grad():
        layer(x)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(layer.parameters(), 0.5, fused=True).step()
    with torch.no_grad():
        want = F.linear(x, layer.weight, layer.bias)
        torch.testing.assert_close(layer(x), want, rtol=1e-4, atol=1e-3)


def test_a_bias_may_be_added_removed_and_moved() -> None:
    layer, x = prepack(nn.Linear(256, 256, bias=False)), values(16, 256)
    expanded = torch.tensor([3.0]).expand(256)
    every_other = values(512, seed=3)[::2]
    for bias in (None, torch.ones(256), None, expanded, every_other):
        with torch.no_grad():
            layer.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
            want = F.linear(
                x.double(), layer.weight.double(), None if bias is None else bias.double()
            )
            torch.testing.assert_close(layer(x).double(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [lambda w: w.t(), lambda w: w.view(512, 128), lambda w: w.view(torch.bfloat16)[:, ::2]],
    ids=["transposed", "viewed", "reinterpreted"],
)
def test_another_view_of_the_same_memory_is_packed_again(
    change: Callable[[Tensor], Tensor],
) -> None:
    layer, x = prepack(nn.Linear(256, 256, bias=False)), values(32, 256)
    layer(x)
    layer.weight.data = change(layer.weight.data)
    x = x[:, : layer.weight.shape[1]].to(layer.weight.dtype)
    with torch.no_grad():
        want = F.linear(x, layer.weight)
        torch.testing.assert_close(layer(x), want, rtol=1e-2, atol=1e-2, equal_nan=True)


@pytest.mark.parametrize("bias", [values(1), values(300).double()], ids=["one", "double"])
def test_another_bias_matches_the_plain_layer(bias: Tensor) -> None:
    layer = nn.Linear(300, 300).eval()
    packed = prepack(layer)
    packed.bias = layer.bias = nn.Parameter(bias, requires_grad=False)
    assert_as_plain(layer, packed, values(33, 300), 1e-4)


def test_weights_of_inference_mode_are_read_at_each_call() -> None:
    layer, x = prepack(nn.Linear(256, 256, bias=False)), values(16, 256)
    with torch.inference_mode():
        layer.load_state_dict({"weight": values(256, 256)}, assign=True)
        for _ in range(2):
            torch.testing.assert_close(layer(x), F.linear(x, layer.weight), rtol=1e-4, atol=1e-4)
            layer.weight.mul_(2)


def test_new_weights_at_the_same_address_are_packed_again() -> None:
    layer = prepack(nn.Linear(256, 256, bias=False))
    x = values(4, 256)
    for seed in range(8):
        weight = values(256, 256, seed=seed)
        with torch.no_grad():
            layer.weight = nn.Parameter(weight.clone(), requires_grad=False)
            torch.testing.assert_close(layer(x), x @ weight.t(), rtol=1e-4, atol=1e-4)


def test_another_dtype_is_packed_again() -> None:
    module = network().eval()
    packed, x = prepack(module), images()
    assert_close_to(module, packed, x)
    with torch.no_grad():
        want = copy.deepcopy(module).bfloat16()(x.bfloat16())
        got = packed.bfloat16()(x.bfloat16())
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.deepcopy,
        copy.copy,
        lambda module: pickle.loads(pickle.dumps(module)),
        lambda module: _saved_and_loaded(module),
    ],
    ids=["deepcopy", "copy", "pickle", "save"],
)
def test_duplicates_are_packed_on_their_own(duplicate: Callable[[nn.Module], nn.Module]) -> None:
    module = network().eval()
    packed = prepack(module)
    assert_close_to(module, packed, images())
    double = duplicate(packed)
    assert repr(double) == repr(packed)
    with torch.no_grad():
        if duplicate is not copy.copy:
            packed[6].weight.zero_()
            assert {m._layer for m in packed_layers(double)}.isdisjoint(
                m._layer for m in packed_layers(packed)
            )
    assert_close_to(module, double, images())


def _saved_and_loaded(module: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_packs_are_freed_with_their_modules() -> None:
    code = """
import gc, resource, torch
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
module = torch.nn.Linear(2048, 2048)
with torch.no_grad():
    for i in range(12):
        if i == 2:
            before = resident()
        packed = torch.backends.zendnn.prepack(module)
        packed(torch.ones(4, 2048))
        del packed
        gc.collect()
    print((resident() - before) < 4 * 2048 * 2048 * 4)
"""
    assert run_python(code, ZENDNN_TUNING_BUDGET="0").strip() == "True"


@of_bfloat16
def test_inference_mode_and_autocast_are_right() -> None:
    module = network().eval()
    packed, x = prepack(module), images()
    with torch.inference_mode():
        ours = packed(x)
        assert ours.is_inference()
        torch.testing.assert_close(ours, module(x), rtol=1e-4, atol=1e-4)
        made_here = prepack(module)
        torch.testing.assert_close(made_here(x), module(x), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            with counting() as calls:
                ours = packed[6](values(8, 2400))
            with stock():
                theirs = module[6](values(8, 2400))
        with stock():
            exact = copy.deepcopy(module)[6].double()(values(8, 2400).double())
    assert ours.dtype == theirs.dtype == torch.bfloat16
    assert bool(calls.get("reorder")) == HAS_BFLOAT16, "the weights are packed where that helps"
    assert calls.get("matmul"), calls
    error, stock_error = ((y.double() - exact).abs().max() for y in (ours, theirs))
    assert error <= 4 * stock_error


def test_autocast_leaves_inputs_that_it_would_not_convert() -> None:
    layer = nn.Linear(200, 200)
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        assert prepack(layer)(values(3, 200)).dtype == torch.float16
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(RuntimeError) as theirs:
            layer(values(3, 200).double())
        with pytest.raises(RuntimeError) as ours:
            prepack(layer)(values(3, 200).double())
    assert str(ours.value) == str(theirs.value)


def test_switched_off_or_deterministic_it_gives_the_bits_of_the_plain_module() -> None:
    module = network().eval()
    packed, x = prepack(module), images()
    with torch.no_grad():
        with stock(), counting() as calls:
            assert torch.equal(packed(x), module(x))
        assert not calls
        with torch.backends.zendnn.flags(enabled=True, deterministic=True):
            assert torch.equal(packed(x), module(x))
        torch.use_deterministic_algorithms(True)
        try:
            assert torch.equal(packed(x), module(x))
        finally:
            torch.use_deterministic_algorithms(False)


def test_traces_hold_plain_weights_and_can_be_optimised() -> None:
    module = network().eval()
    packed, x = prepack(module), images()
    with torch.no_grad():
        traced = torch.jit.trace(packed, x)
        assert "prepacked(" not in str(traced.inlined_graph)
        optimised = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
        torch.testing.assert_close(optimised(x), module(x), rtol=1e-4, atol=1e-4)
        exported = torch.export.export(packed, (x,))
        assert "prepacked" not in str(exported.graph)


def test_a_compiled_module_is_one_graph_with_packed_layers() -> None:
    torch._dynamo.reset()
    module = network().eval()
    packed, graphs = prepack(module), []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(str(graph.graph))
        return graph

    with torch.no_grad():
        compiled = torch.compile(packed, backend=backend, fullgraph=True)
        assert_close_to(module, compiled, images())
        assert_close_to(module, compiled, images(5))
        fake = torch.compile(packed, backend="aot_eager", fullgraph=True)
        assert_close_to(module, fake, images())
    assert graphs[0].count("prepacked") >= 2


def test_vmap_equals_a_loop() -> None:
    packed = prepack(nn.Linear(190, 210))
    xs = values(3, 5, 190)
    with torch.no_grad():
        loop = torch.stack([packed(x) for x in xs])
        torch.testing.assert_close(torch.vmap(packed)(xs), loop, rtol=1e-5, atol=1e-5)


def test_many_threads_share_a_layer() -> None:
    module = network().eval()
    packed = prepack(module)
    inputs = [images(batch) for batch in (1, 2, 3, 4)]
    with torch.no_grad():
        wanted = [module(x) for x in inputs]
    failures: list[str] = []

    def call(i: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                if not torch.allclose(packed(inputs[i]), wanted[i], rtol=1e-4, atol=1e-4):
                    failures.append(f"input {i}")

    threads = [threading.Thread(target=call, args=(i % 4,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_plain_weights_are_used_if_they_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a budget both are timed; either choice gives the right result."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "2")
    layer = nn.Linear(191, 211)
    packed = prepack(layer)
    for rows in (1, 3, 40, 300):
        assert_close_to(layer, packed, values(rows, 191))
    gc.collect()


def test_the_fake_kernel_converts_a_layer_without_bias() -> None:
    with FakeTensorMode():
        x, weight = torch.empty(3, 200), torch.empty(200, 200)
        result = torch.ops.zendnn.prepacked(x, weight, None, [], [], [], 1, 0, torch.bfloat16)
    assert result.dtype == torch.bfloat16
