"""VD517: a cache or a file could not be written."""

import shlex

from vllm_doctor.log.fault import Fault
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.registry import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

_IDS = (
    "disk-full",
    "disk-quota",
    "cache-denied",
)


def judge(case: Case) -> Outcome:
    """Was there no room on a disk, or no right to write there?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    if fault.ids & {"shm-full", "nccl-shm"}:
        return Clear("it is /dev/shm that is full")
    denied = fault.fields("cache-denied").get("path")
    if denied is not None:
        return _denied(case, fault, denied)
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
                "put VLLM_CACHE_ROOT, TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR on a disk with free space",
                command=f"df -h {shlex.quote(path)}" if path else "df -h",
            ),
        ),
        refute="`df` and the quota show room where it was written",
    )


def _denied(case: Case, fault: Fault, path: str) -> Outcome:
    return finding(
        RULE,
        title=f"The service may not write its caches: {path}",
        severity=severity(case, fault),
        evidence=shown(case, fault, "cache-denied"),
        changes=(
            thing(
                ChangeKind.OS,
                "cache-dir",
                Direction.CHANGE,
                (
                    "set HOME, or VLLM_CACHE_ROOT, TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR, to a folder "
                    "that the service's user owns; in a pod use a writable volume"
                ),
                command=f"namei -l {shlex.quote(path)}",
            ),
        ),
        refute="the service's user writes a file there: `sudo -u USER touch …`",
    )


RULE = rule("VD517", reads=frozenset({Signal.LOG}), judge=judge)
