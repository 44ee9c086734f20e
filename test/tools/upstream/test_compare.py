"""tools/upstream/compare.py and plugin.py: what runs on which torch, and what counts as lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from tools.setup_helpers import sources
from tools.setup_helpers.errors import SetupError
from tools.upstream import compare as module
from tools.upstream.suites import IMPORTED, INDUCTORS, LEFT_OUT, SUITES, Suite

pytestmark = pytest.mark.nightly

#: A file with each kind of test that ours can lose, and one that it cannot lose.
TESTS = """
import os
import unittest

OURS = os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "1"

class TestIt(unittest.TestCase):
    def test_a_passes(self): pass
    def test_b_fails(self): self.assertFalse(OURS)
    def test_c_crashes(self):
        if OURS: os.abort()
    def test_d_fails_in_part(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertFalse(OURS and number == 1)
    def test_e_is_skipped(self):
        if OURS: self.skipTest("here")
    def test_f_fails_on_both(self): self.fail()
    def test_g_fails_on_stock(self): self.assertTrue(OURS)
    def test_h_comes_after_the_crash(self): pass
"""


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sequence[module.Row]]:
    """Compares on the file above, in a separate folder."""
    (tmp_path / "tree" / "test").mkdir(parents=True)
    (tmp_path / "tree" / "test" / "test_it.py").write_text(TESTS)
    monkeypatch.setattr(sources, "fetch", lambda name: tmp_path / "tree")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "build")
    monkeypatch.setattr(module, "IMPORTED", ())

    def call(shards: int = 1, quick: str = "Test", **options: bool) -> Sequence[module.Row]:
        suites = [Suite("test_it.py", shards, quick=quick)]
        only_quick, inductor = (options.get(name, False) for name in ("only_quick", "inductor"))
        return module.compare(suites, quick=only_quick, processes=2, inductor=inductor)

    return call


def names(tests: Iterable[str]) -> set[str]:
    return {test.partition("::test_")[2] for test in tests}


def test_tests_that_pass_only_on_stock_are_lost(
    compare: Callable[..., Sequence[module.Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEFT_OUT", {"test_it.py::TestIt::test_b_fails": "because"})
    (row,) = compare(shards=2)
    assert names(row.lost) == {"c_crashes", "d_fails_in_part", "e_is_skipped"}
    assert names(row.left_out) == {"b_fails"}
    assert (row.stock, row.ours) == (6, 3)
    printed = module.table([row])
    assert "lost: test_it.py::TestIt::test_c_crashes" in printed
    assert "left out: test_it.py::TestIt::test_b_fails: because" in printed


def test_stock_torch_runs_once_and_ours_each_time(
    compare: Callable[..., Sequence[module.Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, bool, str]] = []

    def run(job: module.Job, folder: Path, logs: Path) -> module.Outcomes:
        ran.append((job.suite.file, job.ours, job.keyword))
        return {"test": "passed"}

    monkeypatch.setattr(module, "run", run)
    compare()
    compare()
    assert sorted(ran) == [("test_it.py", ours, "") for ours in (False, True, True)]
    ran.clear()
    compare(quick="some", only_quick=True)
    assert sorted(ran) == [("test_it.py", ours, "some") for ours in (False, True)]
    assert not compare(quick="", only_quick=True)


def test_inductor_runs_what_ours_does_not_pass(
    compare: Callable[..., Sequence[module.Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[module.Job] = []
    original = module.run

    def run(job: module.Job, folder: Path, logs: Path) -> module.Outcomes:
        ran.append(job)
        return original(job, folder, logs)

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "INDUCTORS", {"test_it.py::TestIt::test_b_fails": "its own code"})
    (row,) = compare(shards=2, inductor=True)
    assert names(row.lost) == {"c_crashes", "d_fails_in_part", "e_is_skipped"}
    assert row.left_out == {"test_it.py::TestIt::test_b_fails": "its own code"}
    assert [job.only is None for job in ran] == [job.ours for job in ran]
    of_stock = [job.only for job in ran if job.only is not None]
    assert names(test for only in of_stock for test in only) == {
        *("b_fails", "c_crashes", "d_fails_in_part", "e_is_skipped", "f_fails_on_both")
    }


def test_files_are_reworded_in_copies(tmp_path: Path) -> None:
    (tmp_path / "from" / "nn").mkdir(parents=True)
    texts = {
        "super(self.__class__, self).setUp()": "super().setUp()",
        "super().setUp()": "super().setUp()",
        "  aten.cat.names,\n  aten.all.dimname,\n  aten.cat.default,": "  aten.cat.default,",
    }
    for text, expected in texts.items():
        (tmp_path / "from" / "nn" / "test_it.py").write_text(text)
        module.copy_tests(tmp_path / "from", tmp_path / "to", ["nn/test_it.py"])
        assert (tmp_path / "to" / "nn" / "test_it.py").read_text() == expected


def test_a_changed_file_is_run_on_stock_torch_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IMPORTED", ("imported.py",))
    job = module.Job(Suite("test_it.py"), 0, False, "", None)
    keys = set()
    for texts in ("aa", "ba", "bb"):
        for file, text in zip(("test_it.py", "imported.py"), texts, strict=True):
            (tmp_path / file).write_text(text)
        keys.add(job.key(tmp_path))
    assert len(keys) == 3


def test_a_file_that_cannot_be_imported_is_one_sentence(
    compare: Callable[..., Sequence[module.Row]], tmp_path: Path
) -> None:
    (tmp_path / "tree" / "test" / "test_it.py").write_text("import no_such_module")
    with pytest.raises(SetupError, match=r"pytest cannot run test_it\.py 1/1 .*: see .*log"):
        compare()


def test_a_file_that_runs_no_test_because_pytest_stops_has_not_passed(
    compare: Callable[..., Sequence[module.Row]], tmp_path: Path
) -> None:
    conftest = tmp_path / "build" / "test" / "conftest.py"
    conftest.parent.mkdir(parents=True)
    conftest.write_text("def pytest_runtest_setup(no_such_argument): pass")
    with pytest.raises(SetupError, match=r"pytest cannot run test_it\.py"):
        compare()


def test_an_interrupted_run_ends_and_keeps_nothing(
    compare: Callable[..., Sequence[module.Row]], tmp_path: Path
) -> None:
    test = tmp_path / "tree" / "test" / "test_it.py"
    test.write_text("def test_a(): pass\ndef test_b(): raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        compare()
    assert not (tmp_path / "build" / "stock").exists()


def test_a_tree_without_tests_is_one_sentence(
    compare: Callable[..., Sequence[module.Row]], tmp_path: Path
) -> None:
    (tmp_path / "tree" / "test" / "test_it.py").unlink()
    with pytest.raises(SetupError, match=r"cannot read .*/test_it\.py .*: PYTORCH_SOURCE_DIR"):
        compare()


def test_the_worst_outcome_of_a_test_counts() -> None:
    lines = "started a,passed a,started b,passed b,failed b,passed b,started c,skipped c,started d"
    found = {"a": "passed", "b": "failed", "c": "skipped", "d": "crashed"}
    assert module.outcomes(lines.replace(",", "\n")) == found


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["test_other.py"], "there is no file 'test_other.py'"),
        (["--quick", "test_nn.py", "test_torch.py"], "test_torch.py has no quick part"),
        (["--processes", "0"], "0 is not above zero"),
        (["--processes", "x"], "invalid int value: 'x'"),
        (["--inductor", "test_nn.py"], "test_nn.py compiles nothing"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        module.main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(f"{reason}\n")


@pytest.mark.parametrize("lost", [(), ("a",)], ids=["none", "some"])
def test_a_lost_test_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, lost: tuple[str]) -> None:
    monkeypatch.setattr(
        module, "compare", lambda suites, **options: [module.Row("f", 2, 1, lost, {})]
    )
    assert module.main([]) == len(lost)


def test_the_tables_name_files_that_are_fetched() -> None:
    files = [suite.file for suite in SUITES]
    assert len(set(files)) == len(files)
    folder = sources.fetch("pytorch") / "test"
    assert all((folder / file).is_file() for file in (*files, *IMPORTED))
    assert {test.partition("::")[0] for test in LEFT_OUT} <= set(files)
    compiled = {suite.file for suite in SUITES if suite.compiled}
    assert {test.partition("::")[0] for test in INDUCTORS} <= compiled


def test_reasons_hold_for_tests_that_are_repeated_with_dynamic_sizes() -> None:
    once = "inductor/test_torchinductor.py::CpuTests::test_dropout2_cpu"
    again = "DynamicShapesCpuTests::test_dropout2_dynamic_shapes_cpu"
    assert INDUCTORS[f"inductor/test_torchinductor_dynamic_shapes.py::{again}"] == INDUCTORS[once]


#: A file with imports that moved in later versions of torch, and a table of operators.
IMPORTS = """
from torch.testing._internal import common_utils
from torch.testing._internal.common_cuda import tf32_is_not_fp32
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db, python_ref_db, xfail
from torch.testing._internal.common_mkldnn import bf32_on_and_off
from torch.testing._internal.common_nn import module_tests, new_module_tests

class TestIt(common_utils.TestCase):
    def test_imports(self):
        self.assertFalse(tf32_is_not_fp32())
        self.assertTrue(callable(xfail) and callable(bf32_on_and_off))
        self.assertTrue(module_tests + new_module_tests)

class TestOps(common_utils.TestCase):
    @ops(op_db + python_ref_db, dtypes=[common_utils.torch.float32])
    def test_an_operator(self, device, dtype, op): pass

    @ops([op for op in op_db if op.name == "add"], dtypes=[common_utils.torch.float32])
    def test_another(self, device, dtype, op): pass

instantiate_device_type_tests(TestOps, globals())
"""


def test_old_imports_work_and_only_named_operators_are_tested_on_the_cpu(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_it.py").write_text(IMPORTS)
    job = module.Job(Suite("test_it.py"), 0, True, "", ("mm", "nn_functional_gelu"))
    found = module.run(job, tmp_path, tmp_path)
    assert set(found.values()) == {"passed"}
    assert names(list(found)) == {
        "imports",
        "an_operator_mm_cpu_float32",
        "an_operator_nn_functional_gelu_cpu_float32",
        "an_operator__refs_nn_functional_gelu_cpu_float32",
    }


#: A file that compiles, in each way that upstream's tests do.
COMPILES = """
import torch
from torch._inductor.compile_fx import compile_fx

def backend_of(backend):
    from torch.backends.zendnn import explain
    net = torch.nn.Linear(3, 3).eval()
    with torch.no_grad():
        compiled = torch.compile(net, backend=backend)
        torch.testing.assert_close(compiled(torch.ones(2, 3)), net(torch.ones(2, 3)))
    return explain(compiled).as_dict()["methods"]

def test_by_name(): assert backend_of("inductor") and backend_of("aot_eager")
def test_by_function(): assert backend_of(lambda *given: compile_fx(*given))
def test_listing(): assert "inductor" in torch._dynamo.list_backends()

def test_exported():
    program = torch.export.export(torch.nn.Linear(3, 3).eval(), (torch.ones(2, 3),))
    program.module()(torch.ones(2, 3))

def test_exported_and_changed():
    program = torch.export.export(torch.nn.Linear(3, 3).eval(), (torch.ones(2, 3),))
    module = program.module()
    module.bias = torch.nn.Parameter(module.bias + 1)
    module(torch.ones(2, 3))
"""


@pytest.mark.parametrize("ours", [True, False])
def test_files_about_compilers_run_with_our_backend_or_with_none(
    ours: bool, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(COMPILES)
    job = module.Job(Suite("test_it.py", compiled=True), 0, ours, "", None)
    found = module.run(job, tmp_path, tmp_path)
    # What runs is compared with what the program was optimised to.
    expected = {"listing", "exported", *(["by_name", "by_function"] if ours else [])}
    expected |= set() if ours else {"exported_and_changed"}
    assert names([test for test, outcome in found.items() if outcome == "passed"]) == expected


def test_stock_compiles_without_inductor_unless_asked() -> None:
    suites = {compiled: Suite("test_it.py", compiled=compiled) for compiled in (False, True)}
    backends = {
        (compiled, ours, inductor): module.Job(suite, 0, ours, "", None, inductor).backend
        for compiled, suite in suites.items()
        for ours in (False, True)
        for inductor in (False, True)
    }
    assert {key: name for key, name in backends.items() if name} == {
        (True, False, False): "aot_eager",
        (True, True, False): "zendnn",
        (True, True, True): "zendnn",
    }
