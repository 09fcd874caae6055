"""From config.json to the mixer of layers that keep a state instead of a KV cache: Mamba, delta nets, convolutions."""

from math import ceil

from vllm_doctor.plan.model.architecture import LayerKind, Linear
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.families import MAMBA_ONLY


def linear_mixer(text: Section, hidden: int, kinds: set[LayerKind], model_type: str) -> Linear | None:
    """The mixer of the layers that keep a state; None where all of them attend."""
    state32 = text.text("mamba_ssm_dtype") == "float32"
    delta = text.section("linear_attn_config")
    if "linear" in kinds and delta is not None:
        heads, size = delta.whole("num_heads", high=4096), delta.whole("head_dim", high=4096)
        conv = delta.whole("short_conv_kernel_size", high=64, default=4)
        return Linear("gdn", heads, size, heads, size, conv, state_float32=True)
    if "linear" in kinds:
        return Linear(
            "gdn",
            key_heads=text.whole("linear_num_key_heads", high=4096),
            key_dim=text.whole("linear_key_head_dim", high=4096),
            value_heads=text.whole("linear_num_value_heads", high=4096),
            value_dim=text.whole("linear_value_head_dim", high=4096),
            conv=text.whole("linear_conv_kernel_dim", high=64, default=4),
            state_float32=state32,
        )
    if "conv" in kinds:
        return Linear("conv", 0, 0, 1, hidden, text.whole("conv_L_cache", high=64, default=3), state_float32=False)
    if "mamba" not in kinds:
        return None
    second = model_type == "mamba2"  # whose keys have no mark of the mixer
    counts = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", *(("num_heads",) if second else ()))
    heads = text.whole(*counts, low=0, high=65_536, default=0)
    conv = text.whole("mamba_d_conv", "conv_kernel", high=64, default=4)
    state = text.whole("mamba_d_state", "ssm_state_size", "state_size", high=4096, default=128)
    if heads:
        inner = text.whole(
            "mamba_d_head",
            "mamba_head_dim",
            *(("head_dim",) if model_type == "mamba2" else ()),
            high=65_536,
            default=64,
        )
        groups = text.whole("mamba_n_groups", "n_groups", "mamba_ngroups", high=4096, default=1)
        named = text.text("mamba_ssm_cache_dtype")
        return Linear("mamba2", groups, state, heads, inner, conv, state32, state_type=named)
    # Where the mixer is the whole layer, the model takes intermediate_size and not expand (mamba.py MambaDecoderLayer).
    expanded = text.whole("mamba_expand", "expand", high=64, default=2) * hidden
    inner = text.whole("intermediate_size", high=10_000_000, default=expanded) if model_type in MAMBA_ONLY else expanded
    state = text.whole("mamba_d_state", "state_size", high=4096, default=16)
    rank = text.values.get("mamba_dt_rank", text.values.get("time_step_rank"))
    step = rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 < rank <= hidden else ceil(hidden / 16)
    return Linear("mamba1", 1, state, 1, inner, conv, state32, step)
