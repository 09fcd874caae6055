"""How many tokens a second each of a few requests gets, while nothing else is done."""

from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.stats import Stats

# So many requests at most share a step without making it longer; with fewer tokens a second each of them is slow on any
# card whose memory is fast enough for the model.
FEW, ENOUGH = 8, 5.0
# Tokens a second of prompts that hold up no step: a greeting of a few tokens.
_SHORT = 10.0


def tokens_of_few(run: AnalysedRun, lines: int) -> float | None:
    """The most in the last so many lines of statistics; None where they show more requests, none, or other work."""
    last = run.stats[-lines:]
    if run.is_script or len(last) < lines or not all(map(_alone, last)):
        return None
    return max(stats.generation / stats.running for stats in last)


def _alone(stats: Stats) -> bool:
    few = 0 < stats.running <= FEW and not stats.waiting
    return few and stats.generation > 0 and stats.prompt <= _SHORT and not stats.preemptions
