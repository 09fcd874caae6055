"""Does the release have a kernel for the experts' format on this card, where it chooses one without asking the card?"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from vllm_doctor.knowledge.generations import BLACKWELL, RTX_BLACKWELL, THOR
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.traits import lacks
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Dependence, Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import INT8_CHANNEL, NVFP4, scheme
from vllm_doctor.plan.support.asked_facts import FactTest
from vllm_doctor.plan.support.card import methods
from vllm_doctor.plan.support.without_experts import unable
from vllm_doctor.plan.terms.matrices import first_expert, layer_matrices

# Generations that FlashInfer's kernel of experts is compiled for (fused_moe/flashinfer_cutlass_moe.py of 0.15.1).
_FLASHINFER = frozenset({9, 10, 11, 12})


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """Experts without a gate on a card that FlashInfer's kernel does not know; NVFP4 experts on compute capability
    12.x, where the compiled kernel is of 10.0 alone and Marlin, which would do, stands back because the card multiplies
    four bits."""
    yield from _for_few_tokens(a, s)
    yield from _on_one_rank(a, s)
    yield from _asked(a, s, gpu)
    yield from _ungated(a, s)
    yield from _unbalanced(a, s, gpu)
    if gpu is None or gpu.capability is None or a.moe is None:
        return
    if _without_gate(a, s) and int(gpu.capability) not in _FLASHINFER:
        yield Refusal(
            "quantization_config",
            f"quantized experts without a gate on {gpu.name}, compute capability {gpu.capability}",
            f"vLLM 0.16.0 or later: in {s.version} only FlashInfer's kernel takes them, of 9.0, 10.x and 12.x",
        )
        return
    yield from _cut_scales(a, s, gpu)
    yield from _ungrouped(a, s, gpu)
    if int(gpu.capability) != RTX_BLACKWELL:  # and GB10: they multiply four bits, with machine code that differs
        return
    if not s.does.four_bit_experts_on_ten_alone or s.flashinfer_experts:
        return
    fmt = scheme(a.quantization, s.quantization, s.element, s.gguf)
    if fmt.choose(first_expert(a), True) == NVFP4 and _in_four_bits(a):
        yield Refusal(
            "quantization_config",
            f"NVFP4 experts on {gpu.name}, compute capability {gpu.capability}",
            f"vLLM 0.13.0 or later, whose kernel of grouped matrices has code for it; that of {s.version} has code for "
            f"10.0 alone",
        )


# Models whose experts run in a kernel of their own where one is asked for (models/deepseek_v4, kimi_k3).
_OWN = frozenset({"deepseek_v4", "kimi_k3"})
_FLOATS = frozenset({"fp8", "compressed-tensors", "modelopt"})


# Formats of experts by the file of fused_moe/oracle that chooses their kernel, in words.
_KINDS = {
    "unquantized": "that are not quantized",
    "fp8": "in fp8",
    "nvfp4": "in NVFP4",
    "mxfp4": "in MXFP4",
    "int_wna16": "in packed integers",
    "int8": "in 8-bit integers with their inputs",
}


def _kind(a: Architecture, s: Settings) -> str:
    """The format of the experts; "" for one whose choice of a kernel is not known here, as with adapters."""
    if a.moe is None or s.gguf is not None:
        return ""
    if a.quantization is None and s.quantization is None:
        return "" if s.loras else "unquantized"
    fmt = scheme(a.quantization, s.quantization, s.element, s.gguf)
    form = fmt.choose(first_expert(a), True)
    if fmt.name in _FLOATS and (form == NVFP4 or form.name == "fp8"):
        return form.name
    if s.loras:
        return ""
    if methods(a, s)[:1] in {("mxfp4",), ("gpt_oss_mxfp4",)}:
        return "mxfp4"
    if form == INT8_CHANNEL and fmt.name == "compressed-tensors" and _in_four_bits(a):
        return "int8"
    # What Marlin does not take goes to moe_wna16, which asks nothing of the option in most releases.
    whole = a.moe.width % ((1 if s.parallel.expert else s.parallel.width_split) * _FEW_TOKENS) == 0
    return "int_wna16" if fmt.name in _PACKED and form.bits == 4 and form.group in _GROUPS and whole else ""


# What asks for one of FlashInfer's kernels by a variable (to 0.23).
_FLASHINFER_ASKED = "VLLM_USE_FLASHINFER_MOE_FP4"
_OPTION = "--moe-backend"


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _asked(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """Kernels of experts that are asked for by name and that the experts' format has not, the card cannot run or that
    take no experts without a gate (fused_moe/oracle/fp8.py map_fp8_backend and its like, read from each wheel)."""
    if a.moe is None or a.model_type in _OWN:
        return
    kind = _kind(a, s)
    table = history("kernels", "moe_by_format")
    record = table.value(kind, s.version) if kind and table.exists(kind, s.version) else {}
    listed, asked = record.get("names"), record.get("on")
    if s.moe_backend is not None and isinstance(listed, list) and s.moe_backend not in listed:
        names = ", ".join(name for name in map(str, listed) if name != "auto")
        yield Refusal(
            _OPTION,
            s.moe_backend,
            f"auto, or one of {names}: {s.version} has it not for experts {_KINDS[kind]}",
        )
    elif isinstance(asked, Mapping) and gpu is not None and gpu.capability is not None and gpu.backend == "CUDA":
        flag, value = _by_name(a, s, kind)
        test = asked.get(value if flag == _OPTION else flag)
        facts = {"capability": gpu.capability, "major": int(gpu.capability), "gated": a.gated_mlp}
        if test is not None and FactTest(facts).value(_tree(str(test))) is False:
            gate = FactTest({**facts, "gated": True}).value(_tree(str(test))) is not False
            what = "without a gate" if gate else f"{_KINDS[kind]} on compute capability {gpu.capability}"
            instead = "auto" if flag == _OPTION else "unset"
            yield Refusal(flag, value, f"{instead}: that kernel runs no experts {what} in {s.version}")


def _by_name(a: Architecture, s: Settings, kind: str) -> tuple[str, str]:
    """What asks for a kernel of experts, and its value; two empty texts where nothing does."""
    if s.moe_backend not in {None, "auto"}:
        return _OPTION, str(s.moe_backend)
    four = kind == NVFP4.name and _in_four_bits(a)
    return (_FLASHINFER_ASKED, "1") if s.flashinfer_experts and four else ("", "")


def _unbalanced(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """Experts that nothing balances: their method says no where they are made (fused_moe/layer.py), or the first model
    runner asserts, in the step that it profiles, that the class hands its experts over (models/interfaces.py
    MixtureOfExperts; v1/worker/gpu_model_runner.py eplb_step)."""
    if not s.balances or s.engine != "V1":
        return
    method = unable(a, s, gpu, "no_balanced_experts")
    inner = a.vision is not None and s.does.balances_text_models
    alone = not s.v2_runner and not inner and lacks(a.name, "balanced_experts", s.version)
    if method is not None or alone:
        what = f"experts of {a.name}" if method is None else f"experts in {method}"
        yield Refusal("--enable-eplb", "set", f"no --enable-eplb: vLLM {s.version} balances no {what}")


# Classes whose router has a bias and no groups, with the scores of DeepSeek's (models/minimax_m2.py of 0.16.0; the
# others of that release with such scores give num_expert_group).
_UNGROUPED = frozenset({"MiniMaxM2ForCausalLM"})


def _ungrouped(a: Architecture, s: Settings, gpu: Card) -> Iterator[Refusal]:
    """Experts in blocks of fp8 on compute capability 10.x, where the first kernel of the list is TensorRT-LLM's."""
    chosen = BLACKWELL <= (gpu.capability or 0) < THOR and not s.no_flashinfer_fp8 and s.moe_backend in {None, "auto"}
    if a.name in _UNGROUPED and chosen and s.does.routes_ungrouped_by_groups and _kind(a, s) == "fp8" and not s.loras:
        yield Refusal(
            "VLLM_USE_FLASHINFER_MOE_FP8",
            "not set",
            f"0: FlashInfer's kernel, which {s.version} takes for them there, asks for groups of experts",
        )


def _splitting(par: Parallel) -> tuple[str, str]:
    """The option by which ranks share each expert's width."""
    return ("--tensor-parallel-size", str(par.tp)) if par.tp > 1 else ("--data-parallel-size", str(par.dp))


def _cut_scales(a: Architecture, s: Settings, gpu: Card) -> Iterator[Refusal]:
    """NVFP4 experts of which a rank holds a part of a group: their scales are counted in whole groups alone (modelopt
    and compressed_tensors_moe create_weights: size // group), so that Marlin, which runs them below compute capability
    10.0, finds too few of them for the inputs (up to 0.20 its repack takes no such size at all)."""
    par = s.parallel
    if a.moe is None or par.width_split == 1 or a.moe.width % par.width_split or (gpu.capability or 0) >= BLACKWELL:
        return
    fmt = scheme(a.quantization, s.quantization, s.element, s.gguf)
    form = fmt.choose(first_expert(a, "down_proj"), True)
    each, group = a.moe.width // par.width_split, NVFP4.group or 1
    if form == NVFP4 and each % group:
        yield Refusal(
            *_splitting(par),
            f"--enable-expert-parallel, or groups of {group} whole on each rank: the {a.moe.width} inputs of down_proj "
            f"give {each}",
        )


# What Marlin's kernel of experts asks of a rank's part beside whole groups, and moe_wna16's for few tokens; the groups
# that they take (marlin_utils.py check_moe_marlin_supports_layer, fused_moe.py should_moe_wna16_use_cuda).
_MARLIN, _FEW_TOKENS, _GROUPS = 64, 128, frozenset({32, 64, 128})
_PACKED = frozenset({"compressed-tensors", "awq", "awq-marlin", "gptq", "gptq-marlin"})


def _for_few_tokens(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """Packed experts of which a rank holds no multiple of 128: Marlin stands back, and the kernel that takes few tokens
    raises when the smallest graphs are captured. Without graphs the start goes well, and the first request raises."""
    par = s.parallel
    if a.moe is None or not s.does.packed_experts_by_wna16 or s.eager or par.expert or a.moe.width % par.width_split:
        return
    fmt = scheme(a.quantization, s.quantization, s.element, s.gguf)
    form = fmt.choose(first_expert(a, "down_proj"), True)
    if fmt.name not in _PACKED or form.bits != 4 or form.name == "mxfp4" or form.group not in _GROUPS:
        return
    each = a.moe.width // par.width_split
    if each % max(_MARLIN, form.group) and each % _FEW_TOKENS:
        yield Refusal(
            *_splitting(par),
            f"a size that splits the {a.moe.width} inputs of down_proj of the experts into multiples of {_FEW_TOKENS}: "
            f"moe_wna16's kernel for few tokens takes no other; with {each} for each rank the capture of graphs fails",
        )


def _on_one_rank(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """Experts of Marlin's own kernel, which at first takes none that are spread over ranks."""
    if not (s.does.marlin_experts_on_one_rank and s.parallel.expert and s.parallel.expert_split > 1):
        return
    fmt = scheme(a.quantization, s.quantization, s.element, s.gguf)
    if a.moe is not None and fmt.name in {"awq", "awq-marlin", "compressed-tensors"}:
        form = fmt.choose(first_expert(a, "down_proj"), True)
        if form.bits == 4 and form.group in _GROUPS:
            needed = f"no --enable-expert-parallel: {s.version} spreads no experts in packed integers"
            yield Refusal("--enable-expert-parallel", "set", needed)


def doubts(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[str]:
    """One sentence, where a kernel of another package is the only one."""
    if gpu is not None and gpu.capability is not None and _without_gate(a, s) and int(gpu.capability) in _FLASHINFER:
        yield (
            f"quantized experts without a gate, as {a.name or a.model_type} has, run in vLLM {s.version} on "
            f"FlashInfer's kernel alone; the launch does not show whether FlashInfer is installed and takes their "
            f"scales. If not, the start ends; 0.16.0 has other kernels"
        )


def depends(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Dependence]:
    """On triton_kernels, where MXFP4 experts run on them if they are installed, without a look at how new the card
    is, and else on Marlin's, which run there."""
    if gpu is None or gpu.capability is None or gpu.capability < THOR:  # triton_kernels runs them
        return
    if s.marlin_experts and s.does.asks_for_marlin_experts:
        return
    if a.moe is not None and s.does.triton_experts_of_any_card and methods(a, s)[:1] == ("gpt_oss_mxfp4",):
        yield Dependence(
            "whether triton_kernels is installed",
            f"with it {s.version} runs MXFP4 experts on kernels that fail on "
            f"compute capability {gpu.capability}, without it on Marlin's, which work. `pip show triton_kernels` "
            f"settles it; 0.12.0 takes Marlin's there",
        )


def _ungated(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """Quantized experts without a gate in a release that takes those of ModelOpt alone."""
    if a.moe is None or a.gated_mlp or not s.does.ungated_experts_of_modelopt:
        return
    fmt = scheme(a.quantization, s.quantization, s.element, s.gguf)
    above = f"{a.text_prefix}.layers"
    listed = (matrix for index in sorted(a.moe.layers) for matrix in layer_matrices(a, index, Parallel(), above))
    form = next((fmt.choose(matrix.name, True) for matrix in listed if matrix.expert), None)
    if form is None or form.bits >= 16:
        return
    only = "" if not s.does.ungated_experts_in_fp8_alone else " in fp8"
    if fmt.name != "modelopt" or (only and form.name != "fp8"):
        yield Refusal(
            "--quantization" if s.quantization else "quantization_config",
            f"{fmt.name} experts without a gate",
            f"a checkpoint of ModelOpt{only}, or vLLM 0.15.0: {s.version} takes no others",
        )


def _without_gate(a: Architecture, s: Settings) -> bool:
    """Are these experts of one matrix and a down projection, in 8-bit floats or NVFP4 (oracle/fp8.py, nvfp4.py)?"""
    if a.moe is None or a.gated_mlp or not s.does.gates_of_experts_asked or a.quantization is None:
        return False
    fmt = scheme(a.quantization, s.quantization, s.element, s.gguf)
    form = fmt.choose(first_expert(a), True)
    return form == NVFP4 or form.name == "fp8"


def _in_four_bits(a: Architecture) -> bool:
    """Are the inputs of the experts rounded to four bits too? What has weights alone in four bits runs on Marlin."""
    config = a.quantization
    if config is None:
        return False
    groups, method = config.section("config_groups"), config.text("quant_method")
    if groups is None or method.startswith("modelopt"):
        return True
    found = [groups.section(key) for key in groups.values]
    return any(group is not None and group.section("input_activations") is not None for group in found)
