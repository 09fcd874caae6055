"""An answer that is true only since a release, or before one, is given in those releases alone."""

import pytest

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.answer import changes_of

OLD = Answer("package", options=("lmcache",), to="0.4.4", since="0.17.0", before="0.20.0")
NEW = Answer("package", options=("lmcache",), to="0.4.6", since="0.20.0")


@pytest.mark.parametrize(
    ("version", "given"),
    [
        ("0.16.0", []),
        ("0.17.0", ["0.4.4"]),
        ("0.19.1", ["0.4.4"]),
        ("0.20.0", ["0.4.6"]),
        (None, ["0.4.4", "0.4.6"]),
    ],
)
def test_each_release_has_its_own_answer(version: str | None, given: list[str]) -> None:
    snapshot = Snapshot(taken_at="") if version is None else Snapshot(taken_at="", version=Known(version, "given"))
    assert [change.after for change in changes_of(Case(snapshot), (OLD, NEW), "")] == given
