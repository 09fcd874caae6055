"""What a release refuses of options alone or of options with the model, whatever the card: read in the wheels from
0.9.2 to 0.33.0; which release does which is in behaviours.json."""

from __future__ import annotations

import json
from collections.abc import Iterator

from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch import balanced
from vllm_doctor.plan.launch.cache_types import ENDS
from vllm_doctor.plan.launch.flags import Flags, whole
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.families import pools_by_name
from vllm_doctor.plan.model.quantization import AWQ_METHODS, GPTQ_METHODS

# Model types that float16 overflows (config/model.py _FLOAT16_NOT_SUPPORTED_MODELS).
NOT_IN_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
# Names by which a checkpoint of one kind may be asked for (the methods' override_quantization_method). A name that is
# in no kind is not judged: it may be a plugin's.
_AWQ, _GPTQ = frozenset(AWQ_METHODS), frozenset(GPTQ_METHODS)
_KINDS = (
    _AWQ,
    frozenset({"gptq", "gptq_marlin", "gptq_marlin_24", "gptq_bitblas", "auto_gptq", "exllamav2"}),
    frozenset({"fp8"}),
    frozenset({"compressed-tensors"}),
    frozenset({"bitsandbytes"}),
    frozenset({"mxfp4", "gpt_oss_mxfp4"}),
    frozenset({"gguf"}),
)

# Methods on their way out, of which some releases have none left (quantization/__init__.py
# DEPRECATED_QUANTIZATION_METHODS, read in 0.14.1, 0.19.1, 0.28.0 and 0.33.0).
_DEPRECATED = frozenset(
    {
        "bitblas",
        "deepspeedfp",
        "fbgemm_fp8",
        "fp_quant",
        "gptq_bitblas",
        "gptq_marlin_24",
        "hqq",
        "petit_nvfp4",
        "ptpc_fp8",
        "rtn",
        "tpu_int8",
    }
)

# Connectors that cannot follow the cache where sleep mode moves it (their supports_sleep_mode).
_AWAKE = frozenset(
    {"NixlConnector", "NixlPullConnector", "NixlPushConnector", "MoRIIOConnector", "MooncakeStoreConnector"}
)


def refusals_of_launch(flags: Flags, a: Architecture, par: Parallel, length: int, does: Behaviour) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts. Raises SettingError for values that are not of their
    kind."""
    yield from _ranks(flags, a, par, does)
    yield from _quantized(flags, a, does)
    yield from _compressed(a, does)
    yield from _cache(flags, a, length, does)
    yield from _classes(flags, a, does)
    if flags.on("enable-lora", default=False):
        loras, held = flags.int("max-loras", 1, 1, 10_000), flags.int("max-cpu-loras", 0, 0, 10**6)
        if held and held < loras:
            yield Refusal("--max-cpu-loras", str(held), f"at least --max-loras, {loras}")
    listed = flags.text("cudagraph-capture-sizes")
    largest = flags.int("max-cudagraph-capture-size", 0, 0, 10**6)
    if does.checks_capture_sizes and listed and largest:
        sizes = [whole("cudagraph-capture-sizes", n) for n in listed.replace(",", " ").strip("[]").split()]
        if sizes and max(sizes) != largest:
            yield Refusal("--max-cudagraph-capture-size", str(largest), f"the largest that is listed, {max(sizes)}")


def _classes(flags: Flags, a: Architecture, does: Behaviour) -> Iterator[Refusal]:
    """A generating model made a classifier: its checkpoint has a head of the vocabulary, and none of classes. One that
    takes its classes from words (classifier_from_token) makes the head of the vocabulary's."""
    made = flags.text("convert")
    alone = made not in {None, "auto", "none"} and flags.text("runner") in {None, "auto"}
    if alone and does.converts_what_generates and not pools_by_name(a.name):
        needed = "--runner pooling beside it: alone it leaves the runner to generate, and no pooler is made"
        yield Refusal("--convert", str(made), needed)
        return
    option = next((name for name in ("convert", "task") if flags.text(name) == "classify"), None)
    plain = a.quantization is None and flags.text("quantization") is None
    from_words = flags.text("hf-overrides") or ""
    generates = a.name.endswith("ForCausalLM") and "classifier_from_token" not in from_words
    if option is not None and generates and plain and does.asks_for_heads_of_classes:
        needed = (
            "a checkpoint with the weights of its classes, or classifier_from_token in --hf-overrides: "
            f"{a.name} has none, and score.weight is missing"
        )
        yield Refusal(f"--{option}", "classify", needed)


def _uneven(flags: Flags, a: Architecture, par: Parallel) -> Iterator[Refusal]:
    """Balanced experts divide by the ranks, spare copies and all (fused_moe/layer.py, since there is --enable-eplb)."""
    if a.moe is None or not par.expert or not flags.on("enable-eplb", default=False):
        return
    ranks = par.expert_split
    if (a.moe.experts + par.spare) % ranks:
        least = -a.moe.experts % ranks
        copies = f"num_redundant_experts {least} in --eplb-config" if least else "no num_redundant_experts"
        yield Refusal(
            "--enable-eplb", "set", f"{copies}, or more by {ranks}: {a.moe.experts} experts and copies divide by ranks"
        )


def _ranks(flags: Flags, a: Architecture, par: Parallel, does: Behaviour) -> Iterator[Refusal]:
    if par.expert and a.moe is None and does.refuses_experts_of_dense:
        yield Refusal("--enable-expert-parallel", "set", f"a model with experts; {a.name or a.model_type} is dense")
    here = flags.int("data-parallel-size-local", 0, 0, 4096)
    if does.refuses_experts_of_dense and here > max(par.dp, 1):
        yield Refusal("--data-parallel-size-local", str(here), f"at most --data-parallel-size, {par.dp}")
    if does.checks_balanced_experts and flags.on("enable-eplb", default=False):
        if not par.expert:
            yield Refusal("--enable-eplb", "set", "--enable-expert-parallel beside it")
        elif par.expert_split == 1:
            yield Refusal("--enable-eplb", "set", "more than one rank of tensor or data parallelism")
    yield from _uneven(flags, a, par)
    yield from balanced.refused(flags)
    split = flags.int("decode-context-parallel-size", 1, 1, 4096)
    if split == 1 or not does.checks_context_ranks:
        return
    if par.tp % split and par.prefill == 1:
        yield Refusal("--decode-context-parallel-size", str(split), f"a divisor of --tensor-parallel-size, {par.tp}")
    elif a.mla is None and a.kv_heads and split > max(par.tp // a.kv_heads, 1):
        most = max(par.tp // a.kv_heads, 1)
        why = f"ranks that hold the same of {a.kv_heads} KV heads in {par.tp}"
        yield Refusal("--decode-context-parallel-size", str(split), f"at most {most}, the {why}")
    elif a.mla is None and a.kv_heads and (a.heads // a.kv_heads) % split:
        each = a.heads // a.kv_heads
        yield Refusal("--decode-context-parallel-size", str(split), f"a divisor of {each}, the heads of one KV head")


def _deprecated(flags: Flags, a: Architecture, does: Behaviour) -> Iterator[Refusal]:
    """A method on its way out, asked for or of the checkpoint's own."""
    option = "allow-deprecated-quantization"
    if not does.refuses_deprecated_methods or flags.on(option, default=False):
        return
    asked = flags.text("quantization")
    method = asked or (a.quantization.text("quant_method").lower() if a.quantization is not None else "")
    if method in _DEPRECATED:
        yield Refusal(
            "--quantization" if asked else "quantization_config",
            method,
            f"--{option} beside it: it is being removed",
            beside=option,
        )


def _quantized(flags: Flags, a: Architecture, does: Behaviour) -> Iterator[Refusal]:
    yield from _deprecated(flags, a, does)
    asked_bits, loaded = flags.text("quantization") == "bitsandbytes", flags.text("load-format") == "bitsandbytes"
    if does.bits_by_two_options and asked_bits != loaded:
        given, missing = ("quantization", "load-format") if asked_bits else ("load-format", "quantization")
        yield Refusal(f"--{given}", "bitsandbytes", f"--{missing} bitsandbytes beside it")
    config = a.quantization
    if config is None:
        return
    stored, asked = config.text("quant_method").lower(), flags.text("quantization")
    if does.reads_no_stored_method and stored and asked is None:
        yield Refusal("--quantization", "not given", f"{stored}: this release does not look for it in config.json")
    if does.packed_bits_by_option and stored == "bitsandbytes" and not (asked_bits or loaded):
        needed = "bitsandbytes, and --quantization bitsandbytes: other loaders have no place for packed weights"
        yield Refusal("--load-format", flags.text("load-format") or "not given", needed)
    kind = next((k for k in _KINDS if stored in k), None)
    other = asked is not None and kind is not None and asked not in kind and any(asked in k for k in _KINDS)
    if other:
        yield Refusal("--quantization", str(asked), f"{stored}, as the checkpoint says, or no --quantization")
    bits = config.values.get("bits", config.values.get("w_bit"))
    if does.plain_integer_methods and isinstance(bits, int):
        symmetric = config.values.get("sym") is not False
        if stored in _GPTQ and not (bits in {4, 8} and symmetric):
            found = f"{stored} of {bits} bits" + ("" if symmetric else ", not symmetric")
            yield Refusal("quantization_config", found, "GPTQ of 4 or 8 bits, symmetric")
        if stored in _AWQ and bits != 4:
            yield Refusal("quantization_config", f"{stored} of {bits} bits", "AWQ of 4 bits")
    group = config.values.get("group_size")
    if does.refuses_activation_order and "gptq" in stored and config.values.get("desc_act") is True and group != -1:
        yield Refusal(
            "quantization_config",
            "desc_act true with groups",
            "a checkpoint with desc_act false: activation order within groups is no longer served",
        )


def _scales_cache(a: Architecture, does: Behaviour) -> str:
    """The checkpoint's method, where it has a method for the cache as well (BaseKVCacheMethod); empty otherwise."""
    config = a.quantization
    if config is None or a.mla is not None or not does.refuses_e5m2_of_scales:
        return ""  # of latents some methods scale none
    method = config.text("quant_method").lower()
    if method == "compressed-tensors":
        own = config.section("kv_cache_scheme") is not None
        return method if own or does.refuses_e5m2_of_packed else ""
    mixed = "MIXED" in config.text("quant_algo").upper()  # asks what its cache is, which may stand in another file
    return method if method == "fp8" or (method.startswith("modelopt") and not mixed) else ""


def _compressed(a: Architecture, does: Behaviour) -> Iterator[Refusal]:
    """What compressed-tensors no longer serves."""
    config = a.quantization
    if config is None or config.text("quant_method").lower().replace("_", "-") != "compressed-tensors":
        return
    sparse = config.section("sparsity_config")
    if does.refuses_sparse_checkpoints and sparse is not None and sparse.texts("targets"):
        yield Refusal("quantization_config", "a sparsity_config", "a checkpoint without one: it is no longer served")
    groups = config.section("config_groups")
    for key in groups.values if groups is not None and does.refuses_ordered_groups else ():
        group = groups.section(key) if groups is not None else None
        weights = group.section("weights") if group is not None else None
        order = str(weights.values.get("actorder")).lower() if weights is not None else ""
        if order in {"group", "dynamic"}:
            yield Refusal("quantization_config", f"actorder {order}", "a checkpoint with actorder static, or with none")
            return


def _cache(flags: Flags, a: Architecture, length: int, does: Behaviour) -> Iterator[Refusal]:
    block, caches = flags.int("mamba-block-size", 0), flags.on("enable-prefix-caching", default=True)
    if does.checks_state_block and block and block != length and not caches:
        yield Refusal("--mamba-block-size", str(block), "--enable-prefix-caching beside it")
    threshold = flags.int("long-prefill-token-threshold", 0)
    at_once = flags.int("max-num-partial-prefills", 1, -(10**6), 10**6)
    if threshold > length and (does.checks_prefill_threshold or at_once > 1):
        yield Refusal("--long-prefill-token-threshold", str(threshold), f"at most --max-model-len, {length}")
    layout = flags.text("kv-cache-dtype") or "auto"
    if a.mla is None and layout.endswith("_ds_mla"):
        yield Refusal("--kv-cache-dtype", layout, "a layout for keys and values: this is one of latent attention (MLA)")
    if layout == "fp8_e5m2" and (scaled := _scales_cache(a, does)):
        yield Refusal("--kv-cache-dtype", layout, f"fp8 or auto: {scaled} scales the cache itself, in fp8_e4m3")
    if does.refuses_nvfp4_latents and a.mla is not None and layout in {"nvfp4", "nvfp4_4over6"}:
        yield Refusal("--kv-cache-dtype", layout, "fp8 or auto: latent attention (MLA) has no such layout")
    kept = {"kv-cache-dtype-skip-layers", "disable-sliding-window"} & flags.values.keys()
    windows = len(a.layers) > 2 * ENDS and all(layer.kind == "sliding" for layer in a.layers)
    if does.sizes_windows_unpacked and layout.startswith("turboquant_") and windows and not kept:
        yield Refusal("--kv-cache-dtype", layout, "fp8 or auto: the release has it for no layer with a sliding window")
    transfer = flags.object("kv-transfer-config")
    if does.asks_connector_role and transfer.get("kv_connector") and not transfer.get("kv_role"):
        yield Refusal("--kv-transfer-config", json.dumps(transfer), "kv_role: kv_producer, kv_consumer or kv_both")
    connector = str(transfer.get("kv_connector"))
    if does.checks_sleep_of_connectors and connector in _AWAKE and flags.on("enable-sleep-mode", default=False):
        yield Refusal("--enable-sleep-mode", "set", f"a connector that follows it; {connector} does not")
