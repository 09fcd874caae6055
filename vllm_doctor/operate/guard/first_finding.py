"""`diagnose` of one unit in a process of its own, so that the guard stays small: the first finding, and what the start
took of the GPU beside what was planned."""

import sys

import msgspec

from vllm_doctor.gather.live import gather_live
from vllm_doctor.gather.processes import NotRun, python
from vllm_doctor.records.finding import MemoryUse
from vllm_doctor.redact.text import without_secrets
from vllm_doctor.rules.engine import diagnose

_DEADLINE_S = 40.0
# What a start takes and keeps; the other rows of the table say how they come about.
_TERMS = frozenset({"weights", "memory outside torch", "activation peak", "CUDA graphs", "KV cache"})


class Explanation(msgspec.Struct, frozen=True):
    """`finding` is the doctor's first one as "VD123: title", `memory` the measured terms beside the planned ones; each
    is empty where there is none, or where it takes too long."""

    finding: str = ""
    memory: str = ""


def explained(unit: str) -> Explanation:
    """What the doctor says of the unit now."""
    told = python("vllm_doctor.operate.guard.first_finding", unit, deadline_s=_DEADLINE_S, max_bytes=4096)
    if isinstance(told, NotRun) or told.code:
        return Explanation()
    try:
        return msgspec.json.decode(told.out, type=Explanation)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Explanation()


def beside(use: MemoryUse | None) -> str:
    """`weights 14.90 GiB (15.10 planned), …`: of the terms that a start takes, those that are measured; empty where
    nothing was planned, as the log alone has the rest."""
    return ", ".join(
        f"{term.name} {term.measured:.2f} GiB ({term.planned:.2f} planned)"
        for term in (use.terms if use is not None else ())
        if term.name in _TERMS and term.measured is not None and term.planned is not None
    )


def main() -> None:
    """Print it as JSON."""
    told = diagnose(gather_live(sys.argv[1]))
    found = told.findings
    first = without_secrets(f"{found[0].code}: {found[0].title}") if found else ""
    sys.stdout.write(msgspec.json.encode(Explanation(first, without_secrets(beside(told.memory_use)))).decode())


if __name__ == "__main__":
    main()
