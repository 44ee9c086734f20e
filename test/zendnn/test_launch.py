"""Launching: plans and commands for machines of up to 512 CPUs, and real instances on two."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.backends.zendnn.place import bind, binding, commands, launch, processes, topology
from torch.backends.zendnn.place.binding import PlacingError, format_list, may_bind_memory
from torch.backends.zendnn.place.commands import Command, Program, Tools, shell
from torch.backends.zendnn.place.placement import Instance, layouts, plan

from test.drawing import property_test

from .common import run_python
from .support.machines import SYNTHETIC
from .support.topologies import LEVELS, hwloc, machine, needs_hwloc

CPUS = tuple(sorted(os.sched_getaffinity(0)))
BOTH = Tools(taskset=True, numactl=True)

needs_two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


# Plans


def placed(instances: tuple[Instance, ...]) -> list[str]:
    """The CPUs of instances, as lists."""
    return [format_list(instance.cpus) for instance in instances]


@needs_hwloc
@pytest.mark.parametrize("name", SYNTHETIC)
def test_each_unit_of_hwloc_gets_an_instance_with_its_memory(name: str) -> None:
    topology = machine(name)
    ours, theirs = {}, {}
    for unit, level in LEVELS.items():
        locations = [f"{level}:{index}" for index in range(len(topology.units(unit)))]
        nodes = hwloc(name, locations, "-I", "numa")
        for smt in (False, True):
            cores = topology if smt else topology.without_siblings()
            cpus = hwloc(name, locations, *([] if smt else ["--no-smt"]), "-I", "pu")
            program = Program(("true",))
            instances = plan(cores, per=unit)
            ours[unit, smt] = [
                (command.variables["OMP_NUM_THREADS"], *command.words)
                for command in program.commands(instances, BOTH)
            ]
            several = len(topology.nodes) > 1
            theirs[unit, smt] = [
                (
                    str(len(numbers)),
                    *(
                        (
                            "numactl",
                            f"--physcpubind={format_list(numbers)}",
                            f"--membind={format_list(memory)}",
                        )
                        if several
                        else ("taskset", "-c", format_list(numbers))
                    ),
                    "true",
                )
                for numbers, memory in zip(cpus, nodes, strict=True)
            ]
    assert [key for key in ours if ours[key] != theirs[key]] == []


PLANS = [
    # One instance per L3 group, without siblings.
    ("epyc-7763-1s-nps1-smt", {}, [f"{8 * i}-{8 * i + 7}" for i in range(8)]),
    # The same number on all cores: whole groups, and shares of a group.
    ("epyc-7763-1s-nps1-smt", {"instances": 1}, ["0-63"]),
    ("epyc-7763-1s-nps1-smt", {"instances": 3}, ["0-15", "16-39", "40-63"]),
    ("epyc-9654-2s-nps1-smt", {"instances": 2}, ["0-95", "96-191"]),
    ("epyc-7763-1s-nps4", {"instances": 4, "per": "numa"}, ["0-15", "16-31", "32-47", "48-63"]),
    ("epyc-7763-1s-nps4", {"instances": 16}, [f"{4 * i}-{4 * i + 3}" for i in range(16)]),
    # For latency, a whole unit each.
    ("epyc-9755-2s-nps4-smt", {"latency": True}, ["0-31"]),
    ("epyc-9755-2s-nps1", {"latency": True}, ["0-127"]),
    ("epyc-9755-2s-nps1", {"latency": True, "per": "ccd", "instances": 2}, ["0-7", "8-15"]),
    ("xeon-8480-2s-smt", {"per": "socket"}, [",".join(map(str, range(s, 112, 2))) for s in (0, 1)]),
]


@pytest.mark.parametrize(("name", "options", "cpus"), PLANS)
def test_instances_get_units_or_shares_of_them(
    name: str, options: dict[str, Any], cpus: list[str]
) -> None:
    assert placed(plan(machine(name).without_siblings(), **options)) == cpus


@pytest.mark.parametrize("name", SYNTHETIC)
def test_any_number_of_instances_uses_every_core_once(name: str) -> None:
    topology = machine(name).without_siblings()
    total = len(topology.cores)
    for count in (1, 2, 5, 7, 12, 33, total - 1, total):
        instances = plan(topology, instances=count)
        cpus = [cpu for instance in instances for cpu in instance.cpus]
        assert len(instances) == count
        assert sorted(cpus) == sorted(core.cpus[0] for core in topology.cores)


def test_units_of_unequal_size_share_out_instances_by_their_cores() -> None:
    topology = machine("epyc-7763-1s-nps1-smt").only(range(7, 16))
    assert placed(plan(topology, instances=5)) == ["7", "8-9", "10-11", "12-13", "14-15"]
    assert len(plan(topology, instances=9)) == 9


def test_first_threads_have_a_core_each_when_siblings_are_used() -> None:
    topology = machine("epyc-7763-1s-nps1-smt").only([0, 1, 2, 64, 66])
    assert plan(topology)[0].cpus == (0, 1, 2, 64, 66)


def test_the_documented_commands_are_those_of_the_plan() -> None:
    topology = machine("epyc-9654-2s-nps4-smt").without_siblings()
    shown = Program(("python", "script.py")).commands(plan(topology, instances=2), BOTH)
    document = Path(__file__).parents[2].joinpath("docs/placing.md").read_text()
    assert f"```\n# {topology.describe()}\n{shell(shown)}\n```\n" in document


@property_test
@given(st.data())
def test_random_parts_of_machines_are_used_whole(data: st.DataObject) -> None:
    topology = machine(data.draw(st.sampled_from(sorted(SYNTHETIC)))).without_siblings()
    cpus = [core.cpus[0] for core in topology.cores]
    part = data.draw(st.lists(st.sampled_from(cpus), min_size=1, unique=True))
    count = data.draw(st.integers(1, len(part)))
    per = data.draw(st.sampled_from(sorted(LEVELS)))
    instances = plan(topology.only(part), instances=count, per=per)
    assert sorted(cpu for instance in instances for cpu in instance.cpus) == sorted(part)
    assert len(instances) == count
    assert all(instance.cpus for instance in instances)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"instances": 65}, "65 instances need as many cores, and 64 are usable here"),
        ({"instances": 5, "latency": True}, "5 instances a whole unit, and there are 4"),
    ],
)
def test_too_many_instances_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlacingError, match=sentence):
        plan(machine("epyc-7763-1s-nps4"), **options)


def test_a_search_goes_from_one_instance_to_one_per_core() -> None:
    topology = machine("epyc-7763-2s-nps2-smt").without_siblings()
    assert [len(layout) for layout in layouts(topology, False, "local")] == [
        *(1, 2, 4, 16, 32, 64, 128)
    ]
    sizes = [len(layout[0].cpus) for layout in layouts(topology, True, "local")]
    assert sizes == [1, 2, 4, 8, 32, 64, 128]


# Commands


def command(instance: Instance, tools: Tools, pin: bool = True) -> str:
    """The command of a single instance, without our own variables."""
    text = str(Program(("python", "a b.py"), pin=pin).commands([instance], tools)[0])
    return text.replace("ZENDNN_INSTANCE=0 ZENDNN_INSTANCES=1 ", "")


@pytest.mark.parametrize(
    ("instance", "words"),
    [
        (Instance((0, 1)), "taskset -c 0-1"),
        (Instance((0, 1), (0,)), "numactl --physcpubind=0-1 --membind=0"),
        (Instance((0, 9), (0, 1), "interleave"), "numactl --physcpubind=0,9 --interleave=0-1"),
    ],
)
def test_a_command_binds_cores_and_memory_and_pins_threads(
    instance: Instance, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in commands.WAITING:
        monkeypatch.delenv(name, raising=False)
    settings = "OMP_NUM_THREADS=2 OMP_PROC_BIND=close OMP_PLACES=threads"
    assert command(instance, BOTH) == f"{settings} {words} python 'a b.py'"
    settings = "OMP_NUM_THREADS=2 GOMP_SPINCOUNT=10000"
    assert command(instance, BOTH, pin=False) == f"{settings} {words} python 'a b.py'"


@pytest.mark.parametrize("name", commands.WAITING)
def test_threads_wait_as_the_user_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A single thread waits for none.
    assert "GOMP_SPINCOUNT" not in command(Instance((0,)), BOTH, pin=False)
    monkeypatch.setenv(name, "passive")
    assert "GOMP_SPINCOUNT" not in command(Instance((0, 1)), BOTH, pin=False)


def test_threads_follow_the_order_of_the_cores() -> None:
    line = command(Instance((0, 2, 1, 3)), BOTH)
    assert "OMP_PLACES='{0},{2},{1},{3}' taskset -c 0-3" in line


@pytest.mark.parametrize(
    ("tools", "instance", "words"),
    [
        (Tools(False, True), Instance((0,)), "numactl --physcpubind=0 python"),
        (Tools(False, False), Instance((0,)), f"{binding.__file__} --cores=0 python"),
        (
            Tools(True, False),
            Instance((0,), (0, 1)),
            f"{binding.__file__} --cores=0 --local=0-1 python",
        ),
    ],
)
def test_where_a_tool_is_missing_another_binds(
    tools: Tools, instance: Instance, words: str
) -> None:
    assert words in command(instance, tools)


def test_an_allocator_is_preloaded_before_what_is_so_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands.ctypes.util, "find_library", {"jemalloc": "libjemalloc.so.2"}.get)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert commands.preload("jemalloc") == "libjemalloc.so.2"
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    assert commands.preload("jemalloc") == "libjemalloc.so.2:libother.so"
    with pytest.raises(PlacingError, match=r"tcmalloc is not installed: install it \(libtcmalloc"):
        commands.preload("tcmalloc")


# Binding


def test_our_own_program_binds_cores_and_becomes_the_command() -> None:
    shows = "import os; print(*os.sched_getaffinity(0))"
    words = Tools(False, False).binder(Instance(CPUS[-1:]))
    done = subprocess.run([*words, sys.executable, "-c", shows], capture_output=True, text=True)
    assert done.stdout == f"{CPUS[-1]}\n", done.stderr


@pytest.mark.skipif(not may_bind_memory(), reason="the system forbids memory policies")
@pytest.mark.parametrize(("policy", "shown"), [("local", "bind"), ("interleave", "interleave")])
def test_our_own_program_binds_memory(policy: str, shown: str) -> None:
    words = Tools(True, False).binder(Instance(CPUS[:1], binding.allowed_nodes()[:1], policy))
    done = subprocess.run([*words, "cat", "/proc/self/numa_maps"], capture_output=True, text=True)
    assert f" {shown}:0 " in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--cores", "9999", "true"], "error: CPU 9999 is not usable here: choose from "),
        (["--cores", "x", "true"], "error: 'x' is not a list of numbers such as 0-3,8"),
        (["--local", "99", "true"], "error: memory of NUMA node 99 is not"),
        (["no-such-command"], "error: no-such-command cannot be run: No such file"),
    ],
)
def test_our_own_program_refuses_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert binding.main(arguments) == 2
    assert capsys.readouterr().err.startswith(sentence)
    assert tuple(sorted(os.sched_getaffinity(0))) == CPUS


@needs_two_cpus
def test_a_process_binds_itself() -> None:
    printed = run_python(
        "import os, torch\n"
        "torch.rand(300, 300) @ torch.rand(300, 300)  # starts OpenMP's threads\n"
        f"torch.backends.zendnn.bind('{CPUS[0]}', memory='local')\n"
        "threads = map(int, os.listdir('/proc/self/task'))\n"
        "print({tuple(os.sched_getaffinity(thread)) for thread in threads})\n"
        "print(torch.get_num_threads())\n"
        f"torch.backends.zendnn.bind({list(CPUS[:2])})\n"
        "print(torch.get_num_threads())\n"
    )
    assert printed.split("\n") == [f"{{({CPUS[0]},)}}", "1", "2", ""]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"cores": "0-"}, "'0-' is not a list of numbers such as 0-3,8"),
        ({"cores": []}, "the list of CPUs is empty"),
        ({"cores": [99999]}, "CPU 99999 is not usable here: choose from"),
        ({"memory": "near"}, "memory is 'local' or 'interleave', not 'near'"),
    ],
)
def test_bind_refuses_in_one_sentence_and_changes_nothing(
    arguments: dict[str, object], sentence: str
) -> None:
    threads = torch.get_num_threads()
    with pytest.raises(ValueError, match=sentence):
        torch.backends.zendnn.bind(**arguments)
    assert tuple(sorted(os.sched_getaffinity(0))) == CPUS
    assert torch.get_num_threads() == threads


BY_VARIABLES = """
import os
import torch
from torch.backends import zendnn
print(sorted(os.sched_getaffinity(0)), torch.get_num_threads(), zendnn.enabled)
"""


def test_variables_bind_at_the_import_of_torch() -> None:
    first = CPUS[:1]
    cases = [
        ({"ZENDNN_NUMA_CPUS": str(first[0]), "ZENDNN_MEM_BIND": "1"}, (first, 1, True)),
        (
            {"ZENDNN_NUMA_CPUS": f"{first[0]} {CPUS[-1]}", "ZENDNN_NUM_THREADS": "1"},
            (first, 1, True),
        ),
        ({"ZENDNN_PROCESS_MODE": "0", "ZENDNN_NUM_THREADS": "3"}, (CPUS, 3, False)),
    ]
    for settings, (cores, threads, enabled) in cases:
        assert run_python(BY_VARIABLES, **settings) == f"{list(cores)} {threads} {enabled}\n"


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({"NUMA_CPUS": "4-7,1"}, [{"cores": (1, 4, 5, 6, 7)}]),
        ({"NUMA_CPUS": "0 1  5", "NUM_THREADS": "2"}, [{"cores": (0, 1)}, 2]),
        ({"NUMA_CPUS": "0-1", "CPU_BIND": "0"}, []),
        # A core's first CPU: the siblings are 64 and more.
        ({"CPU_BIND": "1", "NUM_THREADS": "3"}, [{"cores": (0, 1, 2)}, 3]),
        ({"CPU_BIND": "1"}, [{"cores": tuple(range(64))}]),
        ({"MEM_BIND": "1"}, [{"memory": "local"}]),
        ({"MEM_BIND": "interleave", "NUM_THREADS": "8"}, [8, {"memory": "interleave"}]),
        ({"MEM_BIND": "0", "CPU_BIND": "0", "NUM_THREADS": "0"}, []),
    ],
    ids=str,
)
def test_variables_are_arguments_of_bind(
    settings: dict[str, str], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    result: list[Any] = []
    monkeypatch.setattr(topology, "read", lambda: machine("epyc-7763-1s-nps1-smt"))
    monkeypatch.setattr(torch, "set_num_threads", result.append)
    monkeypatch.setattr(
        bind,
        "bind",
        lambda cores=None, memory=None: result.append(
            {"memory": memory} if cores is None else {"cores": cores}
        ),
    )
    for name, value in settings.items():
        monkeypatch.setenv(f"ZENDNN_{name}", value)
    bind.bind_by_variables()
    assert result == calls


def test_variables_that_cannot_be_followed_warn_once_each() -> None:
    settings = {
        "ZENDNN_PROCESS_MODE": "off",
        "ZENDNN_CPU_BIND": "yes",
        "ZENDNN_MEM_BIND": "2",
        "ZENDNN_NUM_THREADS": "many",
        "ZENDNN_NUMA_CPUS": "5-2",
    }
    done = subprocess.run(
        [sys.executable, "-c", BY_VARIABLES],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == run_python(BY_VARIABLES)
    sentences = {
        "PROCESS_MODE": "'off', which is none of 1 0: it stays 1",
        "CPU_BIND": "'yes', which is none of 1 0: it stays 1",
        "MEM_BIND": "'2', which is none of 0 1 interleave: it stays 0",
        "NUM_THREADS": "'many', which is no whole number from 0 on: it stays 0",
        "NUMA_CPUS": "'5-2', and cores are not bound: '5-2' has the range 5-2, which goes down",
    }
    for name, sentence in sentences.items():
        assert done.stderr.count(f"ZENDNN_{name} is ") == 1
        assert f"ZENDNN_{name} is {sentence}" in done.stderr


# Instances


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Hears SIGINT, which a shell's background jobs ignore, also where tests are one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that runs its first argument with `i`, the number of its instance."""
    file = tmp_path / "script.py"
    file.write_text(
        "import os, pathlib, signal, sys, time\n"
        "i, n = (int(os.environ['ZENDNN_INSTANCE' + s]) for s in ('', 'S'))\n"
        "here = pathlib.Path(__file__).parent\n"
        "def wait_for(name):\n"
        "    while not (here / name).exists(): time.sleep(0.01)\n"
        "exec(sys.argv[1])\n"
    )
    return file


def launched(script: Path, code: str, *options: str) -> int:
    """The exit code of a launch of the script with code to run."""
    return launch.main([*options, str(script), code])


@needs_two_cpus
def test_instances_run_on_cores_of_their_own(
    script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "print(n, *os.sched_getaffinity(0), os.environ['OMP_NUM_THREADS'])"
    cores = f"{CPUS[0]},{CPUS[1]}"
    assert launched(script, code, "--instances", "2", "--cores", cores) == 0
    reported = capfd.readouterr()
    assert sorted(reported.out.splitlines()) == [f"[0] 2 {CPUS[0]} 1", f"[1] 2 {CPUS[1]} 1"]
    assert reported.err.splitlines()[-3].split() == ["instance", "CPUs", "code", "seconds"]
    assert [line.split()[:3] for line in reported.err.splitlines()[-2:]] == [
        ["0", str(CPUS[0]), "0"],
        ["1", str(CPUS[1]), "0"],
    ]


@needs_two_cpus
def test_printed_commands_run_in_a_shell(
    script: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "(here / f'it\\'s {i}').write_text(str(os.sched_getaffinity(0)))"
    assert launched(script, code, "--instances", "2", "--dry-run") == 0
    subprocess.run(["sh", "-e"], input=capfd.readouterr().out, text=True, check=True)
    for index in (0, 1):
        assert (tmp_path / f"it's {index}").read_text() == f"{{{CPUS[index]}}}"


def test_a_single_instance_has_the_terminal_to_itself(
    script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launched(script, "print('as is', end=''); sys.exit(7)", "--instances", "1") == 7
    assert capfd.readouterr().out == "as is"


def test_the_package_runs_the_command(
    script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["launch", "--instances", "1", str(script), "print(*sys.argv[2:])", "--help"]
    monkeypatch.setattr(sys, "argv", ["zendnn", *arguments])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("torch.backends.zendnn", run_name="__main__")
    assert caught.value.code == 0
    assert capfd.readouterr().out == "--help\n"


def test_a_module_runs_as_well(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["--instances", "1", "-m", "json.tool", "--help"]) == 0
    assert "usage: python" in capfd.readouterr().out


@needs_two_cpus
def test_logs_hold_the_output_of_each_instance(
    script: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "new/logs"
    code = "print('out', i); print('err', i, file=sys.stderr)"
    assert launched(script, code, "--instances", "2", "--logs", str(logs)) == 0
    for index in (0, 1):
        text = (logs / f"instance-{index}.log").read_text()
        assert sorted(text.splitlines()) == [f"err {index}", f"out {index}"]
    assert not capfd.readouterr().out


@needs_two_cpus
def test_a_failure_ends_the_others_and_gives_the_code(
    script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "signal.signal(signal.SIGTERM, lambda *_: (print('told to end'), os._exit(5)))\n"
        "(here / str(i)).touch()\n"
        "wait_for('0')\n"
        "sys.exit(3) if i else time.sleep(60)"
    )
    assert launched(script, code, "--instances", "2") == 3
    reported = capfd.readouterr()
    assert "[0] told to end" in reported.out
    assert [line.split()[2] for line in reported.err.splitlines()[-2:]] == ["5", "3"]


@needs_two_cpus
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_once(
    script: Path, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        f"signal.signal({number}, lambda *_: print('told'))\n"
        "(here / str(i)).touch()\n"
        "wait_for('0'); wait_for('1')\n"
        f"i or os.kill(os.getppid(), {number})\n"
        "time.sleep(0.3)"
    )
    before = signal.getsignal(number)
    assert launched(script, code, "--instances", "2") == 128 + number
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] told", "[1] told"]
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("interruptible")
def test_who_does_not_end_in_time_is_killed_with_what_it_started(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    code = (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "child and (here / 'child').write_text(str(child))\n"
        "child and os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(60)"
    )
    assert launched(script, code, "--instances", "1") == 128 + signal.SIGINT
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] in "ZX"


def test_what_cannot_be_started_ends_the_others(tmp_path: Path) -> None:
    started = [Command({}, ("sleep", "60")), Command({}, (str(tmp_path / "missing"),))]
    with pytest.raises(PlacingError, match=r"instance 1 cannot be started: .*missing"):
        processes.run(started)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing.py"], "there is no script 'missing.py'"),
        (["--cores", "0-", __file__], "'0-' is not a list of numbers"),
        (["--cores", "", __file__], "the list of CPUs is empty"),
        (["--cores", "9999", __file__], "CPU 9999 is not usable here: choose from"),
        (["--instances", "9999", __file__], "9999 instances need as many cores"),
        (["--search", "--instances", "2", __file__], "--search chooses and runs instances"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch.main(arguments) == 2
    reported = capsys.readouterr().err
    assert reported.startswith(f"error: {sentence}")
    assert reported.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--instances", "0", "a.py"], ["--per", "core", "a.py"], []])
def test_a_wrong_word_is_refused_with_the_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        launch.main(arguments)
    assert caught.value.code == 2


def test_a_machine_of_several_nodes_that_forbids_policies_leaves_memory_as_it_is(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "read", lambda: machine("epyc-7763-2s-nps1-smt"))
    monkeypatch.setattr(launch, "may_bind_memory", lambda: False)
    assert launched(script, "pass", "--dry-run", "--per", "socket") == 0
    reported = capsys.readouterr()
    assert "memory is not bound" in reported.err
    assert "taskset -c 0-63 " in reported.out
    assert launched(script, "pass", "--dry-run", "--memory", "interleave") == 2
    assert "a container needs the capability SYS_NICE" in capsys.readouterr().err


@needs_two_cpus
def test_threads_of_torch_have_a_core_each_and_new_processes_that_of_the_first() -> None:
    code = (
        "import os, sys, torch\n"
        "torch.rand(300, 300) @ torch.rand(300, 300)\n"
        "threads = [os.sched_getaffinity(int(t)) for t in os.listdir('/proc/self/task')]\n"
        "print(sorted(map(tuple, threads)), flush=True)\n"
        "if not os.fork(): print(os.sched_getaffinity(0), flush=True); os._exit(0)\n"
        "os.wait()\n"
    )
    program = Program((sys.executable, "-c", code))
    line = shell(program.commands([Instance(CPUS[:2])], Tools.here()))
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[(cpu,) for cpu in CPUS[:2]]}\n{{{CPUS[0]}}}\n"


# The search


def search(script: Path, code: str, *options: str) -> int:
    """The exit code of a search on two CPUs."""
    return launched(script, code, "--search", "--cores", f"{CPUS[0]},{CPUS[1]}", *options)


@needs_two_cpus
@pytest.mark.parametrize(
    ("options", "code", "table"),
    [
        (
            [],
            "print('samples/s: 1'); print('samples/s:', 8 / n ** 2)",
            ["instances CPUs each samples/s", f"1 2 8 {'#' * 40} best", f"2 1 4 {'#' * 20}"],
        ),
        (
            ["--latency"],
            "print('samples/s:', len(os.sched_getaffinity(0)) * 100)",
            ["instances CPUs each ms/sample", f"1 1 10 {'#' * 40}", f"1 2 5 {'#' * 20} best"],
        ),
    ],
)
def test_a_search_finds_the_best_by_the_scripts_own_measure(
    options: list[str],
    code: str,
    table: list[str],
    script: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert search(script, code, *options) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines[:3]] == table
    assert lines[3] == ""
    assert lines[4].startswith("OMP_NUM_THREADS=2 ")


@needs_two_cpus
def test_a_search_measures_the_runs_time_otherwise(
    script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert search(script, "time.sleep(0.5 if n == 1 else 0.01)") == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines()[:3]]
    assert rows[0][-1] == "runs/s"
    assert rows[2][-1] == "best"


@needs_two_cpus
def test_a_search_ends_at_a_failure_and_shows_what_it_has(
    script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert search(script, "print('why'); sys.exit(4 if n == 2 and i else 0)") == 4
    reported = capfd.readouterr()
    assert "why\nerror: 2 x 1 CPUs (2 of 2): the script ended with code 4\n" in reported.err
    assert len(reported.out.split("\n\n")[0].splitlines()) == 2


@needs_two_cpus
@pytest.mark.parametrize("when", ["i or n == 1", "n == 2"])
def test_a_measure_in_some_runs_only_is_refused(
    when: str, script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert search(script, f"print('samples/s: 2') if {when} else None") == 2
    assert "print it in all or in none" in capfd.readouterr().err
