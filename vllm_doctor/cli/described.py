"""Descriptions of containers that were given as files, as snapshots: a log belongs to the one that is described."""

from collections.abc import Mapping
from typing import Any

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.gather.contained import launch_in_container, place_of, secrets_of, source_of, subject_of, version_in
from vllm_doctor.gather.documents import Documents
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.records.finding import Missing
from vllm_doctor.records.reading import Known, Reading
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.redact.records import record_without


def snapshots(
    documents: Documents, told: Mapping[str, Reading[Any]], taken_at: str, unread: tuple[Missing, ...]
) -> tuple[Snapshot, ...]:
    """One for each container of vLLM. Raises UsageProblem where a log stands beside several."""
    found = tuple(one for one in documents.containers if one.serves) or documents.containers[:1]
    if len(found) > 1 and "log" in told:
        names = ", ".join(place_of(one) for one in found[:8])
        raise UsageProblem(
            f"{len(found)} containers are described ({names}), and a log is of one: give the log of that container"
        )
    return tuple(_snapshot(one, told, taken_at, unread) for one in found)


def _snapshot(
    seen: Inspected, told: Mapping[str, Reading[Any]], taken_at: str, unread: tuple[Missing, ...]
) -> Snapshot:
    fields: dict[str, Any] = {
        "launch": launch_in_container(seen),
        "version": version_in(seen),
        "container": Known(seen.container, source_of(seen)),
        **told,
    }
    shot = Snapshot(taken_at=taken_at, subject=subject_of(seen), unread=unread, **fields)
    return record_without(shot, secrets_of(seen))
