"""What a release refuses of a quantization_config whatever the card: parts of one layer in different formats, caches,
packed integers and experts that compressed-tensors has no scheme for, algorithms of modelopt that it does not list."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.named import fused
from vllm_doctor.plan.model.quantization import Scheme, scheme
from vllm_doctor.plan.support.card import methods
from vllm_doctor.plan.terms.matrices import layer_matrices

_CONFIG = "quantization_config"
# Quantizers that look up each part of a fused layer and raise where they differ (quant_utils.py is_layer_skipped,
# compressed_tensors/utils.py should_ignore_layer; read in 0.6.4, 0.9.2, 0.14.1, 0.20.0 and 0.33.0).
_BY_PART = frozenset({"fp8", "compressed-tensors"})


def _out_of_sight(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """A quantization_config of the language model's section alone, where a release looks for one of the whole."""
    inside = a.quantization is not None and a.quantization.path.count(": ") > 1
    method = a.quantization.text("quant_method") if a.quantization is not None else ""
    if inside and s.quantization is None and method and s.does.quantization_of_the_whole:
        needed = f"--quantization {method}: vLLM {s.version} does not look into the language model's section for it"
        yield Refusal("--quantization", "not given", needed)


def _nameless(config: Section, s: Settings) -> Iterator[Refusal]:
    """No quant_method, which every release reads as a method that it has not (config/model.py _verify_quantization);
    from 0.10.1 on ModelOpt is known by its producer, if the algorithm stands within `quantization`."""
    if config.has("quant_method"):
        return
    producer, inner = config.section("producer"), config.section("quantization")
    by_modelopt = producer is not None and producer.text("name") == "modelopt"
    named = inner is not None and inner.has("quant_algo") and (by_modelopt or inner.has("modelopt_quant_config"))
    if not (named and s.does.knows_modelopt_by_producer):
        yield Refusal(_CONFIG, "no quant_method", "quant_method, the name of the method, in config.json")


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """Each thing that ends the start while the model is made."""
    config = a.quantization
    if config is None or s.gguf is not None:
        return
    yield from _out_of_sight(a, s)
    yield from _nameless(config, s)
    method = config.text("quant_method").lower().replace("_", "-")
    if method in _BY_PART:
        yield from _apart(a, s)
    if method == "compressed-tensors":
        yield from _cache_scheme(config)
        yield from _groups(a, s, config)
        yield from _turned(s, config)
    if method == "fp8" and a.name == "Qwen2MoeForCausalLM" and s.does.drops_scales_of_qwen2_experts:
        yield Refusal(
            _CONFIG, "experts stored in fp8", f"vLLM 0.5.2: {a.name} of {s.version} loads no scales of experts"
        )
    if method == "fp8" and s.does.joins_projections_of_states:
        yield from _joined(a, s)
    if method.startswith("modelopt"):
        table = history("models", "quantizations")
        if any(table.exists(name, s.version) for name in methods(a, s)):  # else it is refused already
            yield from _algorithm(s.version, config)
    bits = config.values.get("bits", config.values.get("w_bit"))
    known = {"awq": {4}, "gptq": {2, 3, 4, 8}}.get(method)
    if known is not None and isinstance(bits, int) and bits not in known and not s.does.plain_integer_methods:
        listed = " or ".join(map(str, sorted(known)))
        yield Refusal(_CONFIG, f"{method} of {bits} bits", f"{method.upper()} of {listed} bits")


def _joined(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """Qwen3-Next's two projections as one merged layer: each part must fill its blocks, on one card too."""
    first = next((i for i, layer in enumerate(a.layers) if layer.kind == "linear"), None)
    if a.model_type != "qwen3_next" or first is None or a.linear is None:
        return
    name = f"{a.text_prefix}.layers.{first}.linear_attn.in_proj_qkv"
    block = scheme(a.quantization, s.quantization, s.element).choose(name, False).block
    width = 2 * a.linear.value_heads
    if block and width % block:
        found = f"fp8 blocks of {block} in in_proj, where in_proj_ba has {width} outputs"
        yield Refusal(_CONFIG, found, f"vLLM 0.11.0, where they are two layers; in {s.version} they are one")


def _apart(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, for the first layer whose parts vLLM computes at once and the checkpoint stores unlike."""
    found = _unlike(a, s.quantization, s.element)
    if found is not None:
        yield Refusal(_CONFIG, found[0], f"one format for both: they are one layer, {found[1]}")


@lru_cache(maxsize=64)
def _unlike(a: Architecture, quantization: str | None, element: int) -> tuple[str, str] | None:
    """The two parts, and the layer's name. Kept: a search for cards asks it of each."""
    fmt: Scheme = scheme(a.quantization, quantization, element)
    prefix = f"{a.text_prefix}.layers"
    for index in range(len(a.layers)):
        found: dict[str, tuple[str, str]] = {}
        for matrix in layer_matrices(a, index, Parallel(), prefix):
            whole = fused(matrix.name)
            if matrix.vector or matrix.expert or whole == matrix.name:
                continue
            last, form = matrix.name.rpartition(".")[2], fmt.choose(matrix.name, matrix.expert).name
            other, before = found.setdefault(whole, (last, form))
            if before != form:
                return f"{other} {before} and {last} {form} in layer {index}", whole.rpartition(".")[2]
    return None


def _cache_scheme(config: Section) -> Iterator[Refusal]:
    """compressed_tensors.py validate_kv_cache_scheme, alike from 0.6.4 to 0.33.0."""
    cache = config.section("kv_cache_scheme")
    if cache is None:
        return
    bits, kind = cache.values.get("num_bits"), cache.text("type")
    if (bits, kind) != (8, "float"):
        yield Refusal(_CONFIG, f"kv_cache_scheme of {bits} bits, {kind or 'no type'}", "floats of 8 bits")
    elif cache.values.get("symmetric") is not True:
        yield Refusal(_CONFIG, "kv_cache_scheme that is not symmetric", "a symmetric one")


def _groups(a: Architecture, s: Settings, config: Section) -> Iterator[Refusal]:
    """One refusal, for the first group of layers that has no scheme."""
    groups = config.section("config_groups")
    for key in groups.values if groups is not None else ():
        group = groups.section(key) if groups is not None else None
        weights = group.section("weights") if group is not None else None
        if group is None or weights is None:
            continue
        told = _integers(a, s, group, weights) or _experts(a, group, weights)
        if told is not None:
            yield Refusal(_CONFIG, *told)
            return


def _integers(a: Architecture, s: Settings, group: Section, weights: Section) -> tuple[str, str] | None:
    """Packed integers (compressed_tensors_wNa16.py WNA16_SUPPORTED_TYPES_MAP; for experts the asserts of their own)."""
    if weights.text("type", default="int") != "int" or group.section("input_activations") is not None:
        return None
    bits, plain = weights.values.get("num_bits"), weights.values.get("symmetric") is not False
    if isinstance(bits, int) and bits not in {4, 8} and not s.does.packs_other_integers:
        return f"compressed-tensors, integers of {bits} bits", f"integers of 4 or 8 bits, which {s.version} packs"
    if a.moe is not None and not plain and s.does.packs_symmetric_experts:
        return "experts in integers with zero points", f"symmetric ones: {s.version} takes no others of experts"
    return None


def _experts(a: Architecture, group: Section, weights: Section) -> tuple[str, str] | None:
    """Experts whose inputs are quantized (compressed_tensors_moe_w8a8_int8.py and _fp8.py, read in 0.9.2 and later)."""
    inputs = group.section("input_activations")
    eight = weights.values.get("num_bits") == 8 and inputs is not None and inputs.values.get("num_bits") == 8
    if a.moe is None or inputs is None or not eight:
        return None
    fixed, by_channel = inputs.values.get("dynamic") is not True, weights.text("strategy") == "channel"
    if weights.text("type", default="int") == "int" and (fixed or not by_channel):
        return "experts in 8-bit integers with fixed or common scales", "scales by channel, and dynamic ones by token"
    if weights.text("type") == "float" and fixed and by_channel:
        return "experts in fp8 by channel with fixed scales of inputs", "dynamic scales by token"
    return None


def _turned(s: Settings, config: Section) -> Iterator[Refusal]:
    """Transforms that are computed at each step (compressed_tensors/transform/module.py HadamardTransform)."""
    transforms = config.section("transform_config")
    if transforms is None or s.parallel.tp == 1 or not s.does.turns_on_one_card:
        return
    groups = transforms.section("config_groups")
    for key in groups.values if groups is not None else ():
        one = groups.section(key) if groups is not None else None
        applied = one.values.get("apply") if one is not None else None
        places = (
            [each.get("location") for each in applied if isinstance(each, dict)] if isinstance(applied, list) else []
        )
        if {"input", "output"} & set(map(str, places)):
            yield Refusal("--tensor-parallel-size", str(s.parallel.tp), "1: the checkpoint is transformed at each step")
            return


def _algorithm(version: Version, config: Section) -> Iterator[Refusal]:
    inner = config.section("quantization")
    asked = (inner or config).text("quant_algo").upper()
    listed = _algorithms(version)
    if asked and listed and asked not in listed:
        table = history("models", "quantizations")
        first = next((release for release in table.releases if asked in _algorithms(release)), None)
        later = f"; {first} is the first to have it" if first is not None else ""
        yield Refusal(_CONFIG, f"quant_algo {asked}", f"{', '.join(listed)}, which {version} lists{later}")


def _algorithms(version: Version) -> list[str]:
    """The algorithms of modelopt that a release lists (quantization/modelopt.py QUANT_ALGOS)."""
    table = history("models", "quantizations")
    found = table.value("modelopt", version).get("algorithms") if table.exists("modelopt", version) else None
    return [str(name) for name in found] if isinstance(found, list) else []
