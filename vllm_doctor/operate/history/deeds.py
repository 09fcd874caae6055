"""What was done to the host's services by hand or by the guard: one JSON line each, in root's own file, bounded.

The guard's store is its user's; what counts against the budget of restarts must not be.
"""

import json
import os
import time
from pathlib import Path

import msgspec

from vllm_doctor.gather.bounded import whole_file
from vllm_doctor.operate.history.store_format import UnitEvent
from vllm_doctor.records import folders
from vllm_doctor.records.reading import Known

FOLDER = folders.STATE
_NAME = "deeds.jsonl"
# With a moment behind it: what was put there takes itself away then.
UNTIL = "holds until"
# The kinds of what the guard and recover did to a service.
RESTARTED, RECOVERED = "restarted", "recover"
_MOST = 1 << 20
# Of a playbook's deeds, each a file of its own, the newest.
_MOST_FILES, _MOST_FILE = 500, 1 << 14
_TEXT = 2000


def deeds_file() -> Path:
    """The file."""
    return Path(os.environ.get("VLLM_DOCTOR_STATE") or FOLDER) / _NAME


def record(unit: str, kind: str, text: str, at: float | None = None) -> None:
    """Write one down. Raises OSError where it cannot be kept: what is not written down is not done."""
    from vllm_doctor.redact.text import without_secrets

    file = deeds_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > _MOST:
        file.replace(file.with_suffix(".jsonl.1"))
    event = UnitEvent(time.time() if at is None else at, unit, kind, without_secrets(text)[:_TEXT])
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "ab") as out:
        out.write(msgspec.json.encode(event) + b"\n")
        out.flush()
        os.fsync(out.fileno())


def events(unit: str | None = None, since: float = 0.0) -> list[UnitEvent]:
    """What was written down, oldest first; a line that is none of ours (a cut one) is passed over."""
    found: list[UnitEvent] = []
    alone = sorted(deeds_file().parent.glob("deed-*.json"))[-_MOST_FILES:]
    for file in (deeds_file().with_suffix(".jsonl.1"), deeds_file(), *alone):
        read = whole_file(file, _MOST_FILE if file.suffix == ".json" else 4 * _MOST)
        for line in read.value.splitlines() if isinstance(read, Known) else ():
            try:
                event = msgspec.json.decode(line, type=UnitEvent)
            except (msgspec.DecodeError, json.JSONDecodeError, UnicodeDecodeError):
                continue
            if event.at >= since and unit in {None, event.unit}:
                found.append(event)
    return sorted(found, key=lambda e: e.at)
