"""How products are cut for threads that share L3 caches, and weights placed on NUMA nodes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from .common import run_python
from .support.machines import SYNTHETIC, cpus_of, write

Item = TypeVar("Item")

#: Rows, columns and depths of layers: few rows to many, of BERT, of a recommender, and odd ones.
PROBLEMS = [
    (rows, columns, depth)
    for rows in (1, 4, 16, 64, 128, 384, 1024, 3000, 16384)
    for columns, depth in ((768, 768), (3072, 768), (768, 3072), (4096, 4096), (480, 256), (50, 70))
]

CUTS = f"""
import json, torch
print(json.dumps([torch.backends.zendnn._C._cut_of_panels(*p) for p in {PROBLEMS}]))
"""


@dataclass(frozen=True)
class Cut:
    """How many threads multiply how many chunks of rows by how many panels, in bands."""

    threads: int
    chunks: int
    panels: int
    bands: int

    def items(self) -> list[tuple[int, int]]:
        """Chunks and panels, in the order in which threads take them."""
        return [
            (chunk, panel)
            for band in shares(range(self.panels), self.bands)
            for chunk in range(self.chunks)
            for panel in band
        ]

    def read_by_busiest_cache(self, rows: int, columns: int, sharing: int) -> float:
        """Rows and columns that an L3 cache reads whose threads follow one another."""
        by_thread = shares(self.items(), self.threads)
        groups = [
            [item for items in by_thread[first : first + sharing] for item in items]
            for first in range(0, self.threads, sharing)
        ]
        return max(
            len({chunk for chunk, _ in group}) * rows / self.chunks
            + len({panel for _, panel in group}) * columns / self.panels
            for group in groups
        )


def shares(items: Sequence[Item], count: int) -> list[Sequence[Item]]:
    """Cuts items into parts, of which the first may have one more."""
    share, more = divmod(len(items), count)
    ends = [part * share + min(part, more) for part in range(count + 1)]
    return [items[a:b] for a, b in itertools.pairwise(ends)]


def cuts(root: Path) -> list[Cut]:
    """The cuts of the problems on the machine whose files are in a folder."""
    return [Cut(*cut) for cut in json.loads(run_python(CUTS, ZENDNN_EMULATE=str(root)))]


@pytest.mark.parametrize(
    "name", ["epyc-7763-1s-nps1-smt", "epyc-9654-1s-nps1", "epyc-9755-2s-nps1"]
)
def test_l3_caches_read_less_than_if_threads_shared_one_and_the_work_is_the_same(
    name: str, tmp_path: Path
) -> None:
    cpus = cpus_of(SYNTHETIC[name])
    cores, caches = len({cpu.core for cpu in cpus}), len({cpu.l3 for cpu in cpus})
    write(SYNTHETIC[name], tmp_path / "machine")
    write(f"Package:1 NUMANode:1 L3:1 Core:{cores} PU:1", tmp_path / "one-cache")
    halved = 0
    for (rows, columns, depth), cut, other in zip(
        PROBLEMS, cuts(tmp_path / "machine"), cuts(tmp_path / "one-cache"), strict=True
    ):
        assert replace(cut, bands=1) == other
        assert cut.threads <= cores
        mine, theirs = (
            x.read_by_busiest_cache(rows, columns, cores // caches) for x in (cut, other)
        )
        assert mine <= theirs, (rows, columns, depth)
        halved += mine < theirs / 2
    assert halved


#: Two sockets, with two L3 caches each, which two cores share.
SMALL = "Package:2 NUMANode:1 L3:2 Core:2 PU:1"

RIGHT = """
import torch
from torch import nn
ZENDNN = torch.backends.zendnn
torch.manual_seed(0)

def compare(fast, model, x, tolerance=1e-5):
    with ZENDNN.flags(enabled=False):
        want = model(x)
    torch.testing.assert_close(fast(x), want, rtol=tolerance, atol=tolerance)

banded = 0
with torch.no_grad():
    for rows in (1, 7, 64, 297, 1024):
        for columns, depth in ((1000, 96), (333, 70), (2048, 1100), (17, 33)):
            x, layer = torch.rand(rows, depth), nn.Linear(depth, columns).eval()
            frozen = torch.jit.freeze(torch.jit.trace(layer, x))
            compare(torch.jit.optimize_for_inference(frozen), layer, x)
            compare(layer, layer, x)
            banded += ZENDNN._C._cut_of_panels(rows, columns, depth)[3] > 1
    block = nn.TransformerEncoderLayer(96, 4, 200, batch_first=True, dropout=0.0).eval()
    x = torch.rand(9, 33, 96)
    compare(torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(block, x))), block, x)
    image, convolution = torch.rand(2, 32, 30, 31), nn.Conv2d(32, 200, 3)
    compare(convolution, convolution, image)
print(ZENDNN._C._cpu()["nodes"], torch.get_num_threads(), banded)
"""


def test_products_in_bands_and_weights_that_all_threads_place_are_right(tmp_path: Path) -> None:
    write(SMALL, tmp_path)
    settings = {"OMP_WAIT_POLICY": "passive", "ZENDNN_TUNING_BUDGET": "0"}
    reported = run_python(RIGHT, ZENDNN_EMULATE=str(tmp_path), **settings)
    nodes, threads, banded = map(int, reported.split())
    assert (nodes, threads) == (2, 8)
    assert banded
