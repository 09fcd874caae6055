"""A Prometheus behind a URL: each vLLM that it scrapes, as two scrapes with a window between them."""

import math
import shlex
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from vllm_doctor.gather.http import NoResponse, get
from vllm_doctor.gather.prometheus_query import QueryRefused, Series, Silent, Strange, ask
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Subject
from vllm_doctor.records.host import Load, Metrics, Sample, Scrape
from vllm_doctor.records.reading import NOT_GIVEN, Absent, Known, Reading, Unknown
from vllm_doctor.records.snapshot import Snapshot

# Long enough for a rate at a scrape a minute, short enough to be about now.
WINDOW_S = 300
# A Prometheus that is busy is slow to say that it is one too.
DEADLINE_S = 5.0
# A hundred servers with all their series are 5 MiB.
_MAX_BYTES = 16 << 20
_ALL = '{__name__=~"vllm:.+",__name__!~".+_bucket"}'
_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_KV = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_MEAN = "avg_over_time({name}[" + str(WINDOW_S) + "s])"
# Of Prometheus' own labels the one that tells one server from another.
_INSTANCE = "instance"
_MOST = 64


_Samples: TypeAlias = dict[str, tuple[Sample, ...]]


def read(base: str, taken_at: str) -> Reading[tuple[Snapshot, ...]]:
    """One picture for each server; Absent where something else than a Prometheus answers."""
    health = get(f"{base}/-/healthy", deadline_s=DEADLINE_S, max_bytes=1 << 16)
    if isinstance(health, NoResponse) or health.status != 200 or b"Healthy" not in health.body:
        return Absent(f"{base} is not a Prometheus")
    now = time.time()
    last, before = _asked(base, _ALL, now), _asked(base, _ALL, now - WINDOW_S)
    if isinstance(last, Unknown):
        return last
    if isinstance(before, Unknown):
        return before
    older, newer = _by_server(before), _by_server(last)
    names = sorted({*older, *newer})[:_MOST]
    if not names:
        return Unknown(f"{base}: this Prometheus has no metric of vLLM", "scrape http://HOST:8000/metrics with it")
    loads = _loads(base, now)
    if isinstance(loads, Unknown):
        return loads
    return Known(
        tuple(_snapshot(base, name, taken_at, _metrics(base, name, (older, newer), loads, now)) for name in names), base
    )


def _metrics(
    base: str, name: str, told: tuple[_Samples, _Samples], loads: dict[str, Load], now: float
) -> Reading[Metrics]:
    """The server's two scrapes, its load and that of the model's other servers."""
    older, newer = (one.get(name) for one in told)
    if newer is None:
        return Unknown(f"{base} no longer has figures of {name}", f"curl -m 5 {shlex.quote(f'http://{name}/health')}")
    scrapes = (Scrape(now - WINDOW_S, older),) if older is not None else ()
    own = loads.get(name)
    peers = tuple(one for other, one in loads.items() if other != name and own and one.model == own.model)
    return Known(Metrics(base, (*scrapes, Scrape(now, newer)), (own, *peers) if own else ()), base)


def _snapshot(base: str, name: str, taken_at: str, metrics: Reading[Metrics]) -> Snapshot:
    there = Unknown("a Prometheus does not have it", f"run vllm-doctor diagnose on {name.rpartition(':')[0] or name}")
    return Snapshot(
        taken_at=taken_at,
        subject=Subject(place=f"{name} by {base}"),
        log=there,
        unit=Absent("a Prometheus reported it"),
        launch=there,
        version=NOT_GIVEN,
        metrics=metrics,
        gpus=there,
        driver=there,
        kernel=there,
        machine=there,
        probe=Absent("the figures are from a Prometheus; the server itself was not asked"),
        model_config=there,
        live=True,
    )


def _by_server(rows: Iterable[Series]) -> _Samples:
    found: dict[str, list[Sample]] = defaultdict(list)
    for row in rows:
        labels = dict(row.metric)
        name, server = labels.pop("__name__", ""), _named(labels.pop(_INSTANCE, ""))
        value = _number(row.value[1])
        if name and server and value is not None:
            found[server].append(Sample(name, labels, value))
    return {server: tuple(samples) for server, samples in found.items()}


def _loads(base: str, now: float) -> dict[str, Load] | Unknown:
    """Each server's means over the window, all its engines together."""
    kinds: dict[str, dict[str, list[tuple[float, str]]]] = {}
    for name in (_RUNNING, _WAITING, *_KV):
        rows = _asked(base, _MEAN.format(name=name), now)
        if isinstance(rows, Unknown):
            return rows
        told: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for row in rows:
            value = _number(row.value[1])
            if value is not None:
                told[_named(row.metric.get(_INSTANCE, ""))].append(
                    (value, excerpt.name(row.metric.get("model_name", "")))
                )
        kinds[name] = told
    found = {}
    for server, running in kinds[_RUNNING].items():
        if server not in kinds[_WAITING]:
            continue
        full = kinds[_KV[0]].get(server) or kinds[_KV[1]].get(server) or []
        found[server] = Load(
            server, running[0][1], sum(v for v, _ in running), sum(v for v, _ in kinds[_WAITING][server]),
            max((v for v, _ in full), default=None),
        )  # fmt: skip
    return found


def _asked(base: str, query: str, at: float) -> list[Series] | Unknown:
    address, remedy = f"{base}/api/v1/query", f"curl -m 5 '{base}/api/v1/query?query=up'"
    match ask(address, {"query": query, "time": f"{at:.3f}"}, deadline_s=DEADLINE_S, max_bytes=_MAX_BYTES):
        case Silent(why):
            return Unknown(why, remedy)
        case Strange(status, _):
            return Unknown(f"{address} answers {status}, not as a Prometheus does", remedy)
        case QueryRefused(why):
            return Unknown(f"{base}: {why}", remedy)
        case list(series):
            return series


def _named(label: str) -> str:
    """A server's name: what others wrote into a label is shown, and stands in commands."""
    return excerpt.name("".join(sign for sign in label if sign.isalnum() or sign in ".:-_[]/@"))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
