"""VD512: a weight file is damaged, cut short, or a pointer instead of the file."""

import shlex

from vllm_doctor.knowledge.hub import is_name
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.registry import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

_IDS = (
    "weights-header",
    "weights-truncated",
    "weights-zip",
    "weights-lfs",
    "no-weights",
    "weights-uninitialised",
    "weights-eof",
    "config-not-json",
)


def judge(case: Case) -> Outcome:
    """Could a weight file not be read?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "weights",
                Direction.REPAIR,
                (
                    "download the files again and compare their sizes and sha256 with the hub's; a file of a few "
                    "hundred bytes is an LFS pointer"
                ),
                command=_fetch(case),
            ),
        ),
        refute="the sha256 of every file is the one that the hub shows",
    )


def _fetch(case: Case) -> str | None:
    """Where the model is one of the hub; a folder is fetched from wherever it came."""
    name = case.model or ""
    return f"hf download --force-download {shlex.quote(name)}" if is_name(name) else None


RULE = rule("VD512", reads=frozenset({Signal.LOG, Signal.LAUNCH}), judge=judge)
