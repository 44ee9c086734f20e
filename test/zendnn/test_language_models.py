"""Language models generate the same tokens compiled as on stock torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from .common import nightly_but, stock, values

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

_SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 211}
_WIDTHS = {**_SIZES, "hidden_size": 64, "max_position_embeddings": 128}
_GATED = {**_WIDTHS, "intermediate_size": 96}
_GROUPED = {**_GATED, "num_key_value_heads": 2}
_PAIR = {
    "vocab_size": 211,
    "d_model": 64,
    **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 96 for part in ("encoder", "decoder")},
}
_EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

#: The prefix of a model's classes, its configuration's sizes, and the kind of cache that is tried.
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "GPT-2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 211}, "dynamic"),
    "Llama": ("Llama", _GROUPED, "static"),
    "Qwen3": ("Qwen3", {**_GROUPED, "head_dim": 16}, "dynamic"),
    "Mistral": ("Mistral", {**_GROUPED, "sliding_window": 8}, "static"),
    "Gemma 3": ("Gemma3", {**_GROUPED, "head_dim": 16, "sliding_window": 8}, "static"),
    "Phi": ("Phi", _GATED, "dynamic"),
    "OPT": ("OPT", {**_WIDTHS, "ffn_dim": 96, "word_embed_proj_dim": 64}, "static"),
    "GPT-NeoX": ("GPTNeoX", _GATED, "dynamic"),
    "Falcon": ("Falcon", _WIDTHS, "static"),
    "Mixtral": ("Mixtral", {**_GROUPED, "num_local_experts": 3}, "dynamic"),
    "Qwen3 MoE": ("Qwen3Moe", {**_GROUPED, "head_dim": 16, **_EXPERTS}, "static"),
}

#: The same of models with an encoder and a decoder.
PAIRS: dict[str, dict[str, Any]] = {
    "Bart": {**_PAIR, "forced_eos_token_id": None},
    "T5": {"vocab_size": 211, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2},
    "Whisper": {**_PAIR, "max_source_positions": 20, "suppress_tokens": None},
}

#: Arguments of ``generate``, and the batch. Looking up wants an end token; this one never comes.
WAYS: list[dict[str, Any]] = [
    {"do_sample": True, "top_k": 20},
    {"num_beams": 3},
    {"batch": 4},
    {"batch": 1, "prompt_lookup_num_tokens": 3, "eos_token_id": 211},
]

#: Models whose decoding step is one region, and how many steps that has at most.
STEPS: dict[str, tuple[str, dict[str, Any], int]] = {
    "Llama": ("Llama", _GROUPED, 34),
    "Qwen3": ("Qwen3", {**_GROUPED, "head_dim": 32}, 38),
    "Gemma 3": ("Gemma3", {**_GROUPED, "head_dim": 32, "sliding_window": 32}, 43),
    "Phi": ("Phi", _GATED, 30),
    "Phi 3": ("Phi3", {**_GROUPED, "pad_token_id": 0}, 36),
    "GPT-NeoX": ("GPTNeoX", _GATED, 32),
    "Cohere": ("Cohere", _GROUPED, 60),
    "GLM": ("Glm", {**_GROUPED, "head_dim": 32}, 44),
}
#: Further steps make the mask.
MASKS = ("compare", "integer", "scalar", "arange")


def language_model(prefix: str, sizes: dict[str, Any]) -> Any:
    config_class = getattr(transformers, f"{prefix}Config", None)
    if prefix == "Gemma3":
        config_class = transformers.Gemma3TextConfig
    assert config_class is not None
    config = config_class(**{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, **sizes})
    ending = "LMHeadModel" if prefix == "GPT2" else "ForCausalLM"
    return getattr(transformers, prefix + ending)(config).eval()


@pytest.fixture(autouse=True)
def many_compilations() -> Iterator[None]:
    with torch._dynamo.config.patch(recompile_limit=64):
        yield


def assert_same_tokens(model: Any, least: int, batch: int = 2, **how: Any) -> None:
    """Assert that both generate the same, and that plans ran so many steps at least."""
    ids = torch.randint(5, 200, (batch, 7), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[: batch // 2, :3] = 0  # padding on the left
    how = {"max_new_tokens": 64, "do_sample": False, "attention_mask": mask, **how}
    if "input_features" not in how:
        how["input_ids"] = ids
    with stock():
        torch.manual_seed(5)
        want = model.generate(**how)
    model.forward = torch.compile(model.forward, backend="zendnn")
    torch.manual_seed(5)
    with torch.backends.zendnn.record() as events:
        got = model.generate(**how)
    assert torch.equal(got, want)
    assert sum(event.route == "plan" for event in events) >= least


@pytest.mark.parametrize("name", nightly_but(("GPT-2", "Llama", "Gemma 3"), MODELS))
def test_greedy_decoding(name: str) -> None:
    static = {"cache_implementation": "static", "disable_compile": True}
    how: dict[str, Any] = static if MODELS[name][2] == "static" else {}
    assert_same_tokens(language_model(*MODELS[name][:2]), 200, **how)


def test_generation_compiles_a_model_by_itself() -> None:
    """The configuration's mode is transformers' default, ``reduce-overhead``."""
    model = language_model(*MODELS["Llama"][:2])
    config = transformers.CompileConfig(backend="zendnn")
    config._compile_all_devices = True
    ids = torch.arange(10).reshape(1, 10) + 5
    how = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": "static"}
    with stock():
        want = model.generate(ids, **how, disable_compile=True)
    with torch.backends.zendnn.record() as events:
        got = model.generate(ids, **how, compile_config=config)
    assert torch.equal(got, want)
    assert any(event.route == "plan" for event in events)


@pytest.mark.parametrize("how", nightly_but(WAYS[:1], WAYS), ids=str)
def test_other_ways_of_decoding(how: dict[str, Any]) -> None:
    assert_same_tokens(language_model(*MODELS["GPT-2"][:2]), 200, **how)


@pytest.mark.nightly
def test_assisted_decoding() -> None:
    model, assistant = (language_model(*MODELS["GPT-2"][:2]) for _ in range(2))
    assert_same_tokens(model, 200, batch=1, assistant_model=assistant)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", nightly_but(("Llama", "Qwen3", "Phi"), STEPS))
def test_a_decoding_step_is_few_steps(name: str, dtype: torch.dtype) -> None:
    """Rotations and attention to shared heads are a step each; no cache is copied."""
    prefix, sizes, most = STEPS[name]
    model = language_model(prefix, {**sizes, "hidden_size": 128}).to(dtype)
    layers = sizes["num_hidden_layers"]
    cache = transformers.StaticCache(config=model.config, max_cache_len=32)
    fast = torch.compile(model, backend="zendnn")
    with torch.no_grad():
        model(torch.tensor([[5, 6, 7]]), past_key_values=cache, cache_position=torch.arange(3))
        for place in range(3, 7):  # sizes and numbers that change compile twice
            with torch.backends.zendnn.record() as events:
                fast(
                    torch.tensor([[9]]),
                    past_key_values=cache,
                    cache_position=torch.tensor([place]),
                )
    steps = [str(event.implementation) for event in events]
    assert {event.route for event in events} == {"plan"}
    assert steps.count("rope") == 2 * layers
    assert sum("attention" in step for step in steps) == layers
    assert steps.count("copy rows") == 2 * layers
    more = 0 if dtype == torch.float32 else 1 if name != "Cohere" else 11  # conversions
    computing = [step for step in steps if not step.startswith(MASKS)]
    assert len(computing) <= most + more, steps


@pytest.mark.parametrize("name", nightly_but(("Bart",), PAIRS))
def test_an_encoder_and_a_decoder(name: str) -> None:
    special = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = getattr(transformers, f"{name}Config")(**PAIRS[name], **special)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    how: dict[str, Any] = {"min_new_tokens": 64}
    if name == "Whisper":
        how["input_features"] = values(2, 80, 40)
    assert_same_tokens(model, 100, **how)
