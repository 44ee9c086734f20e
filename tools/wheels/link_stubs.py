"""Link for an older Linux than the one that builds: libraries that export only what it has.

A linker takes the newest version of each symbol that the system's libraries export, and so decides
the oldest system that a wheel runs on. `make` writes stand-ins for them, without code, which export
what a manylinux policy allows: of each symbol, the newest version that is not too new. What only
newer systems have, but compilers of newer systems ask for, becomes part of the wheel: functions of
the C++ library from its static archive, the rest from SHIM.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tools.setup_helpers.errors import SetupError

#: The libraries whose symbols have the versions of policies; a system may lack some of them.
NAMES = ("c", "m", "pthread", "dl", "rt", "stdc++")
#: What programs that are compiled with newer headers call, in terms of what older systems have:
#: number parsers since glibc 2.38, and what was inline before 2.33. Without the variable, of 2.32,
#: the C++ library must take it that there are several threads.
SHIM = r"""
#include <stdlib.h>
#include <sys/stat.h>
#define HIDDEN __attribute__((visibility("hidden")))
#define PARSER(type, name) \
  HIDDEN type __isoc23_##name(const char *text, char **end, int base) \
  { return name(text, end, base); }
PARSER(long, strtol)
PARSER(long long, strtoll)
PARSER(unsigned long, strtoul)
PARSER(unsigned long long, strtoull)
int __fxstat(int, int, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __xstat(int, const char *, struct stat *);
HIDDEN int fstat(int file, struct stat *result) { return __fxstat(1, file, result); }
HIDDEN int lstat(const char *path, struct stat *result) { return __lxstat(1, path, result); }
HIDDEN int stat(const char *path, struct stat *result) { return __xstat(1, path, result); }
HIDDEN char __libc_single_threaded = 0;
"""
_SYMBOL = re.compile(
    r"\s*\d+: [0-9a-f]+ +(?P<size>\S+) (?P<type>\w+) +(?:GLOBAL|WEAK|UNIQUE) +DEFAULT +\d+ "
    r"(?P<name>[^@\s]+)@@?(?P<version>\w+?)_(?P<number>[\d.]+)$"
)
#: How the assembler declares the kinds of symbols of readelf; all others are functions.
_KINDS: Mapping[str, tuple[str, str]] = {
    "OBJECT": (".bss", "object"),
    "TLS": ('.section .tbss,"awT",@nobits', "tls_object"),
}
_FUNCTION = (".text", "function")


@dataclass(frozen=True)
class Symbol:
    """A symbol of a shared library: its kind by readelf, its size in bytes, its version."""

    name: str
    kind: str
    size: int
    family: str
    number: tuple[int, ...]

    @property
    def version(self) -> str:
        """The name of the version, such as 'GLIBC_2.2.5'."""
        return f"{self.family}_{'.'.join(map(str, self.number))}"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def newest_versions(policy: str, cpu: str) -> Mapping[str, tuple[int, ...]]:
    """Return the newest version of each family, such as 'GLIBC', that auditwheel's `policy` allows.

    Raises SetupError for a policy that auditwheel does not know.
    """
    try:
        table = files("auditwheel.policy").joinpath("manylinux-policy.json").read_text()
    except ModuleNotFoundError as error:
        raise SetupError(
            "auditwheel is missing: install it (pip install -r requirements-wheels.txt)"
        ) from error
    allowed = {row["name"]: row["symbol_versions"].get(cpu, {}) for row in json.loads(table)}
    if not allowed.get(policy):
        known = ", ".join(sorted(allowed))
        raise SetupError(f"auditwheel knows no policy {policy} for {cpu}: it knows {known}")
    return {
        family: max(_numbers(number) for number in numbers if number[0].isdigit())
        for family, numbers in allowed[policy].items()
    }


def symbols(library: Path) -> Sequence[Symbol]:
    """Return what a shared library exports with a version, in readelf's order."""
    listed = _run("readelf", "--dyn-syms", "--wide", library)
    return [
        Symbol(
            found["name"],
            found["type"],
            int(found["size"], 0),
            found["version"],
            _numbers(found["number"]),
        )
        for found in map(_SYMBOL.match, listed.splitlines())
        if found
    ]


def soname(library: Path) -> str:
    """Return the name by which programs ask for a shared library, such as 'libc.so.6'."""
    found = re.search(r"\(SONAME\).*\[(.*)\]", _run("readelf", "--dynamic", "--wide", library))
    return found[1] if found else library.name


def allowed(
    exported: Iterable[Symbol], newest: Mapping[str, tuple[int, ...]]
) -> Mapping[str, Symbol]:
    """Return, by name, the newest version of each symbol that is not newer than `newest`."""
    chosen: dict[str, Symbol] = {}
    for symbol in exported:
        if symbol.number > newest.get(symbol.family, ()):
            continue
        before = chosen.get(symbol.name)
        if before is None or before.number < symbol.number:
            chosen[symbol.name] = symbol
    return chosen


def assembly(chosen: Iterable[Symbol]) -> str:
    """Return the assembler's source of a library that exports these symbols and has no code."""
    lines = []
    for index, symbol in enumerate(chosen):
        section, kind = _KINDS.get(symbol.kind, _FUNCTION)
        size = 1 if kind == "function" else max(symbol.size, 1)
        lines += [
            f"{section}\n.globl s{index}\n.type s{index}, @{kind}\n.size s{index}, {size}",
            f"s{index}: .skip {size}",
            f".symver s{index}, {symbol.name}@@@{symbol.version}",
        ]
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def make(folder: Path, policy: str, cpu: str) -> Sequence[str]:
    """Write stand-ins for the system's libraries into `folder`; return options for the linker.

    Raises SetupError for an unknown policy, or when the compiler or binutils fail.
    """
    newest = newest_versions(policy, cpu)
    folder.mkdir(parents=True, exist_ok=True)
    shim = folder / "shim.c"
    shim.write_text(SHIM, encoding="utf-8")
    # By this standard, and with what POSIX adds, the headers use none of the new names.
    standard = ("-std=c99", "-D_POSIX_C_SOURCE=200809L")
    _run(_compiler("CC", "cc"), *standard, "-O2", "-fPIC", "-c", shim, "-o", folder / "shim.o")
    _run("ar", "rcsD", folder / "shim.a", folder / "shim.o")
    for name in NAMES:
        if script := _path(f"lib{name}.so"):
            _make(folder, name, script, newest)
    # The compiler's own library for exceptions may want what the stand-ins lack.
    return [f"-L{folder}", "-Wl,--allow-shlib-undefined"]


def _make(folder: Path, name: str, script: Path, newest: Mapping[str, tuple[int, ...]]) -> None:
    """Write the stand-in for one library, and the linker script by which `-lNAME` finds it."""
    with script.open("rb") as stream:
        is_library = stream.read(4) == b"\x7fELF"
    real, text = script.resolve(), ""
    if not is_library:  # a linker script, as glibc's own, which names more than the library
        text = script.read_text(encoding="utf-8")
        named = re.search(rf"/\S+/lib{re.escape(name)}\.so\.\d+", text)
        if not named:
            raise SetupError(f"{script} names no lib{name}.so: install the C library's own")
        real = Path(named[0])
    chosen = allowed(symbols(real), newest)
    stub = folder / soname(real)
    source, versions = stub.with_suffix(".s"), stub.with_suffix(".map")
    source.write_text(assembly(chosen.values()), encoding="utf-8")
    nodes = sorted({symbol.version for symbol in chosen.values()})
    versions.write_text("".join(f"{node} {{ }};\n" for node in nodes), encoding="utf-8")
    wanted = (f"-Wl,-soname,{stub.name}", f"-Wl,--version-script={versions}")
    _run(_compiler("CC", "cc"), "-shared", "-nostdlib", *wanted, source, "-o", stub)
    found = text.replace(str(real), str(stub)) if text else f"INPUT ( {stub} )\n"
    rest = {"c": folder / "shim.a", "stdc++": _path("libstdc++.a")}.get(name)
    (folder / f"lib{name}.so").write_text(f"{found}INPUT ( {rest} )\n" if rest else found)


def _path(file: str) -> Path | None:
    """Return where the compiler finds a library."""
    path = Path(_run(_compiler("CXX", "c++"), f"-print-file-name={file}").strip())
    return path if path.is_absolute() else None


def _compiler(variable: str, default: str) -> str:
    """Return the compiler that the build will use, whose libraries are those that count."""
    return (os.environ.get(variable) or default).split()[-1]


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.splitlines() or ["no message"])[-1]
        raise SetupError(f"{command[0]} failed while it made link stubs: {reason}")
    return done.stdout
