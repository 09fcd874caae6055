"""A bundle is judged as its host was: what redaction takes out decides nothing."""

import msgspec
import pytest

from tests.scenarios.loading import names, snapshot
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.redact.identities import SiteNames
from vllm_doctor.redact.ledger import Redactor
from vllm_doctor.rules.engine import judged


def sent(shot: Snapshot) -> Snapshot:
    """The snapshot as it stands in a bundle."""
    read = msgspec.to_builtins(shot)
    redactor = Redactor(SiteNames([shot.subject.host or ""]))
    redactor.learn(read)
    return msgspec.convert(redactor.tree(read, "snapshots.json"), Snapshot)


@pytest.mark.parametrize("name", names()[::6])
def test_the_verdict_stays(name: str) -> None:
    here = snapshot(name)
    there = judged(sent(here))
    told = judged(here)
    assert (there.verdict, [(f.code, f.confidence, len(f.changes)) for f in there.findings]) == (
        told.verdict,
        [(f.code, f.confidence, len(f.changes)) for f in told.findings],
    )
