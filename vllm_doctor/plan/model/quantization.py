"""Bytes of a weight matrix under each quantization format, and which matrices a checkpoint leaves alone.

Layouts are the parameters that vLLM registers (model_executor/layers/quantization/*): packed values, scales, zero
points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import ceil

import msgspec

from vllm_doctor.plan.model.config_json import ConfigError, Section
from vllm_doctor.plan.model.named import Dynamic, Exceptions, ModuleNames, fused, spellings


class Format(msgspec.Struct, frozen=True):
    """Storage of one matrix: `bits` per value, one scale of `scale_bytes` per `group` values of the input side (0: per
    output channel; None: per tensor), or per block x block tile; zero points of `zero_bits` per group."""

    name: str
    bits: float
    group: int | None = None
    scale_bytes: float = 4.0
    zero_bits: float = 0.0
    block: int = 0
    index_bytes: int = 0  # per input channel: the activation order of GPTQ

    def bytes(self, out: int, inner: int) -> float:
        """Bytes of an (out x inner) matrix."""
        total = out * inner * self.bits / 8 + inner * self.index_bytes
        if self.block:
            return total + ceil(out / self.block) * ceil(inner / self.block) * self.scale_bytes
        if self.group is None:
            return total + self.scale_bytes
        groups = out * ceil(inner / self.group) if self.group else out
        return total + groups * (self.scale_bytes + self.zero_bits / 8)


def unquantized_format(width: int) -> Format:
    """Unquantized values of `width` bytes."""
    return Format("plain", 8 * width, None, 0.0)


FP8_TENSOR = Format("fp8", 8, None)
FP8_CHANNEL = Format("fp8", 8, 0)
INT8_CHANNEL = Format("int8", 8, 0)
NVFP4 = Format("nvfp4", 4, 16, 1.0)
MXFP4 = Format("mxfp4", 4, 32, 1.0)
FP8_LOADED = Format("fp8", 8, block=128)  # in blocks as it loads
MXFP8 = Format("mxfp8", 8, 32, 1.0)
# bitsandbytes: one fp32 absmax per 64 values. Doubly quantized, which is what vLLM does itself as it loads and most
# checkpoints are, absmax has one byte, and 256 of them one in 4 bytes (bitsandbytes_loader.py compress_statistics,
# before 0.9 loader.py); later releases undo that when loading.
BNB4 = Format("bnb4", 4, 64, 4.0)
BNB4_TWICE = Format("bnb4, doubly", 4, 64, 1 + 4 / 256)
BNB8 = Format("bnb8", 8, 0)

# The methods among which vLLM chooses for such a checkpoint, best first (their override_quantization_method).
AWQ_METHODS = ("auto_awq", "awq_marlin", "awq")
GPTQ_METHODS = ("auto_gptq", "gptq_marlin", "gptq")

# Bits per weight of GGUF types: block bytes over block values (ggml-common.h).
GGUF_BITS = {
    "F32": 32.0,
    "F16": 16.0,
    "BF16": 16.0,
    "Q8_0": 8.5,
    "Q6_K": 6.5625,
    "Q5_K": 5.5,
    "Q5_0": 5.5,
    "Q5_1": 6.0,
    "Q4_K": 4.5,
    "Q4_0": 4.5,
    "Q4_1": 5.0,
    "IQ4_NL": 4.5,
    "IQ4_XS": 4.25,
    "Q3_K": 3.4375,
    "IQ3_XXS": 3.0625,
    "IQ3_S": 3.4375,
    "Q2_K": 2.625,
    "IQ2_XXS": 2.0625,
    "IQ2_XS": 2.3125,
    "IQ2_S": 2.5625,
    "IQ1_S": 1.5625,
    "IQ1_M": 1.75,
}
# The mixed recipes store some matrices in a wider type; average over a llama-like model (llama.cpp quantize README).
_GGUF_MIXED = {
    "Q4_K_M": 4.83,
    "Q4_K_S": 4.57,
    "Q5_K_M": 5.67,
    "Q5_K_S": 5.52,
    "Q3_K_M": 3.89,
    "Q3_K_L": 4.25,
    "Q3_K_S": 3.48,
    "Q2_K": 3.16,
}


def gguf_bits(file: str) -> float | None:
    """Bits per weight that a GGUF file's name promises (…-Q4_K_M.gguf), or None."""
    stem = file.upper().removesuffix(".GGUF").replace("-", ".").replace("/", ".")
    for table in (_GGUF_MIXED, GGUF_BITS):
        for name, bits in sorted(table.items(), key=lambda item: -len(item[0])):
            if name in stem.split(".") or stem.endswith(name):
                return bits
    return None


Choose = Callable[[str, bool], Format]  # (module name, is it an expert?) → its format


class Scheme(msgspec.Struct, frozen=True):
    """How a checkpoint is quantized: a format for every module name. `exact` is False where the layout is a guess."""

    name: str
    choose: Choose
    exact: bool = True
    embeds: Format | None = None  # embeddings are quantized too (GGUF)
    fp8_activations: bool = False
    towers: bool = False  # is a tower quantized where nothing leaves it out?


def _int_bits(section: Section, key: str, default: int) -> int:
    return section.whole(key, low=1, high=32, default=default)


def _weights_format(weights: Section) -> Format:
    """A compressed-tensors or modelopt `weights` object as a Format."""
    bits = _int_bits(weights, "num_bits", 8)
    kind = weights.text("type", default="int")
    strategy = weights.text("strategy")
    group = weights.whole("group_size", low=-1, high=65_536, default=-1)
    if bits == 4 and kind == "float":
        return NVFP4 if group in {-1, 16} else Format("mxfp4", 4, group, 1.0)
    if bits == 8 and kind == "float":
        if strategy == "block":
            return Format("fp8", 8, block=128)
        if group == 32:
            return MXFP8
        return FP8_CHANNEL if strategy == "channel" else FP8_TENSOR
    if strategy in {"group", "tensor_group"} or group > 0:
        symmetric = weights.values.get("symmetric") is not False
        return Format(f"int{bits}", bits, max(group, 1), 2.0, 0.0 if symmetric else bits)
    return INT8_CHANNEL if bits == 8 else Format(f"int{bits}", bits, 0, 2.0)


def _grouped(config: Section, base: Format) -> Choose:
    """compressed-tensors and modelopt: groups with targets, minus `ignore`."""
    ignored = ModuleNames(config.texts("ignore"))
    groups = config.section("config_groups")
    chosen: list[tuple[ModuleNames, bool, Format]] = []
    for key in groups.values if groups is not None else ():
        group = groups.section(key) if groups is not None else None
        weights = group.section("weights") if group is not None else None
        if group is None or weights is None:
            continue
        targets = group.texts("targets")
        chosen.append((ModuleNames(targets), not targets or "Linear" in targets, _weights_format(weights)))

    def choose(name: str, _expert: bool) -> Format:
        if name in ignored:
            return base
        # A name goes before the class, and the head is no "Linear" (find_matched_target).
        named = next((fmt for names, _, fmt in chosen if name in names), None)
        linear = name != "lm_head"
        return named or next((fmt for _, every, fmt in chosen if every and linear), base)

    return choose


# Left alone whatever the list says (modelopt.py get_quant_method).
_MODELOPT = ("vision_tower", "vision_model", "vit_large_projector")


def _modelopt(config: Section, base: Format) -> Choose:
    algo = config.text("quant_algo").upper()
    single = {
        "FP8": FP8_TENSOR,
        "NVFP4": NVFP4,
        "W4A16_NVFP4": NVFP4,
        "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
        "MXFP8": MXFP8,
    }
    listed = config.section("quantized_layers")
    ignored = ModuleNames(
        [*config.texts("ignore"), *config.texts("exclude_modules"), *_MODELOPT], parts=True, wildcards=True
    )
    if listed is None:
        fmt = single.get(algo)
        if fmt is None:
            raise ConfigError(
                f"{config.path}: quant_algo is {algo!r}; needed: one of {', '.join(single)}, MIXED_PRECISION"
            )
        return lambda name, _expert: base if name in ignored else fmt
    left = ModuleNames([*config.texts("ignore"), *config.texts("exclude_modules")], parts=True, wildcards=True)
    layers: dict[str, Format] = {}
    for name in listed.values:
        each = listed.section(name)
        layers[name] = single.get(each.text("quant_algo").upper(), base) if each is not None else base

    def choose(name: str, _expert: bool) -> Format:
        if name in left:
            return base
        for spelled in spellings(name):  # vLLM renames the listed modules as it does the weights (apply_vllm_mapper)
            parts = spelled.split(".")
            trees = (".".join(parts[:i]) for i in range(len(parts), 0, -1))
            found = next((layers[tree] for tree in trees if tree in layers), None)
            if found is not None:
                return found
        return base

    return choose


def _packed(config: Section, base: Format, method: str) -> Choose:
    """awq, gptq and auto-round: one width and group size, with exceptions by name."""
    bits = _int_bits(config, "bits", 4)
    group = config.whole("group_size", low=-1, high=65_536, default=128)
    if not group:
        raise ConfigError(f"{config.path}: group_size is 0; needed: values that share a scale, or -1 for a whole row")
    zero = bits if method == "awq" or config.values.get("sym") is False else 0
    fmt = Format(
        f"{method}{bits}",
        bits,
        max(group, 0),
        2.0,
        zero,
        index_bytes=4 if method == "gptq" and config.values.get("desc_act") is True else 0,
    )
    skipped = ModuleNames(config.texts("modules_to_not_convert"), parts=method == "awq")
    head = config.flag("lm_head", default=False)
    given = config.section("extra_config") if method == "auto-round" else config.section("dynamic")
    exceptions = Exceptions(given.values if given is not None and method == "auto-round" else ())
    dynamic = Dynamic(given.values if given is not None and method == "gptq" else {})
    blocks = _auto_round_blocks(config) if method == "auto-round" else []

    def other(each: Section) -> Format:
        wide = _int_bits(each, "bits", bits)
        size = each.whole("group_size", low=-1, high=65_536, default=group)
        return base if wide >= 16 else Format(fmt.name, wide, max(size, 0), 2.0, fmt.zero_bits and wide)

    def choose(name: str, _expert: bool) -> Format:
        key = exceptions.of(name)
        if key is not None and given is not None and (each := given.section(key)) is not None:
            return other(each)
        settings = dynamic.of(name)
        if settings is False:
            return base
        if name == "lm_head" and not head:
            return base
        if (fused(name) if method == "awq" and _expert else name) in skipped:
            return base
        if blocks and not any(s.startswith(b) for b in blocks for s in spellings(name)):
            return base
        return other(Section(settings, f"{config.path}.dynamic")) if isinstance(settings, Mapping) else fmt

    return choose


def _auto_round_blocks(config: Section) -> list[str]:
    """The blocks whose layers auto-round packs: names with commas between them, or a list; empty where it is all of
    them (layers/quantization/inc.py from_config)."""
    key, value = config.find(("block_name_to_quantize", "to_quant_block_names"))
    names = config.texts(key) if isinstance(value, list) else config.text(key).split(",") if key else ()
    return [b for name in names if (b := name.strip())]


# Experts beside matrices in 8 bits (models/deepseek_v4/quant_config.py DeepseekV4FP8Config).
_EXPERTS = {"fp4": MXFP4, "nvfp4": NVFP4}


@lru_cache(maxsize=64)
def scheme(config: Section | None, online: str | None, element: int, gguf: str | None = None) -> Scheme:
    """The quantization of a launch: the checkpoint's own config, --quantization on a plain checkpoint, or a GGUF file.

    `element` is bytes per value of the model dtype. Raises ConfigError for a broken quantization_config. Kept: what it
    has found for a name is asked again with each launch that is tried.
    """
    base = unquantized_format(element)
    if gguf is not None:
        bits = gguf_bits(gguf)
        fmt = Format("gguf", bits or 4.83, None, 0.0)
        return Scheme("gguf", lambda _n, _e: fmt, exact=bits is not None, embeds=fmt)
    if config is None:
        return _online(online, base)
    method = config.text("quant_method").lower().replace("_", "-") or ("modelopt" if config.has("quant_algo") else "")
    # ignored_layers goes before the other key, and the head is no linear layer (fp8.py from_config, get_quant_method).
    left = config.texts("ignored_layers") or config.texts("modules_to_not_convert")
    skip = ModuleNames([*left, *config.texts("llm_int8_skip_modules"), "lm_head"], components=method == "bitsandbytes")
    if method in {"fp8", "fbgemm-fp8", "deepseek-v4-fp8"}:
        block = config.ints("weight_block_size", low=1, high=65_536)
        fmt = Format("fp8", 8, block=block[0]) if block else FP8_CHANNEL if method == "fbgemm-fp8" else FP8_TENSOR
        experts = _EXPERTS.get(config.text("moe_quant_algo").lower() or config.text("expert_dtype"), fmt)
        return Scheme(
            "fp8", lambda n, e: base if n in skip else experts if e else fmt, fp8_activations=True, towers=True
        )
    if method in {"compressed-tensors", "compressed-tensor"}:
        floats = "float" in config.text("format")
        return Scheme(method, _grouped(config, base), fp8_activations=floats, towers=True)
    if method.startswith("modelopt") or method == "modelopt":
        return Scheme("modelopt", _modelopt(config, base), towers=True)
    if method in {"awq", "gptq", "auto-round", "intel/auto-round", "autoround", "awq-marlin", "gptq-marlin"}:
        return Scheme(
            method,
            _packed(
                config, base, method.removesuffix("-marlin").replace("intel/", "").replace("autoround", "auto-round")
            ),
        )
    if method == "bitsandbytes":
        once = config.values.get("bnb_4bit_use_double_quant") is False
        fmt = BNB8 if config.values.get("load_in_8bit") is True else BNB4 if once else BNB4_TWICE
        return Scheme(method, lambda n, _e: base if n in skip else fmt)
    if method == "mxfp4":
        return Scheme(method, lambda _n, expert: MXFP4 if expert else base)
    if method == "quark":
        out = ModuleNames([*left, *config.texts("exclude"), "lm_head"], wildcards=True)
        return Scheme(method, lambda n, _e: base if n in out else FP8_TENSOR, exact=False)
    # A method whose layout is not written here: its own width where it states one, else one byte a value; the plan
    # says so.
    bits = config.whole("bits", "w_bit", "nbits", low=1, high=32, default=8)
    guess = Format(method or "unknown", bits, 128 if bits < 8 else None, 2.0)
    return Scheme(method or "unknown", lambda n, _e: base if n in skip else guess, exact=False)


# What these leave alone is every matrix that is no expert's (config/quantization.py _ONLINE_SHORTHANDS: no `linear`).
_EXPERTS_ALONE = frozenset({"experts_int8", "int8_per_channel_weight_only", "nvfp4_per_token"})


def _online(method: str | None, base: Format) -> Scheme:
    if method in {None, "", "auto"}:
        return Scheme("none", lambda _n, _e: base)
    head = ModuleNames(["lm_head"])
    formats = {
        "fp8": FP8_TENSOR,
        "fp8_per_tensor": FP8_TENSOR,
        "fp8_per_block": FP8_LOADED,
        "fp8_per_channel": FP8_CHANNEL,
        "int8_per_channel_weight_only": INT8_CHANNEL,
        "nvfp4_per_token": NVFP4,
        "bitsandbytes": BNB4_TWICE,
        "ptpc_fp8": FP8_CHANNEL,
        "mxfp8": MXFP8,
        "int8_per_channel": INT8_CHANNEL,
        "experts_int8": INT8_CHANNEL,
        "mxfp4": MXFP4,
        "fbgemm_fp8": FP8_CHANNEL,
    }
    fmt = formats.get(method or "")
    if fmt is None:
        raise ConfigError(
            f"--quantization {method}: the checkpoint has no quantization_config, and this method needs one; "
            f"methods that quantize while loading: {', '.join(sorted(formats))}"
        )
    chosen = fmt
    if method in _EXPERTS_ALONE:
        return Scheme(method, lambda _n, expert: chosen if expert else base)
    return Scheme(
        method or "", lambda n, _e: base if n in head else chosen, fp8_activations="fp8" in (method or ""), towers=True
    )
