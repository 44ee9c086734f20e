"""Finds upstream's OpInfos that reach a kernel of ours, by running them.

    python -m tools.upstream.operators FILE

writes a JSON list of their names to FILE. An OpInfo reaches a kernel when one of its sample inputs
calls it on the CPU, forward or backward, directly or through other operators.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import warnings
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile

from tools.setup_helpers.files import write_atomic

#: The dispatcher's line for an active kernel of ours.
_OURS = re.compile(r"^(Autograd)?CPU: registered at \S*native/zendnn/", re.MULTILINE)
#: Sample inputs to try for each OpInfo and dtype.
SAMPLES = 16
DTYPES = (torch.float32, torch.bfloat16)


def overridden() -> Set[str]:
    """Return the operators, without overloads, that have a CPU kernel of ours."""
    return {
        name.partition(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if _OURS.search(torch._C._dispatch_dump(name))
    }


def _run(info: Any, dtype: torch.dtype) -> None:
    differentiable = info.supports_autograd and dtype in info.backward_dtypes
    samples = info.sample_inputs("cpu", dtype, requires_grad=differentiable)
    for sample in itertools.islice(samples, SAMPLES):
        result = info(sample.input, *sample.args, **sample.kwargs)
        tensors = [
            leaf
            for leaf in torch.utils._pytree.tree_leaves(result)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        if tensors:
            torch.autograd.backward(tensors, [torch.ones_like(tensor) for tensor in tensors])


def reaching(operators: Set[str], infos: list[Any]) -> Iterator[str]:
    """Yield the names of those of `infos` whose samples call one of `operators`."""
    for info in infos:
        called: set[str] = set()
        for dtype in DTYPES:
            if dtype not in info.dtypes:
                continue
            with profile() as calls:
                # A sample that raises still counts with the operators it called before.
                try:
                    _run(info, dtype)
                except Exception as error:
                    warnings.warn(f"{info.formatted_name}: {error}", stacklevel=1)
            called |= {event.name for event in calls.function_events}
        if called & operators:
            yield info.formatted_name


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.upstream.operators", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE")
    file: Path = parser.parse_args(arguments).file
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    names = sorted(reaching(overridden(), list(op_db)))
    write_atomic(file, json.dumps(names).encode())


if __name__ == "__main__":
    main()
