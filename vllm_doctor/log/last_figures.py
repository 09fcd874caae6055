"""What the last figures of a server that goes on put against an ok: requests that run or wait and get nothing, drafts
that are made in vain. A rule waits for more of them, or knows the reason; a short log has no more."""

from vllm_doctor.log.match import read
from vllm_doctor.log.root_cause import AnalysedRun

# Lines of statistics without a token, ten seconds apart each: of the same requests, and where more of them come.
_STILL, _MORE = 2, 3
# Lines in which as many wait beside few that run, though none reads a prompt and the pool is nearly empty (percent).
_WAIT, _NEARLY_EMPTY = 5, 20.0
# Lines of a drafter of which hardly a token is taken (percent); any that fits its model is above it.
_DRAFTS, _IN_VAIN = 3, 2.0


def against_an_ok(run: AnalysedRun) -> str | None:
    """What the figures show; None where nothing of the kind."""
    if run.stopped is not None:
        return None
    return _standing_still(run) or _waiting_in_vain(run) or _drafted_in_vain(run)


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


def _drafted_in_vain(run: AnalysedRun) -> str | None:
    """A drafter whose tokens are hardly ever taken makes each step dearer, and none shorter."""
    told = [rate for line in run.lines if (rate := read("draft-acceptance", line.text)) is not None][-_DRAFTS:]
    if len(told) < _DRAFTS or any(float(one["rate"]) >= _IN_VAIN for one in told):
        return None
    return (
        f"of the tokens that are drafted {told[-1]['rate']} % are accepted: the draft does not belong to this model or "
        "its release computes it wrong; each step pays for it in vain, and answers may be wrong, too"
    )
