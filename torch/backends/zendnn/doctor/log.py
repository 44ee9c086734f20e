"""Reads verbose logs: ZENDNN_VERBOSE's, and those of any version of oneDNN."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from torch.backends.zendnn.doctor.findings import HARMLESS, WORTH, Check, Finding

Findings = Iterator[Finding]

_MARKER = re.compile(r"\b(?:zendnn|onednn|dnnl|mkldnn)_verbose,(.*)")
_TIME = "the log's time"


@dataclass(frozen=True)
class Execution:
    """A line of something that ran.

    Attributes:
        kind: of primitive, or the operators that a step of a plan performs.
        implementation: its name; for torch's own kernels, the reason.
        ms: its time.
        sizes: the problem's, as the log has them.
        route: ``"primitive"``, ``"plan"``, ``"eager"`` or ``"torch"``.
    """

    kind: str
    implementation: str
    ms: float
    sizes: str = ""
    route: str = "primitive"


@dataclass(frozen=True)
class Log:
    """A verbose log.

    Attributes:
        executions: what ran, in order, each once.
        created: milliseconds in which primitives were made.
        tuned: milliseconds in which candidates ran only to be timed.
        facts: what the log says of the library and the machine, such as ``"nthr"``.
    """

    executions: tuple[Execution, ...] = ()
    created: float = 0.0
    tuned: float = 0.0
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def ms(self) -> float:
        """The time of all executions."""
        return sum(execution.ms for execution in self.executions)

    def share(self, some: Iterable[Execution]) -> float:
        """Return the part of the time that some executions take, in per cent."""
        return 100 * sum(execution.ms for execution in some) / (self.ms or 1.0)


def _ms(text: str) -> float:
    ms = float(text)
    if not 0 <= ms < math.inf:
        raise ValueError(text)
    return ms


class _Reader:
    """Goes through the lines; what runs to be timed, or within a step, is told after it ran."""

    def __init__(self) -> None:
        self.executions: list[Execution] = []
        self.created = self.tuned = 0.0
        self.facts: dict[str, str] = {}
        #: Primitives since the last line of another kind.
        self.pending: list[Execution] = []
        #: Places of primitives that are steps of plans, if those have lines of their own.
        self.inside: set[int] = set()
        self.detailed = False

    def flush(self) -> None:
        self.executions += self.pending
        self.pending = []

    def executed(self, words: list[str]) -> None:
        """Read ``engine,kind,implementation,…,problem,time``."""
        if len(words) > 4:
            self.pending.append(Execution(words[1], words[2], _ms(words[-1]), words[-2]))

    def created_one(self, words: list[str]) -> None:
        self.detailed = True
        self.created += _ms(words[-1])

    def planned(self, words: list[str]) -> None:
        """Read ``step,implementation,operators,time``."""
        _, implementation, does, ms = words
        last = self.pending[-1:]
        self.flush()
        if last and last[0].implementation in implementation.split():
            self.inside.add(len(self.executions) - 1)
        self.executions.append(Execution(does, implementation, _ms(ms), "", "plan"))

    def eager(self, words: list[str]) -> None:
        """Read ``implementation,operator,operands,time``."""
        self.flush()
        implementation, operator, operands, ms = words
        self.executions.append(Execution(operator, implementation, _ms(ms), operands, "eager"))

    def torchs(self, words: list[str]) -> None:
        """Read ``reason,operator,operands,time``."""
        self.detailed = True
        self.flush()
        reason, operator, operands, ms = words
        self.executions.append(Execution(operator, reason, _ms(ms), operands, "torch"))

    def tuned_one(self, words: list[str]) -> None:
        """Read ``candidate,ms,problem``: primitives before it ran to be timed, or packed for it."""
        candidate = words[0].split()[-1:]
        while self.pending and (
            self.pending[-1].kind == "reorder" or [self.pending[-1].implementation] == candidate
        ):
            self.tuned += self.pending.pop().ms
        self.flush()

    def told(self, words: list[str]) -> None:
        """Read ``info,…,key:value,…``."""
        for word in words:
            key, colon, value = word.partition(":")
            if colon and key in ("isa", "runtime", "nthr") and key not in self.facts:
                self.facts[key] = value
            elif found := re.match(r"(\S+ v[\d.]+)", word):
                self.facts.setdefault("library", found[1])


#: Readers by the word that says what a line is.
_READERS: dict[str, Callable[[_Reader, list[str]], None]] = {
    "exec": _Reader.executed,
    "plan": _Reader.planned,
    "eager": _Reader.eager,
    "torch": _Reader.torchs,
    "tune": _Reader.tuned_one,
    "info": _Reader.told,
    "create": _Reader.created_one,
}


def read(lines: Iterable[str]) -> Log:
    """Read a log; other lines in it, and those that were cut off, do not count.

    Raises:
        ValueError: if nothing in it is a verbose line.
    """
    reader, seen = _Reader(), False
    for line in lines:
        marked = _MARKER.search(line)
        if not marked:
            continue
        seen = True
        words = marked[1].strip().split(",")
        # Versions differ in what is before: a version of the format, a time, 'primitive'.
        for index, word in enumerate(words[:4]):
            if word == "graph":  # its primitives have lines of their own
                break
            if handle := _READERS.get(word.partition(":")[0]):
                # Two threads may have printed at once, or the log ends here.
                with suppress(ValueError, IndexError):
                    handle(reader, words[index + 1 :])
                break
    if not seen:
        raise ValueError("has no verbose line: set ZENDNN_VERBOSE=1 or ONEDNN_VERBOSE=1")
    reader.flush()
    twice = reader.inside if reader.detailed else set()
    executions = tuple(x for i, x in enumerate(reader.executions) if i not in twice)
    return Log(executions, reader.created, reader.tuned, tuple(reader.facts.items()))


def reference(log: Log) -> Findings:
    """Plain loops, which serve where nothing faster does."""
    some = [x for x in log.executions if re.search(r"(?:^|[:_ ])ref(?:[:_]|$)", x.implementation)]
    for kind, same in _by(some, lambda x: x.kind).items():
        slowest = max(same, key=lambda x: x.ms)
        yield Finding(
            f"{kind} ran {_times(len(same))} on reference kernels",
            f"{slowest.implementation}, {slowest.sizes or 'sizes unknown'}",
            "use float32 or bfloat16, dense tensors and common attributes; "
            "ZENDNN_VERBOSE=2 or ONEDNN_VERBOSE=dispatch tells why others refused",
            log.share(same),
            _TIME,
        )


def reorders(log: Log) -> Findings:
    """Copies to another layout."""
    some = [x for x in log.executions if x.kind == "reorder"]
    if log.share(some) >= WORTH:
        common = Counter(x.sizes for x in some if x.sizes).most_common(1)
        yield Finding(
            f"tensors went to another layout {_times(len(some))}",
            f"most often {common[0][0]}" if common else some[0].implementation,
            "torch.jit.optimize_for_inference(torch.jit.freeze(module))"
            '  # or torch.compile(model, backend="zendnn"): weights are packed once',
            log.share(some),
            _TIME,
        )


def left_to_torch(log: Log) -> Findings:
    """Operators that ZenDNN did not take."""
    some = [x for x in log.executions if x.route == "torch"]
    for reason, same in _by(some, lambda x: x.implementation).items():
        if log.share(same) >= WORTH and not HARMLESS.search(reason):
            yield Finding(
                f"operators went to torch {_times(len(same))}: {reason}",
                ", ".join(dict.fromkeys(f"{x.kind} {x.sizes}" for x in same[:2])),
                "python -m torch.backends.zendnn doctor script.py  # tries what helps",
                log.share(same),
                _TIME,
            )


def preparation(log: Log) -> Findings:
    """More time in making than in running."""
    spent = log.created + log.tuned
    if spent > log.ms and log.executions:
        yield Finding(
            "preparing took longer than running",
            f"{spent:.0f} ms to make and time primitives, {log.ms:.0f} ms of executions",
            "ZENDNN_TUNING_CACHE=tuning.txt python script.py  # and leave out warm-up calls",
            100 * spent / (spent + log.ms),
            _TIME,
        )


def one_thread(log: Log) -> Findings:
    """A library that has one thread."""
    if dict(log.facts).get("nthr") == "1":
        yield Finding("one thread computes", "nthr:1", "unset OMP_NUM_THREADS")


def _by(some: Iterable[Execution], key: Callable[[Execution], str]) -> dict[str, list[Execution]]:
    groups: defaultdict[str, list[Execution]] = defaultdict(list)
    for execution in some:
        groups[key(execution)].append(execution)
    return groups


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


CHECKS: tuple[Check[Log], ...] = (reference, reorders, left_to_torch, preparation, one_thread)
