"""What /metrics tells of the load: gauges of the last scrape, rates of two; names as in vLLM 0.4 to 0.33."""

from vllm_doctor.records.host import Metrics, Scrape

KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
PREEMPTIONS = ("vllm:num_preemptions_total", "vllm:num_preemptions")
FINISHED = ("vllm:request_success_total", "vllm:request_success")
WAITING = ("vllm:num_requests_waiting",)
RUNNING = ("vllm:num_requests_running",)


def _same(name: str, wanted: tuple[str, ...]) -> bool:
    # Some agents write the colon as an underscore when they relabel.
    return name in wanted or name.replace("_", ":", 1) in wanted


def total(scrape: Scrape, names: tuple[str, ...]) -> float | None:
    """The sum over all series of a metric; None if the scrape has none of these names."""
    found = [s.value for s in scrape.samples if _same(s.name, names)]
    return sum(found) if found else None


def highest(scrape: Scrape, names: tuple[str, ...]) -> float | None:
    """The largest value of any series of a metric."""
    return max((s.value for s in scrape.samples if _same(s.name, names)), default=None)


def rate(metrics: Metrics, names: tuple[str, ...]) -> float | None:
    """Increase a second between two scrapes; None with one, a missing counter, or one that went back (a restart)."""
    if len(metrics.scrapes) < 2:
        return None
    first, last = metrics.scrapes[0], metrics.scrapes[-1]
    before, after, seconds = total(first, names), total(last, names), last.at - first.at
    if before is None or after is None or seconds <= 0 or after < before:
        return None
    return (after - before) / seconds


def label(metrics: Metrics, metric: str, name: str) -> str | None:
    """A label of an information gauge (`vllm:cache_config_info`)."""
    return next(
        (s.labels[name] for s in metrics.scrapes[-1].samples if _same(s.name, (metric,)) and name in s.labels), None
    )
