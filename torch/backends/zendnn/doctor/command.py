"""The command line of the doctor."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.backends.zendnn._files import write_atomic
from torch.backends.zendnn.doctor import log, machine, model
from torch.backends.zendnn.doctor.facts import Facts, gather
from torch.backends.zendnn.doctor.findings import examine, ranked
from torch.backends.zendnn.doctor.limits import measure
from torch.backends.zendnn.doctor.model import observe
from torch.backends.zendnn.doctor.observe import Loop, ModelCall, Script
from torch.backends.zendnn.doctor.report import Report, colours


class DoctorError(ValueError):
    """A wrong input; the message is one sentence: what, where, what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine what the command line says; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.html and not options.html.resolve().parent.is_dir():
            raise DoctorError(f"there is no folder for {options.html}: make it, or name another")
        with _stdout_to_stderr() if options.json else contextlib.nullcontext():
            report = _examine(options)
        if options.html:
            _write(options.html, report.html())
    except DoctorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    try:
        print(report.json() if options.json else report.text(colours(sys.stdout)), flush=True)
    except BrokenPipeError:  # The reader, such as `head`, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if report.notes else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch.backends.zendnn doctor",
        description="Find what makes this machine, a model or a script slow, and what mends it.",
        epilog="The exit code is 1 if the model or the script could not be observed, 2 for a wrong "
        "input, and otherwise 0, whatever was found.",
    )
    add = parser.add_argument
    add("--log", type=Path, metavar="FILE", help="read a log of ZENDNN_VERBOSE or ONEDNN_VERBOSE")
    add("--json", action="store_true", help="print JSON; what the script prints goes to stderr")
    add("--html", type=Path, metavar="FILE", help="also write a page with plots")
    add(
        *("--input",),
        action="append",
        default=[],
        type=_input,
        metavar="SIZES[:DTYPE]",
        help="an input of a saved model, such as 1x3x224x224 or 8x128:int64; may repeat",
    )
    add("--no-measure", action="store_true", help="measure no limits, and try no variants")
    add(
        "target",
        nargs="?",
        type=Path,
        metavar="MODEL|SCRIPT",
        help="what torch.jit.save wrote, or Python",
    )
    add("arguments", nargs=argparse.REMAINDER, help="of the script")
    return parser


def _input(text: str) -> Tensor:
    """Return a random tensor, as ``1x3x224x224`` or ``8x128:int64`` say."""
    sizes, _, name = text.partition(":")
    dtype = getattr(torch, name or "float32", None)
    if not re.fullmatch(r"\d+(x\d+)*", sizes) or not isinstance(dtype, torch.dtype):
        raise argparse.ArgumentTypeError(f"{text!r} is no input such as 1x3x224x224 or 8x128:int64")
    shape = [int(size) for size in sizes.split("x")]
    if dtype.is_floating_point:
        return torch.rand(shape, dtype=dtype)
    return torch.randint(0, 2, shape, dtype=dtype)


def _examine(options: argparse.Namespace) -> Report:
    if options.log:
        if options.target:
            raise DoctorError("--log reads what has run already: leave out the model or the script")
        found = _read(options.log)
        return Report(ranked(examine(log.CHECKS, found)), log=found)
    seen, loop, notes = _run(options)
    facts = _facts(not options.no_measure)
    findings, observation = examine(machine.CHECKS, facts), None
    if seen:
        try:
            observation = observe(seen, loop, not options.no_measure, _tell)
            findings += examine(model.CHECKS, observation)
        except Exception as error:  # a foreign model may raise anything
            notes += (f"the model's call cannot be repeated: {_sentence(error)}",)
    return Report(ranked(findings), facts, observation, notes=notes)


def _read(file: Path) -> log.Log:
    try:
        with file.open(errors="replace") as lines:
            return log.read(lines)
    except OSError as error:
        raise DoctorError(f"{file} cannot be read: {os.strerror(error.errno or 0)}") from error
    except ValueError as error:
        raise DoctorError(f"{file} {error}") from error


def _run(options: argparse.Namespace) -> tuple[ModelCall | None, Loop, tuple[str, ...]]:
    """Return the call to look at, how often it came, and what went wrong."""
    file = options.target
    if file is None:
        return None, Loop(), ()
    if not file.is_file():
        raise DoctorError(f"there is no file {str(file)!r}: name a saved model or a script")
    if zipfile.is_zipfile(file):
        return _load(file, options.input), Loop(), ()
    if options.input:
        raise DoctorError("--input is for saved models: a script makes its own inputs")
    _tell(f"running {file}")
    script = Script()
    script.run(file, options.arguments)
    notes = (script.failure,) if script.failure else ()
    if script.main is None:
        return None, Loop(), (*notes, f"{file} called no torch.nn.Module")
    return (*script.main, notes)


def _load(file: Path, inputs: Sequence[Tensor]) -> ModelCall:
    try:
        module = torch.jit.load(file, map_location="cpu").eval()
    except RuntimeError as error:
        raise DoctorError(
            f"{file} is no saved model: save one with torch.jit.save, or name a script"
        ) from error
    wanted = len(module.forward.schema.arguments) - 1
    if not inputs and wanted:
        inputs_of = f"{wanted} input{'s' * (wanted > 1)}"
        raise DoctorError(f"{file} takes {inputs_of}: add --input SIZES[:DTYPE] for each")
    call = ModelCall(module, tuple(inputs))
    try:
        call()
    except Exception as error:
        raise DoctorError(
            f"{file} fails on these inputs: give others with --input ({_sentence(error)})"
        ) from error
    return call


def _sentence(error: BaseException) -> str:
    """Return the last line of an error: those of saved models begin with a traceback."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


def _facts(measured: bool) -> Facts:
    _tell("looking at the machine")
    facts = gather()
    if not measured:
        return facts
    _tell("measuring the machine's limits, for about 5 seconds")
    cpus = [core.cpus[0] for core in facts.topology.cores]
    counts = {facts.threads, facts.cores, len(cpus)}
    wide = "avx512f" in facts.instructions
    limits = measure(cpus, wide, counts, facts.free, facts.caches[2])
    return replace(facts, limits=limits)


def _tell(text: str) -> None:
    print(f"doctor: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send what anybody prints, also from C++, to stderr."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def _write(file: Path, text: str) -> None:
    try:
        write_atomic(file, text)
    except OSError as error:
        raise DoctorError(f"{file} cannot be written: {os.strerror(error.errno or 0)}") from error
