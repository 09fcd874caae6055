"""Traits of model families that config.json does not state; each as the model's code in vLLM has it
(model_executor/models)."""

from __future__ import annotations

# Model types whose memory the planner was checked against or whose code was read; others get a wide margin, said aloud.
KNOWN = frozenset(
    {
        "llama",
        "mistral",
        "mistral3",
        "ministral3",
        "mixtral",
        "qwen",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen2_vl_text",
        "qwen3_vl",
        "qwen3_vl_text",
        "qwen3_vl_moe",
        "qwen3_vl_moe_text",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma4",
        "gemma4_text",
        "granite",
        "phi3",
        "gpt_oss",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "glm_moe_dsa",
        "kimi_k2",
        "minimax_m2",
        "glm4",
        "glm4_moe",
        "olmo2",
        "cohere",
        "cohere2",
        # Weights agree with the published checkpoints; activations and caches follow the same code.
        "llama4",
        "llama4_text",
        "phimoe",
        "starcoder2",
        "falcon",
        "opt",
        "gpt2",
        "nemotron_h",
        "granitemoehybrid",
        "smollm3",
        "whisper",
        "kimi_linear",
        "exaone4",
        "lfm2",
        "mamba",
        "falcon_mamba",
        "jamba",
        "falcon_h1",
        "bert",
        "roberta",
        "xlm-roberta",
        "modernbert",
        "nomic_bert",
        "internlm2",
        "exaone",
        "seed_oss",
        "stablelm",
        "olmo",
        "baichuan",
        "chatglm",
        "gpt_neox",
        "minicpm",
        "phi",
        "ernie4_5",
        "hunyuan_v1_dense",
        "apertus",
        "mpt",
        "bloom",
        "dots_ocr",
    }
)

# Weights and cache follow from the code of the releases that have them; what their profile takes does not: the batch of
# Llama 3.2's encoder has as many images as the step has requests (worker/enc_dec_model_runner.py profile_run), and an
# image of Phi-3-vision as many crops as its checkpoint's processor makes, one of MiniCPM-V as many slices.
WEIGHED = frozenset({"mllama_text_model", "phi3_v", "minicpmv"})
# Of these the weights and the cache are known, and not what a pass takes.
LOADED = frozenset({"deepseek_v4"})

# Models whose prompts with images are seen both ways (config/model.py is_mm_prefix_lm, both in 0.13.0 and 0.33.0);
# Gemma 4's configs say it of themselves.
BOTH_WAYS = frozenset({"Gemma3ForConditionalGeneration", "PaliGemmaForConditionalGeneration"})

# The language model of each MiniCPM-V (minicpmv.py init_llm); the first, of 2.0, has a tower that is no config's.
MINICPMV = {"2.5": "llama", "2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"}

TIED = frozenset(
    {
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma4",
        "gemma4_text",
        "cohere",
        "cohere2",
        "gpt2",
        "opt",
        "bloom",
        "falcon",
        "mpt",
        "whisper",
    }
)

# qkv_proj has a bias though no key says so (qwen2.py, qwen2_moe.py, qwen2_vl and dots_ocr through qwen2).
QKV_BIAS = frozenset(
    {
        "qwen",
        "qwen2",
        "qwen2_moe",
        "qwen2_vl",
        "dots_ocr",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen2_vl_text",
        "gpt2",
        "opt",
        "bloom",
        "gpt_neox",
        "phi",
        "chatglm",
    }
)

# Two matrices in the MLP instead of gate, up and down.
# Families whose code takes 4 x hidden_size where the config names no width; everywhere else a missing one is an error.
WIDTH_IS_FOUR_HIDDEN = frozenset({"gpt2", "gpt_bigcode", "gptj", "gpt_neo", "codegen", "bloom", "falcon", "mpt"})
PLAIN_MLP = frozenset(
    {
        "apertus",
        "gpt2",
        "opt",
        "bloom",
        "falcon",
        "gpt_neox",
        "gpt_bigcode",
        "mpt",
        "phi",
        "starcoder2",
        "whisper",
        "nemotron",
        "nemotron_h",
        "bert",
        "roberta",
        "xlm-roberta",
    }
)

# Families whose config names twice the width that gate and up have each (qwen.py QWenBlock).
WIDTH_IS_GATE_AND_UP = frozenset({"qwen"})

# What the part of a layer behind attention is called (dense, with experts), and attention, where it is not `mlp` and
# `self_attn`: quantizers' lists name modules by it (the prefixes in model_executor/models).
MLP_NAMES = {
    "llama4": ("feed_forward", "feed_forward"),
    "llama4_text": ("feed_forward", "feed_forward"),
    "lfm2": ("feed_forward", "feed_forward"),
    "lfm2_moe": ("feed_forward", "feed_forward"),
    "jamba": ("feed_forward", "feed_forward"),
    "dbrx": ("ffn", "ffn"),
    "deepseek_v4": ("ffn", "ffn"),
    "gemma4_text": ("mlp", "moe"),  # to 0.30; from 0.31 on experts stand in the layer itself, as in checkpoints
    "step3_text": ("mlp", "moe"),
    "step3p5": ("mlp", "moe"),
    "granitemoe": ("mlp", "block_sparse_moe"),
    "mixtral": ("mlp", "block_sparse_moe"),
    "minimax_m2": ("mlp", "block_sparse_moe"),
    "phimoe": ("mlp", "block_sparse_moe"),
    "kimi_linear": ("mlp", "block_sparse_moe"),
    "granitemoehybrid": ("shared_mlp", "block_sparse_moe"),
    "nemotron_h": ("mixer", "mixer"),
    "falcon_h1": ("feed_forward", "feed_forward"),
}
ATTENTION_NAMES = {"nemotron_h": "mixer"}

# Every layer is a Mamba mixer and nothing else: no attention, no MLP (mamba.py, mamba2.py), so intermediate_size is the
# mixer's inner width.
MAMBA_ONLY = frozenset({"mamba", "mamba2", "falcon_mamba"})
# Every layer attends and mixes side by side, then has one MLP (falcon_h1.py FalconH1ParallelHybrid): vLLM numbers the
# mixers after the layers, here each stands behind its own, without an MLP.
BOTH_AT_ONCE = frozenset({"falcon_h1"})

# Experts as wide as intermediate_size.
EXPERT_WIDTH_IS_INTERMEDIATE = frozenset(
    {"mixtral", "gpt_oss", "minimax_m2", "phimoe", "dbrx", "jamba", "granitemoe", "llama4_text"}
)

# Attention without a cache: every token sees every other (encoder-only attention, v1/kv_cache_interface.py
# EncoderOnlyAttentionSpec).
ENCODER_ONLY = frozenset({"bert", "roberta", "xlm-roberta", "modernbert", "nomic_bert", "gte", "deberta-v2"})

# Every position has a learned vector of its own (gpt2.py, opt.py, bert.py, whisper.py).
LEARNED_POSITIONS = frozenset({"gpt2", "opt", "whisper", "bert", "roberta", "xlm-roberta"})

# Queries carry a gate of their own size though config.json may leave the key out (qwen3_next.py).
OUTPUT_GATE = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe"})

# Endings of architectures that vLLM serves by its pooling runner, adapted from the model that generates where it has no
# code of that name (config/model.py _SUFFIX_TO_DEFAULTS, models/adapters.py); the last takes what no other one names.
GENERATES = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")
POOLS = (
    "ForTextEncoding",
    "EmbeddingModel",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ClassificationModel",
    "ForRewardModeling",
    "RewardModel",
    "Model",
)
# Of such a name, and generating: its own code goes before the ending (model_executor/models/registry.py, 0.6 to 0.33).
_GENERATE_ALL_THE_SAME = frozenset(
    {
        "AquilaModel",
        "BartModel",
        "ChatGLMModel",
        "MiDashengLMModel",
        "MossAudioModel",
        "Qwen2_5OmniModel",
        "UltravoxModel",
    }
)


def pools_by_name(architecture: str) -> bool:
    """Does an architecture of this name answer with vectors or classes where nothing is asked?"""
    generates = architecture.endswith(GENERATES) or architecture in _GENERATE_ALL_THE_SAME
    return not generates and architecture.endswith(POOLS)


def generating(architecture: str) -> str:
    """The name of the model that generates, of which one that pools is made."""
    ending = next((end for end in POOLS if architecture.endswith(end)), "")
    return architecture.removesuffix(ending) + "ForCausalLM" if ending else architecture
