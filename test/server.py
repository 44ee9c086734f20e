"""A process that answers a test's requests; a new one replaces it when it has ended."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection

#: The start of a program, which reads requests from ``asked`` and sends one answer to each.
PREAMBLE = """
import sys
from multiprocessing.connection import Connection
asked = Connection(int(sys.argv[1]))
"""


class Ended(Exception):
    """The process ended without an answer; the message says how."""


class Server:
    """Runs ``PREAMBLE`` and a program, whose sys.argv[2:] are the further arguments.

    ``seconds`` limits the time of each answer.
    """

    def __init__(
        self, program: str, *arguments: str, env: Mapping[str, str], seconds: float
    ) -> None:
        self._program, self._arguments = PREAMBLE + program, arguments
        self._env, self._seconds = dict(env), seconds
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-c", self._program),
                *(str(theirs.fileno()), *self._arguments),
            ],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            text=True,
            env=self._env,
        )
        theirs.close()
        self._connection = Connection(ours.detach())

    def ask(self, request: bytes) -> bytes:
        """Return the answer.

        Raises Ended when there is none.
        """
        if self._process is None:
            self._start()
        self._connection.send_bytes(request)
        with contextlib.suppress(EOFError, ConnectionError):
            if self._connection.poll(self._seconds):
                return self._connection.recv_bytes()
            raise Ended(f"no answer within {self._seconds} seconds{self.stop()}")
        raise Ended(f"the process ended{self.stop()}")

    def stop(self) -> str:
        """End the process; return how it ended."""
        if self._process is None:
            return ""
        self._connection.close()
        try:
            _, said = self._process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, said = self._process.communicate()
        code, self._process = self._process.returncode, None
        return f" with code {code}: {said[-2000:]}"
