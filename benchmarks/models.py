"""The measured models: public architectures at their published sizes, with random weights.

A model's name is FAMILY@BATCH, as in ``bert@8``. To add a family, write a function that takes the
batch size and returns a module in eval mode and the CPU tensors to call it with, and add it to
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

    Built = tuple[nn.Module, tuple[Tensor, ...]]

SEED = 0


@dataclass(frozen=True)
class Family:
    """An architecture: a function that builds it for a batch size, and the packages it needs."""

    build: Callable[[int], Built]
    packages: tuple[str, ...] = ("transformers",)


def _from_transformers(name: str) -> Any:
    return getattr(importlib.import_module("transformers"), name)


def _image_classifier(architecture: str) -> Callable[[int], Built]:
    """The architecture in transformers' default configuration, for 224 x 224 images."""

    def build(batch: int) -> Built:
        import torch

        from benchmarks.networks import ImageClassifier, settle

        config = _from_transformers(f"{architecture}Config")()
        network = _from_transformers(f"{architecture}ForImageClassification")(config)
        module = settle(ImageClassifier(network), torch.randn(2, 3, 224, 224))
        return module, (torch.randn(batch, 3, 224, 224),)

    return build


def _bert(batch: int) -> Built:
    """BERT-base, sequences of 128 tokens."""
    import torch

    from benchmarks.networks import TextEncoder

    config = _from_transformers("BertConfig")(attn_implementation="sdpa")
    encoder = _from_transformers("BertModel")(config, add_pooling_layer=False)
    ids = torch.randint(0, config.vocab_size, (batch, 128))
    return TextEncoder(encoder).eval(), (ids, torch.ones_like(ids))


def _dlrm(batch: int) -> Built:
    """DLRM with one lookup in each table."""
    import torch

    from benchmarks.networks import Dlrm

    module = Dlrm().eval()
    ids = torch.randint(0, module.rows, (module.tables, batch, 1))
    return module, (torch.randn(batch, module.features), ids)


def _mlp(batch: int) -> Built:
    """Three layers so small that nearly all the time is the overhead of the calls."""
    import torch

    from benchmarks.networks import perceptron

    return perceptron(64, 64, 64, 64).eval(), (torch.randn(batch, 64),)


FAMILIES = {
    "resnet50": Family(_image_classifier("ResNet")),
    "mobilenet_v2": Family(_image_classifier("MobileNetV2")),
    "bert": Family(_bert),
    "vit": Family(_image_classifier("ViT")),
    "dlrm": Family(_dlrm, packages=()),
    "mlp": Family(_mlp, packages=()),
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


def build(name: str) -> Built:
    """Build the model called ``name``, with the same weights and inputs in every process."""
    import torch

    family, batch = parse(name)
    torch.manual_seed(SEED)
    return family.build(batch)
