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
# Tokens a second of prompts that hold up no step: a greeting of a few tokens.
_SHORT = 10.0


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
    return _slow(
        case,
        f"Each request gets {now:.1f} tokens a second; it was {best[1]:.1f} before",
        lines=(hits[best[0]].index, hits[-1].index),
        arithmetic=(
            _speed("a request at best", best[1], "generated / running, three lines", "the log"),
            _speed("a request now", now, "generated / running, the last six lines", "the log"),
        ),
        refute="the requests that run now have contexts many times as long as before",
    )


def _below_floor(case: Case, run: AnalysedRun) -> Finding | None:
    """Do the last lines show fewer tokens a request than any GPU gives to so few?"""
    last = run.stats[-_LONG:]
    alone = (_decodes(s) or (s.generation > 0 and s.prompt <= _SHORT and not s.preemptions) for s in last)
    few = len(last) == _LONG and all(alone) and all(not s.waiting and 0 < s.running <= _FEW for s in last)
    if not few or run.root is not None or run.stopped is not None or run.is_script or on_cpu(case):
        return None
    fastest = max(map(_each, last))
    if fastest >= _FLOOR:
        return None
    why = "offloaded weights cross the PCIe bus at each step: offload less, or use a smaller checkpoint"
    hits = run.all("stats")
    offload = case.effective("cpu-offload-gb") not in {None, "0", 0}
    return _slow(
        case,
        f"Each request gets {fastest:.1f} tokens a second, slower than any GPU",
        lines=(hits[-_LONG].index, hits[-1].index),
        arithmetic=(
            _speed("a request at best", fastest, "generated / running", f"{_LONG} lines"),
            _speed("a fault below", _FLOOR, f"up to {_FEW} requests, nothing waits", "any GPU"),
        ),
        refute="the engine computes on a processor, or it reads its weights from the host for each token",
        first=set_flag(case, "cpu-offload-gb", None, Direction.LOWER, why) if offload else None,
    )


def _slow(
    case: Case,
    title: str,
    *,
    lines: tuple[int, ...],
    arithmetic: tuple[Arithmetic, ...],
    refute: str,
    first: Change | None = None,
) -> Finding:
    """What both comparisons say: how slow, and where to look for what holds the GPU back, after `first`."""
    tool = maker_tool(case)
    return finding(
        RULE,
        title=title,
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=tuple(case.line(i) for i in lines),
        arithmetic=arithmetic,
        changes=(first, _look(tool)),
        refute=refute,
        then=_next(tool),
    )


def _speed(name: str, value: float, formula: str, source: str) -> Arithmetic:
    return Arithmetic(name, round(value, 1), "tokens/s", formula, source)


def _next(tool: DeviceTool) -> str:
    return (
        f"check in this order what slows the GPU, then the host: {tool.clocks or tool.name} (clocks held down by power "
        f"or heat), {tool.name} (another process), top (a process of the engine that waits for the processor), and, "
        "with several GPUs, which rank is late"
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
