"""The measured models: public architectures at their published sizes, with random weights.

A model's name is FAMILY@BATCH, as in ``bert@8``. To add a family, write a function that returns a
module in eval mode and one that draws the CPU tensors to call it with, and add them to
``FAMILIES``. torch is imported only when a model is built.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from benchmarks.networks import Dlrm, TextEncoder

    Inputs = tuple[Tensor, ...]

SEED = 0


@dataclass(frozen=True)
class Family:
    """An architecture: functions that build it and draw inputs for a batch size.

    ``packages`` are the distributions that must be installed besides torch. Quantisers treat a
    ``transformer`` in their own way.
    """

    network: Callable[[], nn.Module]
    inputs: Callable[[Any, int], Inputs]
    packages: tuple[str, ...] = ("transformers",)
    transformer: bool = False


def _from_transformers(name: str) -> Any:
    return getattr(importlib.import_module("transformers"), name)


def _image_classifier(architecture: str) -> Callable[[], nn.Module]:
    """The architecture in transformers' default configuration, for 224 x 224 images."""

    def build() -> nn.Module:
        import torch

        from benchmarks.networks import ImageClassifier, settle

        config = _from_transformers(f"{architecture}Config")()
        network = _from_transformers(f"{architecture}ForImageClassification")(config)
        return settle(ImageClassifier(network), torch.randn(2, 3, 224, 224))

    return build


def _images(module: nn.Module, batch: int) -> Inputs:
    import torch

    return (torch.randn(batch, 3, 224, 224),)


def _bert() -> nn.Module:
    """BERT-base."""
    from benchmarks.networks import TextEncoder

    config = _from_transformers("BertConfig")(attn_implementation="sdpa")
    return TextEncoder(_from_transformers("BertModel")(config, add_pooling_layer=False)).eval()


def _texts(module: TextEncoder, batch: int) -> Inputs:
    """Sequences of 128 tokens, and their mask."""
    import torch

    ids = torch.randint(0, module.words, (batch, 128))
    return ids, torch.ones_like(ids)


def _dlrm() -> nn.Module:
    from benchmarks.networks import Dlrm

    return Dlrm().eval()


def _clicks(module: Dlrm, batch: int) -> Inputs:
    """Features, and one lookup in each table."""
    import torch

    ids = torch.randint(0, module.rows, (module.tables, batch, 1))
    return torch.randn(batch, module.features), ids


def _mlp() -> nn.Module:
    """Three layers so small that nearly all the time is the overhead of the calls."""
    from benchmarks.networks import perceptron

    return perceptron(64, 64, 64, 64).eval()


def _vectors(module: nn.Module, batch: int) -> Inputs:
    import torch

    return (torch.randn(batch, 64),)


FAMILIES = {
    "resnet50": Family(_image_classifier("ResNet"), _images),
    "mobilenet_v2": Family(_image_classifier("MobileNetV2"), _images),
    "bert": Family(_bert, _texts, transformer=True),
    "vit": Family(_image_classifier("ViT"), _images, transformer=True),
    "dlrm": Family(_dlrm, _clicks, packages=()),
    "mlp": Family(_mlp, _vectors, packages=()),
}

#: The models that are measured by default.
DEFAULT = (
    "resnet50@1",
    "resnet50@16",
    "mobilenet_v2@1",
    "bert@1",
    "bert@8",
    "vit@1",
    "dlrm@64",
    "dlrm@2048",
)


def parse(name: str) -> tuple[Family, int]:
    """The family and the batch size in a model's name. Raises ValueError if the name is wrong."""
    family, _, batch = name.partition("@")
    if family not in FAMILIES or not re.fullmatch("[1-9][0-9]*", batch):
        raise ValueError(
            f"there is no model '{name}': write FAMILY@BATCH, as in bert@8,"
            f" with one of the families {', '.join(FAMILIES)}"
        )
    return FAMILIES[family], int(batch)


def build(name: str) -> tuple[nn.Module, Inputs]:
    """Build the model called ``name``, with the same weights and inputs in every process."""
    import torch

    family, batch = parse(name)
    torch.manual_seed(SEED)
    module = family.network()
    return module, family.inputs(module, batch)


def calibration(name: str, module: nn.Module, samples: int = 32) -> tuple[Inputs, ...]:
    """Batches of at least ``samples`` inputs in all, other than those of ``build``.

    They are the same in every process.
    """
    import torch

    family, batch = parse(name)
    torch.manual_seed(SEED + 1)
    return tuple(family.inputs(module, batch) for _ in range(-(-samples // batch)))
