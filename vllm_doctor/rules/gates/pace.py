"""How many tokens a second each of a few requests gets, while nothing else is done."""

from vllm_doctor.knowledge.gpus import find
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.stats import Stats
from vllm_doctor.records.finding import Arithmetic
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kv_cache import left_over, on_cpu

# So many requests at most share a step without making it longer; with fewer tokens a second each of them is slow on any
# card whose memory is fast enough for the model.
FEW, ENOUGH = 8, 5.0
# Tokens a second of prompts that hold up no step: a greeting of a few tokens.
_SHORT = 10.0
# Where the weights are known a step is: it reads them once. The slowest memory of a card that vLLM runs on in GB/s
# (RTX 3050), and the part of it that kernels which are in order give at least.
_SLOWEST, _USUAL_PART = 168.0, 0.5
_GIB_IN_GB = 2**30 / 1e9
# Lines of statistics that tell it, ten seconds each.
_LINES = 3


def tokens_of_few(run: AnalysedRun, lines: int) -> float | None:
    """The most in the last so many lines of statistics; None where they show more requests, none, or other work."""
    last = run.stats[-lines:]
    if run.is_script or len(last) < lines or not all(map(_alone, last)):
        return None
    return max(stats.generation / stats.running for stats in last)


def _alone(stats: Stats) -> bool:
    few = 0 < stats.running <= FEW and not stats.waiting
    return few and stats.generation > 0 and stats.prompt <= _SHORT and not stats.preemptions


def in_doubt(case: Case, run: AnalysedRun) -> float | None:
    """The tokens a second of few requests at last, where only the card tells whether that is slow and nothing names
    it: fewer than any card gives whose memory is fast enough for the model, and than weights of this size explain."""
    fastest = tokens_of_few(run, _LINES) if run.stopped is None else None
    if fastest is None or fastest >= ENOUGH or case.gpu_name or on_cpu(case):
        return None
    most = steps_at_most(case, run)
    return None if most is not None and fastest >= most.value * _USUAL_PART else fastest


def steps_at_most(case: Case, run: AnalysedRun) -> Arithmetic | None:
    """Steps a second at most: each reads the weights of all stages and what the requests hold of the KV cache. None
    where the log does not print the weights."""
    weights, pool = case.weights_gib, left_over(case)
    if not weights or not run.stats:
        return None
    card = find(case.gpu_name, case.total_gib) if case.gpu_name else None
    bandwidth = card.bandwidth if card is not None and card.bandwidth else _SLOWEST
    stages = case.count("pipeline-parallel-size") or 1
    held = (pool or 0.0) * (run.stats[-1].kv or 0.0) / 100
    size = (weights + held) * stages * _GIB_IN_GB
    read = f"{weights:.2f} GiB of weights{f' and {held:.2f} of the KV cache' if held >= 0.01 else ''}"
    told = f"{f'{stages} stages × ' if stages > 1 else ''}{read}, {bandwidth:g} GB/s"
    whose = card.name if card is not None and card.bandwidth else "the slowest card that vLLM runs on"
    return tokens_a_second("steps a second at most", bandwidth / size, told, whose)


def tokens_a_second(name: str, value: float, formula: str, source: str) -> Arithmetic:
    """A row of the sum, in tokens a second."""
    return Arithmetic(name, round(value, 1), "tokens/s", formula, source)
