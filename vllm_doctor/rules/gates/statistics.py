"""The question of every rule that reads the log's lines of statistics: are there any?"""

import itertools

from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.stats import Stats
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import NotHere, Unseen

# A long prompt that is computed in one piece shows no token for fewer lines; then the use of the pool has grown.
STANDS = 5


def with_statistics(case: Case) -> AnalysedRun | Unseen | NotHere:
    """The run with its statistics; without a log they were not seen, and a run that printed none has no such fault."""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    return case.run if case.run.stats else NotHere("the log holds no statistics")


def still(stats: Stats, last: Stats) -> bool:
    """No token of a request that runs, and what runs is as in the last line; the queue may have grown meanwhile."""
    kept = (stats.running, stats.swapped, stats.kv) == (last.running, last.swapped, last.kv)
    return kept and stats.running > 0 and stats.generation == 0 and stats.prompt == 0


def lines_still(run: AnalysedRun) -> int:
    """The last lines of statistics in which nothing that runs moved."""
    return len(list(itertools.takewhile(lambda stats: still(stats, run.stats[-1]), reversed(run.stats))))
