"""VD308: the same number of requests gets a small part of the tokens that it got before."""

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
from vllm_doctor.rules.gates.pace import ENOUGH, FEW, steps_at_most, tokens_a_second, tokens_of_few
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag, thing

# Lines of statistics in a row, ten seconds each: the best of the log is a mean over three, what is slow lasts a minute.
# Longer contexts and fuller batches make a request slower, but not this much. A shorter time tells where it is slower
# still, and no prompt is read meanwhile, for which the use of the pool grows before its tokens are counted.
_BEST, _SLOW, _FACTOR = 3, 6, 4.0
_SOON, _MUCH, _SAME_POOL = 4, 8.0, 1.0
# Requests come and go while others run: as many, give or take this; and as much KV cache that each step reads.
_ABOUT, _MORE_READ = 1.25, 1.5
# Lines in a row, and tokens a second of each request: a 70B model split over two old cards gives ten times as many.
_LONG, _FLOOR = 5, 1.0
# The part of what a card's memory gives that no kernel stays below, and the tokens a second that no launch of kernels
# without graphs, no link between hosts and no kernel of a rare format stays below. Half a minute tells.
_PART, _SHORTER = 0.1, 3


def judge(case: Case) -> Outcome:
    """Do the last lines of statistics show far fewer tokens a request than the log's own best?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if (floor := _below_floor(case, run)) is not None:
        return floor
    if len(run.stats) < _BEST + _SOON:
        return NotHere("the log holds too few statistics to compare")
    if run.root is not None or run.stopped is not None or run.is_script:
        return Clear("the service was ended")
    fell = _fell(run.stats, _SLOW, _FACTOR) or _fell(run.stats, _SOON, _MUCH)
    if fell is None:
        return Clear("as many requests get about as many tokens as before, or other work was done then")
    best, now, count = fell
    hits = run.all("stats")
    return _slow(
        case,
        f"Each request gets {now:.1f} tokens a second; it was {best[1]:.1f} before",
        lines=(hits[best[0]].index, hits[-1].index),
        arithmetic=(
            tokens_a_second("a request at best", best[1], "generated / running, three lines", "the log"),
            tokens_a_second("a request now", now, f"generated / running, the last {count} lines", "the log"),
        ),
        refute="the requests that run now have contexts many times as long as before",
    )


def _fell(stats: Sequence[Stats], lines: int, factor: float) -> tuple[tuple[int, float], float, int] | None:
    """The best before, what the last so many lines show instead, and how many those are; None where that is not less by
    this factor."""
    last = stats[-lines:]
    if len(stats) < _BEST + lines or not all(map(_works, last)) or not _as_many(last):
        return None
    if lines < _SLOW and not _pool_rests(last):
        return None
    best = _best(stats[:-lines], last)
    now = sum(map(_each, last)) / lines
    return (best, now, lines) if best is not None and now * factor <= best[1] else None


def _pool_rests(lines: Sequence[Stats]) -> bool:
    """Does the use of the KV cache stay where it is?"""
    used = [s.kv for s in lines if s.kv is not None]
    return len(used) == len(lines) and max(used) - min(used) <= _SAME_POOL


def _below_floor(case: Case, run: AnalysedRun) -> Finding | None:
    """Do the last lines show fewer tokens a request than any GPU gives to so few?"""
    step = steps_at_most(case, run)
    floor = max(_FLOOR, min(ENOUGH, step.value * _PART)) if step is not None else _FLOOR
    long = _SHORTER if floor > _FLOOR else _LONG
    fastest = tokens_of_few(run, long)
    if fastest is None or fastest >= floor or run.root is not None or run.stopped is not None or on_cpu(case):
        return None
    why = "offloaded weights cross the PCIe bus at each step: offload less, or use a smaller checkpoint"
    hits = run.all("stats")
    offload = case.effective("cpu-offload-gb") not in {None, "0", 0}
    return _slow(
        case,
        f"Each request gets {fastest:.1f} tokens a second, slower than any GPU"
        if fastest < _FLOOR
        else f"Each request gets {fastest:.1f} tokens a second, far below what the GPU gives",
        lines=(hits[-long].index, hits[-1].index),
        arithmetic=(
            tokens_a_second("a request at best", fastest, "generated / running", f"{long} lines"),
            *((step,) if step is not None else ()),
            tokens_a_second("a fault below", floor, f"up to {FEW} requests, nothing waits", "any GPU")
            if step is None or floor == _FLOOR
            else tokens_a_second("a fault below", floor, f"a tenth of that, {ENOUGH:g} at most", "any kernel and link"),
        ),
        refute="the engine computes on a processor, or it reads its weights from the host for each token",
        first=set_flag(case, "cpu-offload-gb", None, Direction.LOWER, why) if offload else _with_graphs(case),
    )


def _with_graphs(case: Case) -> Change | None:
    if case.effective("enforce-eager") is not True:
        return None
    why = "each step starts its kernels one by one; a graph starts them at once, which few requests feel most"
    return set_flag(case, "enforce-eager", None, Direction.REMOVE, why)


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


def _works(stats: Stats) -> bool:
    """Do requests run and get tokens, and is none of them thrown out?"""
    return stats.running > 0 and stats.generation > 0 and not stats.preemptions


def _each(stats: Stats) -> float:
    return stats.generation / stats.running


def _as_many(lines: Sequence[Stats]) -> bool:
    return max(s.running for s in lines) <= _ABOUT * min(s.running for s in lines)


def _no_less_work(before: Sequence[Stats], now: Sequence[Stats]) -> bool:
    """Had the steps as much to do then? As many requests, as many tokens of prompts, and, where there are prompts, as
    much of the KV cache to read: then a step that takes longer is no fuller one."""
    if not all(map(_works, before)) or _ABOUT * min(s.running for s in before) < max(s.running for s in now):
        return False
    then, prompts = (sum(s.prompt for s in part) / len(part) for part in (before, now))
    held, read = ([s.kv for s in part if s.kv is not None] for part in (now, before))
    same = bool(held) and len(read) == len(before) and max(held) <= _MORE_READ * sum(read) / len(read)
    return then == 0 == prompts or (same and then >= prompts)


def _best(before: Sequence[Stats], now: Sequence[Stats]) -> tuple[int, float] | None:
    """(Index of the first line, tokens a second of one request) where no less was to be done and it went fastest."""
    windows = ((i, before[i : i + _BEST]) for i in range(len(before) - _BEST + 1))
    fit = ((i, w) for i, w in windows if _no_less_work(w, now) and _as_many(w))
    return max(((i, sum(map(_each, w)) / _BEST) for i, w in fit), key=lambda pair: pair[1], default=None)


RULE = rule("VD308", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
