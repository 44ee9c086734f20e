"""Do in a folder, as root, what a container engine does: build a Containerfile's image, and run it.

    IMAGE=debian:trixie python -m tools.chroot container/wheels.Containerfile FOLDER [ARGUMENT …]

The base is a release of Debian, which debootstrap brings from the archive that apt uses here, or
from MIRROR. The steps inherit the environment, which also gives values to ARGs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.setup_helpers.errors import SetupError, exit_code_of

#: Runs a command after it mounted what programs expect: ROOT USER FOLDER COMMAND …
_INSIDE = """
set -e
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot --userspec="$1" "$0" env -C "$2" "${@:3}"
"""
#: The network is that of this machine: its names, and whom it trusts.
NETWORK = ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt")
#: A file that states the release in a folder, so that no folder of another kind is emptied.
_MARK = ".chroot"
_UNFINISHED = ""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Step:
    """A line of a Containerfile: an instruction, and the rest of the line."""

    instruction: str
    text: str
    line: int


def steps(text: str, where: str) -> Sequence[Step]:
    """Return the steps of a Containerfile. Raises SetupError for what `Image` cannot follow."""
    found = []
    for line, content in enumerate(text.splitlines(), 1):
        instruction, _, rest = content.strip().partition(" ")
        if not instruction or instruction.startswith("#"):
            continue
        if instruction not in _FOLLOW or rest.endswith("\\") or rest.startswith("--"):
            raise SetupError(
                f"{where}:{line}: '{content}' is none of the steps that a chroot can follow: "
                f"{', '.join(_FOLLOW)}, each on one line and without options"
            )
        found.append(Step(instruction, rest.strip(), line))
    return found


@dataclass
class Image:
    """What the steps have made so far: the files below `root`, and how to run commands there."""

    root: Path
    context: Path
    environ: dict[str, str]
    user: str = "0:0"
    folder: str = "/"
    entry: Sequence[str] = ()
    command: Sequence[str] = ()
    names: list[str] = field(default_factory=list)

    def follow(self, step: Step) -> None:
        """Do a step. Raises SetupError when it fails."""
        text = step.text
        for name in self.names:
            text = text.replace(f"${{{name}}}", self.environ[name])
        _FOLLOW[step.instruction](self, text)

    def run(self, command: Sequence[str]) -> None:
        """Run a command inside. Raises SetupError when it fails."""
        called = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", _INSIDE]
        environ = {**self.environ, "HOME": "/root", "PATH": os.environ["PATH"]}
        call = [*called, str(self.root), self.user, self.folder, f"PATH={_PATH}", *command]
        _run(call, environ, " ".join(command))

    def size(self) -> int:
        """Return the size of all files in bytes."""
        # A hard link counts once.
        counted = {}
        for path in self.root.rglob("*"):
            stat = path.lstat()
            counted[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
        return sum(counted.values())


def _argument(image: Image, text: str) -> None:
    name, _, default = text.partition("=")
    image.environ.setdefault(name, default)
    image.names.append(name)


def _base(image: Image, text: str) -> None:
    release = re.fullmatch(r"debian:([a-z]+)(-slim)?", text)
    if not release:
        raise SetupError(f"the base is {text}: give a release of Debian, such as debian:trixie")
    mark = image.root / _MARK
    there = mark.read_text() if mark.exists() else None
    if there is None and image.root.exists() and any(image.root.iterdir()):
        raise SetupError(f"{image.root} holds other files: name a new folder")
    if there not in (None, _UNFINISHED, release[1]):
        raise SetupError(f"{image.root} holds {there}, not {release[1]}: name a new folder")
    if there != release[1]:
        _bootstrap(image, release[1])
        mark.write_text(release[1])
    for path in NETWORK:
        shutil.copyfile(f"/{path}", image.root / path)


def _bootstrap(image: Image, release: str) -> None:
    if not shutil.which("debootstrap"):
        raise SetupError("debootstrap is missing: install it (apt-get install debootstrap)")
    shutil.rmtree(image.root, ignore_errors=True)
    image.root.mkdir(parents=True, exist_ok=True)
    (image.root / _MARK).write_text(_UNFINISHED)
    # What debootstrap mounts is gone when it ends, also by a signal.
    command = ["unshare", "--mount", "debootstrap", "--variant=minbase"]
    mirror = image.environ.get("MIRROR") or _mirror()
    more = ["--include=ca-certificates", release, str(image.root), mirror]
    _run([*command, *more], image.environ)


def _mirror() -> str:
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    asked = subprocess.run([*command, "Label: Debian"], capture_output=True, text=True, check=False)
    if not asked.stdout:
        raise SetupError("apt names no archive of Debian: name one in MIRROR")
    return asked.stdout.split()[0]


def _copy(image: Image, text: str) -> None:
    *sources, target = text.split()
    if not sources:
        raise SetupError(f"nothing is copied to {target}: give the file's ARGs values in variables")
    folder = image.root / target.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        # .containerignore leaves out the same: what git does not know.
        whole = source == "."
        paths = _tracked(image.context) if whole else sorted(image.context.glob(source))
        if not paths:
            raise SetupError(f"there is no {source} in {image.context}: make it first")
        for path in paths:
            name = path.relative_to(image.context) if whole else Path(path.name)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, folder / name)


def _tracked(folder: Path) -> Sequence[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=folder, capture_output=True, text=True, check=True
    )
    paths = [folder / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.exists()]


def _shell(image: Image, text: str) -> None:
    image.run(["sh", "-c", text])


def _environment(image: Image, text: str) -> None:
    name, _, value = text.partition("=")
    image.environ[name] = value


def _user(image: Image, text: str) -> None:
    image.user = text


def _folder(image: Image, text: str) -> None:
    image.folder = text
    (image.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)


def _entry(image: Image, text: str) -> None:
    image.entry = json.loads(text)


def _command(image: Image, text: str) -> None:
    image.command = json.loads(text)


_FOLLOW: Mapping[str, Callable[[Image, str], None]] = {
    "ARG": _argument,
    "FROM": _base,
    "COPY": _copy,
    "RUN": _shell,
    "ENV": _environment,
    "USER": _user,
    "WORKDIR": _folder,
    "ENTRYPOINT": _entry,
    "CMD": _command,
}


def _run(command: Sequence[str], environ: Mapping[str, str], what: str = "debootstrap") -> None:
    code = subprocess.run(command, env=environ, check=False).returncode
    if code:
        raise SetupError(f"'{what}' failed (exit code {code}); its messages are above")


def build(file: Path, root: Path, arguments: Sequence[str]) -> None:
    """Follow the steps of `file` below `root`, then run its entry point with `arguments`.

    Prints the image's size. Raises SetupError when a step fails; a second run goes on with the
    same folder.
    """
    if os.geteuid():
        raise SetupError(
            "a chroot needs root's rights: run this as root, or use a container engine"
        )
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise SetupError(f"cannot read {file}: {error.strerror}") from error
    image = Image(root.absolute(), Path.cwd(), dict(os.environ))
    for step in steps(text, str(file)):
        print(f"-- {step.instruction} {step.text}", flush=True)
        image.follow(step)
    print(f"-- {root} has {image.size() / 1e6:.0f} MB", flush=True)
    image.run([*image.entry, *(arguments or image.command)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (2: a printed error)."""
    parser = argparse.ArgumentParser(prog="python -m tools.chroot", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path, metavar="CONTAINERFILE")
    parser.add_argument("folder", type=Path, help="where the image's files go")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for the entry point")
    options = parser.parse_args(arguments)
    return exit_code_of(lambda: build(options.file, options.folder, options.arguments))


if __name__ == "__main__":
    sys.exit(main())
