"""What the last figures of a server that goes on put against an ok: requests that run or wait and get nothing, or less
and less, answers that are wrong by the server's own count. A rule waits for more of them, or knows the reason; a short
log has no more."""

from collections import Counter
from itertools import pairwise

from vllm_doctor.log.clock import second_of_year, seconds_between
from vllm_doctor.log.match import read, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.stats import Stats, parse_stats

# Lines of statistics without a token, ten seconds apart each: of the same requests, and where more of them come.
_STILL, _MORE = 2, 3
# Lines in which as many wait beside few that run, though none reads a prompt and the pool is nearly empty (percent).
_WAIT, _NEARLY_EMPTY = 5, 20.0
# Lines of one engine in which the same requests stand still, though lines of others stand between them, and the seconds
# within which the next one comes: V0 prints one of an idle time when a request comes.
_AMONG, _AGAIN, _NEXT, _BETWEEN = 10, 3, 20, 2
# One request may wait for the next step, or for its grammar; as many do not beside an engine that runs none.
_QUEUE = 3
# So many requests, and lines of statistics that count none of them.
_TAKEN = 3
# Seconds: statistics come every ten while requests run.
_SILENT = 60
# Lines in a row, and how much less each request gets at their end; the pool (percent) does not grow meanwhile.
_FALLS, _LESS, _SAME_POOL = 6, 4.0, 1.0
# Milliseconds for a token of one request, however many run beside it.
_A_TOKEN = 1000.0
# Lines of which one tells that answers are wrong.
_WRONG = 3


def against_an_ok(run: AnalysedRun) -> str | None:
    """What the figures show; None where nothing of the kind."""
    if run.stopped is not None:
        return None
    stand = (_standing_still, _among_others, _no_more_figures, _taken_in_vain)
    poor = (_waiting_in_vain, _less_and_less, _wrong, _slow_to_its_client)
    return next((told for ask in (*stand, *poor) if (told := ask(run)) is not None), None)


def _standing_still(run: AnalysedRun) -> str | None:
    """The last statistics show requests that run and no token, and nothing was answered since. VD306 waits for more of
    them; a long prompt makes the pool fill, and its tokens are counted when it is through."""
    told, last = run.all("stats"), run.stats
    count = next((n for n, s in enumerate(reversed(last)) if s.prompt or s.generation or not s.running), len(last))
    same = len({(s.running, s.kv) for s in last[-_STILL:]}) == 1
    more = count >= _MORE and last[-1].running + last[-1].waiting > last[-count].running + last[-count].waiting
    if not run.stalled or count < _STILL or not (same or more):
        return None
    if any(h.index > told[-count].index for h in run.all("request-ok")):
        return None
    running = f"{run.stalled} running requests" if run.stalled > 1 else "a running request"
    return (
        f"its last statistics count {running} and not one token: a long prompt takes some seconds, an engine that "
        "hangs does not come back; send one short request"
    )


def _among_others(run: AnalysedRun) -> str | None:
    """One engine of several, or a server whose lines stand between another's, has requests that stand still."""
    lanes: dict[tuple[str | None, int | None, str], list[tuple[str | None, Stats]]] = {}
    for hit in run.all("stats"):
        line = run.lines[hit.index]
        if (told := parse_stats(line.text)) is not None:
            lanes.setdefault((line.stream, line.pid, told.engine), []).append((line.at, told))
    for (_, _, engine), told_of in lanes.items():
        last = told_of[-_AMONG:]
        idle = [(at, s) for at, s in last if not (s.prompt or s.generation)]
        still = [(at, (s.running, s.kv)) for at, s in idle if s.running or s.waiting >= _QUEUE]
        (state, times), *_ = Counter(one for _, one in still).most_common(1) or [((0, None), 0)]
        clocks = [at for at, one in still if one == state]
        gaps = [seconds_between(before, after) for before, after in pairwise(clocks)]
        ends = any((s.running, s.kv) == state for _, s in last[-2:])
        if times < _AGAIN or not ends:
            continue
        at_once = not any(gap is None or gap > _NEXT for gap in gaps)
        where = [n for n, (_, s) in enumerate(last) if (s.running, s.kv) == state]
        between = where[-1] - where[0] + 1 - len(where)
        if len(lanes) > 1 or (at_once and between >= _BETWEEN):
            of = f" of engine {engine}" if len(lanes) > 1 else ""
            counted = f"{state[0]} running requests" if state[0] else f"{last[-1][1].waiting} requests that wait"
            return (
                f"{times} lines of statistics{of} count {counted}, not one token and no change, "
                "while lines between them show work: one engine of several hangs, or two servers write into this text"
            )
    return None


def _no_more_figures(run: AnalysedRun) -> str | None:
    """Requests were taken, or still ran in the last statistics; the log goes on, and no statistics or answers come."""
    told = run.all("stats")
    if len(told) < _STILL or run.is_script:
        return None
    last = told[-1].index
    if any(h.index > last for h in run.all("request-ok")):
        return None
    below = range(last + 1, len(run.lines))
    taken = next((i for i in below if says(run.lines[i].text, "request-taken")), None)
    since = taken if taken is not None else last if run.stats and run.stats[-1].running else None
    if since is None:
        return None
    first = run.lines[since]
    own = (run.lines[i] for i in reversed(below) if run.lines[i].module and run.lines[i].stream == first.stream)
    begun, end = (second_of_year(at) for at in (first.at, next((one.at for one in own if one.at), None)))
    passed = end - begun if begun is not None and end is not None else 0
    if passed < _SILENT:
        return None
    ran = run.stats[-1].running if run.stats else 0
    what = "a request was taken" if taken is not None else "a request ran" if ran == 1 else f"{ran} requests ran"
    return (
        f"line {first.number}: {what}, and for {passed:.0f} s the log shows neither statistics, "
        "which come every ten seconds while the engine computes, nor an answer: the engine may hang; send one short "
        "request"
    )


def _taken_in_vain(run: AnalysedRun) -> str | None:
    """Requests are taken, and statistics go on to count none of them: neither running nor waiting, nor a token. One
    that was too wrong to be scheduled is answered at once."""
    ok = run.last("request-ok")
    since = ok.index if ok is not None else run.worked
    taken = [i for i in range(since + 1, len(run.lines)) if says(run.lines[i].text, "request-taken")]
    by = Counter(run.lines[i].module for i in taken)
    if not by or max(by.values()) < _TAKEN or any(h.index > taken[0] for h in run.all("request-refused")):
        return None
    read_of = (parse_stats(run.lines[hit.index].text) for hit in run.all("stats") if hit.index > taken[0])
    told = [stats for stats in read_of if stats is not None]
    if len(told) < _TAKEN or any(s.running or s.prompt or s.generation for s in told):
        return None
    return (
        f"from line {run.lines[taken[0]].number} on, {max(by.values())} requests were taken, and {len(told)} lines of "
        "statistics count none that runs, and no tokens; they wait for another server, or the engine hangs"
    )


def _less_and_less(run: AnalysedRun) -> str | None:
    """As many requests get fewer tokens from line to line, and nothing that is read with them grew."""
    last = run.stats[-_FALLS:]
    if len(last) < _FALLS or len({s.running for s in last}) > 1 or not last[-1].running:
        return None
    each = [s.generation / s.running for s in last]
    used = [s.kv for s in last if s.kv is not None]
    falls = all(after < before for before, after in pairwise(each)) and each[-1] * _LESS <= each[0]
    if not falls or len(used) < _FALLS or max(used) - min(used) > _SAME_POOL or any(s.preemptions for s in last):
        return None
    return (
        f"from line to line of its statistics each request got fewer tokens, {each[0]:.1f} a second and then "
        f"{each[-1]:.1f}: nvidia-smi -q -d PERFORMANCE shows what holds a card back, top a busy host"
    )


def _wrong(run: AnalysedRun) -> str | None:
    """The server itself counts answers whose logits were no numbers."""
    wrong = next((s.corrupted for s in reversed(run.stats[-_WRONG:]) if s.corrupted), None)
    if wrong is None:
        return None
    return (
        f"its statistics count {wrong} corrupted requests: their logits were NaN, and what was answered is no text of "
        "the model"
    )


def _waiting_in_vain(run: AnalysedRun) -> str | None:
    """Requests wait beside those that run, and neither the pool nor a prompt is in their way."""
    last = run.stats[-_WAIT:]
    idle = (s.waiting and s.running and not s.prompt and s.kv is not None and s.kv < _NEARLY_EMPTY for s in last)
    if len(last) < _WAIT or not all(idle) or last[-1].waiting < last[0].waiting:
        return None
    return (
        f"{last[-1].waiting} requests wait beside {last[-1].running} that run, though the KV cache is nearly empty and "
        "no prompt is read: max_num_seqs or, for adapters, max_loras lets no more run at once, or the scheduler holds "
        "them back"
    )


def _slow_to_its_client(run: AnalysedRun) -> str | None:
    """Somebody measured it from the same terminal, and each token after the first took a second and more."""
    each = (read("client-token-time", line.text) for line in reversed(run.lines))
    told = next((one for one in each if one is not None), None)
    if told is None or float(told["ms"]) < _A_TOKEN:
        return None
    return (
        f"the benchmark below counts {float(told['ms']):.0f} ms for each token of a request: with few requests at once "
        "that is slow on any card; with many, max_num_seqs lets too many run"
    )
