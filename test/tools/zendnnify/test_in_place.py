"""Conversions of a whole PyTorch tree in place, on the real files that the rules touch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from test.tools.zendnnify.conftest import write_tree
from tools.zendnnify import files, generate, in_place, locks
from tools.zendnnify.__main__ import main
from tools.zendnnify.in_place import STATE
from tools.zendnnify.rules import tree as tree_rules
from tools.zendnnify.rules.model import ZendnnifyError
from tools.zendnnify.trees import NATIVE_FUNCTIONS, Source, Tree

ROOT = Path(__file__).resolve().parents[3]
OPTION = "CMakeLists.txt"
GENERATED = "aten/src/ATen/native/zendnn/Conv.cpp"

Contents = dict[str, tuple[bytes, int]]


@pytest.fixture
def tree(tmp_path: Path, upstream: Callable[[str], Path]) -> Path:
    return Path(shutil.copytree(upstream("pytorch-tree"), tmp_path / "tree"))


@pytest.fixture
def third_party(tmp_path: Path) -> Path:
    """Stand-ins of a few files; the real ones are copied the same way."""
    contents = {
        "zendnn/CMakeLists.txt": 'set(PROJECT_VERSION "3.7.2")\n',
        "zendnn/zendnnify.json": "{}\n",
        "zendnn/src/common/utils.cpp": "int zendnn;\n",
        "adeep/adeep.hpp": "#pragma once\n",
        "blis/lib/libblis.a": "!<arch>\n",
    }
    return write_tree(tmp_path / "third_party", contents)


_converted: dict[bytes, generate.Converted] = {}


@pytest.fixture(autouse=True)
def convert_each_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules are tested elsewhere; here they need not run for each test."""
    rules = generate.convert

    def convert(tree: Tree, source: Source) -> generate.Converted:
        data = (tree.root / source.path).read_bytes()
        if data not in _converted:
            _converted[data] = rules(tree, source)
        return _converted[data]

    monkeypatch.setattr(generate, "convert", convert)


def convert(
    tree: Path, third_party: Path, force: bool = False, repository: Path | None = None
) -> in_place.Done:
    """Converts with stand-ins for this project's files, or with those of ``repository``."""
    folders = {f"third_party/{path.name}": path for path in third_party.iterdir()}
    if repository is None:
        repository = third_party.parent / "repository"
        own = (*in_place.OWN_FILES, *(f"{name}/own.cpp" for name in in_place.OWN_FOLDERS))
        write_tree(repository, {path: f"{path}\n" for path in own})
    return in_place.convert(tree, repository, lambda: folders, force)


def contents(tree: Path) -> Contents:
    """Path to bytes and permissions of all files, and of empty folders."""
    found: Contents = {}
    for path in sorted(tree.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(tree))] = (path.read_bytes(), path.stat().st_mode)
        elif not any(path.iterdir()):
            found[str(path.relative_to(tree))] = (b"", 0)
    return found


def converted_contents(tree: Path) -> Contents:
    return {path: found for path, found in contents(tree).items() if not path.startswith(STATE)}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_revert_gives_back_every_byte(tree: Path, third_party: Path) -> None:
    (tree / OPTION).chmod(0o600)
    before = contents(tree)
    done = convert(tree, third_party, repository=ROOT)
    after = converted_contents(tree)
    assert (done.edited, done.added) == (10, len(after) - len(before))
    assert sorted(done.written) == sorted(path for path in after if after[path] != before.get(path))
    assert {path for path in before if after[path] != before[path]} == {
        NATIVE_FUNCTIONS,
        *(rule.file for rule in tree_rules.EDITS),
    }
    for module in ("torch/utils/zendnn.py", "torch/backends/zendnn/ir/graph.py"):
        subprocess.run([sys.executable, "-m", "py_compile", tree / module], check=True)
    assert sorted(in_place.revert(tree).written) == sorted(done.written)
    assert contents(tree) == before


def test_twice_is_once(tree: Path, third_party: Path) -> None:
    convert(tree, third_party)
    times = {path: path.stat().st_mtime_ns for path in tree.rglob("*") if STATE not in path.parts}
    before = contents(tree)
    assert convert(tree, third_party).written == []
    assert contents(tree) == before
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())


def test_a_later_conversion_removes_what_it_no_longer_has(tree: Path, third_party: Path) -> None:
    before = contents(tree)
    convert(tree, third_party)
    (third_party / "zendnn/src/common/utils.cpp").unlink()
    (third_party / "zendnn/src/common/other.cpp").write_text("int other;\n")
    folder = "third_party/zendnn/src/common"
    assert convert(tree, third_party).written == [f"{folder}/other.cpp", f"{folder}/utils.cpp"]
    in_place.revert(tree)
    assert contents(tree) == before


def in_a_process_that_dies(writes: int, run: Callable[[], object]) -> None:
    """Runs in a child that is killed instead of writing one more file than ``writes``."""
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        return
    left, replace = writes, os.replace

    def dying(source: Path, target: Path) -> None:
        nonlocal left
        if left == 0:
            os._exit(9)
        left -= 1
        replace(source, target)

    os.replace = dying  # type: ignore[assignment]
    try:
        run()
    finally:
        os._exit(1)


@pytest.mark.parametrize("writes", [5, 10, 40])
def test_a_killed_run_can_be_run_again_and_reverted(
    tree: Path, third_party: Path, writes: int
) -> None:
    before = contents(tree)
    in_a_process_that_dies(writes, lambda: convert(tree, third_party))
    convert(tree, third_party)
    after = contents(tree)
    in_a_process_that_dies(min(writes, 9), lambda: in_place.revert(tree))
    assert contents(tree) != before
    convert(tree, third_party)
    assert contents(tree) == after
    in_a_process_that_dies(min(writes, 9), lambda: in_place.revert(tree))
    in_place.revert(tree)
    assert contents(tree) == before


def test_a_killed_conversion_over_an_earlier_one_can_be_run_again(
    tree: Path, third_party: Path
) -> None:
    before = contents(tree)
    convert(tree, third_party)
    source = third_party / "zendnn/src/common/utils.cpp"
    for text, writes in (("second", 1), ("third", 1), ("third", 2), ("fourth", 1)):
        source.write_text(f"{text}\n")
        in_a_process_that_dies(writes, lambda: convert(tree, third_party))
    assert convert(tree, third_party).written == ["third_party/zendnn/src/common/utils.cpp"]
    assert convert(tree, third_party).written == []
    in_place.revert(tree)
    assert contents(tree) == before


def test_an_interrupted_run_leaves_the_tree_as_it_was(
    tree: Path, third_party: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(tree)
    left, put = 40, in_place._put

    def interrupted(root: Path, target: Path, file: in_place._File) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        put(root, target, file)

    monkeypatch.setattr(in_place, "_put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(tree, third_party)
    assert contents(tree) == before


def test_a_file_that_differs_from_upstream_is_refused_and_kept_by_force(
    tree: Path, third_party: Path
) -> None:
    edit(tree / OPTION, "Use MKLDNN.", "Perhaps use MKLDNN.")
    before = contents(tree)
    with pytest.raises(ZendnnifyError, match=rf"{tree}/{OPTION} differs from PyTorch 2\.6's"):
        convert(tree, third_party)
    assert contents(tree) == before
    convert(tree, third_party, force=True)
    assert "Perhaps use MKLDNN." in (tree / OPTION).read_text()
    in_place.revert(tree)
    assert contents(tree) == before


def test_a_lost_anchor_is_named_with_rule_file_and_line(tree: Path, third_party: Path) -> None:
    for rule in {rule.file: rule for rule in tree_rules.EDITS}.values():
        path = tree / rule.file
        text = path.read_text()
        path.write_text(text.replace(rule.anchor, rule.anchor.replace("\n", " # moved\n", 1)))
        said = rf"{path.name}: the anchor of rule '{rule.name}' occurs 0 times.* at line \d+"
        with pytest.raises(ZendnnifyError, match=said):
            convert(tree, third_party, force=True)
        assert not (tree / STATE).exists()
        path.write_text(text)


def test_uncommitted_changes_are_refused_unless_they_are_ours(
    tree: Path, third_party: Path
) -> None:
    def git(*command: str) -> str:
        names = ["-c", "user.name=name", "-c", "user.email=name@example.org"]
        ran = subprocess.run(
            ["git", *names, *command], cwd=tree, check=True, capture_output=True, text=True
        )
        return ran.stdout

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=upstream")
    edit(tree / "torchgen/utils.py", "import", "import ")
    with pytest.raises(ZendnnifyError, match=r"torchgen/utils.py has uncommitted changes; commit"):
        convert(tree, third_party)
    git("stash")
    (tree / "notes.txt").write_text("untracked files are no matter\n")
    convert(tree, third_party)
    assert STATE not in git("status", "--short", "--untracked-files=all")
    assert convert(tree, third_party).written == []
    in_place.revert(tree)
    assert git("status", "--short") == "?? notes.txt\n"
    (tree / ".git/HEAD").write_text("nonsense\n")
    with pytest.raises(ZendnnifyError, match="git cannot tell what changed"):
        convert(tree, third_party)


def test_a_users_file_in_the_way_is_refused_and_given_back(tree: Path, third_party: Path) -> None:
    write_tree(tree, {GENERATED: "int mine;\n"})
    before = contents(tree)
    with pytest.raises(ZendnnifyError, match=rf"{GENERATED} is in the way of a converted file"):
        convert(tree, third_party)
    assert contents(tree) == before
    convert(tree, third_party, force=True)
    in_place.revert(tree)
    assert contents(tree) == before


@pytest.mark.parametrize("path", [OPTION, GENERATED])
def test_changes_since_the_conversion_are_refused_and_discarded_by_force(
    tree: Path, third_party: Path, path: str
) -> None:
    before = contents(tree)
    convert(tree, third_party)
    after = contents(tree)
    (tree / path).write_text("changed\n")
    for run in (lambda: convert(tree, third_party), lambda: in_place.revert(tree)):
        with pytest.raises(ZendnnifyError, match=rf"{path} changed since the conversion"):
            run()
    convert(tree, third_party, force=True)
    assert contents(tree) == after
    (tree / path).unlink()
    in_place.revert(tree, force=True)
    assert contents(tree) == before


def test_trees_that_cannot_be_converted_are_refused(
    tree: Path, onednn: Path, third_party: Path
) -> None:
    with pytest.raises(ZendnnifyError, match="has not been converted in place"):
        in_place.revert(tree)
    with pytest.raises(ZendnnifyError, match="only a PyTorch tree is converted in place"):
        convert(onednn, third_party)
    (tree / "version.txt").write_text("1.13.1\n")
    with pytest.raises(ZendnnifyError, match=r"is PyTorch 1\.13, which is too old to be converted"):
        convert(tree, third_party)
    (tree / "version.txt").write_text("2.99.0a0\n")
    with pytest.raises(ZendnnifyError, match=r"is PyTorch 2\.99, whose files are not known"):
        convert(tree, third_party)
    (tree / "setup.py").unlink()
    with pytest.raises(ZendnnifyError, match=r"only a part of PyTorch, without setup\.py"):
        convert(tree, third_party, force=True)
    assert not (tree / STATE).exists()


def test_one_run_at_a_time(tree: Path, third_party: Path) -> None:
    (tree / STATE).mkdir()
    with (
        files.lock(tree / STATE / "lock", tree),
        pytest.raises(ZendnnifyError, match="another run is writing into"),
    ):
        convert(tree, third_party)


def test_a_damaged_journal_is_refused(tree: Path, third_party: Path) -> None:
    convert(tree, third_party)
    journal = tree / STATE / "journal.json"
    name = next(iter(json.loads(journal.read_text())))
    for damaged in ("", "[]", '{"a": 1}', journal.read_text().replace(name, "../outside", 1)):
        journal.write_text(damaged)
        for run in (lambda: convert(tree, third_party), lambda: in_place.revert(tree)):
            with pytest.raises(ZendnnifyError, match=r"journal\.json is damaged"):
                run()


READ_ENTRIES = """
import sys, yaml
from torchgen.gen import parse_tags_yaml
from torchgen.model import DispatchKey, Location, NativeFunction, dispatch_keys

tags = parse_tags_yaml("aten/src/ATen/native/tags.yaml")

def read(path):
    blocks = open(path).read().split("\\n- func: ")[1:]
    entries = yaml.safe_load("".join("\\n- func: " + x for x in blocks if "mkldnn" in x))
    return [NativeFunction.from_yaml(entry, Location(path, 1), tags)[1] for entry in entries]

upstream, converted = map(read, sys.argv[1:])
assert converted == upstream
dispatch_keys.append(DispatchKey.PrivateUse1)
converted = read(sys.argv[2])
print(sum(bool(keys.pop(DispatchKey.PrivateUse1, {})) for keys in converted))
assert [{**keys} for keys in converted] == [{**keys} for keys in upstream]
"""


def test_torchgen_sees_the_entries_only_when_asked_to(tree: Path, third_party: Path) -> None:
    upstream = shutil.copy(tree / NATIVE_FUNCTIONS, tree.parent / "upstream.yaml")
    convert(tree, third_party)
    command = [sys.executable, "-c", READ_ENTRIES, upstream, NATIVE_FUNCTIONS]
    ran = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout == "57\n"


def test_the_command_converts_and_reverts(
    tree: Path,
    third_party: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents(tree)
    folders = {"third_party/adeep": third_party / "adeep"}
    monkeypatch.setattr("tools.setup_helpers.build.third_party", lambda: folders)
    assert main(["--in-place", str(tree)]) == 0
    lines = dict(line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    assert lines["files edited"] == "10"
    assert main(["--revert", str(tree)]) == 0
    assert contents(tree) == before
    for options in (["--check"], ["--output-directory", "out"], ["setup.py"]):
        assert main(["--in-place", str(tree), *options]) == 2
    assert main(["--project-directory", str(tree), "--output-directory", "out", "--force"]) == 2
    assert "--force goes with --in-place or --revert" in capsys.readouterr().err


def test_the_lock_is_that_of_the_tree(
    tree: Path, third_party: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = (locks.LOCKS / "pytorch-2.6.json").read_bytes()
    monkeypatch.setattr(locks, "LOCKS", tmp_path / "locks")
    assert in_place.lock(tree).read_bytes() == known
    convert(tree, third_party)
    assert in_place.lock(tree).read_bytes() == known
