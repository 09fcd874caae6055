"""A cause that the catalogue knows is one that a rule knows, wherever in a run it is said."""

from tests.approved.wordings import runs
from vllm_doctor.log.match import messages

NO_RULE_KNOWS = "VD599"


def test_no_cause_of_the_catalogue_is_called_unknown() -> None:
    lost = [
        f"{message.id}, {run.name}: {run.told}"
        for message in messages()
        if message.kind == "cause" and message.scope == "log"
        for sample in message.samples
        for run in runs(sample.line, sample.versions)
        if not run.codes or run.codes[0] == NO_RULE_KNOWS
    ]
    assert not lost
