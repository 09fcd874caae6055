"""VD517: a cache or a file could not be written."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, ChangeKind, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.launch._fault import named, severity, shown
from vllm_doctor.rules.registry import Clear, NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding, thing

_IDS = (
    "disk-full",
    "disk-quota",
)


def judge(case: Case) -> Outcome:
    """Was there no room on a disk?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    if fault.ids & {"shm-full", "nccl-shm"}:
        return Clear("it is /dev/shm that is full")
    path = fault.fields("disk-quota").get("path") or fault.fields("disk-full").get("path")
    return finding(
        RULE,
        title=f"No room to write {path}" if path else RULE.title,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "cache-dir",
                Direction.CHANGE,
                "VLLM_CACHE_ROOT, TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR on a disk with room",
                inventory="vllm_cache_dir",
            ),
        ),
        refute="`df` and the quota show room where it was written",
    )


RULE = Rule(
    code="VD517",
    slug="disk-full",
    title="The disk, or the quota on it, is full",
    node="not-memory",
    cause=Cause.OTHER,
    phase=Phase.NOT_MEMORY,
    reads=frozenset({Signal.LOG}),
    judge=judge,
    rank=20,
)
