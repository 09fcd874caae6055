"""What a server's own figures say against an ok: requests that wait while none runs, or that all end in an error."""

from vllm_doctor.knowledge.serving import FINISHED, RUNNING, SLEEP, WAITING, total
from vllm_doctor.records.host import Metrics, Scrape

# One request may wait for the next step; these do not.
_WAIT = 2
# finished_reason of a request that was not answered (vllm/v1/engine: FinishReason).
_UNANSWERED = frozenset({"error", "abort"})
_FEW = 3


def served_nobody(metrics: Metrics) -> str | None:
    """Why the scrapes do not show a server that works; None where nothing in them says so."""
    last = metrics.scrapes[-1]
    if not all(_only_waits(scrape) for scrape in metrics.scrapes):
        return _only_errors(last)
    waiting = total(last, WAITING) or 0.0
    return f"{metrics.url}: {waiting:.0f} requests wait and none runs"


def _only_waits(scrape: Scrape) -> bool:
    return (total(scrape, WAITING) or 0.0) >= _WAIT and total(scrape, RUNNING) == 0 and not total(scrape, SLEEP)


def _only_errors(scrape: Scrape) -> str | None:
    """Counters begin with the server, so one answer since then is enough."""
    ended = [s for s in scrape.samples if s.name in FINISHED]
    failed = sum(s.value for s in ended if s.labels.get("finished_reason") == "error")
    answered = sum(s.value for s in ended if s.labels.get("finished_reason") not in _UNANSWERED)
    if failed >= _FEW and not answered:
        return f"all {failed:.0f} requests that the server has ended since its start ended in an error"
    return None
