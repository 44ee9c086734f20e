"""Runs commands side by side: their output, their exit codes, signals and failures."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torch.backends.zendnn.place.binding import PlacingError
from torch.backends.zendnn.place.commands import Command

#: Seconds that instances get to end by themselves.
PATIENCE = 10.0


@dataclass(frozen=True)
class Outcome:
    """How an instance ended.

    Attributes:
        code: its exit code; 128 and the signal's number after a signal, as in a shell.
        seconds: how long it ran.
    """

    code: int
    seconds: float


def run(commands: Sequence[Command], logs: Path | None = None) -> tuple[int, list[Outcome]]:
    """Run commands at the same time until all have ended.

    If one fails, the others get SIGTERM; a signal to this process is passed on. Instances that do
    not end in time are killed, as are all at a second signal. The output of several commands has
    the number of the instance in front of each line.

    Args:
        commands: one per instance.
        logs: a folder for ``instance-0.log`` and so on, which get all output instead.

    Returns:
        The code of the first failure, or 0, and the outcomes in the commands' order.

    Raises:
        PlacingError: if a command or a log cannot be started.
    """
    with ExitStack() as cleanup:
        received = cleanup.enter_context(_signals())
        running: list[_Process] = []
        outcomes: dict[int, Outcome] = {}
        first, give_up, refused = 0, math.inf, None
        try:
            if logs:
                logs.mkdir(parents=True, exist_ok=True)
            for index, command in enumerate(commands):
                log = cleanup.enter_context(open(log_of(logs, index), "wb")) if logs else None
                running.append(_Process(command, f"[{index}] " if len(commands) > 1 else "", log))
        except OSError as error:
            refused = PlacingError(f"instance {len(running)} cannot be started: {error}")
        while len(outcomes) < len(running):
            for index, process in enumerate(running):
                if index not in outcomes and (outcome := process.outcome()):
                    outcomes[index] = outcome
                    first = first or (128 + received[0] if received else outcome.code)
            alive = [process for index, process in enumerate(running) if index not in outcomes]
            if give_up == math.inf and (received or first or refused):
                give_up = time.monotonic() + PATIENCE
                for process in alive:
                    process.send(received[0] if received else signal.SIGTERM)
            elif len(received) > 1 or time.monotonic() > give_up:
                for process in alive:
                    process.send(signal.SIGKILL)
            time.sleep(0.01)
    if refused:
        raise refused
    return first, [outcomes[index] for index in range(len(running))]


class _Process:
    """A process of a session of its own, and the threads that pass on its output."""

    def __init__(self, command: Command, label: str, log: IO[bytes] | None) -> None:
        out = log or (subprocess.PIPE if label else None)
        # What an instance printed before it was killed shall not be lost in a buffer.
        unbuffered = {"PYTHONUNBUFFERED": "1"} if out else {}
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command.words,
            env={**os.environ, **unbuffered, **command.variables},
            stdin=subprocess.DEVNULL if label else None,
            stdout=out,
            stderr=subprocess.STDOUT if log else out,
            start_new_session=True,  # a signal then reaches what it has started, too
        )
        pipes = [(self.process.stdout, sys.stdout), (self.process.stderr, sys.stderr)]
        self.readers = [
            threading.Thread(target=_pass_on, args=(pipe, sink.buffer, label.encode()), daemon=True)
            for pipe, sink in pipes
            if pipe
        ]
        for reader in self.readers:
            reader.start()

    def send(self, number: int) -> None:
        """Send a signal to the process and to what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def outcome(self) -> Outcome | None:
        """Return how the process ended; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        seconds = time.monotonic() - self.started
        for reader in self.readers:
            reader.join(1.0)  # what it has started, and left running, may hold its pipes
        return Outcome(code if code >= 0 else 128 - code, seconds)


def _pass_on(pipe: IO[bytes], sink: IO[bytes], label: bytes) -> None:
    """Copy lines with a label in front of each, to the end even if nobody reads them any more."""
    for line in pipe:
        with suppress(OSError):
            sink.write(label + line.removesuffix(b"\n") + b"\n")
            sink.flush()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Yield a list that receives the signals to end; those that are ignored stay so."""
    received: list[int] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(number)) != signal.SIG_IGN
    }
    for number in handlers:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def log_of(logs: Path, index: int) -> Path:
    """Return the file that gets the output of an instance."""
    return logs / f"instance-{index}.log"
