"""The wait in which a log ends."""

from collections.abc import Sequence

from vllm_doctor.log.match import Hit
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase


def final_run(run: AnalysedRun, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """The hits after which no step of the start was reached any more; none once it served."""
    if run.served(-1):
        return ()
    last = max((i for i, stage in run.miles if stage is not StartupPhase.CONFIG), default=-1)
    return tuple(h for h in hits if h.index > last)
