"""VD519: a kernel does not fit the on-chip shared memory of this GPU; that is neither VRAM nor /dev/shm."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.kernel import KernelKind, kernel_kind, other_attention, other_kernel
from vllm_doctor.rules.remedies.step import sequences
from vllm_doctor.rules.say import finding, set_flag, thing, upgrade

_IDS = (
    "triton-shared",
    "tile-unsupported",
    "xla-on-chip",
)


def judge(case: Case) -> Outcome:
    """Did a kernel not fit on-chip memory?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    return finding(
        RULE,
        title="A program needs more of a TPU core's own memory than there is" if "xla-on-chip" in fault.ids else "",
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=_changes(case, fault),
        refute="the same model fails in the same call on a GPU with more on-chip memory",
    )


def _changes(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """Another attention backend only where attention is what did not fit; else the kernels of what failed."""
    if fault.fields("xla-on-chip").get("space") == "smem":
        return _smaller_table(case)
    failed = kernel_kind(case, fault)
    if failed is KernelKind.ATTENTION:
        triton = "triton-shared" in fault.ids
        other = other_attention(case, fault, "this backend's kernels need less on-chip memory", not_triton=triton)
        return (other or _smaller_block(case),)
    if failed is KernelKind.MATRIX and "triton-shared" in fault.ids:
        why = (
            "take a checkpoint with another quantization (AWQ, GPTQ): Triton's kernel for this one does "
            "not fit this GPU"
        )
        return (thing(ChangeKind.FLAG, "model", Direction.CHANGE, why),)
    return other_kernel(case, fault) if failed is not None else ()


def _smaller_table(case: Case) -> tuple[Change | None, ...]:
    """The memory for scalars of a core holds the table of blocks, a row for each sequence, a place for each of its
    blocks (v1/attention/backends/pallas.py)."""
    why = "the core's memory for scalars (1 MiB) holds the table of blocks: sequences × blocks of the longest prompt"
    longest, (most, _) = case.count("max-model-len"), sequences(case)
    return (
        set_flag(case, "max-model-len", longest // 2 if longest else None, Direction.LOWER, why),
        set_flag(case, "max-num-seqs", most // 2, Direction.LOWER, f"{why}; half of {most} sequences halve it"),
    )


def _smaller_block(case: Case) -> Change | None:
    """vLLM names no other backend for this model and card: what is left is a release whose kernel fits."""
    return upgrade(
        case, ("vLLM names no other attention backend for this model on this GPU; the newest release may have one")
    )


RULE = rule("VD519", reads=frozenset({Signal.GPUS, Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
