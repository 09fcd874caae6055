"""From config.json to the longest request and to the tables of rotary positions."""

from vllm_doctor.plan.model.architecture import Attention, Compressed
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.families import LEARNED_POSITIONS, MAMBA_ONLY

# vLLM takes the smallest of those that a config names, Cohere's alone where it is there, and of none 2048, which it
# says (transformers_utils/model_arch_config_convertor.py derive_max_model_len_and_key, config/model.py).
LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)

COHERE_LENGTH = "model_max_length"

NO_LENGTH = 2048


def _length(text: Section) -> int:
    """Tokens of one request, before rope scaling."""
    if text.has(COHERE_LENGTH):
        return text.whole(COHERE_LENGTH, high=100_000_000)
    return min((text.whole(key, high=100_000_000) for key in LENGTHS if text.has(key)), default=NO_LENGTH)


def context_length(text: Section, model_type: str) -> int:
    """Tokens of the longest request that the config allows, after rope scaling."""
    base = _length(text)
    scaling = text.section("rope_scaling") or text.section("rope_parameters")
    if scaling is not None and scaling.text("rope_type", "type") not in {
        "",
        "su",
        "longrope",
        "llama3",
        "mrope",
        "default",
        "yarn",
    }:
        # vLLM multiplies the length by the factor for linear and dynamic scaling, not for gemma3 (config/model.py).
        factor = scaling.number("factor", 1.0, low=0.001, high=10_000)
        if not model_type.startswith("gemma3"):
            return int(base * factor)
    if scaling is not None and scaling.text("rope_type", "type") == "yarn":
        original = scaling.whole("original_max_position_embeddings", high=100_000_000, default=base)
        return max(base, int(original * scaling.number("factor", 1.0, low=0.001, high=10_000)))
    return base


def rope_tables(
    text: Section, rotary: int, layers: tuple[Attention, ...], model_type: str
) -> tuple[tuple[int, int], ...]:
    """The tables of rotary positions, each as rows and columns."""
    if model_type in {"bloom", "mpt", "jamba", *LEARNED_POSITIONS, *MAMBA_ONLY}:
        return ()
    rows = text.whole(COHERE_LENGTH, *LENGTHS, high=100_000_000, default=NO_LENGTH)
    scaling = text.section("rope_scaling") or text.section("rope_parameters")
    width = max(1, int(rotary * text.number("partial_rotary_factor", 1.0, low=0.001, high=1.0)))
    sliding = any(a.kind == "sliding" for a in layers)
    if text.has("global_head_dim"):
        # Gemma 4: a table for each kind of layer, as wide as its heads (gemma4_rope.py: rotary_dim = head_size).
        wide = text.whole("global_head_dim", high=8192)
        return ((rows, wide), *(((rows, rotary),) if sliding else ()))
    # Gemma 3 turns its sliding layers with a base of their own: without scaling too there are two tables (gemma3.py).
    tables = 2 if sliding and text.has("rope_local_base_freq") else 1
    if scaling is None:
        return ((rows, width),) * tables
    kind = scaling.text("rope_type", "type")
    factor = scaling.number("factor", 1.0, low=0.001, high=10_000)
    if scaling.has("mrope_section") and kind == "yarn":
        # MRotaryEmbedding stretches its four lengths by the factor (rotary_embedding/mrope.py).
        rows = int(scaling.whole("original_max_position_embeddings", high=100_000_000, default=rows) * factor)
    if scaling.has("mrope_section"):
        return ((4 * rows, width),)
    if kind == "yarn":
        rows = int(scaling.whole("original_max_position_embeddings", high=100_000_000, default=rows) * factor)
        return ((rows, width),)
    if kind == "linear":
        return ((int(rows * factor), width), *(((rows, width),) if sliding else ()))
    return ((rows, width),) * tables


def compressed_tables(text: Section, compressed: Compressed) -> tuple[tuple[int, int], ...]:
    """DeepSeek V4's, in 4 bytes a value: one of the layers that compress, one of those that do not
    (models/deepseek_v4/common/rope.py, rotary_embedding/deepseek_scaling_rope.py)."""
    rows = text.whole(*LENGTHS, high=100_000_000, default=NO_LENGTH)
    kinds = {ratio > 1 for ratio in compressed.ratios}
    return ((2 * rows, compressed.rope),) * len(kinds)
