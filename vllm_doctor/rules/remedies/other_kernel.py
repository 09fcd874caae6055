"""The one setting that runs another kernel in place of the one that failed.

Where none of the calls belongs to a kind of kernel, the next run is asked to name it (CUDA_LAUNCH_BLOCKING).
"""

from vllm_doctor.knowledge import kernels
from vllm_doctor.knowledge.version import Version
from vllm_doctor.log import chosen_kernels
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Applicability, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.gates.rocm import on_rocm
from vllm_doctor.rules.remedies.attention_backend import other_attention
from vllm_doctor.rules.remedies.compilation import with_passes_off, without_compiling, without_graphs
from vllm_doctor.rules.remedies.kernel_kind import KernelKind, called, kernel_kind, log_lines, operators
from vllm_doctor.rules.remedies.step import eager
from vllm_doctor.rules.say import environment, set_flag

# What else multiplies them, by the weights' type (`_LINEAR_BACKEND_KERNEL_MAP` of 0.22.0 to 0.33.0).
_NOT_MARLIN = (
    "Marlin's kernel for this product failed: flashinfer_cutlass or cutlass multiplies NVFP4, cutlass or torch FP8, "
    "machete, exllama or conch integers (GPTQ, AWQ), where the card has code for it"
)
# The first release whose Triton attention takes heads of any size.
_ANY_HEAD = Version((0, 11))
# How vLLM names weights of four bits in its choice of the experts' kernels.
_FOUR_BITS = ("nvfp4", "mxfp4", "wna16", "w4", "int4")


def other_kernel(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """Another kernel in place of the one that failed: exact settings, the least loss first; else how to learn which."""
    return in_its_place(case, fault) or (_name_it(case),)


def in_its_place(case: Case, fault: Fault) -> tuple[Change, ...]:
    """The same; empty where no setting is known, for a kernel that names itself."""
    failed = kernel_kind(case, fault)
    return tuple(c for c in _REMEDIES[failed](case, fault) if c is not None) if failed is not None else ()


def _name_it(case: Case) -> Change | None:
    name, to = ("AMD_SERIALIZE_KERNEL", "3") if on_rocm(case) else ("CUDA_LAUNCH_BLOCKING", "1")
    if case.env(name) == to:
        return eager(case)
    return environment(
        name,
        Direction.SET,
        (
            "shows which kernel failed: the driver reported the error at a later call. With this variable set, "
            "the next traceback ends at the failing kernel (slow; with --enforce-eager also inside graphs). Diagnose "
            "that log, then remove the variable"
        ),
        to=to,
        applicability=Applicability.NEEDS_REVIEW,
    )


def _passes(case: Case) -> tuple[str, ...]:
    """Fusions that are on; those of the all-reduce alone where they are among them: they write into other GPUs."""
    on = chosen_kernels.enabled_passes(log_lines(case))
    return tuple(p for p in on if "allreduce" in p) or on


def _tuning(case: Case, _: Fault) -> tuple[Change | None, ...]:
    why = (
        "Inductor failed while it tested kernels; without torch.compile vLLM tests no kernels, and CUDA graphs stay on"
    )
    return (without_compiling(case, why) or eager(case),)


def _compiled(case: Case, _: Fault) -> tuple[Change | None, ...]:
    on = _passes(case)
    named = ", ".join(on)
    return (
        with_passes_off(case, on, f"the log says that the failing code was compiled with this fusion: {named}"),
        without_compiling(case, "torch.compile made the failing code; without it the kernels of the layers run")
        or eager(case),
    )


def _graph(case: Case, _: Fault) -> tuple[Change | None, ...]:
    why = (
        "the failure came while a graph was captured or replayed; without graphs vLLM launches the "
        "compiled kernels one by one"
    )
    return (
        without_graphs(case, why)
        or eager(case, "vLLM failed inside a CUDA graph, and captures no graph with this option"),
    )


def _all_reduce(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    fused = tuple(p for p in chosen_kernels.enabled_passes(log_lines(case)) if "allreduce" in p)
    files = " ".join(called(case, fault))
    return (
        with_passes_off(case, fused, "the log says that the all-reduce was fused with the norm after it"),
        _switched_off(case, "VLLM_ALLREDUCE_USE_SYMM_MEM", "symmetric memory")
        if says(files, "call-symmetric-memory")
        else None,
        _switched_off(case, "VLLM_ALLREDUCE_USE_FLASHINFER", "FlashInfer") if says(files, "call-flashinfer") else None,
        set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "uses NCCL's all-reduce instead of vLLM's")
        if not chosen_kernels.all_reduce(log_lines(case)) or "CUSTOM" in chosen_kernels.all_reduce(log_lines(case))
        else None,
    )


def _switched_off(case: Case, name: str, what: str) -> Change | None:
    """A variable set to 0, where this release reads it."""
    if case.has_env(name) is None or case.env(name) == "0":
        return None
    return environment(
        name,
        Direction.SET,
        f"takes the next implementation instead of {what}",
        to="0",
        applicability=Applicability.NEEDS_REVIEW,
    )


def _sampler(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    flash = any(says(file, "call-flashinfer") for file in called(case, fault))
    return (_switched_off(case, "VLLM_USE_FLASHINFER_SAMPLER", "FlashInfer's sampler"),) if flash else ()


def _autotuner(case: Case, _: Fault) -> tuple[Change | None, ...]:
    why = "FlashInfer then uses its default kernels without trying others"
    return (set_flag(case, "enable-flashinfer-autotune", False, Direction.SET, why),)


# Before there was an option for the experts' kernels, a variable for each kind of weights asked for FlashInfer's.
_FLASHINFER_EXPERTS = {
    "Unquantized": "VLLM_USE_FLASHINFER_MOE_FP16",
    "Fp8": "VLLM_USE_FLASHINFER_MOE_FP8",
    "NvFp4": "VLLM_USE_FLASHINFER_MOE_FP4",
}


def _experts(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    said = chosen_kernels.moe(log_lines(case))
    files = " ".join(called(case, fault))
    now = said.name if said is not None else ""
    if said is None and not says(files, "call-tuned-experts"):
        return ()  # Triton's own, which the others are measured against
    to = "marlin" if said is not None and any(bits in said.kind.lower() for bits in _FOUR_BITS) else "triton"
    at = case.release
    if now != to.upper() and kernels.has("moe", to, at):
        why = f"the experts now run on {now}" if now else "Triton's kernels for experts run on any of these GPUs"
        return (set_flag(case, "moe-backend", to, Direction.SET, why),)
    if says(files, "call-deep-gemm"):
        return (_switched_off(case, "VLLM_USE_DEEP_GEMM", "DeepGEMM"),)
    if said is not None and "FLASHINFER" in now and said.kind in _FLASHINFER_EXPERTS:
        return (_switched_off(case, _FLASHINFER_EXPERTS[said.kind], "FlashInfer's experts"),)
    return ()


def _state(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    flash = any(says(file, "call-flashinfer-or-cute") for file in called(case, fault))
    why = "the kernels of Triton/FLA run on any of these GPUs"
    return (set_flag(case, "gdn-prefill-backend", "triton", Direction.SET, why),) if flash else ()


def _draft(case: Case, _: Fault) -> tuple[Change | None, ...]:
    if case.effective("speculative-config") is None:
        return ()
    why = "the draft model failed; without it the model computes every token itself, only slower"
    return (set_flag(case, "speculative-config", None, Direction.REMOVE, why),)


def _matrix(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    if any(says(file, "call-deep-gemm") for file in called(case, fault)):
        return (_switched_off(case, "VLLM_USE_DEEP_GEMM", "DeepGEMM"),)
    name = chosen_kernels.linear(log_lines(case))
    if name is None:
        return (_other_product(case, fault),)
    to = _other_linear(name)
    if to is not None and kernels.has("linear", to, case.release):
        why = f"the log says that {name} multiplies these weights; this kernel is written for every card of this vendor"
        return (set_flag(case, "linear-backend", to, Direction.SET, why),)
    if case.has_env("VLLM_DISABLED_KERNELS") is None or case.env("VLLM_DISABLED_KERNELS"):
        return ()
    why = f"the log says that {name} multiplies these weights; without it vLLM takes the next kernel that can"
    return (
        environment("VLLM_DISABLED_KERNELS", Direction.SET, why, to=name, applicability=Applicability.NEEDS_REVIEW),
    )


def _other_linear(name: str) -> str | None:
    """The value of --linear-backend in place of a kernel's class: Triton's multiplies integers and FP8 in blocks,
    Marlin's all other quantized weights (`_LINEAR_BACKEND_KERNEL_MAP` of 0.22.0 to 0.33.0). None where it is that one
    already, or another vendor's."""
    if any(vendor in name for vendor in ("Aiter", "ROCm", "XPU", "CPU")):
        return None
    to = "triton" if "Int8" in name or "BlockScaled" in name else "marlin"
    return None if name.lower().startswith(to) else to


def _other_product(case: Case, fault: Fault) -> Change | None:
    """Another kernel than CUTLASS' or FlashInfer's for scaled products, where only the calls tell which one failed."""
    if any(says(file, "call-flashinfer") for file in called(case, fault)):
        return _other_than_flashinfers(case)
    calls = " ".join((*fault.functions, *operators(fault)))
    if "marlin" in calls and case.effective("linear-backend") in {None, "auto", "marlin"}:
        return set_flag(case, "linear-backend", None, Direction.CHANGE, _NOT_MARLIN)
    if "cutlass" not in calls or case.effective("linear-backend") not in {None, "auto", "cutlass"}:
        return None
    to = "marlin" if "fp4" in calls else "triton" if "block" in calls else "torch"
    why = "CUTLASS' kernel for this product failed; another kernel multiplies the same weights"
    if kernels.has("linear", to, case.release):
        return set_flag(case, "linear-backend", to, Direction.SET, why)
    forced = "VLLM_TEST_FORCE_FP8_MARLIN"
    if "int8" in calls or "fp4" in calls or case.has_env(forced) is None or case.env(forced) == "1":
        return None
    return environment(forced, Direction.SET, f"{why}: Marlin's, in releases without an option for it", to="1")


def _other_than_flashinfers(case: Case) -> Change | None:
    """Marlin's product for FP8 and FP4 weights alike; before there was an option, of FP4 weights vLLM's own."""
    why = "FlashInfer's kernel for this product failed; another kernel multiplies the same weights"
    if kernels.has("linear", "marlin", case.release):
        return set_flag(case, "linear-backend", "marlin", Direction.SET, why)
    variable = "VLLM_NVFP4_GEMM_BACKEND"
    if case.has_env(variable) is None or case.env(variable) == "cutlass":
        return None
    return environment(
        variable, Direction.SET, f"{why} (NVFP4)", to="cutlass", applicability=Applicability.NEEDS_REVIEW
    )


def _attention(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    if says(text(case, fault), "head-size-refused"):
        return (for_any_head(case, fault),)
    return (other_attention(case, fault, "the failing call is in the attention kernel"),)


def for_any_head(case: Case, fault: Fault) -> Change | None:
    """A backend that takes heads of any size: Triton's from 32 on since 0.11.0 (v1/attention/backends/triton_attn.py),
    FlexAttention always, and V0's XFormers more than FlashAttention was built for."""
    if case.run is not None and case.run.engine == "V0":
        why = "XFormers takes head sizes that FlashAttention was not built for"
        return environment("VLLM_ATTENTION_BACKEND", Direction.CHANGE, why, to="XFORMERS")
    first = ("TRITON_ATTN", "FLEX_ATTENTION") if case.release >= _ANY_HEAD else ("FLEX_ATTENTION",)
    return other_attention(case, fault, "this backend takes any head size", first=first)


_REMEDIES = {
    KernelKind.TUNING: _tuning,
    KernelKind.AUTOTUNER: _autotuner,
    KernelKind.SAMPLER: _sampler,
    KernelKind.ALL_REDUCE: _all_reduce,
    KernelKind.EXPERTS: _experts,
    KernelKind.STATE: _state,
    KernelKind.DRAFT: _draft,
    KernelKind.ATTENTION: _attention,
    KernelKind.MATRIX: _matrix,
    KernelKind.GRAPH: _graph,
    KernelKind.COMPILED: _compiled,
}
