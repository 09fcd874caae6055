"""VD310: the memory was there, in pieces: torch's allocator could not use what it held."""

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, Confidence, Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.out_of_memory import exhausted, sums, tenants
from vllm_doctor.rules.gates.run_time import at_run_time
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.say import environment, finding, gib


def judge(case: Case) -> Outcome:
    """Would what torch holds unused have served the request?"""
    oom = at_run_time(case)
    oom = exhausted(case, StartupPhase.CONFIG) if isinstance(oom, NotHere) else oom
    if isinstance(oom, NotHere | Unseen):
        return oom
    torch = oom.torch
    if torch is None or torch.unused is None or torch.allocated is None:
        return Clear("the message does not say what torch holds unused")
    if tenants(case, torch) is not None or not torch.fragmented:
        return Clear(
            f"the unused {torch.unused / GIB:.2f} GiB are less than the {torch.asked / GIB:.2f} GiB of the "
            "allocation, or as much as usual"
        )
    return finding(
        RULE,
        title=(
            f"GPU memory is fragmented: torch holds {torch.unused / GIB:.2f} GiB unused, and "
            f"{torch.asked / GIB:.2f} did not fit"
        ),
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        # Where nothing tells the step, the figures alone say that it was pieces.
        confidence=Confidence.LIKELY if oom.fault.startup_phase is StartupPhase.CONFIG else Confidence.CONFIRMED,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(
            gib(
                "unused part of what torch holds",
                torch.unused / GIB,
                f"{torch.unused / (torch.allocated + torch.unused):.0%} of "
                f"{(torch.allocated + torch.unused) / GIB:.2f} GiB",
                "torch's message",
            ),
            *sums(torch),
        ),
        changes=(
            _segments(case),
            lower_utilization(
                case, torch, "a smaller KV cache leaves memory with which the allocator can take a new segment"
            ),
        ),
        refute="the same requests fail right after a restart",
    )


def _segments(case: Case) -> Change | None:
    """Expandable segments, unless this launch is one in which they are known to break the server."""
    parallel = (case.number("tensor-parallel-size") or 1) > 1 and case.effective(
        "disable-custom-all-reduce"
    ) is not True
    if parallel or case.flag("enable-sleep-mode") is True or case.flag("kv-transfer-config") is not None:
        return None
    return environment(
        "PYTORCH_CUDA_ALLOC_CONF",
        Direction.SET,
        (
            "lets segments grow instead of adding new ones; do not combine this setting with custom "
            "all-reduce (tensor parallelism), sleep mode or KV connectors"
        ),
        to="expandable_segments:True",
        before=case.env("PYTORCH_CUDA_ALLOC_CONF"),
        applicability=Applicability.NEEDS_REVIEW,
    )


RULE = rule("VD310", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
