"""Tiny random models of the architectures of `transformers` and `torchvision`, by name."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import CONFIG_MAPPING, PretrainedConfig
from transformers.models.auto import modeling_auto

from tools.zoo import vision
from tools.zoo.inputs import IMAGE, WIDTH, Sizes, candidates
from tools.zoo.tiny import Inputs, NotBuilt, Tiny, reason, stir

HEADS, VOCABULARY, POSITIONS = 4, 128, 128

#: The largest values of a configuration's numbers, by names that match whole. The first row serves;
#: a number without a row stays what it is. A function makes the value of the default, of any type.
SIZES: Mapping[str, Any] = {
    r"type_vocab_size": 2,
    r"rotary_dim": 8,
    r"(.*_)?vocab_size(_per_layer_input)?": VOCABULARY,
    r"(.*_)?(num_)?(key_value|kv)_heads": 2,
    r"(.*_)?(num_)?(attention_)?heads|n_heads?": HEADS,
    r"(.*_)?(num_)?(hidden_)?layers|n_layer|.*_depth": 2,
    r"depths": lambda depths: [min(depth, 2) for depth in depths],
    r"head_dim": lambda dim: WIDTH // HEADS,  # None divides by the number of heads
    r"(.*_)?(head_dim|d_kv|dim_head|d_head|attention_head_size)": WIDTH // HEADS,
    r"(.*_)?(intermediate_size|ffn_dim|d_ff|dff|n_inner|feedforward_dim|dim_feedforward)": 96,
    r"(.*_)?(hidden_size|d_model|n_embd|emb(ed)?_dim|hidden_dim|dim)|embedding_size": WIDTH,
    r"output_channels": WIDTH,
    r"(.*_)?(num_)?(local_|routed_)?experts": 4,
    r"num_experts_per_tok|moe_k|moe_topk": 2,
    r"(.*_)?image_size": IMAGE,
    r"(.*_)?max_(.*_)?position_embeddings|n_positions|n_ctx": POSITIONS,
    r"max_source_positions": 32,
    r"initializer_range|init_std": lambda deviation: 0.1,
}

_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 8}
_MLA = {"num_key_value_heads": HEADS, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8}
_ROPE = {"rope_type": "default", "type": "default"}
_MROPE = {"rope_scaling": {**_ROPE, "mrope_section": [2, 3, 3]}}
_MROPE_OF_HALF = {"rope_scaling": {**_ROPE, "mrope_section": [2, 1, 1]}}
_SAM = {
    **{f"{part}.hidden_size": WIDTH for part in ("mask_decoder_config", "prompt_encoder_config")},
    "mask_decoder_config.vit_dim": WIDTH,
    "vision_config.num_pos_feats": 32,
    "vision_config.global_attn_indexes": [1],
}
_SWIN = {"embed_dim": 24, "window_size": 2}
_TWO_STAGES = {
    "backbone_config.out_features": ["stage1", "stage2"],
    "reassemble_factors": [2, 1],
    "neck_hidden_sizes": [32, 64],
    "bottleneck_features": WIDTH,
}


def _within(*parts: str, **given: Any) -> dict[str, Any]:
    return {f"{part}.{name}": value for part in parts for name, value in given.items()}


#: What the configurations of some architectures need beside that.
_ROWS: Sequence[tuple[str, Mapping[str, Any]]] = (
    # Number of heads, and sizes that follow from others.
    ("clvp", _within("text_config", "speech_config", "decoder_config", num_attention_heads=2)),
    ("longcat_flash", {**_MLA, "head_dim": 8}),
    ("mamba2", {"num_heads": 8, "head_dim": 16, "chunk_size": 8}),
    ("mask2former", _within("backbone_config", **_SWIN) | {"num_attention_heads": 8}),
    ("moonshine", {"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4}),
    ("nemotron", {"num_key_value_heads": 2}),
    ("align", {"vision_config.hidden_dim": 640, "projection_dim": 640}),
    ("bamba", _MAMBA),
    ("blt", _within("encoder_config", "decoder_config", hidden_size_global=WIDTH)),
    ("clap", {"audio_config.hidden_size": 512}),
    ("csm", _within("codec_config", upsample_groups=WIDTH, codebook_dim=256)),
    ("deepseek_v3", _MLA),
    ("donut-swin maskformer-swin swin swinv2", _SWIN),
    ("efficientformer", {"dim": 448, "resolution": 2}),
    ("efficientnet", {"hidden_dim": 2560}),
    ("falcon_h1", {**_MAMBA, "mamba_d_ssm": 128}),
    ("fastspeech2_conformer vits", {"vocab_size": VOCABULARY}),
    ("granite_speech", {"encoder_config.input_dim": 80}),
    ("layoutlmv3", {"coordinate_size": 12, "shape_size": 8, "input_size": IMAGE}),
    ("lightglue", {"keypoint_detector_config.keypoint_decoder_dim": 65}),
    ("lilt", {"hidden_size": 96}),
    ("mimi", {"upsample_groups": WIDTH, "codebook_dim": 256}),
    ("oneformer", _within("backbone_config", **_SWIN)),
    ("owlv2 owlvit", {"text_config.max_position_embeddings": POSITIONS}),
    ("perceiver", {"d_latents": WIDTH, "num_latents": 16}),
    ("reformer", {"axial_pos_embds_dim": [16, 48], "axial_pos_shape": [8, 16]}),
    ("sam sam_hq", _SAM),
    ("sam2_hiera_det_model", {"hidden_size": 96}),
    ("sam2_vision_model", {"backbone_config.hidden_size": 96}),
    ("superpoint", {"keypoint_decoder_dim": 65}),
    ("swin2sr", {"embed_dim": 48, "window_size": 2}),
    (
        "fastspeech2_conformer_with_hifigan",
        {"model_config.vocab_size": VOCABULARY, "vocoder_config.model_in_dim": 80},
    ),
    # Positions of three dimensions.
    ("colqwen2", _within("vlm_config.text_config", **_MROPE)),
    ("glm4v qwen2_5_vl qwen2_vl", _within("text_config", **_MROPE)),
    ("glm4v_moe", _within("text_config", **_MROPE_OF_HALF)),
    ("glm4v_moe_text", _MROPE_OF_HALF),
    ("glm4v_text qwen2_5_vl_text qwen2_vl_text qwen3_vl_moe_text qwen3_vl_text", _MROPE),
    (
        "qwen3_vl qwen3_vl_moe",
        _within("text_config", **_MROPE) | {"vision_config.deepstack_visual_indexes": [0]},
    ),
    # Kinds of layers, in lists that are as long as there are layers.
    ("gpt_neo", {"attention_types": [[["global", "local"], 1]]}),
    ("granitemoehybrid", {**_MAMBA, "layer_types": ["mamba", "attention"]}),
    ("jamba", {"use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1}),
    (
        "mllama",
        {"text_config.rope_scaling": _ROPE, "text_config.cross_attention_layers": [1]},
    ),
    ("qwen3_next", {"layer_types": ["linear_attention", "full_attention"]}),
    ("vipllava", {"vision_feature_layers": [-1, -2]}),
    ("zamba2", {"layers_block_type": ["mamba", "hybrid"]}),
    (
        "gemma3n_text",
        {
            "intermediate_size": 96,
            "layer_types": ["sliding_attention", "full_attention"],
            "num_kv_shared_layers": 0,
            "activation_sparsity_pattern": [0.5, 0.0],
        },
    ),
    (
        "zamba",
        {
            "num_hidden_layers": 3,
            "attn_layer_period": 3,
            "attn_layer_offset": 2,
            "use_mamba_kernels": False,
            "attention_head_dim": 32,
            "attention_hidden_size": 128,
        },
    ),
    # Stages of backbones, and backbones without timm.
    (
        "conditional_detr dab-detr deformable_detr detr table-transformer",
        {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None},
    ),
    ("depth_anything prompt_depth_anything zoedepth", _TWO_STAGES),
    ("upernet", _within("backbone_config", out_features=[f"stage{i}" for i in range(1, 5)])),
    # Sizes of images, windows and sequences.
    ("aria", {"projector_patch_to_query_dict": {4: 4, 16: 16, 36: 36}}),
    ("audio-spectrogram-transformer", {"max_length": 64, "num_mel_bins": 32}),
    ("autoformer informer time_series_transformer", {"prediction_length": 8, "context_length": 16}),
    ("gemma3", {"mm_tokens_per_image": 4}),
    (
        "granitevision llava_next llava_next_video llava_onevision",
        {"image_grid_pinpoints": [[IMAGE, IMAGE]]},
    ),
    ("hiera", {"image_size": [IMAGE, IMAGE]}),
    ("led longformer", {"attention_window": 8}),
    ("mgp-str", {"image_size": [32, 128]}),
    ("timesfm", {"context_length": 64}),
    ("vitpose_backbone", {"image_size": [IMAGE, IMAGE], "part_features": 16}),
    ("vjepa2", {"crop_size": IMAGE, "frames_per_clip": 4}),
    (
        "depth_pro",
        _within(
            *("image_model_config", "patch_model_config", "fov_model_config"),
            image_size=16,
            patch_size=8,
        )
        | {"patch_size": 16},
    ),
    (
        "sam2",
        {
            "vision_config.backbone_config.hidden_size": 96,
            "vision_config.backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
        },
    ),
    (
        "seggpt",
        {
            "image_size": [64, 32],
            "pretrain_image_size": 32,
            "merge_index": 0,
            "intermediate_hidden_state_indices": [0, 1],
        },
    ),
    # Numbers of experts, queries and tokens, and what is not set at all.
    ("blip-2 instructblip", {"num_query_tokens": 8, "image_token_index": 120}),
    ("chameleon emu3", {"vocabulary_map": {"<image>": 120}}),
    ("d_fine rt_detr rt_detr_v2", {"decoder_in_channels": [WIDTH] * 3, "num_queries": 10}),
    ("deepseek_v2", {**_MLA, "n_routed_experts": 4, "num_experts_per_tok": 2}),
    ("dots1", {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2}),
    ("eomt", {"num_blocks": 1}),
    ("esm", {"vocab_size": VOCABULARY, "pad_token_id": 1, "mask_token_id": 4}),
    ("grounding-dino mm-grounding-dino", _within("backbone_config", **_SWIN) | {"num_queries": 10}),
    ("instructblipvideo", {"num_query_tokens": 8, "video_token_index": 120}),
    ("kosmos-2", {"latent_query_num": 4}),
    ("kyutai_speech_to_text", {"num_codebooks": 2}),
    ("xmod", {"default_language": "en_XX", "languages": ["en_XX"]}),
    (
        "dbrx",
        {
            "attn_config": {"kv_n_heads": 2},
            "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
        },
    ),
)
GIVEN = {name: given for names, given in _ROWS for name in names.split()}

#: Architectures that are made of others: which, by the names of their parts.
PARTS: Mapping[str, Mapping[str, str]] = {
    "encoder-decoder": {"encoder": "bert", "decoder": "bert"},
    "nougat": {"encoder": "donut-swin", "decoder": "mbart"},
    "speech-encoder-decoder": {"encoder": "wav2vec2", "decoder": "bert"},
    "vision-encoder-decoder": {"encoder": "vit", "decoder": "bert"},
    "vision-text-dual-encoder": {"vision_config": "vit", "text_config": "bert"},
}


def names() -> list[str]:
    """Return the architectures, as configurations and torchvision's models call themselves."""
    return [*sorted(CONFIG_MAPPING.keys()), *vision.names()]


def small(config: PretrainedConfig, stated: Mapping[str, Any]) -> PretrainedConfig:
    """Return a small configuration of the same kind; ``stated`` may name ``'part.number'``."""
    settings: dict[str, Any] = {}
    for name, parameter in inspect.signature(type(config).__init__).parameters.items():
        value = getattr(config, name, parameter.default)
        if isinstance(value, PretrainedConfig):
            inner = {k.split(".", 1)[1]: v for k, v in stated.items() if k.startswith(name + ".")}
            settings[name] = small(value, inner).to_dict()
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name != "self":
            shrunk = _shrunk(name, value)
            chosen = name == "out_features" and value != getattr(type(config)(), name)
            kept = parameter.default is not None or shrunk != value or chosen
            if shrunk is not parameter.empty and kept:
                settings[name] = shrunk
    settings |= {k: v for k, v in stated.items() if "." not in k}
    return type(config)(**settings)


def _shrunk(name: str, default: Any) -> Any:
    number = isinstance(default, int) and not isinstance(default, bool)
    if number and name.endswith(("_id", "_index")) and default >= VOCABULARY:
        return VOCABULARY - 1 - sum(map(ord, name)) % 20  # tokens of images, of sounds, …
    limit = next((x for pattern, x in SIZES.items() if re.fullmatch(pattern, name)), default)
    if callable(limit):
        return limit(default)
    return min(default, limit) if number else default


def model_class(config: PretrainedConfig) -> type[nn.Module]:
    """Return the class of models of a configuration: the plain one, or the first with a head."""
    for name in ("MODEL_MAPPING", *modeling_auto.__all__):
        if name.endswith("_MAPPING") and type(config) in getattr(modeling_auto, name):
            found = getattr(modeling_auto, name)[type(config)]
            result: type[nn.Module] = found[0] if isinstance(found, tuple) else found
            return result
    raise NotBuilt("transformers has no model of it")


def configuration(name: str) -> PretrainedConfig:
    """Return the small configuration of an architecture."""
    if parts := PARTS.get(name):
        parts_of = {
            part: small(CONFIG_MAPPING[of](), GIVEN.get(of, {})) for part, of in parts.items()
        }
        return CONFIG_MAPPING[name](**{part: config.to_dict() for part, config in parts_of.items()})
    return small(CONFIG_MAPPING[name](), GIVEN.get(name, {}))


def build(name: str) -> Tiny:
    """Return a tiny model, whose weights come from its name alone.

    Raises:
        NotBuilt: when it cannot be made here, or takes none of the inputs.
    """
    if name.startswith(vision.PREFIX):
        return vision.build(name)
    try:
        config = configuration(name)
        torch.manual_seed(0)
        model = model_class(config)(config).eval()
        stir(model)
        inputs = _inputs(name, model, Sizes())
    except Exception as error:
        raise NotBuilt(reason(error)) from error
    for sizes in (Sizes(3, 23, 96), Sizes(3, 23), Sizes(3)):
        with contextlib.suppress(Exception):
            return Tiny(name, model, inputs, _inputs(name, model, sizes))
    return Tiny(name, model, inputs, {})


def _inputs(name: str, model: nn.Module, sizes: Sizes) -> Inputs:
    """Return the first inputs that a model takes, which has parts of all kinds."""
    errors = []
    for candidate in candidates(name, model, sizes):
        try:
            inputs = candidate()
            with torch.no_grad():
                model(**inputs)
            return inputs
        except Exception as error:
            errors.append(error)
    raise errors[0]
