"""The question of every rule that reads the log's lines of statistics: are there any?"""

from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import NotHere, Unseen


def with_statistics(case: Case) -> AnalysedRun | Unseen | NotHere:
    """The run with its statistics; without a log they were not seen, and a run that printed none has no such fault."""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    return case.run if case.run.stats else NotHere("the log holds no statistics")
