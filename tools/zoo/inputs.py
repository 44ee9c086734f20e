"""Inputs of tiny models: how to draw each, by its name, and which an architecture takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from tools.zoo.tiny import Inputs

#: The width of hidden states, and the height and width of images.
WIDTH, IMAGE = 64, 64


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model's inputs."""

    batch: int = 2
    length: int = 17
    image: int = IMAGE


@dataclass(frozen=True)
class Draw:
    """Draws inputs of some sizes for a configuration."""

    config: PretrainedConfig
    sizes: Sizes

    def number(self, *names: str, default: int = 0) -> int:
        """Return the first of these numbers that the configuration or a part of it has."""
        parts = [self.config]
        for part in parts:
            for name in names:
                if isinstance(value := getattr(part, name, None), int) and value:
                    return value
            parts += [x for x in vars(part).values() if isinstance(x, PretrainedConfig)]
        return default

    def floats(self, *shape: int) -> Tensor:
        return torch.randn(self.sizes.batch, *shape)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, (self.sizes.batch, *shape))

    def ones(self, *shape: int) -> Tensor:
        return torch.ones(self.sizes.batch, *shape, dtype=torch.int64)

    def ids(self) -> Tensor:
        return self.integers(3, 100, self.sizes.length)

    def mask(self) -> Tensor:
        """Return which tokens there are; the first row has fewer."""
        mask = self.ones(self.sizes.length)
        mask[0, -3:] = 0
        return mask

    def boxes(self) -> Tensor:
        return self.integers(0, 100, self.sizes.length, 2, 2).sort(2).values.flatten(2)

    def images(self, *leading: int) -> Tensor:
        side = self.sizes.image
        return self.floats(*leading, self.number("num_channels", default=3), side, side)

    def images_or_videos(self) -> Tensor:
        frames = self.number("num_frames", "frames_per_clip")
        return self.images(frames) if frames else self.images()

    def sound(self, *leading: int) -> Tensor:
        return self.floats(*leading, 100 * self.sizes.length)

    def frames(self) -> Tensor:
        """Return a spectrogram: frames of frequencies."""
        return self.floats(
            64, self.number("feature_projection_input_dim", "num_mel_bins", default=80)
        )

    def spectrogram(self) -> Tensor:
        """Return a spectrogram: frequencies of frames."""
        return self.frames().mT.contiguous()


#: How to draw an input. All of these that a model takes it gets.
INPUTS: Mapping[str, Callable[[Draw], Any] | None] = {
    "input_ids": Draw.ids,
    "attention_mask": Draw.mask,
    "decoder_input_ids": Draw.ids,
    "pixel_values": Draw.images_or_videos,
    "pixel_values_videos": None,
    "bbox": Draw.boxes,
    "input_values": Draw.sound,
    "input_features": Draw.frames,
    "use_cache": lambda draw: False,
}


def _series(features: int) -> dict[str, Callable[[Draw], Any]]:
    past, future = 16 + 7, 8
    return {
        "past_values": lambda draw: draw.floats(past),
        "past_time_features": lambda draw: draw.floats(past, features),
        "past_observed_mask": lambda draw: torch.ones(draw.sizes.batch, past),
        "future_values": lambda draw: draw.floats(future),
        "future_time_features": lambda draw: draw.floats(future, features),
    }


_PAIRS = {"pixel_values": lambda draw: draw.images(2)}
_QFORMER = {"qformer_input_ids": Draw.ids, "qformer_attention_mask": Draw.mask}
_NAFLEX = {
    "pixel_values": lambda draw: draw.floats(16, 3 * 16 * 16),
    "pixel_attention_mask": lambda draw: draw.ones(16),
    "spatial_shapes": lambda draw: torch.tensor([[4, 4]] * draw.sizes.batch),
}


def _wide(count: int) -> Callable[[Draw], Any]:
    return lambda draw: draw.integers(3, 100, draw.sizes.length, count)


_CHANNEL = {"input_values": lambda draw: draw.sound(1)}
_WHISPER = {"input_features": Draw.spectrogram, "input_ids": None, "attention_mask": None}
_SPEECH = {"input_ids": None, "attention_mask": None}
_CONTEXT = {"past_values": lambda draw: draw.floats(draw.config.context_length, 1)}


def _patches(size: int) -> dict[str, Callable[[Draw], Any]]:
    return {
        "pixel_values": lambda draw: torch.randn(draw.sizes.batch * 16, 3 * 2 * size**2),
        "image_grid_thw": lambda draw: torch.tensor([[1, 4, 4]] * draw.sizes.batch),
    }


_TILES = {
    "pixel_values": lambda draw: draw.images(2),
    "image_sizes": lambda draw: torch.tensor([[draw.sizes.image] * 2] * draw.sizes.batch),
}

#: The same for one architecture, whose names differ or that takes another form; None for an input
#: that it does not get.
OTHER_INPUTS: Mapping[str, Mapping[str, Callable[[Draw], Any] | None]] = {
    "audio-spectrogram-transformer": {"input_values": lambda draw: draw.floats(64, 32)},
    "autoformer": _series(0),
    "blip-2": {
        "input_ids": lambda draw: torch.cat([draw.ones(8) * 120, draw.ids()], 1),
        "attention_mask": lambda draw: torch.cat([draw.ones(8), draw.mask()], 1),
    },
    "blip_2_qformer": {
        "query_embeds": lambda draw: draw.floats(8, WIDTH),
        "encoder_hidden_states": lambda draw: draw.floats(10, WIDTH),
    },
    "clap": {"input_features": lambda draw: draw.floats(1, 200, 64)},
    "clvp": {"input_features": Draw.spectrogram},
    "colqwen2": {
        "pixel_values": lambda draw: draw.floats(16, 3 * 2 * 14 * 14),
        "image_grid_thw": lambda draw: torch.tensor([[1, 4, 4]] * draw.sizes.batch),
    },
    "csm": {"input_ids": _wide(32)},
    "dac": _CHANNEL,
    "decision_transformer": {
        "states": lambda draw: draw.floats(draw.sizes.length, 17),
        "actions": lambda draw: draw.floats(draw.sizes.length, 4),
        "rewards": lambda draw: draw.floats(draw.sizes.length, 1),
        "returns_to_go": lambda draw: draw.floats(draw.sizes.length, 1),
        "timesteps": Draw.ids,
        "attention_mask": Draw.mask,
    },
    "dia": {"decoder_input_ids": _wide(9)},
    "efficientloftr": _PAIRS,
    "encodec": _CHANNEL,
    "gemma3n_audio": {
        "audio_mel": lambda draw: draw.floats(64, 128),
        "audio_mel_mask": lambda draw: draw.integers(0, 1, 64).bool(),
    },
    "glm4v": _patches(14),
    "glm4v_moe": _patches(14),
    "granitevision": _TILES,
    "idefics2": {"pixel_values": lambda draw: draw.images(1)},
    "idefics3": {"pixel_values": lambda draw: draw.images(1)},
    "llava_next": _TILES,
    "llava_next_video": _TILES,
    "llava_onevision": _TILES,
    "mistral3": _TILES | {"pixel_values": Draw.images},
    "qwen3_vl": _patches(16),
    "qwen3_vl_moe": _patches(16),
    "smolvlm": {"pixel_values": lambda draw: draw.images(1)},
    "deepseek_vl_hybrid": {"high_res_pixel_values": Draw.images},
    "idefics": {
        "pixel_values": lambda draw: draw.images(1),
        "image_attention_mask": lambda draw: draw.ones(draw.sizes.length, 1),
    },
    "imagegpt": {"use_cache": None},
    "informer": _series(0),
    "instructblip": _QFORMER,
    "instructblipvideo": _QFORMER | {"pixel_values": lambda draw: draw.images(2)},
    "kosmos-2": {
        "image_embeds_position_mask": lambda draw: (
            (torch.arange(draw.sizes.length) % 17 < 4).expand(draw.sizes.batch, -1).clone()
        ),
    },
    "kyutai_speech_to_text": {"input_ids": _wide(3)},
    "lightglue": _PAIRS,
    "lfm2_vl": _NAFLEX,
    "lxmert": {
        "visual_feats": lambda draw: draw.floats(10, WIDTH),
        "visual_pos": lambda draw: draw.floats(10, 4),
    },
    "mgp-str": {"pixel_values": lambda draw: draw.floats(3, 32, 128)},
    "mimi": _CHANNEL,
    "oneformer": {"task_inputs": lambda draw: draw.integers(0, 100, 77)},
    "patchtsmixer": _CONTEXT,
    "patchtst": _CONTEXT,
    "perceiver": {"inputs": lambda draw: draw.floats(50, WIDTH)},
    "pix2struct": {
        "flattened_patches": lambda draw: torch.cat(
            [draw.integers(0, 4, 16, 2).float(), draw.floats(16, WIDTH)], -1
        )
    },
    "pop2piano": {"input_features": None},
    "qwen2_audio": {"input_features": None},
    "qwen2_audio_encoder": _WHISPER,
    "qwen2_vl": _patches(14),
    "qwen2_5_vl": _patches(14),
    "seamless_m4t": _SPEECH,
    "seamless_m4t_v2": _SPEECH,
    "seggpt": {
        "pixel_values": lambda draw: draw.floats(3, 32, 32),
        "prompt_pixel_values": lambda draw: draw.floats(3, 32, 32),
        "prompt_masks": lambda draw: draw.floats(3, 32, 32),
    },
    "siglip2": _NAFLEX,
    "siglip2_vision_model": _NAFLEX,
    "speech-encoder-decoder": {"input_features": None},
    "speecht5": {
        "input_values": lambda draw: draw.floats(draw.sizes.length, WIDTH),
        "decoder_input_values": lambda draw: draw.floats(draw.sizes.length, WIDTH),
    },
    "timesfm": {
        "past_values": lambda draw: draw.floats(64),
        "past_values_padding": lambda draw: torch.zeros(draw.sizes.batch, 64),
        "freq": lambda draw: draw.integers(0, 3, 1),
    },
    "time_series_transformer": _series(0),
    "trajectory_transformer": {"trajectories": Draw.ids},
    "vjepa2": {"pixel_values_videos": lambda draw: draw.images(4)},
    "voxtral": {"input_features": None},
    "voxtral_encoder": _WHISPER,
    "whisper": _WHISPER,
}


def candidates(name: str, model: nn.Module, sizes: Sizes) -> list[Callable[[], Inputs]]:
    """Return how to make inputs that a model may take: of text and images, and of text alone."""
    draw = Draw(model.config, sizes)
    takes = inspect.signature(model.forward).parameters
    torch.manual_seed(1)
    drawn = {
        key: how(draw)
        for key, how in {**INPUTS, **OTHER_INPUTS.get(name, {})}.items()
        if how is not None and key in takes
    }
    if "input_ids" not in drawn:
        drawn.pop("attention_mask", None)
    text = ("input_ids", "attention_mask", "decoder_input_ids", "use_cache")
    alone = {key: drawn[key] for key in text if key in drawn}
    if not {"input_ids", "pixel_values"} <= drawn.keys():
        return [lambda: drawn]
    placed = "input_ids" in OTHER_INPUTS.get(name, {})
    return [lambda: drawn if placed else _with_images(model, drawn), lambda: alone]


def _with_images(model: nn.Module, drawn: Inputs) -> Inputs:
    """Put as many tokens of images into the text as the model makes features of its images."""
    config = model.config
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
    token = next((x for name in names if (x := getattr(config, name, None)) is not None), None)
    if token is None or not hasattr(model, "get_image_features"):
        return drawn
    takes = inspect.signature(model.get_image_features).parameters
    with torch.no_grad():
        features = model.get_image_features(**{k: x for k, x in drawn.items() if k in takes})
    parts = features if isinstance(features, list | tuple) else [features]
    if isinstance(parts[0], list | tuple):  # the others go to later layers
        parts = parts[0]
    ids = drawn["input_ids"]
    ids = ids.masked_fill(ids == token, 3)
    count = sum(part.numel() for part in parts) // WIDTH // len(ids)
    images = ids.new_full((len(ids), count), token)
    result = {"input_ids": torch.cat([ids[:, :2], images, ids[:, 2:]], 1)}
    if "attention_mask" in drawn:
        result["attention_mask"] = torch.cat([torch.ones_like(images), drawn["attention_mask"]], 1)
    return drawn | result
