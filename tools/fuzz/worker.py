"""A process that checks models, and its handle, which survives crashes and hangs."""

from __future__ import annotations

import gc
import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from tools.fuzz.check import Verdict, check, run_alone
from tools.fuzz.check.front_ends import LIGHTEST
from tools.fuzz.check.source import Code
from tools.fuzz.model import Model, source, tensors

#: Environment variables to draw for the models of a process; defaults are likely.
SETTINGS: Mapping[str, Sequence[str]] = {
    LIGHTEST: ("", "1"),
    "OMP_NUM_THREADS": ("1", "1", "2"),
    "OMP_WAIT_POLICY": ("passive",),  # spinning threads would dominate the time of small models
    "ZENDNN_TUNING_BUDGET": ("0", "0.01", "0.05", "0.2", "2"),
    "ZENDNN_PLAN_LAYOUT": ("any", "any", "any", "channels_last", "blocked"),
    "ZENDNN_WINOGRAD": ("1", "1", "2", "0"),
    "ZENDNN_MAX_CPU_ISA": ("DEFAULT", "DEFAULT", "DEFAULT", "DEFAULT", "AVX512_CORE", "AVX2"),
    "ZENDNN_ALLOCATOR_CACHE": ("", "", "", "0"),
}
#: Seconds of work after which a task's process counts as hanging, whatever else the machine does.
LIMIT = 90.0
#: A process that only waits may take this many times as long.
PATIENCE = 10
#: The part of that which stock's graph of a model may take; a check compiles more than that.
STOCKS_PART = 0.5


def draw_settings(seed: int, block: int) -> dict[str, str]:
    """Return environment variables for a block of models of a seed."""
    rng = random.Random(f"settings {seed} {block}")
    drawn = {name: rng.choice(values) for name, values in SETTINGS.items()}
    return {name: value for name, value in drawn.items() if value not in ("", "DEFAULT")}


def _given(model: Model) -> tuple[Code, dict[str, Tensor], list[list[Tensor]]]:
    """Return the code, the weights and the inputs of a model."""
    runs = [list(tensors(model, inputs).values()) for inputs in model.inputs]
    return Code(source(model)), tensors(model, list(model.weights().values())), runs


def checked(model: Model, front_end: str) -> Verdict:
    """Check a model in this process."""
    return check(*_given(model), front_end)


class _Deadline:
    """Passes once a process has used so many seconds of CPU time, or has waited for longer."""

    def __init__(self, pid: int, limit: float) -> None:
        self._pid, self._limit = pid, limit
        self._begin, self._worked = time.monotonic(), _worked(pid)

    def has_passed(self) -> bool:
        waited = time.monotonic() - self._begin
        return waited >= PATIENCE * self._limit or _worked(self._pid) - self._worked >= self._limit


def _worked(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Worker:
    """A process that does tasks one by one, and restarts when it has ended."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def generate(self, seed: int, index: int, nodes: int, bf16: bool) -> Model | None:
        """Return a model of a seed, or None where NNSmith finds none."""
        answers = self._ask({"seed": seed, "index": index, "nodes": nodes, "bf16": bf16})
        text = answers[-1].get("model")
        return Model.read(text) if text else None

    def check(self, model: Model, front_ends: Sequence[str]) -> list[Verdict]:
        """Check a model on each front end, up to the first one that ends the process."""
        answers = self._ask({"model": model.as_dict(), "front_ends": list(front_ends)})
        verdicts = [
            Verdict(**{**answer, "refusals": tuple(answer["refusals"])})
            for answer in answers
            if "outcome" in answer
        ]
        if "ended" in answers[-1]:
            where = front_ends[min(len(verdicts), len(front_ends) - 1)]
            outcome, detail = answers[-1]["ended"], answers[-1]["detail"]
            if outcome == "timeout" and self._ends_alone(model, where, "stock") == "timeout":
                outcome = "upstream"
                detail = f"stock's graph takes more than {STOCKS_PART * LIMIT:.0f} s"
            elif outcome == "crash" and self._only_stock_crashes(model, where):
                outcome, detail = "upstream", f"only stock crashes: {detail}"
            verdicts.append(Verdict(outcome, where, detail))
        return verdicts

    def _only_stock_crashes(self, model: Model, front_end: str) -> bool:
        sides = [self._ends_alone(model, front_end, side) for side in ("stock", "ours")]
        return sides == ["crash", None]

    def _ends_alone(self, model: Model, front_end: str, side: str) -> str | None:
        """Run only one side's graph; return "crash" or "timeout" if that ends its process."""
        task = {"model": model.as_dict(), "front_ends": [], "alone": [front_end, side]}
        ended: str | None = self._ask(task, STOCKS_PART * LIMIT)[-1].get("ended")
        return ended

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process, self._unread = None, b""

    def _ask(self, task: Mapping[str, Any], limit: float | None = None) -> list[dict[str, Any]]:
        """Return the answers to a task; the last one is 'done', or says how the process ended.

        A process without an answer after so many seconds of work, by default ``LIMIT``, ends.
        """
        limit = LIMIT if limit is None else limit
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.fuzz.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **self.settings},
            )
        process = self._process
        assert process.stdin is not None
        deadline = _Deadline(process.pid, limit)
        answers: list[dict[str, Any]] = []
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass
        while True:
            line = self._line(deadline)
            if line is None:
                late = deadline.has_passed()
                if not late:
                    process.wait()  # the pipe closes before the process ends
                self.close()
                how = f"no answer in {limit:.0f} s" if late else _ending(process.returncode)
                return [*answers, {"ended": "timeout" if late else "crash", "detail": how}]
            answer = json.loads(line)
            if "done" in answer:
                return [*answers, answer]
            answers.append(answer)

    def _line(self, deadline: _Deadline) -> bytes | None:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([pipe], [], [], 1.0)
            if not ready and not deadline.has_passed():
                continue
            got = os.read(pipe, 1 << 16) if ready else b""
            if not got:
                return None
            self._unread += got
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _ending(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def main() -> None:
    """Answer each line of stdin, a task in JSON, with lines on stdout; the last one is 'done'."""
    answers = os.fdopen(os.dup(1), "w")
    gc.freeze()  # a graph's capture fills the youngest generations; torch's own objects stay
    gc.set_threshold(50_000, 20, 100)
    os.dup2(2, 1)  # prints of torch and ZenDNN must not mix with answers

    def answer(what: Mapping[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    for line in sys.stdin:
        task = json.loads(line)
        if "index" in task:
            from tools.fuzz.generate import generate  # NNSmith and Z3 import slowly

            try:
                model = generate(task["seed"], task["index"], task["nodes"], task["bf16"])
                answer({"done": True, "model": model.as_dict()})
            except RuntimeError:
                answer({"done": True})
            continue
        model = Model.read(task["model"])
        for front_end in task["front_ends"]:
            answer(asdict(checked(model, front_end)))
        if "alone" in task:
            front_end, side = task["alone"]
            run_alone(*_given(model), front_end, stock=side == "stock")
        answer({"done": True})


if __name__ == "__main__":
    main()
