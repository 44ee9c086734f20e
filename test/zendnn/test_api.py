"""torch.backends.zendnn: switches, counters, verbose lines, report, and loading."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from .common import counting, of_products, run_python, values

ZENDNN = torch.backends.zendnn


def convolve() -> None:
    F.conv2d(values(1, 8, 16, 16, seed=1), values(8, 8, 3, 3, seed=2))


def ran_on_zendnn() -> bool:
    with counting() as calls:
        convolve()
    return bool(calls)


# Availability


def test_zendnn_is_available_and_has_a_version() -> None:
    assert ZENDNN.is_available() is True
    assert re.match(r"\d+\.\d+", ZENDNN.version())


def test_the_build_info_names_sources_and_versions() -> None:
    text = str(ZENDNN.build_info())
    for word in ("ZenDNN", "BLIS", "torch"):
        assert word.lower() in text.lower()


def run_report(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch.backends.zendnn", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_report_takes_no_arguments() -> None:
    assert run_report("--help").stdout.startswith("usage: python -m torch.backends.zendnn")
    assert run_report("stray").returncode == 2


def test_the_report_has_what_a_bug_report_needs() -> None:
    done = run_report(KMP_BLOCKTIME="7", ATEN_CPU_CAPABILITY="avx2")
    assert done.returncode == 0, done.stderr
    assert torch.__version__ in done.stdout
    assert re.search(rf"^torch-zendnn +{re.escape(version('torch-zendnn'))}$", done.stdout, re.M)
    assert "ATEN_CPU_CAPABILITY=avx2" in done.stdout
    assert "KMP_BLOCKTIME=7" in done.stdout
    assert ZENDNN.version() in done.stdout
    cpu = next(
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    assert cpu in done.stdout
    assert len(done.stdout.splitlines()) <= 40


# Switches


def test_zendnn_is_on_by_default() -> None:
    assert "True" in run_python("import torch; print(torch.backends.zendnn.enabled)")
    assert ZENDNN.enabled
    assert ran_on_zendnn()


def test_flags_switch_off_inside_the_block_only() -> None:
    with ZENDNN.flags(enabled=False):
        assert not ZENDNN.enabled
        assert not ran_on_zendnn()
        with ZENDNN.flags(enabled=True):
            assert ran_on_zendnn()
        assert not ran_on_zendnn()
    assert ZENDNN.enabled
    assert ran_on_zendnn()


def test_flags_are_restored_when_the_block_fails() -> None:
    with pytest.raises(ValueError, match="inside"), ZENDNN.flags(enabled=False):
        raise ValueError("inside")
    assert ZENDNN.enabled


def test_set_flags_returns_what_was_set_before() -> None:
    assert ZENDNN.set_flags(False, True) == (True, False)
    assert (ZENDNN.enabled, ZENDNN.deterministic) == (False, True)
    assert ZENDNN.set_flags(True) == (False, True)
    assert ZENDNN.deterministic, "a flag that is not given stays"
    ZENDNN.set_flags(True, False)


def test_enabled_can_be_assigned_like_its_siblings() -> None:
    # torch.testing forbids it for the whole process, except in this context.
    with torch.backends.__allow_nonbracketed_mutation():
        ZENDNN.enabled = False
        assert not ran_on_zendnn()
        ZENDNN.enabled = True
        assert ran_on_zendnn()


def test_upstreams_switch_is_independent() -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        assert ZENDNN.enabled
    with ZENDNN.flags(enabled=False):
        assert torch.backends.mkldnn.enabled


# Counters


def test_counters_grow_by_one_a_call_and_reset_to_nothing() -> None:
    ZENDNN.reset_counters()
    assert not any(ZENDNN.counters().values())
    convolve()
    first = ZENDNN.counters()
    assert first["convolution"] == 1
    convolve()
    assert ZENDNN.counters() == {op: 2 * count for op, count in first.items()}
    ZENDNN.reset_counters()
    assert not any(ZENDNN.counters().values())


@pytest.mark.parametrize(
    ("code", "name"),
    [
        pytest.param("torch.mm(x, x)", "matmul", marks=of_products),
        pytest.param("torch.addmm(x, x, x)", "matmul", marks=of_products),
        pytest.param("torch.bmm(x[None], x[None])", "matmul", marks=of_products),
        pytest.param("torch.baddbmm(x[None], x[None], x[None])", "matmul", marks=of_products),
        ("F.conv2d(x[None, None], x[:8, :9].reshape(8, 1, 3, 3))", "convolution"),
        pytest.param("torch.nn.LSTM(64, 16)(x[None])", "rnn", marks=of_products),
    ],
)
def test_counters_name_the_kind_of_primitive(code: str, name: str) -> None:
    with torch.no_grad(), counting() as calls:
        eval(code, {"torch": torch, "F": F, "x": values(64, 64)})
    assert name in calls, calls


def test_counters_returns_a_copy() -> None:
    convolve()
    before = ZENDNN.counters()
    ZENDNN.counters().clear()
    assert ZENDNN.counters() == before


# Verbose

WORK = """
import torch, torch.nn.functional as F
def work():
    torch.mm(torch.ones(64, 64), torch.ones(64, 64))
    F.conv2d(torch.ones(1, 8, 16, 16), torch.ones(8, 8, 3, 3))
"""


def executed(output: str) -> list[str]:
    """The verbose lines of executed primitives."""
    lines = output.splitlines()
    return [line for line in lines if line.startswith("zendnn_verbose,") and ",exec," in line]


@of_products
def test_the_environment_variable_prints_a_line_for_each_primitive() -> None:
    output = run_python(WORK + "work()", ZENDNN_VERBOSE="1")
    lines = "\n".join(executed(output))
    assert ",convolution," in lines
    assert re.search(",(matmul|inner_product|gemm_api),", lines)
    assert "onednn_verbose" not in output
    assert "dnnl" not in output.lower().replace("zendnn", "")


def test_without_the_variable_nothing_is_printed() -> None:
    assert run_python(WORK + "work()", ZENDNN_VERBOSE="0") == ""


def test_upstreams_variable_does_not_reach_zendnn() -> None:
    output = run_python(WORK + "work()", ONEDNN_VERBOSE="1", DNNL_VERBOSE="1")
    assert not executed(output)


def test_switched_off_executes_no_primitive() -> None:
    code = WORK + "with torch.backends.zendnn.flags(enabled=False): work()"
    assert not executed(run_python(code, ZENDNN_VERBOSE="1"))


def test_the_verbose_context_prints_inside_the_block_only() -> None:
    code = WORK + (
        "z = torch.backends.zendnn\n"
        "work(); print('before', flush=True)\n"
        "with z.verbose(z.VERBOSE_ON): work()\n"
        "print('after', flush=True); work()\n"
        "with z.verbose(z.VERBOSE_OFF): work()\n"
    )
    output = run_python(code)
    head, rest = output.split("before")
    inside, tail = rest.split("after")
    assert executed(inside)
    assert not executed(head)
    assert not executed(tail)


# Loading


def test_import_torch_loads_it() -> None:
    code = "import sys, torch; print('torch.backends.zendnn' in sys.modules)"
    assert run_python(code) == "True\n"


def test_without_autoload_torch_is_as_upstream() -> None:
    code = (
        "import torch\n"
        "print(hasattr(torch.Tensor, 'to_zendnn'), hasattr(torch.backends, 'zendnn'))\n"
        "with open('/proc/self/maps') as maps: print('libtorch_zendnn' in maps.read())\n"
    )
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "False False\nFalse\n"


def test_importing_twice_is_harmless() -> None:
    code = "import torch, torch.backends.zendnn as z; print(z.is_available(), z.enabled)"
    assert run_python(code) == "True True\n"
    explicit = run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert explicit == "True True\n"


def test_nothing_is_written_where_python_runs(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", "import torch; torch.mm(torch.ones(64, 64), torch.ones(64, 64))"],
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    assert os.listdir(tmp_path) == []


@of_products
def test_deterministic_products_say_so_in_their_verbose_lines() -> None:
    code = """
import torch
x = torch.ones(64, 64)
with torch.backends.zendnn.flags(enabled=True, deterministic=True):
    torch.mm(x, x)
"""
    assert "attr-deterministic:1" in run_python(code, ZENDNN_VERBOSE="1")


def test_code_that_looks_for_an_accelerator_finds_none() -> None:
    assert torch.accelerator.current_accelerator() is None
    assert not torch.accelerator.is_available()
    with pytest.raises(RuntimeError, match="none is available"):
        torch.ones(2).pin_memory()


def test_torchs_configuration_names_zendnn() -> None:
    said = torch.__config__.show()
    assert said.count("ZenDNN") > 0
    assert f"  - ZenDNN: {torch.backends.zendnn.version()} " in said
    assert said.index("Build settings") < said.index("  - ZenDNN: ")
