"""A machine, a model and a log without a fault."""

from __future__ import annotations

import torch
from torch.backends.zendnn.doctor.facts import Facts
from torch.backends.zendnn.doctor.limits import Limits
from torch.backends.zendnn.doctor.log import Execution, Log
from torch.backends.zendnn.doctor.model import Observation
from torch.backends.zendnn.doctor.observe import Loop, Operand, Operation
from torch.backends.zendnn.doctor.trials import Trial
from torch.backends.zendnn.observe.events import Event
from torch.backends.zendnn.place.commands import Tools
from torch.backends.zendnn.place.topology import Core, Topology

MACHINE = Facts(
    cpu="AMD EPYC 9654",
    isa="AVX-512 with BF16",
    instructions=frozenset({"avx2", "avx512f", "fma"}),
    caches=(32 << 10, 1 << 20, 32 << 20),
    topology=Topology(tuple(Core((cpu,), l3=0, node=0, socket=0) for cpu in range(8))),
    threads=8,
    governor="performance",
    boost=True,
    openmp=("/lib/libgomp.so.1",),
    variables={"LD_LIBRARY_PATH": "/opt/lib", "OMP_NUM_THREADS": "8"},
    versions=("2.13.0+cpu", "2.13.0", "3.7.2"),
    tools=Tools(taskset=True, numactl=True),
    limits=Limits(1000.0, 100.0, ((1, 100.0), (4, 400.0), (8, 700.0), (16, 350.0))),
)


def operand(layout: str = "contiguous", dtype: torch.dtype = torch.float32) -> Operand:
    """An image."""
    return Operand(dtype, (8, 16, 32, 32), layout)


def event(route: str = "eager", reason: str = "") -> Event:
    """An event of a product."""
    kernel = "" if reason else "matmul zen:panel:avx512_core"
    strides, dtypes = ((16, 1), (8, 1)), (torch.float32, torch.float32)
    return Event("aten::mm", route, reason, kernel, ((8, 16), (16, 8)), strides, dtypes, 1.0)


PRODUCT = Operation(
    "aten::mm", 5.0, (operand(), operand()), (operand(),), (event(),), place="m.py:1"
)


def copy(before: Operand, after: Operand, ms: float = 1.0) -> Operation:
    """An operator that copies a tensor."""
    return Operation("aten::clone", ms, (before,), (after,), place="m.py:2")


MODEL = Observation(
    "Net",
    (
        copy(operand(), operand("channels_last")),
        PRODUCT,
        PRODUCT,
        copy(operand("channels_last"), operand()),
    ),
    batch=8,
    loop=Loop(100, 9.0, 10.0),
    trials=(Trial("as it is", "", 12.0, 0.0), Trial("no gradients", "with …", 11.0, 8.0)),
)

LOG = Log(
    (
        Execution("matmul", "zen:panel:avx512_core", 10.0, "8x16:16x8"),
        Execution("reorder", "jit:uni", 0.1, "16x8"),
        Execution("aten::linear", "matmul packed zen:panel:avx512_core", 5.0, "", "plan"),
        Execution("aten::mm", "a product too small to gain", 3.0, "2x2:2x2", "torch"),
    ),
    created=1.0,
    facts=(("nthr", "8"),),
)
