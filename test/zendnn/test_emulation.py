"""ZENDNN_EMULATE: the CPU whose choices are made, and what says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .common import CPU, HAS_BFLOAT16, run_python
from .support.machines import SYNTHETIC, write

KIB = 1 << 10

#: Family, model, ISA and kernels of each generation, and its caches in KiB.
GENERATIONS: dict[str, tuple[int, int, str, str, tuple[int, int, int], int]] = {
    "zen2": (23, 49, "AVX2", "avx2", (32, 512, 16 << 10), 4),
    "zen3": (25, 1, "AVX2", "avx2", (32, 512, 32 << 10), 8),
    "zen4": (25, 17, "AVX-512 with VNNI and bfloat16", "avx512", (32, 1024, 32 << 10), 8),
    "zen5": (26, 2, "AVX-512 with VNNI and bfloat16", "avx512", (48, 1024, 32 << 10), 8),
}

STATE = """
import json, warnings, torch
from torch.backends.zendnn import _C
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = torch.rand(64, 64)
    with torch.backends.zendnn.record() as events:
        torch.sigmoid(x)
    torch.sigmoid(x)
    warned = [str(w.message).partition(" (Triggered")[0] for w in caught]
print(json.dumps({
    "cpu": _C._cpu(), "threads": torch.get_num_threads(),
    "implementation": events[0].implementation,
    "config": torch.__config__.show(), "report": torch.backends.zendnn._info.report(),
    "blis": _C._blas_kernels(), "warned": warned,
}))
"""


def state(**variables: str) -> Any:
    return json.loads(run_python(STATE, **variables))


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_generation_has_its_instructions_and_caches(name: str) -> None:
    family, model, isa, kernels, caches, sharing = GENERATIONS[name]
    if kernels == "avx512" and not HAS_BFLOAT16:
        pytest.skip("this CPU has less")
    found = state(ZENDNN_EMULATE=name)
    assert found["cpu"] == CPU | {
        "vendor": "AuthenticAMD",
        "name": name,
        "family": family,
        "model": model,
        "isa": isa,
        "kernels": kernels,
        "caches": [size * KIB for size in caches],
        "cores_per_l3": sharing,
        "emulated_on": CPU["name"],
    }
    assert found["implementation"] == f"eltwise kernel:{kernels}"
    assert found["blis"] == {"avx2": "zen2", "avx512": "skx"}[kernels]
    assert not found["warned"]
    said = f"{name} (family {family}, model {model}), emulated on {CPU['name'].strip()}"
    assert f", CPU: {said}\n" in found["config"]
    assert said in found["report"]


def test_without_the_variable_nothing_says_that_the_cpu_is_emulated() -> None:
    found = state(ZENDNN_EMULATE="")
    assert found["cpu"] == CPU
    assert not found["warned"]
    assert not any("emulated" in found[text] for text in ("config", "report"))


def test_what_the_cpu_lacks_is_one_sentence_and_the_rest_is_emulated() -> None:
    found = state(ZENDNN_EMULATE="zen4", ZENDNN_MAX_CPU_ISA="AVX2")
    assert found["warned"] == [
        "ZENDNN_EMULATE is 'zen4', whose AVX-512 with VNNI and bfloat16 this CPU or "
        "ZENDNN_MAX_CPU_ISA does not allow: AVX2 is used"
    ]
    assert (found["cpu"]["isa"], found["cpu"]["kernels"]) == ("AVX2", "avx2")
    assert found["cpu"]["caches"][1] == 1024 * KIB


def test_without_avx2_no_kernel_of_ours_runs_and_the_warning_says_so() -> None:
    found = state(ZENDNN_EMULATE="zen2", ZENDNN_MAX_CPU_ISA="SSE41")
    (warned,) = found["warned"]
    assert warned.endswith("does not allow: SSE4.1 is used, without vector kernels")
    assert found["implementation"] == ""


@pytest.mark.parametrize("value", ["zen9", "/no/such/folder"])
def test_an_unknown_value_warns_once_and_nothing_is_emulated(value: str) -> None:
    found = state(ZENDNN_EMULATE=value)
    assert found["warned"] == [
        f"ZENDNN_EMULATE is '{value}', which is none of zen2 zen3 zen4 zen5 and no folder with a "
        "copy of /sys/devices/system/cpu: nothing is emulated"
    ]
    assert found["cpu"] == CPU


def test_a_folder_gives_the_cores_and_work_is_cut_for_as_many_threads(tmp_path: Path) -> None:
    write(SYNTHETIC["epyc-9965-1s-nps1-smt"], tmp_path)
    found = state(ZENDNN_EMULATE=str(tmp_path))
    assert (found["cpu"]["cores"], found["cpu"]["cores_per_l3"]) == (192, 16)
    assert found["threads"] == 192
    assert found["cpu"]["isa"] == CPU["isa"]  # which it does not tell
    assert found["cpu"]["nodes"] == 1
    assert state(ZENDNN_EMULATE=str(tmp_path), OMP_NUM_THREADS="1")["threads"] == 1


def test_a_copy_of_cpuinfo_in_the_folder_gives_the_cpu(tmp_path: Path) -> None:
    write(SYNTHETIC["epyc-7763-1s-nps4"], tmp_path)
    sizes = {"index0": ("Data", "32K"), "index3": ("Unified", "32768K")}
    for index, (kind, size) in sizes.items():
        for cache in tmp_path.glob(f"cpu/cpu*/cache/{index}"):
            (cache / "type").write_text(f"{kind}\n")
            (cache / "size").write_text(f"{size}\n")
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"
        "model name\t: AMD EPYC 7763\nflags\t\t: fpu sse4_1 avx avx2 bmi2\n\nprocessor\t: 1\n"
        "model\t\t: 2\n"
    )
    found = state(ZENDNN_EMULATE=str(tmp_path), OMP_NUM_THREADS="2")["cpu"]
    assert (found["vendor"], found["family"], found["model"]) == ("AuthenticAMD", 25, 1)
    assert found["nodes"] == 4
    assert (found["isa"], found["kernels"]) == ("AVX2", "avx2")
    assert found["caches"] == [32 * KIB, CPU["caches"][1], 32768 * KIB]


TUNE = """
import warnings, torch
from torch import nn
net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64)).eval()
module = torch.jit.freeze(torch.jit.trace(net, torch.rand(8, 64)))
with warnings.catch_warnings(record=True) as caught, torch.no_grad():
    warnings.simplefilter("always")
    torch.jit.optimize_for_inference(module)(torch.rand(8, 64))
print(sum("is from another CPU" in str(w.message) for w in caught))
"""


def test_a_file_of_choices_does_not_mix_those_of_emulated_cpus_with_others(tmp_path: Path) -> None:
    file = tmp_path / "choices"
    for emulated, ignored in (("zen3", 0), ("zen3", 0), ("zen2", 1)):
        written = file.read_bytes() if file.exists() else b""
        reported = run_python(TUNE, ZENDNN_TUNING_CACHE=str(file), ZENDNN_EMULATE=emulated)
        assert int(reported) == ignored
        assert file.read_bytes().startswith(written)
        if ignored:
            assert len(file.read_bytes()) == len(written)
