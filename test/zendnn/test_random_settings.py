"""Randomly changed tuning files and random environment variables: no crash, no error, no changed
result, and at most one warning of one sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, event, example, given, settings
from hypothesis import strategies as st

from test.drawing import Draw, examples, one_of
from test.mutations import changed
from test.server import Ended, Server

from .common import run_python

README = Path(__file__).parents[2] / "README.md"
SECONDS = 120.0


def variables() -> dict[str, str]:
    """The run-time variables of README's table, and their meanings."""
    rows = re.findall(r"^\| run \| (.+?) \| (.+) \|$", README.read_text(), re.MULTILINE)
    return {name: meaning for names, meaning in rows for name in words(names)}


def words(text: str) -> list[str]:
    """The words in backquotes."""
    return re.findall(r"`([^`]+)`", text)


VARIABLES = variables()
PATHS = [name for name, meaning in VARIABLES.items() if meaning.startswith("a file")]

#: The model of both tests. The tuning file has its sizes.
MODEL = """
import json, os, sys, warnings
import torch
from torch import nn
from torch.backends.zendnn import _C, counters, explain, flags

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 40)
).eval()
x = torch.randn(2, 3, 8, 8)

def optimised():
    return torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))

def check(module):
    with torch.no_grad():
        results = [module(x) for _ in range(2)]
        with flags(enabled=False):
            right = net(x)
    for result in results:
        torch.testing.assert_close(result, right, rtol=1e-4, atol=1e-4)
"""


def environment(**more: str) -> dict[str, str]:
    """The environment without the caller's settings, and with one thread, as in tuning files."""
    ours = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**ours, "OMP_NUM_THREADS": "1", **more}


# Tuning files.

#: Answers each tuning file's path with the warnings of a run that reads the file.
ANSWERS = (
    MODEL
    + """
def answer(path):
    os.environ["ZENDNN_TUNING_CACHE"] = path
    _C._forget_tuning()
    module = optimised()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(module)
        explain(module)
    return [str(warning.message).partition(" (Triggered")[0] for warning in caught]

while True:
    try:
        path = asked.recv_bytes().decode()
    except EOFError:
        break
    try:
        said = answer(path)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    asked.send_bytes(json.dumps(said).encode())
"""
)


def ask(server: Server, path: Path) -> list[str] | str:
    """The warnings of a run with this tuning file, or its failure."""
    try:
        said: list[str] | str = json.loads(server.ask(str(path).encode()))
    except Ended as error:
        return str(error)
    return said


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    result = Server(ANSWERS, env=environment(), seconds=SECONDS)
    yield result
    result.stop()


@dataclass(frozen=True)
class Written:
    """A tuning file's header, its choices, and their candidates."""

    header: bytes
    chosen: Mapping[bytes, bytes]
    candidates: Mapping[bytes, list[bytes]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    path = tmp_path_factory.mktemp("tuning") / "choices"
    more = {"ZENDNN_TUNING_BUDGET": "60", "ZENDNN_VERBOSE": "1", "ZENDNN_TUNING_CACHE": str(path)}
    text = run_python(MODEL + "check(optimised())", **environment(**more))
    candidates: dict[bytes, list[bytes]] = {}
    for line in text.encode().splitlines():
        if line.startswith(b"zendnn_verbose,tune,"):
            _, _, name, _, key = line.split(b",", 4)
            candidates.setdefault(key, []).append(name)
    header, *lines = path.read_bytes().splitlines()
    chosen = {key: name for key, _, name in (line.partition(b"\t") for line in lines)}
    for key in [key for key in chosen if key.startswith(b"about ")]:  # of all near sizes
        candidates[key] = [name for names in candidates.values() for name in names]
    kinds = {key.split()[0] for key in chosen}
    assert kinds == {b"convolution", b"linear", b"layout", b"about"}
    assert all(name in candidates[key] for key, name in chosen.items())
    return Written(header, chosen, candidates)


#: Tokens of the format, and characters that end or escape text elsewhere.
TOKENS = [
    *(b"\t", b"\n", b"\r\n", b"\0", b"\xff", b"\xed\xa0\x80", b'"', b"\\", b"%s%n", b";", b";;"),
    *(b"wrong ", b"wrong wrong ", b"layout ", b"zendnn-tuning 1 ", b"threads 1", b"channels last"),
]
#: A function that draws the names after a key.
Names = Callable[[Draw, Written, bytes], bytes]


def some(draw: Draw, names: list[bytes]) -> bytes:
    return b";".join(draw(st.lists(st.sampled_from(names), max_size=2 * len(names))))


def anything(draw: Draw) -> bytes:
    piece: bytes = draw(st.binary(min_size=1, max_size=12))
    return piece * one_of(draw, (1, 1, 100, 1 << 17))


#: The contents of an entry, by its first word.
ENTRIES: dict[str, list[Names]] = {
    "": [
        lambda draw, file, key: file.chosen[key],
        lambda draw, file, key: bytes(one_of(draw, file.candidates[key])),
        lambda draw, file, key: bytes(one_of(draw, list(file.chosen.values()))),
        lambda draw, file, key: key,
        lambda draw, file, key: b"",
        lambda draw, file, key: anything(draw),
    ],
    "wrong ": [
        lambda draw, file, key: b";".join(file.candidates[key]),
        lambda draw, file, key: b";".join(file.candidates[key]),
        lambda draw, file, key: some(draw, file.candidates[key]),
        lambda draw, file, key: some(draw, [*file.chosen.values(), anything(draw)]),
        lambda draw, file, key: anything(draw),
    ],
}


def entry(draw: Draw, file: Written, key: bytes) -> bytes:
    """A line about the key; rarely with its parts swapped, or about nothing."""
    start = one_of(draw, list(ENTRIES))
    names = one_of(draw, ENTRIES[start])(draw, file, key)
    kind = draw(st.integers(0, 9))
    if kind == 8:
        return bytes(names + b"\t" + start.encode() + key)
    return anything(draw) if kind == 9 else bytes(start.encode() + key + b"\t" + names)


def changed_file(draw: Draw, file: Written) -> bytes:
    """A tuning file with some changed entries and bytes."""
    header = one_of(draw, [file.header] * 10 + [b"", b"\xef\xbb\xbf" + file.header, b"mine"])
    # Zero to three entries per key; the last one applies.
    counts = {key: draw(st.integers(0, 3)) for key in file.chosen}
    lines = [entry(draw, file, key) for key, count in counts.items() for _ in range(count)]
    data = b"\n".join([header, *draw(st.permutations(lines)), b""])
    return changed(draw, data, TOKENS) if draw(st.integers(0, 2)) == 2 else data


@examples(120)
@given(data=st.data())
def test_random_tuning_files_change_no_result(
    server: Server, written: Written, data: st.DataObject
) -> None:
    content = changed_file(data.draw, written)
    ours = (content + b"\n").startswith(written.header + b"\n") or not content
    event("ours" if ours else "another's")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "choices")
        path.write_bytes(content)
        said = ask(server, path)
        ignored = f"ZENDNN_TUNING_CACHE: {path} is from another CPU or version and is ignored."
        assert said == ([] if ours else [ignored]), f"{said}\n{content[:2000]!r}"
        after = path.read_bytes()
        assert after.startswith(written.header) if ours else after == content
        assert [x.name for x in Path(folder).iterdir()] == ["choices"], "a draft was left behind"


# Environment variables.

#: Writes each warning as one line, so that other output on standard error is visible.
CHILD = (
    """
import json, sys, warnings

def show(message, *_, **more):
    print(json.dumps(str(message).partition(" (Triggered")[0]), file=sys.stderr, flush=True)

warnings.showwarning = show
warnings.simplefilter("always")
warnings.simplefilter("ignore", DeprecationWarning)
warnings.simplefilter("ignore", FutureWarning)  # torch's, of TorchScript
"""
    + MODEL
    + """
torch.ones(1 << 20).sum()  # larger than a huge page
check(net)
module = optimised()
check(module)
explain(module)
x = torch.randn(1, 3, 8, 8)
check(module)
assert "ZENDNN_MAX_CPU_ISA" in os.environ or counters(), "nothing ran on ZenDNN"
"""
)

#: Bytes that are not text are surrogates, as in os.environ.
VALUES = st.one_of(
    st.sampled_from(words(" ".join(VARIABLES.values()))),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.floats().map(str),
    st.sampled_from(
        [
            *("", " ", "\t", "\n", "1 ", " 1", "+1", "-0", "1.", ".5", "1,5", "1_0", "0x10", "1e2"),
            *("2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551616"),
            *("1e308", "1e-320", "1e999", "nan", "-nan", "NAN(1)", "inf", "-inf", "infinity"),
            *("true", "YES", "off", "None", "all", "-1", "profile,filter=(", "debuginfo=9"),
            *("%s%n%d", "{}", "$HOME", "a\nb", "a\rb", "\x1b[1m", "٣", "İ", "\ufeff1", "\udcff"),
            *("9" * 5000, "x" * 100_000, "1" + " " * 300),
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.binary(max_size=8).map(lambda x: os.fsdecode(x.replace(b"\0", b""))),
)


def check_settings(variables: Mapping[str, str]) -> None:
    """Run the model with these variables."""
    with tempfile.TemporaryDirectory() as folder:
        # A value that is a path must not lead out of the folder.
        inside = {name: f"{folder}/{x.replace('/', '_')}" for name, x in variables.items()}
        used = {name: inside[name] if name in PATHS and x else x for name, x in variables.items()}
        done = subprocess.run(
            [sys.executable, "-c", CHILD],
            capture_output=True,
            timeout=SECONDS,
            env=environment(**used),
            cwd=folder,
        )
    error = done.stderr.decode(errors="replace")
    assert done.returncode == 0, f"{error[-2000:]}\n{used}"
    reported = set()
    for line in error.splitlines():
        assert line.startswith('"'), f"{line}\n{used}"
        sentence = json.loads(line)
        name = re.split("[ :]", sentence)[0]
        assert name in variables, sentence
        assert variables[name] not in words(VARIABLES[name]), f"README has this value: {sentence}"
        assert name not in reported, f"reported twice: {sentence}"
        assert not re.search(r"[\n\v\f\r]", sentence), f"{sentence!r} has several lines"
        reported.add(name)
    event(f"{len(reported)} reported")


# Without shrinking, since each try takes seconds.
@settings(examples(6), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(VARIABLES, VALUES)))
@example(dict.fromkeys(VARIABLES, ""))
@example(dict.fromkeys(VARIABLES, "a\nb"))
@example(dict.fromkeys(VARIABLES, "\udcff"))
def test_random_environment_variables_change_no_result(given: Mapping[str, str]) -> None:
    check_settings(given)
