"""Control groups: the quota that they allow, and as many threads where nobody chose a number."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.backends.zendnn.place import container, launch, topology
from torch.backends.zendnn.place.container import THREADS, cores, limit_threads, quota

from .support.machines import SYNTHETIC, write

CPUS = tuple(sorted(os.sched_getaffinity(0)))

#: What may choose the number of threads.
CHOOSING = (*THREADS, "ZENDNN_NUM_THREADS", "ZENDNN_CPU_BIND", "ZENDNN_NUMA_CPUS")

V1 = "sys/fs/cgroup/cpu,cpuacct"


def v1(folder: str, quota_us: str, period_us: str = "100000") -> dict[str, str]:
    """The files of a group of version 1."""
    return {f"{folder}/cpu.cfs_quota_us": quota_us, f"{folder}/cpu.cfs_period_us": period_us}


def files(root: Path, texts: dict[str, str]) -> Path:
    """Writes files below a root."""
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


#: Files, the CPUs that they allow, and which file says so.
TREES: dict[str, tuple[dict[str, str], float, str]] = {
    "version 2, in a namespace": (
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "800000 100000"},
        8.0,
        "sys/fs/cgroup/cpu.max",
    ),
    "version 2, the least of three": (
        {
            "proc/self/cgroup": "0::/pods/pod/box",
            "sys/fs/cgroup/pods/cpu.max": "900000 100000",
            "sys/fs/cgroup/pods/pod/cpu.max": "250000 100000",
            "sys/fs/cgroup/pods/pod/box/cpu.max": "400000 100000",
        },
        2.5,
        "sys/fs/cgroup/pods/pod/cpu.max",
    ),
    "version 2, of the parent alone": (
        {
            "proc/self/cgroup": "0::/pod/box",
            "sys/fs/cgroup/pod/cpu.max": "50000 100000",
            "sys/fs/cgroup/pod/box/cpu.max": "max 100000",
        },
        0.5,
        "sys/fs/cgroup/pod/cpu.max",
    ),
    "version 2, a path outside of the namespace": (
        {"proc/self/cgroup": "0::/../other", "sys/fs/cgroup/cpu.max": "100000 100000"},
        1.0,
        "sys/fs/cgroup/cpu.max",
    ),
    "version 1": (
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu,cpuacct:/pod/box\n0::/",
            **v1(f"{V1}/pod/box", "-1"),
            **v1(f"{V1}/pod", "300000", "200000"),
            **v1(V1, "-1"),
        },
        1.5,
        f"{V1}/pod/cpu.cfs_quota_us",
    ),
    "version 1, the host's path in a container": (
        {"proc/self/cgroup": "3:cpuacct,cpu:/docker/1234", **v1("sys/fs/cgroup/cpu", "200000")},
        2.0,
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    ),
    "both versions, limits in one": (
        {
            "proc/self/cgroup": "2:cpu:/\n0::/box",
            **v1("sys/fs/cgroup/cpu", "-1"),
            "sys/fs/cgroup/unified/box/cpu.max": "300000 100000",
        },
        3.0,
        "sys/fs/cgroup/unified/box/cpu.max",
    ),
}

#: Files that say no limit, or nothing that one can read.
UNLIMITED: dict[str, dict[str, str]] = {
    "nothing": {},
    "max": {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"},
    "no controller": {"proc/self/cgroup": "0::/box", "sys/fs/cgroup/box/memory.max": "1"},
    "version 1": {"proc/self/cgroup": "1:cpu:/", **v1("sys/fs/cgroup/cpu", "-1")},
    "no period": {"proc/self/cgroup": "1:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000"},
    "another controller": {"proc/self/cgroup": "1:cpuset:/", **v1("sys/fs/cgroup/cpu", "100000")},
    **{
        f"cpu.max of {text!r}": {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": text}
        for text in (
            *("", "100000", "a b", "1 0", "-1 100000", "0 100000", "1 2 3", "1.5 1", "\ufffd \0"),
            f"{'9' * 400} 1",
            f"{'9' * 5000} 1",
        )
    },
    **{
        f"groups of {text!r}": {"proc/self/cgroup": text, "sys/fs/cgroup/cpu.max": "1 1"}
        for text in ("", "0", "0:", "0::", "::", "nonsense", "cpu:cpu:cpu", "\0")
    },
}


@pytest.mark.parametrize("name", TREES)
def test_the_least_quota_on_the_path_counts(name: str, tmp_path: Path) -> None:
    texts, cpus, file = TREES[name]
    assert quota(files(tmp_path, texts)) == (cpus, f"{tmp_path}/{file}")


@pytest.mark.parametrize("name", UNLIMITED)
def test_what_cannot_be_read_is_no_limit(name: str, tmp_path: Path) -> None:
    assert quota(files(tmp_path, UNLIMITED[name])) is None


def test_a_folder_in_the_place_of_a_file_is_no_limit(tmp_path: Path) -> None:
    files(tmp_path, {"proc/self/cgroup": "0::/"})
    (tmp_path / "sys/fs/cgroup/cpu.max").mkdir(parents=True)
    assert quota(tmp_path) is None


@pytest.mark.parametrize(
    ("cpus", "count"), [(0.01, 1), (0.5, 1), (1.0, 1), (1.01, 2), (2.5, 3), (8.0, 8)]
)
def test_a_part_of_a_core_counts_as_one(cpus: float, count: int) -> None:
    assert cores(cpus) == count


@pytest.fixture
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody chose the number of threads."""
    for name in CHOOSING:
        monkeypatch.delenv(name, raising=False)


def box(root: Path, cpus: float) -> Path:
    """The files of a container with a quota."""
    quota_us = f"{round(cpus * 100000)} 100000"
    return files(root, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": quota_us})


@pytest.mark.parametrize(
    ("cpus", "threads"), [(0.2, 1), (1.0, 1), (2.5, 3), (4.0, 4), (6.0, 6), (64.0, 6)]
)
def test_torch_gets_no_more_threads_than_the_quota_allows(
    cpus: float, threads: int, unchosen: None, tmp_path: Path
) -> None:
    torch.set_num_threads(6)
    reported = limit_threads(box(tmp_path, cpus))
    assert torch.get_num_threads() == threads
    assert reported.startswith(f"torch uses {threads} of 6 threads, since {tmp_path}") == (
        threads < 6
    )


# At the import of torch

IMPORT = """
import builtins, os, sys
root, upstream = sys.argv[1], open
def replaced(file, *arguments, **named):
    if str(file).startswith(("/proc/self/cgroup", "/sys/fs/cgroup")):
        file = root + str(file)
    return upstream(file, *arguments, **named)
builtins.open = replaced
{before}
import torch
{after}
print(torch.get_num_threads())
"""


def imported(
    root: Path, before: str = "", after: str = "", **settings: str
) -> tuple[list[str], str]:
    """What a new process prints that sees a root's control groups: words, and standard error."""
    dropped = (*CHOOSING, "TORCH_LOGS", "ZENDNN_PY_LOG_LEVEL", "ZENDNN_DEBUG_MODE")
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT.format(before=before, after=after), str(root)],
        env={**inherited, **settings},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.split(), done.stderr


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The number of threads that torch chooses, which is more than one."""
    (threads,), _ = imported(tmp_path_factory.mktemp("none"))
    if threads == "1":
        pytest.skip("torch has one thread here: fewer are none")
    return int(threads)


def test_the_import_counts_the_quota(default: int, tmp_path: Path) -> None:
    large, small = box(tmp_path / "large", 64.0), box(tmp_path / "small", 0.5)
    assert imported(large, TORCH_LOGS="zendnn") == ([str(default)], "")
    assert imported(small) == (["1"], "")
    assert imported(small, ZENDNN_CONTAINER_THREADS="0") == ([str(default)], "")


@pytest.mark.parametrize(
    "settings",
    [{"ZENDNN_PY_LOG_LEVEL": "INFO"}, {"ZENDNN_DEBUG_MODE": "3"}, {"TORCH_LOGS": "zendnn"}],
    ids=str,
)
def test_one_line_of_the_log_tells(settings: dict[str, str], default: int, tmp_path: Path) -> None:
    (threads,), reported = imported(box(tmp_path, 1.0), **settings)
    assert threads == "1"
    (line,) = reported.splitlines()
    assert "torch uses 1 of " in line
    assert line.endswith("the time of 1 CPUs; ZENDNN_CONTAINER_THREADS=0 leaves torch's number")


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        ({"OMP_NUM_THREADS": "2"}, "2"),
        ({"MKL_NUM_THREADS": "2"}, "2"),
        ({"ZENDNN_NUM_THREADS": "3"}, "3"),
        ({"ZENDNN_NUMA_CPUS": f"{CPUS[0]},{CPUS[-1]}"}, "2"),
        ({"ZENDNN_CPU_BIND": "1"}, ""),
        ({"ZENDNN_EMULATE": "zen4"}, ""),
    ],
    ids=str,
)
def test_a_number_that_somebody_chose_stays(
    settings: dict[str, str], threads: str, default: int, tmp_path: Path
) -> None:
    count, _ = imported(box(tmp_path, 1.0), **settings)
    assert count == [threads or str(default)]


def test_a_number_that_the_program_chose_stays(tmp_path: Path) -> None:
    root = box(tmp_path, 1.0)
    assert imported(root, after="torch.set_num_threads(3)") == (["3"], "")
    after = "torch.set_num_threads(3); import torch.backends.zendnn"
    assert imported(root, after=after, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == (["3"], "")


def test_affinity_counts_as_before(tmp_path: Path) -> None:
    bind = f"os.sched_setaffinity(0, [{CPUS[0]}])"
    assert imported(box(tmp_path, 64.0), before=bind) == (["1"], "")


CHILDREN = """
import multiprocessing
class Threads(torch.utils.data.Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        return torch.get_num_threads()
def ask(queue):
    queue.put(torch.get_num_threads())
for batch in torch.utils.data.DataLoader(Threads(), num_workers=1, multiprocessing_context="fork"):
    print(batch.item())
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=ask, args=(queue,))
child.start()
print(queue.get(timeout=60))
child.join(60)
"""


def test_children_have_the_threads_that_torch_gives_them(default: int, tmp_path: Path) -> None:
    """One for a data loader's worker, and the parent's number for a fork."""
    words, _ = imported(box(tmp_path, 1.0), after=CHILDREN)
    assert words == ["1", "1", "1"]
    words, _ = imported(box(tmp_path, 64.0), after=CHILDREN)
    assert words == ["1", str(default), str(default)]


def test_the_import_reads_few_files_and_imports_nothing_for_it(tmp_path: Path) -> None:
    before = """
opened = []
def counted(file, *arguments, **named):
    opened.extend([file] if "cgroup" in str(file) else [])
    return replaced(file, *arguments, **named)
builtins.open = counted
"""
    after = "print(len(opened), 'torch.backends.zendnn.place.topology' in sys.modules)"
    root = files(box(tmp_path, 64.0), {"proc/self/cgroup": "1:cpu:/\n0::/"})
    words, _ = imported(root, before=before, after=after)
    assert int(words[0]) <= 5
    assert words[1] == "False"


# A real control group


@contextlib.contextmanager
def control_group(cpus: float) -> Iterator[Path]:
    """A group with a quota, which a process enters by writing its number to ``cgroup.procs``."""
    name = f"zendnn-test-{os.getpid()}"
    for mount, quota_file in (("cpu", "cpu.cfs_quota_us"), ("", "cpu.max")):
        folder = Path("/sys/fs/cgroup", mount, name)
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / quota_file).write_text(str(round(cpus * 100000)))
        except OSError:  # the hierarchy without the controller
            folder.rmdir()
            continue
        try:
            yield folder
        finally:
            folder.rmdir()
        return
    pytest.skip("this process may not make control groups")


def test_a_real_control_group_counts(default: int) -> None:
    code = "import torch; print(torch.get_num_threads())"
    inherited = {name: value for name, value in os.environ.items() if name not in CHOOSING}
    with control_group(1.0) as group:
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", enter, "sh", sys.executable, "-c", code],
            env=inherited,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
    assert done.stdout.split() == ["1"]


# The launcher


def test_the_launcher_says_that_a_quota_is_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.touch()
    tree = tmp_path / "devices"
    usable = write(SYNTHETIC["epyc-7763-1s-nps1-smt"], tree)
    machine = topology.read(tree, usable, (0,))
    monkeypatch.setattr(launch, "read", lambda: machine)
    monkeypatch.setattr(container, "quota", lambda: (8.0, "/sys/fs/cgroup/cpu.max"))
    assert launch.main(["--dry-run", str(script)]) == 0
    reported = (
        "64 cores share the time of 8 CPUs, which /sys/fs/cgroup/cpu.max allows: choose fewer"
    )
    assert reported in capsys.readouterr().err
    assert launch.main(["--dry-run", "--cores", "0-7", str(script)]) == 0
    assert not capsys.readouterr().err
