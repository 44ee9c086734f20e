"""``backend="zendnn"`` with what torch composes: transforms, control flow, hooks and forks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.backends.registry import lookup_backend
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from .common import run_python, stock, values

pytestmark = [
    pytest.mark.filterwarnings("error:ZenDNN"),
    pytest.mark.usefixtures("fresh_dynamo"),
]


WEIGHT, MATRIX = values(8, 8, seed=1) / 3, values(6, 8)
LAYER = nn.Linear(8, 8).eval().requires_grad_(False)


def eager_rest(model: Callable[..., Any], **more: Any) -> tuple[Any, Any]:
    """A compiled model, outside of whose plans eager kernels run, and a counter of its graphs."""
    counter = torch._dynamo.testing.CompileCounter()

    def backend(module: Any, inputs: Any) -> Any:
        counter(module, inputs)
        return lookup_backend("zendnn")(module, inputs, options={"rest": "eager"})

    return torch.compile(model, backend=backend, **more), counter


def plans_ran(fast: Callable[..., Any], *inputs: Any) -> bool:
    with torch.no_grad(), torch.backends.zendnn.record() as events:
        fast(*inputs)
    return any(event.route == "plan" for event in events)


def gradient(x: Tensor) -> Tensor:
    y: Tensor = torch.func.grad(lambda x: F.softmax(LAYER(x), -1).square().sum())(x)
    return LAYER(y)


def with_value(x: Tensor) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = torch.func.grad_and_value(lambda x: (x @ WEIGHT).tanh().sum())(
        x
    )
    return result


def forward_gradient(x: Tensor) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = torch.func.jvp(lambda x: F.gelu(x @ WEIGHT), (x,), (x + 1,))
    return result


def jacobian(x: Tensor) -> Tensor:
    result: Tensor = torch.func.jacrev(lambda row: F.softmax(LAYER(row), -1))(x[0])
    return result


def forward_jacobian(x: Tensor) -> Tensor:
    result: Tensor = torch.func.jacfwd(lambda row: F.softmax(LAYER(row), -1))(x[0])
    return result


def pulled_back(x: Tensor) -> Tensor:
    y, pull = torch.func.vjp(lambda x: F.layer_norm(LAYER(x), [8]), x)
    result: Tensor = pull(y)[0]
    return result


def gradient_of_each(x: Tensor) -> Tensor:
    each: Tensor = torch.func.vmap(torch.func.grad(lambda row: (WEIGHT @ row).square().sum()))(x)
    return each


def batched_columns(x: Tensor) -> Tensor:
    y: Tensor = torch.func.vmap(lambda column: F.softmax(WEIGHT @ column, 0), 1, 1)(x.t())
    return y


def called_functionally(x: Tensor) -> Tensor:
    y: Tensor = torch.func.functional_call(LAYER, {"weight": WEIGHT * 2}, (x,))
    return y @ WEIGHT


def branches(x: Tensor) -> Tensor:
    y: Tensor = torch.cond(
        x.sum() > 0,
        lambda x: F.gelu(LAYER(x)),
        lambda x: F.softmax(x, -1) - 1,
        (LAYER(x).tanh(),),
    )
    return LAYER(y)


def running(x: Tensor) -> tuple[Tensor, Tensor]:
    def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(state @ WEIGHT + row)
        return state, state * 2

    last, rows = scan(step, torch.zeros(8), LAYER(x))
    return last, F.softmax(rows, -1)


def complex_numbers(x: Tensor) -> Tensor:
    turned = torch.view_as_complex(LAYER(x).view(6, 4, 2)) * (0.5 + 2j)
    return torch.view_as_real(turned).flatten(1) @ WEIGHT


def inputs_returned(x: Tensor) -> tuple[Tensor, ...]:
    y = LAYER(x)
    return x, y, x, y


def sizes_alone(x: Tensor) -> tuple[int, ...]:
    return x.shape[0] + 1, x.dim()


def constant_alone(x: Tensor) -> Tensor:
    return torch.full((2, 3), 7.0)


def marked(x: Tensor) -> Tensor:
    torch.compiler.cudagraph_mark_step_begin()
    return F.relu(LAYER(x))


FUNCTIONS = (
    gradient,
    with_value,
    forward_gradient,
    jacobian,
    forward_jacobian,
    pulled_back,
    gradient_of_each,
    batched_columns,
    called_functionally,
    branches,
    running,
    complex_numbers,
    inputs_returned,
    sizes_alone,
    constant_alone,
    marked,
)
#: They compute nothing.
EMPTY = (sizes_alone, constant_alone)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_what_torch_composes_is_as_in_eager_mode(function: Callable[..., Any]) -> None:
    fast, _ = eager_rest(function, fullgraph=function is not marked)
    for x in (MATRIX, -MATRIX):
        with torch.no_grad():
            got = fast(x)
            with stock():
                want = function(x)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        if isinstance(want, tuple):
            assert [y is x for y in got] == [y is x for y in want]
    assert plans_ran(fast, MATRIX) == (function not in EMPTY)


@pytest.mark.parametrize("causal", [False, True])
def test_flexible_attention(causal: bool) -> None:
    def causally(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    mask = create_block_mask(causally, None, None, 128, 128, device="cpu") if causal else None

    def attend(x: Tensor) -> Tensor:
        parts = LAYER(x).repeat(1, 1, 6).view(1, 128, 3, 1, 16)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y: Tensor = flex_attention(q, k, v, lambda score, *_: score * 0.5, mask)
        return y.transpose(1, 2).flatten(2) + 1

    x = values(1, 128, 8)
    fast, _ = eager_rest(attend)
    with torch.no_grad():
        got = fast(x)
        with stock():
            want = attend(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert plans_ran(fast, x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(F.gelu(self.first(x)))
        return y


def test_hooks_run_until_they_are_removed() -> None:
    net, seen = Net().eval(), []
    handles = [
        net.register_forward_hook(lambda *_: seen.append(1)),
        net.first.register_forward_hook(lambda module, arguments, result: result + arguments[0]),
        net.first.register_forward_pre_hook(lambda module, arguments: (arguments[0] * 2,)),
    ]
    fast, _ = eager_rest(net)
    while True:
        with torch.no_grad():
            got, calls = fast(MATRIX), len(seen)
            with stock():
                want = net(MATRIX)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert len(seen) == 2 * calls
        if not handles:
            break
        seen.clear()
        handles.pop().remove()
    assert not seen


def test_a_disabled_function_runs_as_it_is_between_plans() -> None:
    net = Net().eval()
    called = []

    @torch.compiler.disable
    def outside(x: Tensor) -> Tensor:
        called.append(torch.compiler.is_compiling())
        return x * 2

    def model(x: Tensor) -> Tensor:
        return F.softmax(net(outside(net(x))), -1)

    fast, counter = eager_rest(model)
    with torch.no_grad():
        got = fast(MATRIX)
        with stock():
            want = model(MATRIX)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert called == [False, False]
    assert counter.frame_count == 2
    assert plans_ran(fast, MATRIX)


def test_after_a_reset_it_compiles_again() -> None:
    net = Net().eval()
    fast, counter = eager_rest(net)
    with torch.no_grad():
        first = fast(MATRIX)
        assert counter.frame_count == 1
        torch.compiler.reset()
        torch.testing.assert_close(fast(MATRIX), first)
    assert counter.frame_count == 2
    assert plans_ran(fast, MATRIX)


def test_a_fork_runs_what_its_parent_compiled_and_compiles_more() -> None:
    code = """
import os, sys, torch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
fast = torch.compile(net, backend="zendnn", options={"rest": "eager"})
with torch.no_grad():
    inputs = [torch.ones(rows, 8) for rows in (3, 3, 5)]
    fast(inputs[0])
    child = os.fork()
    right = all(torch.allclose(fast(x), net(x), atol=1e-5) for x in inputs)
    if not child:
        os._exit(0 if right else 3)
    print(right, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_python(code).strip() == "True 0"
