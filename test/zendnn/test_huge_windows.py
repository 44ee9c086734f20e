"""Windows with strides, padding and dilation near 2^40 and 2^63: stock torch's results and errors.

What ZenDNN computes from such numbers does not fit in its integers. Each front end runs in a
process of its own, which a crash or a hang ends.
"""

from __future__ import annotations

import json

import pytest

from .common import nightly_but, run_python

CODE = """
import json, sys, warnings
import torch
import torch.nn.functional as F
from torch import nn
from torch.backends.zendnn import export, flags

warnings.simplefilter("ignore")


class Window(nn.Module):
    def __init__(self, function, dims, **given):
        super().__init__()
        self.function, self.given = function, given
        weight = torch.linspace(-1, 1, 16 * 16 * 3**dims).reshape(16, 16, *[3] * dims)
        self.register_buffer("weight", weight)

    def forward(self, x):
        second = self.weight if "conv" in self.function.__name__ else 2
        return self.function(x, second, **self.given)


def frozen(model, x):
    traced = torch.jit.trace(model, x, check_trace=False)
    return torch.jit.optimize_for_inference(torch.jit.freeze(traced))(x)


#: What runs on ZenDNN, and what on stock torch.
FRONT_ENDS = {
    "eager": 2 * (lambda model, x: model(x),),
    "frozen": (frozen, lambda model, x: model(x)),
    "compiled": (
        lambda model, x: torch.compile(model, backend="zendnn")(x),
        lambda model, x: torch.compile(model, backend="aot_eager")(x),
    ),
    "exported": (
        lambda model, x: export(model, (x,)).module()(x),
        lambda model, x: torch.export.export(model, (x,)).module()(x),
    ),
}


def outcome(run, *given):
    torch._dynamo.reset()
    try:
        y = run(*given)
        return str(y.dtype), list(y.shape), y.double().nan_to_num().tolist()
    except Exception as error:
        return type(error).__name__, str(error)


ours, stock = FRONT_ENDS[sys.argv[-1]]
for dims, size in enumerate((2048, 24, 8), start=1):  # which run on ZenDNN otherwise
    x = torch.linspace(-3, 3, 16 * size**dims).reshape(1, 16, *[size] * dims)
    for number in (1 << 40, (1 << 63) - 1):
        for argument in ("stride", "padding", "dilation"):
            for kind in ("conv", "conv_transpose", "max_pool", "avg_pool"):
                if (kind, argument) == ("avg_pool", "dilation"):
                    continue
                name = f"{kind}{dims}d of {argument} {number}"
                print(name, file=sys.stderr, flush=True)  # for a crash
                model = Window(getattr(F, f"{kind}{dims}d"), dims, **{argument: number}).eval()
                with torch.no_grad():
                    got = outcome(ours, model, x)
                    with flags(enabled=False):
                        want = outcome(stock, model, x)
                if got != want:
                    print(json.dumps([name, got, want]))
print(json.dumps("all"))
"""


@pytest.mark.parametrize(
    "front_end", nightly_but(("frozen",), ["eager", "frozen", "compiled", "exported"])
)
def test_huge_windows_do_what_they_do_in_stock_torch(front_end: str) -> None:
    printed = run_python(f"import sys\nsys.argv.append({front_end!r})\n{CODE}")
    *differing, last = map(json.loads, printed.splitlines())
    assert last == "all"
    assert not differing
