"""tools/wheels/link_stubs.py: what is linked asks for no newer system than the policy allows."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.setup_helpers.errors import SetupError
from tools.wheels import link_stubs as module
from tools.wheels.link_stubs import Symbol

pytestmark = pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
CPU = platform.machine()
#: Uses what glibc 2.29 to 2.38 and GCC 11 changed.
PROGRAM = r"""
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <sys/stat.h>
int main(int argc, char **) {
  double number = 0;
  const char text[] = "1.5";
  std::from_chars(text, text + 3, number);
  auto shared = std::make_shared<double>(number);
  std::thread([=] { *shared = std::pow(*shared, argc + 1.0); }).join();
  struct stat found;
  return fstat(fileno(stdout), &found) || *shared != 2.25 || std::stoul("8") != 8;
}
"""


def exported(name: str, number: tuple[int, ...], family: str = "GLIBC") -> Symbol:
    return Symbol(name, "FUNC", 1, family, number)


def test_the_newest_version_that_the_policy_allows_is_exported() -> None:
    newest = {"GLIBC": (2, 28)}
    symbols = [
        *(exported("pow", number) for number in ((2, 2, 5), (2, 29))),
        *(exported("memcpy", number) for number in ((2, 14), (2, 2, 5))),
        exported("arc4random", (2, 36)),
        exported("internal", (2, 2), "PRIVATE"),
    ]
    chosen = module.allowed(symbols, newest)
    assert {name: symbol.version for name, symbol in chosen.items()} == {
        "pow": "GLIBC_2.2.5",
        "memcpy": "GLIBC_2.14",
    }


def test_an_unknown_policy_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(SetupError, match=r"no policy manylinux_9_9 for x86_64: .*manylinux_2_28"):
        module.newest_versions("manylinux_9_9", "x86_64")
    with pytest.raises(SetupError, match="no policy manylinux_2_28 for pdp11"):
        module.newest_versions("manylinux_2_28", "pdp11")


def test_a_program_needs_no_newer_system_and_runs_on_this_one(tmp_path: Path) -> None:
    options = module.make(tmp_path / "stubs", "manylinux_2_28", CPU)
    source, result = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(PROGRAM)
    subprocess.run(["c++", "-std=c++20", source, *options, "-o", result], check=True)
    needed = subprocess.run(
        ["readelf", "--version-info", "--wide", result], capture_output=True, text=True, check=True
    ).stdout
    newest = module.newest_versions("manylinux_2_28", CPU)
    found = re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI)_([\d.]+)", needed)
    assert {family for family, _ in found} >= {"GLIBC", "GLIBCXX"}
    for family, number in found:
        assert tuple(map(int, number.split("."))) <= newest[family], (family, number)
    subprocess.run([result], check=True, timeout=20)


def test_a_tool_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHIM", "not C")
    with pytest.raises(SetupError, match=r"^cc failed while it made link stubs: "):
        module.make(tmp_path, "manylinux_2_28", CPU)
