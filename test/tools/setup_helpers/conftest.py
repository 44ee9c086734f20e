"""A local web server, and archives with given contents."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tools.setup_helpers.download import RemoteFile


@dataclass
class Server:
    """Serves `files` by path; `drop_after` truncates each answer to that many bytes."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    drop_after: int | None = None
    ignore_ranges: bool = False
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def put(self, path: str, content: bytes) -> RemoteFile:
        """Serve `content` at `path`; return its RemoteFile."""
        self.files[path] = content
        digest = hashlib.sha256(content).hexdigest()
        return RemoteFile(f"{self.address}/{path}", digest, len(content))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that starts empty in each test."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.requests.append((self.path, wanted))
            content = state.files.get(self.path.lstrip("/"))
            if content is None:
                self.send_error(404)
                return
            start = 0
            if wanted and not state.ignore_ranges:
                match = re.fullmatch(r"bytes=(\d+)-", wanted)
                assert match is not None
                start = int(match[1])
                if start >= len(content):
                    self.send_error(416)
                    return
            rest = content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[: state.drop_after])

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        state = Server(f"http://127.0.0.1:{listener.server_address[1]}")
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        listener.shutdown()
        thread.join()


def tar_bytes(files: Mapping[str, bytes], *extra: tarfile.TarInfo, mode: str = "w:xz") -> bytes:
    """Return a tar archive of `files`, followed by `extra` members."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in extra:
            tar.addfile(member)
    return packed.getvalue()


def deb_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return a Debian package whose data.tar holds `files`."""
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": tar_bytes({"./control": b"Package: x\n" * 3}),
        "data.tar.xz": tar_bytes(files),
    }
    packed = b"!<arch>\n"
    for name, content in parts.items():
        packed += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        packed += content + b"\n" * (len(content) % 2)
    return packed


@pytest.fixture
def make_tar(tmp_path: Path) -> Callable[..., Path]:
    """Write an archive of given files and extra members; return its path."""

    def make(files: Mapping[str, bytes], *extra: tarfile.TarInfo, mode: str = "w:xz") -> Path:
        path = tmp_path / "archive.tar"
        path.write_bytes(tar_bytes(files, *extra, mode=mode))
        return path

    return make


@pytest.fixture
def make_deb(tmp_path: Path) -> Callable[[Mapping[str, bytes]], Path]:
    """Write a Debian package of given files; return its path."""

    def make(files: Mapping[str, bytes]) -> Path:
        path = tmp_path / "package.deb"
        path.write_bytes(deb_bytes(files))
        return path

    return make


@pytest.fixture
def tar_of() -> Callable[..., bytes]:
    """The function that packs files into a tar archive."""
    return tar_bytes
