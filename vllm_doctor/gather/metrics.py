"""/metrics of vLLM: two scrapes, and only if it is vLLM that answers and what it says can be true."""

import json
import math
import shlex
import time
from pathlib import Path

from vllm_doctor.gather.bounded import end_of, title
from vllm_doctor.gather.http import NO_PASS, NoResponse, Pass, get_keyed
from vllm_doctor.records import excerpt
from vllm_doctor.records.host import Metrics, Sample, Scrape
from vllm_doctor.records.reading import Known, Reading, Unknown

INTERVAL_S = 0.5
MAX_BYTES = 8 << 20
# The reader takes the square of a line's length; a metric of vLLM with all its labels has some hundred characters.
_LONGEST = 8192
_OURS = ("vllm:", "vllm_")
_KEPT = (*_OURS, "process_", "http_request")
_MOST_REQUESTS = 1e6
_SHARES = ("kv_cache_usage_perc", "gpu_cache_usage_perc", "cpu_cache_usage_perc")


def _curious(url: str) -> str:
    return f"curl -s -m 5 {shlex.quote(url)} | head"


def scrape_twice(
    base: str, *, deadline_s: float, interval_s: float = INTERVAL_S, given: Pass = NO_PASS
) -> Reading[Metrics]:
    """Two scrapes of `base`/metrics. With only one in the time given there are no rates, but there is a reading."""
    end = time.monotonic() + deadline_s
    url = f"{base}/metrics"
    first = _scrape(url, deadline_s, given)
    if isinstance(first, Unknown):
        return first
    if time.monotonic() + interval_s + 0.05 > end:
        return Known(Metrics(url, (first,)), url)
    time.sleep(interval_s)
    second = _scrape(url, max(0.05, end - time.monotonic()), given)
    if isinstance(second, Unknown):
        return Known(Metrics(url, (first,)), url)
    return Known(Metrics(url, (first, second)), url)


def scrape_few(base: str, names: tuple[str, ...], *, deadline_s: float, given: Pass = NO_PASS) -> Scrape | Unknown:
    """One scrape, of which only samples of these names are parsed (without `vllm:` and `_total`), and when the process
    began: a whole page costs thirty times as much."""
    return _scrape(f"{base}/metrics", deadline_s, given, names)


def _few(text: str, names: tuple[str, ...]) -> str:
    """The lines of these names; the whole text where there is none, so that it is said what answered."""
    begins = ("process_start_time_seconds", *(f"{own}{name}" for own in _OURS for name in names))
    kept = [line for line in text.split("\n") if line.startswith(begins)]
    return "\n".join((*kept, "")) if any(line.startswith(_OURS) for line in kept) else text


def _scrape(url: str, deadline_s: float, given: Pass, names: tuple[str, ...] = ()) -> Scrape | Unknown:
    at = time.time()
    answer = get_keyed(url, given, deadline_s=deadline_s, max_bytes=MAX_BYTES)
    if isinstance(answer, NoResponse):
        return Unknown(f"{answer.reason}", _curious(url))
    if answer.status in {401, 403}:
        remedy = "run as root, which can read the key" if not given.key else "vllm_metrics_networks: name this host too"
        return Unknown(f"{url} answers {answer.status}: it refuses requests from here", remedy)
    if answer.status != 200:
        return Unknown(f"{url} answers {answer.status} (server: {answer.server or 'unnamed'})", _curious(url))
    text = answer.body.decode("utf-8", "replace")
    samples = parse(_few(text, names) if names else text)
    if isinstance(samples, str):
        return Unknown(f"{url}: {samples} (server: {answer.server or 'unnamed'})", _curious(url))
    return Scrape(at, samples)


def parse(text: str) -> tuple[Sample, ...] | str:
    """The vLLM and process samples of an exposition, or why it is not one of vLLM's."""
    from prometheus_client.parser import text_string_to_metric_families

    found: list[Sample] = []
    if max(map(len, text.split("\n"))) > _LONGEST:
        return f"a line of more than {_LONGEST} characters, which no metric has"
    try:
        for family in text_string_to_metric_families(text):
            found.extend(
                Sample(sample.name, dict(sample.labels), float(sample.value))
                for sample in family.samples
                if sample.name.startswith(_KEPT)
            )
    except (ValueError, KeyError, IndexError, TypeError, OverflowError) as broken:
        return f"not in the Prometheus format ({excerpt.said(str(broken))})"
    if not any(s.name.startswith(_OURS) for s in found):
        return "no vLLM metric in it: another program answers here" if text.strip() else "an empty answer"
    impossible = next((s for s in found if not _possible(s)), None)
    if impossible is not None:
        return f"{impossible.name} is {impossible.value:g}, which is impossible"
    return tuple(found)


def _possible(sample: Sample) -> bool:
    """A share lies between 0 and 1, a counter is not negative, no server has a million requests at once.

    NaN elsewhere is an empty summary and tells nothing.
    """
    if sample.name.endswith(_SHARES):
        return 0 <= sample.value <= 1.0001
    if sample.name.endswith(("_total", "_count", "_bucket")):
        return sample.value >= 0 and not math.isinf(sample.value)
    return "num_requests_" not in sample.name or 0 <= sample.value < _MOST_REQUESTS


def read_file(path: str) -> Reading[Metrics]:
    """Scrapes kept in a file: an exposition as `curl` wrote it, or several after one another, or our own JSON."""
    import msgspec

    data = end_of(path, "--metrics", MAX_BYTES)
    if isinstance(data, Unknown):
        return data
    path = title(path)
    if data[:1] == b"{":
        try:
            return Known(msgspec.json.decode(data, type=Metrics), path)
        except (msgspec.DecodeError, json.JSONDecodeError) as broken:
            return Unknown(f"{path}: not kept metrics: {broken}", _curious("http://127.0.0.1:8000/metrics"))
    if b"\0" in data[:4096]:
        return Unknown(f"{path}: not a text file", "give what /metrics answered: curl -s HOST:8000/metrics > FILE")
    parsed = parse(data.decode("utf-8", "replace"))
    if isinstance(parsed, str):
        return Unknown(f"{path}: {parsed}", "give what /metrics of vLLM answered: curl -s HOST:8000/metrics > FILE")
    try:
        at = Path(path).stat().st_mtime
    except OSError:
        at = 0.0
    return Known(Metrics(path, (Scrape(at, parsed),)), path)
