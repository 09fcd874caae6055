"""What a release refuses because the class of the model has no code for it: adapters, stages, hidden states for a
drafter, text where it makes vectors. The classes say so themselves (knowledge/traits.py); where one is not known, or
another than the registry's runs, nothing is refused."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.traits import lacks
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import Architecture

# How a class of 0.5 and 0.6 says which matrices bitsandbytes packs; no other release knows the trait.
_STACKED = "bitsandbytes_stacked_params_mapping"


# Classes that assert of each layer that it is one, where another stage's are none (`assert isinstance(layer, …)` in the
# models' own files, read in 0.9.1 to 0.12.0): from which release on, and the first that looks.
_EACH_LAYER = {
    "DeepseekV2ForCausalLM": ("0.9.2", "0.10"),
    "DeepseekV3ForCausalLM": ("0.9.2", "0.10"),
    "Glm4MoeForCausalLM": ("0.10", "0.10.1"),
    "Llama4ForConditionalGeneration": ("0.11.1", "0.12"),
}


# Classes whose packed_modules_mapping leaves out gate_up_proj, which they have: its parts stay in 16 bits, and have no
# place (qwen2_5_vl.py; of the others in 0.6.4 to 0.33.0 none has gated layers that are stored apart).
_LEAVES_OUT = {"Qwen2_5_VLForConditionalGeneration": ("0.7.2", "0.7.3")}


def _among(classes: dict[str, tuple[str, str]], name: str, version: Version) -> bool:
    since, until = classes.get(name, (None, None))
    return since is not None and until is not None and as_version(since) <= version < as_version(until)


# Methods that the class itself takes; to 0.6.0 one beside it runs every other (model_loader/utils.py, before 0.4.1
# model_loader.py get_model_architecture), later fewer, which the card and the kernels decide.
_OF_ITS_OWN, _LATER = frozenset({None, "fp8", "compressed-tensors"}), "0.6.1"


def _running(a: Architecture, quantization: str | None, version: Version) -> str:
    """The class that runs: QuantMixtralForCausalLM in the place of Mixtral's own."""
    beside = f"Quant{a.name}"
    if quantization in _OF_ITS_OWN or version >= as_version(_LATER):
        return a.name
    return beside if history("models", "architectures").exists(beside, version) else a.name


def refused(
    flags: Flags,
    a: Architecture,
    par: Parallel,
    version: Version,
    does: Behaviour,
    *,
    method: str | None,
    quantization: str | None,
) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts."""
    if flags.text("model-impl") not in {None, "auto", "vllm"}:
        return

    running = _running(a, quantization, version)

    def without(trait: str) -> bool:
        return lacks(running, trait, version)

    if par.pp > 1 and does.makes_no_stages:
        yield Refusal("--pipeline-parallel-size", str(par.pp), f"1: vLLM {version} makes no stages; 0.5.1 is the first")
    elif par.pp > 1 and (without("supports_pp") or _among(_EACH_LAYER, a.name, version)):
        yield Refusal("--pipeline-parallel-size", str(par.pp), f"1: vLLM {version} makes no stages of {running}")
    if flags.on("enable-lora", default=False) and without("supports_lora"):
        yield Refusal("--enable-lora", "set", f"no --enable-lora: vLLM {version} has no adapters for {running}")
    if method == "eagle3" and without("supports_eagle3"):
        yield Refusal(
            "--speculative-config",
            "method eagle3",
            f"another method: {a.name} of vLLM {version} gives a drafter no hidden states",
        )
    if without("compute_logits"):
        for option in ("runner", "task"):
            if flags.text(option) == "generate":
                yield Refusal(f"--{option}", "generate", f"no --{option}: {a.name} makes no text in vLLM {version}")
    if does.refuses_items_of_text and flags.text("limit-mm-per-prompt") and without("supports_multimodal"):
        yield Refusal(
            "--limit-mm-per-prompt",
            str(flags.text("limit-mm-per-prompt")),
            f"no --limit-mm-per-prompt: {a.name} takes text alone",
        )
    packs = (does.bits_by_packed_modules and without("packed_modules_mapping")) or without(_STACKED)
    if quantization == "bitsandbytes" and (packs or _among(_LEAVES_OUT, a.name, version)):
        yield Refusal(
            "--quantization", quantization, f"another method: vLLM {version} has no bitsandbytes for {a.name}"
        )
