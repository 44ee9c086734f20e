"""Zoo: architectures of transformers and torchvision, random, on our front ends and stock torch.

    python -m tools.zoo --list                     all architectures
    python -m tools.zoo --only bert                those whose name contains a text
    python -m tools.zoo --draw 15 --seed 3         some of those that can be built
    python -m tools.zoo --stride 7 --first 60      every seventh, then the others, 60 in all
    python -m tools.zoo --write                    all, and docs/models.md

Each model runs in a process of its own. The exit code is 1 when one fails or is wrong on ours and
not on stock torch. What came of each is in build/zoo.jsonl; `--resume` goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tools.setup_helpers.files import write_atomic
from tools.zoo.check import WAYS, Way
from tools.zoo.report import Report, document, summary

REPO = Path(__file__).parents[2]
#: Compares the times of compiled models with those of Inductor's.
INDUCTOR = "--inductor"
#: CPU seconds after which a way to run a model counts as hanging, on a machine as busy as may be,
#: and how many times as long a process may take that waits for something.
LIMIT, PATIENCE = 400, 10
#: No download is tried, and small models need no long tuning.
SETTINGS = {"HF_HUB_OFFLINE": "1", "ZENDNN_TUNING_BUDGET": "0.2"}
#: Where no times count, waiting threads do not spin.
UNTIMED = {"OMP_WAIT_POLICY": "passive"}


def answers(name: str, *options: str, limit: int) -> tuple[list[dict[str, Any]], str]:
    """Return the answers of a process that checks a model, and how it ended if not well."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.zoo.check", name, *options],
        cwd=REPO,
        env={**os.environ, **SETTINGS, **(UNTIMED if "--untimed" in options else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (limit, limit + 1))
    ended = ""
    try:
        text, _ = process.communicate(timeout=PATIENCE * limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        ended = "timeout"
    if not ended and process.returncode:
        ended = "timeout" if process.returncode == -signal.SIGXCPU else "crash"
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")], ended


def examine(known: Report, *options: str, limit: int = LIMIT) -> Report:
    """Return what comes of a model, in the ways that are not known."""
    ways = {way.way: way for way in known.ways}
    how = [option for option in options if option != INDUCTOR]
    while todo := [way for way in WAYS if way not in ways]:
        got, ended = answers(known.name, *todo, *how, limit=limit)
        if not ways:
            missing = {"missing": f"{ended} while it is built"}
            known = Report(known.name, **(got[0] if got else missing))
        if known.missing:
            return known
        ways |= {answer["way"]: Way(**answer) for answer in got[1:]}
        if ended == "crash" or (ended and len(got) < 2):  # else the next way has less time
            way = next(way for way in todo if way not in ways)
            _, theirs = answers(known.name, way, "--stock", limit=limit)
            ways[way] = Way(way, "upstream" if theirs else ended, f"stock: {theirs or 'right'}")
    if INDUCTOR in options:  # whose troubles are not ours
        got, _ = answers(known.name, INDUCTOR, limit=limit)
        ways["compiled"] = replace(ways["compiled"], **(got[1] if len(got) > 1 else {}))
    return replace(known, ways=tuple(ways[way] for way in WAYS))


def _is_complete(report: Report, inductor: bool) -> bool:
    """Return whether a report tells of all ways, and of Inductor where that is wanted."""
    ways = report.ways
    return len(ways) == len(WAYS) and (not inductor or ways[0].of_inductor > 0)


def examined(
    names: Sequence[str], jobs: int, kept: Path, *options: str, limit: int
) -> Iterator[Report]:
    """Yield what comes of models, whichever ends first; before, those that the file has."""
    known = {name: Report(name) for name in names}
    for line in kept.read_text().splitlines():
        report = Report.read(json.loads(line))
        if report.name in known:
            known[report.name] = report
    todo = [x for x in known.values() if not x.missing and not _is_complete(x, INDUCTOR in options)]
    yield from (report for report in known.values() if report not in todo)
    with ThreadPoolExecutor(jobs) as pool, kept.open("a") as stream:
        examining = [pool.submit(examine, one, *options, limit=limit) for one in todo]
        for report in (future.result() for future in as_completed(examining)):
            print(json.dumps(asdict(report)), file=stream, flush=True)
            yield report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 after a fault of ours."""
    parser = argparse.ArgumentParser(prog="python -m tools.zoo", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--list", action="store_true", help="print the names of the architectures")
    add("--only", default="", metavar="TEXT", help="those whose name contains a text")
    add("--draw", type=int, metavar="N", help="N of them, drawn at random")
    add("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: random")
    add("--stride", type=int, default=1, metavar="N", help="take every Nth, then the others")
    add("--first", type=int, metavar="N", help="the first N of them, in that order")
    add("--jobs", type=int, default=1, help="models at a time")
    add("--limit", type=int, default=LIMIT, metavar="S", help="CPU seconds of a way, at most")
    add("--untimed", action="store_true", help="measure no times: only results count")
    add("--inductor", action="store_true", help="compare times with Inductor's, too")
    add("--resume", action="store_true", help="keep what build/zoo.jsonl has")
    add("--write", action="store_true", help="write docs/models.md")
    options = parser.parse_args(arguments)
    from tools.zoo import vision
    from tools.zoo.models import names

    if missing := vision.missing():
        print(f"warning: {missing}", file=sys.stderr)
    chosen = [name for name in names() if options.only in name]
    if options.draw:
        chosen = sorted(random.Random(options.seed).sample(chosen, min(options.draw, len(chosen))))
        print(f"seed {options.seed}")
    chosen = [name for start in range(options.stride) for name in chosen[start :: options.stride]]
    chosen = chosen[: options.first]
    if options.list:
        print("\n".join(chosen))
        return 0
    kept = REPO / "build" / "zoo.jsonl"
    kept.parent.mkdir(exist_ok=True)
    if not options.resume:
        kept.write_text("")
    started, reports = time.monotonic(), []
    passed = [f"--{name}" for name in ("untimed", "inductor") if vars(options)[name]]
    for report in examined(chosen, options.jobs, kept, *passed, limit=options.limit):
        reports.append(report)
        print(f"{len(reports)}/{len(chosen)} {report}", flush=True)
    reports.sort(key=lambda report: report.name)
    print(summary(reports))
    print(f"{time.monotonic() - started:.0f} s")
    if options.write:
        write_atomic(REPO / "docs" / "models.md", document(reports, len(names())).encode())
    return int(any(way.is_ours for report in reports for way in report.ways))


if __name__ == "__main__":
    sys.exit(main())
