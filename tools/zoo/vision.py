"""Random models of the architectures of `torchvision`, on small images.

Their widths and depths are part of their names, so they are as large as they are; inputs are small.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import sys
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from tools.zoo.tiny import Inputs, NotBuilt, Tiny, reason, stir

#: What names of these models begin with.
PREFIX = "torchvision/"
#: Where the Makefile installs torchvision: beside the environment's other packages, because
#: transformers would import it, which fails where it was built for another torch.
PACKAGES = Path(sys.prefix) / "zoo"
#: The most million parameters of a model here. Larger ones repeat the layers of smaller ones.
LARGEST = 150


@cache
def _torchvision() -> Any:
    """Return torchvision.

    Its native library may be built for a torch with CUDA, and not load. Two of its operators,
    those that models call, are then written in Python here.
    """
    sys.path.append(str(PACKAGES))
    try:
        return importlib.import_module("torchvision")
    except ImportError as error:
        raise NotBuilt(f"torchvision cannot be imported ({error}): run `make zoo`") from error
    except RuntimeError:  # no operator is there to describe
        for part in ("_meta_registrations", "_autograd_registrations"):
            name = f"torchvision.{part}"
            sys.modules[name] = types.ModuleType(name)
        found = importlib.import_module("torchvision")
        for module in (found.extension, found.ops.roi_align):
            module._has_ops = _has_ops
        _define_operators()
        return found


def _has_ops() -> bool:  # no lambda, since scripted functions call it
    return True


def _define_operators() -> None:
    """Define the operators nms and roi_align of torchvision."""

    def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
        left = scores.argsort(descending=True)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        kept = []
        while len(left):
            best, left = left[0], left[1:]
            kept.append(best)
            low = torch.maximum(boxes[left, :2], boxes[best, :2])
            high = torch.minimum(boxes[left, 2:], boxes[best, 2:])
            shared = (high - low).clamp(min=0).prod(1)
            left = left[shared <= iou_threshold * (area[left] + area[best] - shared)]
        return torch.stack(kept) if kept else left.clone()

    def some(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
        count = torch.library.get_ctx().new_dynamic_size()
        return boxes.new_empty(count, dtype=torch.int64)

    def roi_align(
        x: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
    ) -> Tensor:
        corners = rois[:, 1:] * scale - (0.5 if aligned else 0.0)
        low, sizes = corners[:, :2], corners[:, 2:] - corners[:, :2]
        sizes = sizes if aligned else sizes.clamp(min=1)
        at = [
            low[:, i, None] + sizes[:, i, None] * (torch.arange(n * ratio) + 0.5) / (n * ratio)
            for i, n in enumerate((width, height))
        ]
        across, down = (
            2 * place / max(x.shape[3 - i] - 1, 1) - 1 for i, place in enumerate(at)
        )  # the corners of an image are at -1 and 1
        grid = torch.stack(
            [
                across[:, None, :].expand(-1, height * ratio, -1),
                down[:, :, None].expand(-1, -1, width * ratio),
            ],
            -1,
        )
        images = x[rois[:, 0].long()]
        found = functional.grid_sample(images, grid, padding_mode="border", align_corners=True)
        return functional.avg_pool2d(found, ratio)

    def pooled(
        x: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
    ) -> Tensor:
        return x.new_empty(rois.shape[0], x.shape[1], height, width)

    for name, function, fake in (("nms", nms, some), ("roi_align", roi_align, pooled)):
        op = torch.library.custom_op(f"torchvision::{name}", function, mutates_args=())
        op.register_fake(fake)


class _OfImages(nn.Module):  # type: ignore[misc]  # torch is Any here
    """A detector, which takes a list of images, as a model of one batch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        return self.model(list(x.unbind()))


#: What builders are given, and the sizes of images: one set, and another that the model may take.
#: The first row whose pattern matches the whole name serves.
MODELS: Mapping[str, tuple[Mapping[str, Any], Sequence[int], Sequence[int]]] = {
    r"ssd.*": ({}, (1, 3, 64, 64), (2, 3, 64, 80)),
    r".*_fpn.*": ({"min_size": 64, "max_size": 96}, (1, 3, 64, 64), (2, 3, 64, 80)),
    r"raft.*": ({}, (1, 3, 128, 128), (2, 3, 128, 136)),
    r".*_18|swin3d.*": ({}, (1, 3, 8, 32, 32), (2, 3, 8, 48, 48)),
    r"mvit.*|s3d": ({}, (1, 3, 16, 224, 224), (2, 3, 16, 224, 224)),
    r".*(inception|googlenet).*": ({"init_weights": False}, (1, 3, 96, 96), (2, 3, 128, 128)),
    r"vit.*": ({"image_size": 64}, (1, 3, 64, 64), (2, 3, 64, 64)),
    r"maxvit.*": ({}, (1, 3, 224, 224), (2, 3, 224, 224)),
    r".*": ({}, (1, 3, 64, 64), (2, 3, 96, 96)),
}


def missing() -> str:
    """Return why there are no architectures; empty when there are."""
    try:
        _torchvision()
    except NotBuilt as error:
        return str(error)
    return ""


def names() -> list[str]:
    """Return the architectures; none where torchvision is not installed."""
    return [] if missing() else [PREFIX + name for name in _torchvision().models.list_models()]


def build(name: str) -> Tiny:
    """Return a model, whose weights come from its name alone.

    Raises:
        NotBuilt: when it cannot be made here, or is too large.
    """
    models, known = _torchvision().models, name.removeprefix(PREFIX)
    options, *sizes = next(row for pattern, row in MODELS.items() if re.fullmatch(pattern, known))
    parameters = models.get_model_weights(known).DEFAULT.meta["num_params"] / 1e6
    if parameters > LARGEST:
        raise NotBuilt(f"it has {parameters:.0f} million parameters, more than {LARGEST}")
    takes = inspect.signature(models.get_model_builder(known)).parameters
    none = {key: None for key in ("weights", "weights_backbone") if key in takes}
    torch.manual_seed(0)
    try:
        model = models.get_model(known, **none, **options).eval()
        stir(model)
        if hasattr(model, "roi_heads") or hasattr(model, "anchor_generator"):
            model = _OfImages(model).eval()
        first = _inputs(model, sizes[0])
    except Exception as error:
        raise NotBuilt(reason(error)) from error
    with contextlib.suppress(Exception):
        return Tiny(name, model, first, _inputs(model, sizes[1]))
    return Tiny(name, model, first, {})


def _inputs(model: nn.Module, size: Sequence[int]) -> Inputs:
    """Return images of a size that a model takes: one set, or two between which things move."""
    torch.manual_seed(1)
    takes = inspect.signature(model.forward).parameters
    inputs = {name: torch.rand(*size) for name in takes if name != "num_flow_updates"}
    if "num_flow_updates" in takes:
        inputs["num_flow_updates"] = 2
    with torch.no_grad():
        results = pytree.tree_leaves(model(**inputs))
    if not any(x.numel() for x in results if isinstance(x, Tensor)):  # nothing would be compared
        raise NotBuilt("with random weights it finds nothing")
    return inputs
