"""Measures the memory that each front end takes beyond a model's weights, over many input sizes.

    python -m benchmarks.memory [--front-ends frozen,compiled] [--pairs 6] [--widths 1536x4096]
        [--threads N] [--check]

The net has pairs of linear layers; by default, its weights take 302 MB. Each front end runs in its
own process. A number is the resident memory beyond that of the loaded net, as a multiple of the
weights: after one, six and fifty sizes, at most, and once the model is gone. Freed memory that the
allocator keeps for later tensors is returned before each reading, except for the most.

Exit code: 0; 1 if ``--check`` is given and a front end exceeds its bound or failed; 2 for a wrong
option or a torch without ZenDNN.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.compare import ROOT, Parser, names_of, physical_cores, progress
from benchmarks.report import aligned
from tools.setup_helpers.errors import exit_code_of
from tools.setup_helpers.options import positive

if TYPE_CHECKING:
    from torch import Tensor, nn

    Call = Callable[[Tensor], Tensor]

#: Rows of the input: the first size, the first six, and all.
SIZES = (1, 7, 33, 64, 128, 200, *range(2, 200, 4))[:50]
READINGS = (1, 6, len(SIZES))
#: The most in addition to the weights, in multiples of them.
MOST = 1.1
#: The same where plans alone hold the weights, and release what is packed.
MOST_OF_OWNERS = {"frozen": 0.2, "program": 0.2}


def net(pairs: int, width: int, inner: int) -> nn.Module:
    """Return pairs of linear layers, from ``width`` to ``inner`` and back."""
    from torch import nn

    layers: list[nn.Module] = []
    for _ in range(pairs):
        layers += [nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)]
    return nn.Sequential(*layers).eval()


def _frozen(module: nn.Module, x: Tensor) -> Call:
    import torch

    jit: Any = torch.jit
    frozen: Call = jit.optimize_for_inference(jit.freeze(jit.trace(module, x, check_trace=False)))
    return frozen


def _compiled(dynamic: bool | None) -> Callable[[nn.Module, Tensor], Call]:
    def prepare(module: nn.Module, x: Tensor) -> Call:
        import torch

        compiled: Call = torch.compile(module, backend="zendnn", dynamic=dynamic)
        return compiled

    return prepare


def _prepacked(module: nn.Module, x: Tensor) -> Call:
    import torch

    packed: Call = torch.backends.zendnn.prepack(module)
    return packed


def _program(module: nn.Module, x: Tensor) -> Call:
    import torch

    rows = {0: torch.export.Dim.DYNAMIC}
    program: Call = torch.backends.zendnn.optimize(
        module, (x.new_zeros(8, x.size(1)),), dynamic_shapes=(rows,)
    )
    return program


FRONT_ENDS: Mapping[str, Callable[[nn.Module, Tensor], Call]] = {
    "frozen": _frozen,
    "compiled": _compiled(None),
    "dynamic": _compiled(True),
    "prepacked": _prepacked,
    "program": _program,
}
#: These need the module no longer, which is dropped once they are made.
OWNERS = frozenset({"frozen", "prepacked", "program"})


def resident() -> int:
    """Return the bytes of this process in memory, without what allocators keep."""
    import ctypes

    import torch

    gc.collect()
    torch.backends.zendnn.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def measure(front_end: str, pairs: int, width: int, inner: int) -> dict[str, float]:
    """Return what the front end takes, in multiples of the weights."""
    import torch

    prepare = FRONT_ENDS[front_end]
    torch.manual_seed(0)
    with torch.no_grad():
        small = net(1, 64, 128)
        warm = prepare(small, torch.zeros(3, 64))
        for rows in SIZES[:3]:
            warm(torch.zeros(rows, 64))
        del warm, small
        torch._dynamo.reset()
        empty = resident()
        module = net(pairs, width, inner)
        weights = sum(p.nbytes for p in module.parameters())
        before = resident()
        call = prepare(module, torch.zeros(1, width))
        if front_end in OWNERS:
            del module
            gc.collect()  # torch.jit.trace leaves the module in a cycle of references
        found: dict[str, float] = {}
        start = time.perf_counter()
        for number, rows in enumerate(SIZES, start=1):
            call(torch.randn(rows, width))
            if number in READINGS:
                found[str(number)] = (resident() - before) / weights
        found["seconds"] = time.perf_counter() - start
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        found["most"] = (most - before) / weights
        call = module = None  # type: ignore[assignment]
        torch._dynamo.reset()
        # TorchScript keeps the graph that ran last, with its constants.
        _frozen(net(1, 64, 128), torch.zeros(1, 64))(torch.zeros(1, 64))
        found["gone"] = (resident() - empty) / weights
    return found


def ask(front_end: str, shape: Sequence[int], threads: int) -> dict[str, float]:
    """Measure in a process of its own; return nothing where that fails."""
    command = [sys.executable, "-m", "benchmarks.memory", "--one", front_end]
    command += ["--pairs", str(shape[0]), "--widths", "x".join(map(str, shape[1:]))]
    done = subprocess.run(
        [*command, "--threads", str(threads)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    return found


def measure_all(
    front_ends: Sequence[str], shape: Sequence[int], threads: int, *, check: bool
) -> int:
    """Measure, print, and return the exit code."""
    columns = [*map(str, READINGS), "most", "gone", "seconds"]
    rows = [["front end", *(f"{c} sizes" if c.isdigit() else c for c in columns)]]
    over = []
    for name in front_ends:
        progress(name)
        found = ask(name, shape, threads)
        rows.append([name, *(f"{found[c]:.2f}" if found else "failed" for c in columns)])
        most = MOST_OF_OWNERS.get(name, MOST)
        if not found or max(found[str(n)] for n in READINGS) > most:
            over.append(name)
    print(aligned(rows))
    for name in over:
        most = MOST_OF_OWNERS.get(name, MOST)
        print(f"{name}: more than {most} times the weights, or a failure", file=sys.stderr)
    return 1 if over and check else 0


def widths(text: str) -> tuple[int, int]:
    """Parse ``1536x4096``."""
    outer, inner = map(int, text.split("x"))
    return outer, inner


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    import torch

    parser = Parser(description="Measure memory beyond the weights.")
    parser.add_argument("--one", choices=FRONT_ENDS)
    known = tuple(FRONT_ENDS)
    parser.add_argument("--front-ends", type=names_of("front end", known), default=known)
    parser.add_argument("--pairs", type=positive(int), default=6, help="(default: 6)")
    parser.add_argument("--widths", type=widths, default=(1536, 4096), metavar="OUTERxINNER")
    parser.add_argument("--threads", type=positive(int), default=physical_cores())
    parser.add_argument("--check", action="store_true", help="exit with 1 if one is over its bound")
    options = parser.parse_args(arguments)
    if getattr(torch.backends, "zendnn", None) is None:
        parser.error("this Python's torch has no ZenDNN")
    shape = (options.pairs, *options.widths)
    if options.one:
        torch.set_num_threads(options.threads)
        print(json.dumps(measure(options.one, *shape)))
        return 0
    return exit_code_of(
        lambda: measure_all(options.front_ends, shape, options.threads, check=options.check),
        resumes=False,
    )


if __name__ == "__main__":
    sys.exit(main())
