"""A cause that the catalogue knows is one that a rule knows, wherever in a run it is said."""

from tests.approved.wordings import runs
from vllm_doctor.log.match import messages

NO_RULE_KNOWS = "VD599"


def test_no_cause_of_the_catalogue_is_called_unknown() -> None:
    lost = [
        f"{message.id}, {run}: {answer.verdict} {[found.code for found in answer.findings]}"
        for message in messages()
        if message.kind == "cause" and message.scope == "log"
        for sample in message.samples
        for run, answer in runs(sample)
        if not answer.findings or answer.findings[0].code == NO_RULE_KNOWS
    ]
    assert not lost
