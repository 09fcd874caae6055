"""Which kernel failed, by the calls of its traceback, and the one setting that runs another in its place.

CUDA tells of a fault at a later call, so the innermost call that vLLM itself made is evidence and no proof; where none
of the calls belongs to a kind of kernel, the next run is asked to name it (CUDA_LAUNCH_BLOCKING).
"""

from enum import StrEnum

from vllm_doctor.knowledge import kernels, versions
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.log import chosen_kernels
from vllm_doctor.log.chosen_kernels import Chosen
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import each, says
from vllm_doctor.log.traceback import in_packages
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Applicability, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.rocm import least_capability, on_rocm, platforms
from vllm_doctor.rules.remedies.compilation import with_passes_off, without_compiling, without_graphs
from vllm_doctor.rules.remedies.step import eager
from vllm_doctor.rules.say import environment, set_flag


class KernelKind(StrEnum):
    """Kinds of kernel that a setting chooses."""

    TUNING = "the search for the fastest kernel (Inductor)"
    AUTOTUNER = "FlashInfer's search for its fastest kernel"
    SAMPLER = "the sampler"
    ALL_REDUCE = "an all-reduce"
    EXPERTS = "the experts (MoE)"
    STATE = "the state of a linear attention or Mamba layer"
    DRAFT = "the draft model"
    ATTENTION = "attention"
    MATRIX = "a quantized matrix product"
    GRAPH = "a CUDA graph"
    COMPILED = "code that torch.compile made"


# In this order within one file name; the innermost call that is of any kind decides.
_FILES: tuple[tuple[KernelKind, str], ...] = (
    (KernelKind.TUNING, "call-tuning"),
    (KernelKind.AUTOTUNER, "call-autotuner"),
    (KernelKind.SAMPLER, "call-sampler"),
    (KernelKind.ALL_REDUCE, "call-all-reduce"),
    (KernelKind.EXPERTS, "call-experts"),
    (KernelKind.STATE, "call-state"),
    (KernelKind.DRAFT, "call-draft"),
    (KernelKind.ATTENTION, "call-attention"),
    (KernelKind.MATRIX, "call-matrix"),
    (KernelKind.GRAPH, "call-graph"),
    (KernelKind.COMPILED, "call-compiled"),
)


# How vLLM names weights of four bits in its choice of the experts' kernels.
_FOUR_BITS = ("nvfp4", "mxfp4", "wna16", "w4", "int4")


def kernel_kind(case: Case, fault: Fault) -> KernelKind | None:
    """Of which kind the innermost call is that can be told; None where no call is of any."""
    files = called(case, fault)
    found = next((k for file in reversed(files) for k, mark in _FILES if says(file, mark)), None)
    if found in {KernelKind.COMPILED, KernelKind.TUNING}:
        # Flex attention is compiled code by nature, and what is tried out runs inside of what was compiled.
        flex = any(says(file, "call-flex-attention") for file in files)
        tuning = any(says(file, "call-tuning") for file in files)
        return KernelKind.ATTENTION if flex else KernelKind.TUNING if tuning else found
    if found is None and any(says(name, "function-product") for name in fault.functions):
        return KernelKind.MATRIX  # the operator alone, whose layer's calls are cut off
    return found


def called(case: Case, fault: Fault) -> tuple[str, ...]:
    """The files of the fault's calls, outermost first. Where a compiler spoke before the exception came, those of the
    next traceback with calls."""
    files = fault.files
    if not files and case.run is not None:
        later = (c for c in case.run.crashes if c.first > fault.last and any(link.frames for link in c.links))
        crash = next(later, None)
        files = crash.files if crash is not None else ()
    return (*map(in_packages, files), *_named(case, fault))


def _named(case: Case, fault: Fault) -> tuple[str, ...]:
    """The sources of native code that the failure's own line names: where it was noticed, farther in than any call."""
    run, at = case.run, fault.crash.root.at if fault.crash is not None else fault.index
    text = run.lines[at].text if run is not None and at is not None and at < len(run.lines) else ""
    return tuple(said["file"] for said in each("native-source", text))


def other_kernel(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """Another kernel in place of the one that failed: exact settings, the least loss first; else how to learn which."""
    failed = kernel_kind(case, fault)
    offered = tuple(c for c in _REMEDIES[failed](case, fault) if c is not None) if failed is not None else ()
    return offered or (_name_it(case),)


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


def _lines(case: Case) -> list[str]:
    return [line.text for line in case.run.lines] if case.run is not None else []


def _passes(case: Case) -> tuple[str, ...]:
    """Fusions that are on; those of the all-reduce alone where they are among them: they write into other GPUs."""
    on = chosen_kernels.enabled_passes(_lines(case))
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
    fused = tuple(p for p in chosen_kernels.enabled_passes(_lines(case)) if "allreduce" in p)
    files = " ".join(called(case, fault))
    return (
        with_passes_off(case, fused, "the log says that the all-reduce was fused with the norm after it"),
        _switched_off(case, "VLLM_ALLREDUCE_USE_SYMM_MEM", "symmetric memory")
        if says(files, "call-symmetric-memory")
        else None,
        _switched_off(case, "VLLM_ALLREDUCE_USE_FLASHINFER", "FlashInfer") if says(files, "call-flashinfer") else None,
        set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "uses NCCL's all-reduce instead of vLLM's")
        if not chosen_kernels.all_reduce(_lines(case)) or "CUSTOM" in chosen_kernels.all_reduce(_lines(case))
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
    said = chosen_kernels.moe(_lines(case))
    files = " ".join(called(case, fault))
    now = said.name if said is not None else ""
    if said is None and not says(files, "call-tuned-experts"):
        return ()  # Triton's own, which the others are measured against
    to = "marlin" if said is not None and any(bits in said.kind.lower() for bits in _FOUR_BITS) else "triton"
    at = case.version or versions.newest_known()
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
    name = chosen_kernels.linear(_lines(case))
    if name is None:
        return (_other_product(case, fault),)
    to = _other_linear(name)
    if to is not None and kernels.has("linear", to, case.version or versions.newest_known()):
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
    """Another kernel than CUTLASS' for scaled products, where only the calls tell which one failed."""
    calls = " ".join(fault.functions)
    if "cutlass" not in calls or case.effective("linear-backend") not in {None, "auto", "cutlass"}:
        return None
    to = "marlin" if "fp4" in calls else "triton" if "block" in calls else "torch"
    why = "CUTLASS' kernel for this product failed; another kernel multiplies the same weights"
    if kernels.has("linear", to, case.version or versions.newest_known()):
        return set_flag(case, "linear-backend", to, Direction.SET, why)
    forced = "VLLM_TEST_FORCE_FP8_MARLIN"
    if "int8" in calls or "fp4" in calls or case.has_env(forced) is None or case.env(forced) == "1":
        return None
    return environment(forced, Direction.SET, f"{why}: Marlin's, in releases without an option for it", to="1")


def _attention(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    return (other_attention(case, fault, "the failing call is in the attention kernel"),)


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

# Compiled by Triton when first used, XFormers' decode of 0.11 too: what Triton cannot compile or fit, all share.
_OF_TRITON = ("TRITON_ATTN", "FLEX_ATTENTION", "XFORMERS")
_LATENT = "TRITON_MLA"
_LATENT_OTHERS = ("flashmla", "flash_mla", "cutlass_mla", "flashinfer_mla", "flashattn_mla", "aiter_mla")
# The least compute capability of each (v1/attention/backends, `supports_compute_capability`), in the order to try.
_GENERAL = (("FLASH_ATTN", 8.0), ("FLASHINFER", 7.5), ("TRITON_ATTN", 0.0), ("FLEX_ATTENTION", 0.0))
# What every AMD card has (platforms/rocm.py): a kernel of its own for decoding beside Triton's for prompts.
_AMD = ("ROCM_ATTN", "TRITON_ATTN")
_FILE_OF = (
    ("triton_unified_attention", _OF_TRITON),
    ("prefix_prefill", ("ROCM_ATTN",)),
    ("flash_attn", ("FLASH_ATTN",)),
    ("flashinfer", ("FLASHINFER",)),
    ("triton_attn", ("TRITON_ATTN",)),
    ("flex_attention", ("FLEX_ATTENTION",)),
    ("xformers", ("XFORMERS",)),
)


def other_attention(
    case: Case, fault: Fault, why: str, *, not_triton: bool = False, first: str | None = None
) -> Change | None:
    """The next attention backend that this card and model can use; `not_triton` where Triton itself is what fails,
    `first` is the one that is known to do what was asked.

    Where the release names those that pass its checks, only one of them is offered; None where there is no other, as
    where vLLM has asked each of them.
    """
    if fault.crash is not None and says(fault.crash.root.message, "no-attention-backend"):
        return None
    at = case.version or versions.newest_known()
    said = chosen_kernels.attention(_lines(case))
    # The innermost file that tells a backend is the one that failed.
    told = next((names for file in reversed(called(case, fault)) for mark, names in _FILE_OF if mark in file), ())
    failed = {*told, *((said.name,) if said is not None else ()), *(_OF_TRITON if not_triton else ())}
    latent = any(says(f, "call-latent-attention") for f in called(case, fault))
    if not _listed(said) and (latent or (said is not None and "MLA" in said.name)):
        return _other_latent(case, fault, why, said)
    candidates = (*((first,) if first is not None else ()), *_candidates(case, fault, said))
    if any(says(f, "call-of-cpu-attention") for f in called(case, fault)):
        return None  # the platform has this one alone
    if any(says(f, "call-of-ascend") for f in called(case, fault)):
        return None  # so has Ascend's plugin
    if any(says(f, "call-of-intel") for f in called(case, fault)):
        candidates = ("TRITON_ATTN",)  # the others are NVIDIA's or AMD's
    to = next((name for name in candidates if name not in failed and _selectable(name, at)), None)
    if to is None:
        return None
    now = f"; {said.name} runs now" if said is not None else ""
    if _listed(said):
        now += ", and vLLM names this one as usable here"
    if case.has_flag("attention-backend") is not None:
        return set_flag(case, "attention-backend", to, Direction.CHANGE, f"{why}{now}")
    return _by_variable(case, _spelt(to, at), f"{why}{now}")


def _other_latent(case: Case, fault: Fault, why: str, said: Chosen | None) -> Change | None:
    """Triton's kernels for latent attention run on every card; sparse attention has no kernels in common with it."""
    names = " ".join((*called(case, fault), said.name if said is not None else "")).lower()
    known = any(backend in names for backend in _LATENT_OTHERS)
    if not known or "sparse" in names or case.has_flag("attention-backend") is None:
        return None
    if not kernels.has("attention", _LATENT, case.version or versions.newest_known()):
        return None
    return set_flag(case, "attention-backend", _LATENT, Direction.CHANGE, f"{why}; Triton's runs on every card")


def _listed(said: Chosen | None) -> bool:
    return said is not None and said.others is not None


def _candidates(case: Case, fault: Fault, said: Chosen | None) -> tuple[str, ...]:
    if said is not None and said.others is not None:
        return said.others
    if on_rocm(case):
        return _AMD
    open_ = platforms(case, fault)
    if open_ == {"rocm"}:
        return _AMD
    if open_ - {"cuda"}:
        return ()  # another maker's card may be in there, which has none of NVIDIA's kernels
    capability = least_capability(case, fault)
    # Without the card's name: what any card that this engine runs on can use (V1 needs 7.0, its wheels mostly 7.5).
    return tuple(name for name, least in _GENERAL if least <= (capability if capability is not None else 7.5))


def _spelt(name: str, at: Version) -> str:
    """The name as the release takes it: Triton's had a suffix to 0.10.2."""
    return name if kernels.has("attention", name, at) else f"{name}_VLLM_V1"


def _selectable(name: str, at: Version) -> bool:
    return kernels.has("attention", _spelt(name, at), at)


def _by_variable(case: Case, to: str, why: str) -> Change | None:
    """Before 0.13.0 it was a variable and no option."""
    if case.has_env("VLLM_ATTENTION_BACKEND") is None:
        return None
    return environment("attention-backend", Direction.CHANGE, why, to=to, before=case.env("VLLM_ATTENTION_BACKEND"),
                       applicability=Applicability.NEEDS_REVIEW, variable="VLLM_ATTENTION_BACKEND")  # fmt: skip
