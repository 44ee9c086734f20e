"""The modules that ``models`` builds: tensors in and one tensor out, as all backends support it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


class ImageClassifier(nn.Module):
    """A transformers image classifier as a function of tensors."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        """Float32 images (batch, 3, height, width) to logits (batch, classes)."""
        logits: Tensor = self.classifier(pixel_values=images, return_dict=False)[0]
        return logits


class TextEncoder(nn.Module):
    """A transformers encoder as a function of tensors; it knows ``words`` words."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.words: int = encoder.config.vocab_size

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Int64 ids and mask, both (batch, tokens), to states (batch, tokens, features)."""
        states: Tensor = self.encoder(input_ids=ids, attention_mask=mask, return_dict=False)[0]
        return states


def perceptron(*sizes: int) -> nn.Sequential:
    """Linear layers between the sizes; a ReLU follows each of them except the last."""
    layers: list[nn.Module] = []
    for inner, outer in pairwise(sizes):
        linear = nn.Linear(inner, outer)
        # With the default initialisation, activations shrink layer by layer until the biases
        # dominate and hide errors.
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    """The deep learning recommendation model (Naumov et al., arXiv:1906.00091), up to its logit.

    The layers have the sizes that MLPerf uses for the Criteo data; each table has only ``rows``
    rows.
    """

    first: Tensor
    second: Tensor

    def __init__(
        self, features: int = 13, tables: int = 26, rows: int = 10_000, width: int = 128
    ) -> None:
        super().__init__()
        self.features, self.tables, self.rows = features, tables, rows
        self.bottom = perceptron(features, 512, 256, width)
        bags = [nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)]
        for bag in bags:
            nn.init.normal_(bag.weight, std=width**-0.25)  # dot products of two rows are around 1
        self.bags = nn.ModuleList(bags)
        vectors = tables + 1
        self.top = perceptron(width + vectors * (vectors - 1) // 2, 1024, 1024, 512, 256, 1)
        first, second = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("first", first)
        self.register_buffer("second", second)

    def forward(self, features: Tensor, ids: Tensor) -> Tensor:
        """Float32 (batch, features) and int64 ids (tables, batch, lookups) to (batch, 1)."""
        dense = torch.relu(self.bottom(features))
        rows = [bag(ids[table]) for table, bag in enumerate(self.bags)]
        vectors = torch.stack([dense, *rows], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = products[:, self.first, self.second]
        logit: Tensor = self.top(torch.cat([dense, pairs], dim=1))
        return logit


def settle(module: nn.Module, example: Tensor) -> nn.Module:
    """Set each batch normalisation to scale its input for ``example`` to a mean square of 1.

    With untrained statistics, activations grow or vanish from block to block. Then the outputs say
    little about the early layers, and calculations with subnormal numbers distort the times. Means
    are not subtracted and channels are not scaled separately, because a random network would then
    turn small errors into large ones, which a trained network does not. Returns the module in eval
    mode.
    """

    def measure(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(norm, nn.BatchNorm2d)
        assert norm.running_var is not None
        norm.running_var.fill_(inputs[0].square().mean())

    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
    module.eval()
    if norms:
        with torch.no_grad():
            module(example)
    for hook in hooks:
        hook.remove()
    return module
