"""A server that goes on while nobody is served: its access log has errors alone, its health fails, its ranks wait.

All of it is below the last line that shows that the engine worked (`AnalysedRun.worked`), so one good answer ends it.
"""

from itertools import pairwise

from vllm_doctor.log.clock import second_of_year
from vllm_doctor.log.root_cause import AnalysedRun

# One request may be at fault itself; of three in a row, with no other between them, that is not to be assumed.
_REQUESTS = 3
# Of so many last requests so many failed, the last of all among them: those that are answered tell nothing of these.
_LATEST, _MANY = 10, 4
# So often did one fail after an answer, where half of them failed.
_AGAIN = 3
# Seconds within which a client that is stopped gives up all that it had asked.
_AT_ONCE = 30
# One wait of 60 s with which a log ends may be a compilation.
_WAITS = 2
# Of whoever asks without the key of the server.
_NO_KEY = frozenset({"401", "403"})


def unanswered(run: AnalysedRun) -> str | None:
    """What the end of the log shows instead of an engine that works; None where it shows nothing of the kind."""
    end = len(run.lines) if run.stopped is None else run.stopped  # a server that was told to stop answers 503
    after = [hit for hit in run.hits if run.worked < hit.index < end]
    failed = [hit for hit in after if hit.id == "request-failed"]
    if len(failed) >= _REQUESTS:
        first, last = run.lines[failed[0].index], failed[-1].fields["status"]
        return f"from line {first.number} on, {len(failed)} requests were answered with {last}, and no request with 200"
    if (nobody := _not_served(run) or _many_fail(run, end) or _given_up(run, end)) is not None:
        return nobody
    health = [hit for hit in after if hit.id in {"health-failed", "health-ok"}]
    if health and health[-1].id == "health-failed":
        told = run.lines[health[-1].index]
        return f"line {told.number}: /health was answered with {health[-1].fields['status']}, and not with 200 after it"
    waits = [hit for hit in run.waits if run.worked < hit.index < end]
    went_on = bool(waits) and any(line.text.strip() for line in run.lines[waits[-1].index + 1 : end])
    if len(waits) >= _WAITS or (waits and (went_on or run.reached() is None)):
        told, often = run.lines[waits[0].index], f"{len(waits)} times" if len(waits) > 1 else "once"
        return (
            f"from line {told.number} on, the engine said {often} that one process waits for another: kernels are "
            "compiled, a step is very long, or a worker hangs; py-spy dump of each worker shows which"
        )
    closing = run.last("stop-waits")
    if closing is not None and closing.index == max((h.index for h in run.hits), default=-1):
        return (
            f"line {run.lines[closing.index].number}: a stop waits for open connections, and does not end in this log"
        )
    return None


def _many_fail(run: AnalysedRun, end: int) -> str | None:
    """Of the last requests many failed, and the last of all; or half of them, again and again between answers: one
    answer after that settles nothing."""
    asked = [h for h in (*run.all("request-ok"), *run.all("request-failed")) if h.index < end]
    latest = sorted(asked, key=lambda hit: hit.index)[-_LATEST:]
    failed = [hit for hit in latest if hit.id == "request-failed"]
    again = sum(one.id == "request-ok" and then.id == "request-failed" for one, then in pairwise(latest))
    half = len(failed) * 2 >= _LATEST and again >= _AGAIN
    if len(failed) < _MANY or not (half or latest[-1].id == "request-failed"):
        return None
    first, last = run.lines[failed[0].index], failed[-1].fields["status"]
    return f"from line {first.number} on, {len(failed)} of the last {len(latest)} requests were answered with {last}"


def _given_up(run: AnalysedRun, end: int) -> str | None:
    """One request after the other was aborted, for longer than somebody takes who stops them all, and none answered."""
    ok = run.last("request-ok")
    given = [h for h in run.all("request-aborted") if (ok.index if ok is not None else -1) < h.index < end]
    if len(given) < _REQUESTS:
        return None
    first, last = run.lines[given[0].index], run.lines[given[-1].index]
    begun, ended = second_of_year(first.at), second_of_year(last.at)
    if begun is None or ended is None or ended - begun < _AT_ONCE:
        return None
    return (
        f"from line {first.number} on, {len(given)} requests were aborted and none was answered: the clients give up "
        "before the answer is complete; send one short request"
    )


def _not_served(run: AnalysedRun) -> str | None:
    """Nobody was answered since the start, and every request asked for what this server does not have."""
    refused = run.all("request-not-served")
    if len(refused) < _REQUESTS or run.all("request-ok"):
        return None
    last = refused[-1].fields
    why = (
        "they bear no key, or not the server's (--api-key, VLLM_API_KEY)"
        if last["status"] in _NO_KEY
        else "the server has no model of the name that they ask for, or does not serve this task (GET /v1/models, "
        "/openapi.json)"
    )
    return (
        f"{len(refused)} requests were answered with {last['status']}, the last to {last['path']}, none with 200: {why}"
    )
