"""From config.json to the experts of a layer: how many there are, how wide, and of which layers."""

from vllm_doctor.plan.model.architecture import Moe
from vllm_doctor.plan.model.config_json import ConfigError, Section, of_each_layer
from vllm_doctor.plan.model.families import EXPERT_WIDTH_IS_INTERMEDIATE

# Experts of each token: the names that vLLM's models read (transformers_utils/config.py CONFIG_FIELD_ALIASES, models/).
CHOSEN_EXPERTS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
    "moe_experts_per_token",
    "top_k",
)
# The width of an expert; the first is hy_v3.py's, which reads it whatever else is named.
EXPERT_WIDTH = ("expert_hidden_dim", "moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size")
# What experts take and give, where it is another width than the hidden states' (nemotron_h.py, kimi_k3).
LATENT = ("moe_latent_size", "routed_expert_hidden_size")
# The width of all shared experts together (qwen2_moe.py, granitemoeshared.py, step3_text.py), and the width of one
# (nemotron_h.py, bailing_moe.py, sarvam.py).
ALL_SHARED = ("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim")
EACH_SHARED = "moe_shared_expert_intermediate_size"


def experts_of(text: Section, layers: int, width: int, model_type: str) -> Moe | None:
    """The experts, and which layers have them; None for a model without."""
    experts = text.whole(
        "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", low=0, high=100_000, default=0
    )
    if model_type.startswith("gemma4") and not text.flag("enable_moe_block", default=False):
        return None
    if experts <= 1:
        return None
    top_k = text.whole(*CHOSEN_EXPERTS, low=1, high=experts, default=1)
    if text.has(*EXPERT_WIDTH) and isinstance(of_each_layer(text.values.get("moe_intermediate_size", 0)), int):
        each = text.whole(*EXPERT_WIDTH, high=1_000_000)
    elif model_type in EXPERT_WIDTH_IS_INTERMEDIATE or not text.has("moe_intermediate_size"):
        each = width
    else:
        raise ConfigError(
            f"{text.path}: moe_intermediate_size is {text.values.get('moe_intermediate_size')!r}; needed: a whole "
            f"number"
        )
    shared = _shared_width(text, each, model_type)
    if model_type.startswith("llama4"):
        shared = each
    first = text.whole("first_k_dense_replace", low=0, high=layers, default=0)
    step = text.whole("decoder_sparse_step", "interleave_moe_layer_step", low=1, high=layers, default=1)
    dense = set(text.ints("mlp_only_layers", high=100_000))
    listed = text.ints("moe_layers", high=100_000)
    period = text.whole("expert_layer_period", low=0, high=layers, default=0)  # Jamba
    offset = text.whole("expert_layer_offset", low=0, high=layers, default=0)
    chosen = (
        frozenset(listed)
        if listed
        else frozenset(i for i in range(layers) if i % period == offset)
        if period
        else frozenset(i for i in range(layers) if i >= first and i not in dense and (i + 1) % step == 0)
    )
    return Moe(
        experts,
        top_k,
        each,
        shared,
        chosen,
        router_bias=text.text("topk_method") == "noaux_tc"
        or text.flag("use_routing_bias", default=False)
        or model_type == "gpt_oss",
        shared_gate=model_type.startswith(("qwen2_moe", "qwen3_next", "qwen3_5")),
        beside_mlp=model_type.startswith("gemma4"),  # gemma4.py: experts run parallel to the MLP
        latent=text.whole(*LATENT, low=0, high=1_000_000, default=0),
    )


def _shared_width(text: Section, each: int, model_type: str) -> int:
    """The width of the shared experts together, held as one MLP; without a name, each is as wide as an expert."""
    total = text.whole(*ALL_SHARED, low=0, high=1_000_000, default=0)
    if total:
        return total
    named = text.whole(EACH_SHARED, low=0, high=1_000_000, default=0)
    count = text.whole(
        "n_shared_experts",
        "num_shared_experts",
        "num_shared_expert",
        "moe_num_shared_experts",
        low=0,
        high=1000,
        default=1 if named else 0,
    )
    if named and model_type.startswith("param2moe"):
        return named if count else 0  # param2moe.py: this name is the width of all of them there
    return (named or each) * count
