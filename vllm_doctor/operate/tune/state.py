"""The rows of a ramp on disk: one that was cut off goes on, and a step that took the host down is not tried again."""

import hashlib
import os
from pathlib import Path

import msgspec

from vllm_doctor.operate.tune.decide import Measured, TrialSetting
from vllm_doctor.records import folders

CUT_OFF = "an earlier run was interrupted during this trial and recorded no reason"


class TuneState(msgspec.Struct, frozen=True):
    """`key` names what the rows are true of: launch, release and shape of the load."""

    key: str
    rows: tuple[Measured, ...] = ()
    trying: TrialSetting | None = None
    schema_version: int = 1


def key(argv: tuple[str, ...], version: str, *shape: object) -> str:
    """A digest: the launch itself may hold what is nobody's business."""
    return hashlib.sha256(repr((argv, version, shape)).encode()).hexdigest()[:16]


def state_file(unit: str) -> Path:
    """The state's file."""
    folder = Path(os.environ.get("VLLM_DOCTOR_STATE") or folders.STATE)
    return folder / f"tune-{unit.removesuffix('.service').replace('/', '-')}.json"


def load(file: Path, wanted: str) -> TuneState:
    """The rows kept for `wanted`; none where the file is of another launch, missing or not ours."""
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=TuneState)
    except (OSError, msgspec.DecodeError):
        return TuneState(wanted)
    if kept.key != wanted:
        return TuneState(wanted)
    if kept.trying is not None:
        return TuneState(wanted, (*kept.rows, Measured(kept.trying, problem=CUT_OFF)))
    return kept


def save(file: Path, state: TuneState) -> None:
    """Write it whole or not at all, for root alone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(msgspec.json.encode(state))
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
