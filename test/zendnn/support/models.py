"""Models of reported failures, and the plans that ran in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..common import values
from .frozen import settled


def regions(module: torch.jit.ScriptModule) -> list[Any]:
    """The explanations of a module's regions."""
    (method,) = torch.backends.zendnn.explain(module).methods
    return list(method.regions)


def assert_plans_ran(module: torch.jit.ScriptModule, shapes: int = 1) -> None:
    """Assert that there are plans, each built for every shape and without refusals."""
    found = regions(module)
    assert found, "there is no region"
    for region in found:
        assert len(region.built) >= 1, f"{region.name} has seen no input"
        reasons = [built.refused for built in region.built if built.refused]
        assert not reasons, f"{region.name}: {reasons}"
    assert max(len(region.built) for region in found) >= shapes


@dataclass(frozen=True)
class Model:
    """A small model from transformers: its class, configuration and inputs."""

    name: str
    config: str
    settings: dict[str, Any]
    image: int = 0
    #: If not None: the number of attentions, all in one region.
    attentions: int | None = None

    def build(self) -> nn.Module:
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.settings)
        net: nn.Module = getattr(transformers, self.name)(config).eval()
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm2d):
                settled(layer)
        return First(net).eval()

    def inputs(self, batch: int, size: int) -> Tensor:
        if self.image:
            return values(batch, 3, self.image, self.image, seed=batch)
        return torch.randint(1, 90, (batch, size))


class First(nn.Module):
    """The first result of a model that returns several."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)[0]
        return out


TEXT = {"vocab_size": 99, "max_position_embeddings": 64}


WIDTHS: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}


SMALL_IMAGE = {"image_size": 32, "patch_size": 8}


MODELS = {
    "bert": Model("BertModel", "BertConfig", {**TEXT, **WIDTHS}),
    "distilbert": Model(
        "DistilBertForSequenceClassification",
        "DistilBertConfig",
        {**TEXT, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    ),
    "distilbert, eager": Model(
        "DistilBertModel",
        "DistilBertConfig",
        {
            **TEXT,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 48,
            "attn_implementation": "eager",
        },
        attentions=2,
    ),
    "vit, eager": Model(
        "ViTModel",
        "ViTConfig",
        {**WIDTHS, **SMALL_IMAGE, "attn_implementation": "eager"},
        image=32,
        attentions=2,
    ),
    "vit": Model("ViTForImageClassification", "ViTConfig", {**WIDTHS, **SMALL_IMAGE}, image=32),
    "t5": Model(
        "T5EncoderModel",
        "T5Config",
        {
            "vocab_size": 99,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
        },
    ),
    "resnet": Model(
        "ResNetForImageClassification",
        "ResNetConfig",
        {"embedding_size": 16, "hidden_sizes": [16, 32, 48], "depths": [1, 2, 1]},
        image=48,
    ),
    "mobilenet_v2": Model(
        "MobileNetV2Model", "MobileNetV2Config", {"depth_multiplier": 0.35}, image=64
    ),
    "convnext": Model(
        "ConvNextModel",
        "ConvNextConfig",
        {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 2, 1], "image_size": 64},
        image=64,
    ),
    "swin": Model(
        "SwinModel",
        "SwinConfig",
        {
            **SMALL_IMAGE,
            "patch_size": 2,
            "window_size": 4,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
        },
        image=32,
    ),
    "regnet": Model(
        "RegNetModel",
        "RegNetConfig",
        {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2], "groups_width": 8},
        image=48,
    ),
}
