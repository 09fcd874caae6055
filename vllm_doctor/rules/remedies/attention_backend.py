"""Another attention backend in place of the one that failed."""

from pathlib import PurePosixPath

from vllm_doctor.knowledge import kernels
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.log import chosen_kernels
from vllm_doctor.log.chosen_kernels import Chosen
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Applicability, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.rocm import least_capability, on_rocm, platforms
from vllm_doctor.rules.remedies.kernel_kind import called, log_lines
from vllm_doctor.rules.say import environment, set_flag

# Compiled by Triton when first used, XFormers' decode of 0.11 too: what Triton cannot compile or fit, all share.
_OF_TRITON = ("TRITON_ATTN", "FLEX_ATTENTION", "XFORMERS")
_LATENT = "TRITON_MLA"
_LATENT_OTHERS = ("flashmla", "flash_mla", "cutlass_mla", "flashinfer_mla", "flashattn_mla", "aiter_mla", "batch_mla")
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
    case: Case, fault: Fault, why: str, *, not_triton: bool = False, first: tuple[str, ...] = ()
) -> Change | None:
    """The next attention backend that this card and model can use; `not_triton` where Triton itself is what fails,
    `first` are those that are known to do what was asked.

    Where the release names those that pass its checks, only one of them is offered; None where there is no other, as
    where vLLM has asked each of them.
    """
    if fault.crash is not None and says(fault.crash.root.message, "no-attention-backend"):
        return None
    at = case.release
    said = chosen_kernels.attention(log_lines(case))
    # The innermost file that tells a backend is the one that failed.
    told = next((names for file in reversed(called(case, fault)) for mark, names in _FILE_OF if mark in file), ())
    failed = {*told, *((said.name,) if said is not None else ()), *(_OF_TRITON if not_triton else ())}
    latent = any(says(f, "call-latent-attention") for f in called(case, fault))
    if not _listed(said) and (latent or (said is not None and "MLA" in said.name)):
        return _other_latent(case, fault, why, said)
    if any(says(f, "call-of-rocm-triton-attention") for f in called(case, fault)):
        return without_triton(case, why)
    candidates = (*first, *_candidates(case, fault, said))
    if any(says(f, "call-of-cpu-attention", "call-of-vendors-model") for f in called(case, fault)):
        return None  # the platform, or the model, has this one alone
    if says(fault.crash.root.frames[-1].file if fault.crash and fault.crash.root.frames else "", "call-of-encoder"):
        return None  # the encoder of images has a backend of its own
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


def without_triton(case: Case, why: str) -> Change | None:
    """ROCm's backend of V0 takes Triton's attention unless this is 0: then CK's where it is built in, or torch's. A
    release that has the file reads the variable."""
    name = "VLLM_USE_TRITON_FLASH_ATTN"
    if case.env(name) == "0":
        return None
    return environment(name, Direction.SET, f"{why}; ROCm's backend then takes CK's attention, or torch's", to="0",
                       applicability=Applicability.NEEDS_REVIEW)  # fmt: skip


def _other_latent(case: Case, fault: Fault, why: str, said: Chosen | None) -> Change | None:
    """Triton's kernels for latent attention run on every card; sparse attention has no kernels in common with it."""
    names = " ".join((*called(case, fault), said.name if said is not None else "")).lower()
    known = any(backend in names for backend in _LATENT_OTHERS)
    if case.has_flag("attention-backend") is None:
        return None
    if not known or "sparse" in names or not kernels.has("attention", _LATENT, case.release):
        return _chosen_by_vllm(case, fault, why)
    return set_flag(case, "attention-backend", _LATENT, Direction.CHANGE, f"{why}; Triton's runs on every card")


def _chosen_by_vllm(case: Case, fault: Fault, why: str) -> Change | None:
    """Where the launch names the backend whose own file refuses: without the option vLLM asks each what it can do."""
    given = case.flags.get("attention-backend")
    file = fault.crash.root.frames[-1].file if fault.crash is not None and fault.crash.root.frames else ""
    if not isinstance(given, str) or _bare(given) != _bare(PurePosixPath(file).stem):
        return None
    whole = f"{why}; without the option vLLM takes one that passes its checks for this model"
    return set_flag(case, "attention-backend", None, Direction.REMOVE, whole)


def _bare(name: str) -> str:
    """FLASH_ATTN_MLA_SPARSE stands in flashattn_mla_sparse.py."""
    return name.replace("_", "").lower()


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
