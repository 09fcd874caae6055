"""`diagnose` of one unit in a process of its own, so that the guard stays small: prints the first finding, if any."""

import sys

from vllm_doctor.gather.live import gather_live
from vllm_doctor.gather.run import NotRun, python
from vllm_doctor.redact.text import safe
from vllm_doctor.rules.engine import diagnose

_DEADLINE_S = 40.0


def explained(unit: str) -> str:
    """The doctor's first finding on the unit as "VD123: title"; empty where it has none or takes too long."""
    told = python("vllm_doctor.operate.guard.explain", unit, deadline_s=_DEADLINE_S, max_bytes=4096)
    return "" if isinstance(told, NotRun) or told.code else told.out.decode(errors="replace").strip()[:500]


def main() -> None:
    """Print the finding."""
    found = diagnose(gather_live(sys.argv[1])).findings
    sys.stdout.write(safe(f"{found[0].code}: {found[0].title}") if found else "")


if __name__ == "__main__":
    main()
