"""Tells debug builds of libraries by what their ELF files say."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

#: What sanitizers and coverage leave in a library's dynamic symbols.
_INSTRUMENTS = {
    b"__asan_init": "the address sanitizer is in it",
    b"__tsan_init": "the thread sanitizer is in it",
    b"__msan_init": "the memory sanitizer is in it",
    b"__gcov_": "it counts its coverage",
}

#: What GCC was called with, as its debug information has it; Clang's does not.
_PRODUCER = re.compile(rb"GNU (?:C|C\+\+|Fortran)[0-9]* [^\0]*")
_OPTIMISED = re.compile(rb" -O(?:[1-3sz]|fast)?(?= |\0|$)")

_COMPRESSED, _ZLIB = 0x800, 1


def why_debug(path: Path) -> str:
    """Return why a library is a debug build; empty where nothing says so."""
    try:
        with path.open("rb") as file:
            return _why(path, dict(_sections(file)))
    except (OSError, ValueError, struct.error, zlib.error):  # gone, or no ELF file of 64 bits
        return ""


def _why(path: Path, sections: dict[str, bytes]) -> str:
    for symbol, reason in _INSTRUMENTS.items():
        if symbol in sections.get(".dynstr", b""):
            return reason
    producers = _PRODUCER.findall(sections.get(".debug_str", b""))
    if producers and not any(map(_OPTIMISED.search, producers)):
        return "it was compiled without optimisation"
    if re.search(r"/(debug|Debug)/|[-_.]dbg\b", str(path)):
        return "its path says so"
    return ""


def _sections(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the names and the contents of the sections that are read here."""
    header = file.read(64)
    if header[:5] != b"\x7fELF\x02":
        raise ValueError("not an ELF file of 64 bits")
    (offset,) = struct.unpack_from("<Q", header, 40)
    size, count, names = struct.unpack_from("<3H", header, 58)
    file.seek(offset)
    table = file.read(size * count)
    rows = [struct.unpack_from("<IIQQQQ", table, size * index) for index in range(count)]
    texts = _contents(file, rows[names])
    for row in rows:
        name = texts[row[0] : texts.index(b"\0", row[0])].decode()
        if name in (".dynstr", ".debug_str"):
            yield name, _contents(file, row)


def _contents(file: IO[bytes], row: tuple[int, ...]) -> bytes:
    _, _, flags, _, offset, length = row
    file.seek(offset)
    data = file.read(length)
    if not flags & _COMPRESSED:
        return data
    return zlib.decompress(data[24:]) if struct.unpack_from("<I", data)[0] == _ZLIB else b""
