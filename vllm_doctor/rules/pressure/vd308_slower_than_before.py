"""VD308: the same number of requests gets a small part of the tokens that it got before."""

import itertools
from collections.abc import Sequence

from vllm_doctor.knowledge.gpus import DeviceTool
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.stats import Stats
from vllm_doctor.records.finding import Arithmetic, Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.kv_cache import on_cpu
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag, thing

# Lines of statistics in a row, ten seconds each: the best of the log is a mean over three, what is slow lasts a minute.
_BEST, _SLOW = 3, 6
# Longer contexts and fuller batches make a request slower, but not this much.
_FACTOR = 4.0
# Lines in a row, requests and tokens a second of each: a 70B model split over two old cards gives ten times as many.
_LONG, _FEW, _FLOOR = 5, 8, 1.0


def judge(case: Case) -> Outcome:
    """Do the last lines of statistics show far fewer tokens a request than the log's own best?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if (floor := _below_floor(case, run)) is not None:
        return floor
    if len(run.stats) < _BEST + _SLOW:
        return NotHere("the log holds too few statistics to compare")
    last = run.stats[-_SLOW:]
    if not all(_decodes(s) for s in last) or len({s.running for s in last}) > 1:
        return Clear("the last statistics do not show the same requests decoding without prefill")
    if run.root is not None or run.stopped is not None or run.is_script:
        return Clear("the service was ended")
    best = _best(run.stats[:-_SLOW], last[0].running)
    now = sum(map(_each, last)) / len(last)
    if best is None or now * _FACTOR > best[1]:
        return Clear("the requests get about as many tokens as before")
    hits = run.all("stats")
    return finding(
        RULE,
        title=f"Each request gets {now:.1f} tokens a second; it was {best[1]:.1f} before",
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(case.line(hits[best[0]].index), case.line(hits[-1].index)),
        arithmetic=(
            Arithmetic(
                "a request at best", round(best[1], 1), "tokens/s", "generated / running, three lines", "the log"
            ),
            Arithmetic(
                "a request now", round(now, 1), "tokens/s", "generated / running, the last six lines", "the log"
            ),
        ),
        changes=(_look(maker_tool(case)),),
        refute="the requests that run now have contexts many times as long as before",
        then=_next(maker_tool(case)),
    )


def _next(tool: DeviceTool) -> str:
    return (
        f"check in this order what slows the GPU, then the host: {tool.clocks or tool.name} (clocks held down by power "
        f"or heat), {tool.name} (another process), top (a process of the engine that waits for the processor), and, "
        "with several GPUs, which rank is late"
    )


def _below_floor(case: Case, run: AnalysedRun) -> Finding | None:
    """Do the last lines show fewer tokens a request than any GPU gives to so few?"""
    last = run.stats[-_LONG:]
    few = len(last) == _LONG and all(_decodes(s) and not s.waiting and s.running <= _FEW for s in last)
    if not few or run.root is not None or run.stopped is not None or run.is_script or on_cpu(case):
        return None
    fastest = max(map(_each, last))
    if fastest >= _FLOOR:
        return None
    why = "weights that lie in the host's memory cross its bus at each step: take fewer, or a smaller checkpoint"
    hits = run.all("stats")
    return finding(
        RULE,
        title=f"Each request gets {fastest:.1f} tokens a second: no GPU is so slow",
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(case.line(hits[-_LONG].index), case.line(hits[-1].index)),
        arithmetic=(
            Arithmetic("a request at best", round(fastest, 1), "tokens/s", "generated / running", f"{_LONG} lines"),
            Arithmetic("a fault below", _FLOOR, "tokens/s", f"up to {_FEW} requests, nothing waits", "any GPU"),
        ),
        changes=(
            set_flag(case, "cpu-offload-gb", None, Direction.LOWER, why)
            if case.effective("cpu-offload-gb") not in {None, "0", 0}
            else None,
            _look(maker_tool(case)),
        ),
        refute="the engine computes on a processor, or it reads its weights from the host for each token",
        then=_next(maker_tool(case)),
    )


def _look(tool: DeviceTool) -> Change:
    why = "says what holds the GPU back: clocks held down, another process, a processor that is busy, a late rank"
    looks = "; ".join(dict.fromkeys((tool.clocks or tool.name, tool.name, "top -b -n1")))
    command = f"{looks}   # hosts: NCCL_DEBUG=INFO names TCP or RDMA"
    return thing(ChangeKind.OS, "host", Direction.REPAIR, why, command=command)


def _decodes(stats: Stats) -> bool:
    """Do requests run, and is no prompt computed beside them? A prompt takes the step from those that generate."""
    return stats.running > 0 and stats.generation > 0 and stats.prompt == 0 and not stats.preemptions


def _each(stats: Stats) -> float:
    return stats.generation / stats.running


def _best(before: Sequence[Stats], running: int) -> tuple[int, float] | None:
    """(Index of the first line, tokens a second of one request) where at least as many requests ran the fastest."""
    windows = ((i, before[i : i + _BEST]) for i in range(len(before) - _BEST + 1))
    fit = ((i, w) for i, w in windows if all(_decodes(s) and s.running >= running for s in w))
    steady = ((i, w) for i, w in fit if all(a.running == b.running for a, b in itertools.pairwise(w)))
    return max(((i, sum(map(_each, w)) / _BEST) for i, w in steady), key=lambda pair: pair[1], default=None)


RULE = rule("VD308", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
