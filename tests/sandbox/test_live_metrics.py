"""The queries of alerts and panels on a real vLLM: a Prometheus scrapes the sandbox's server."""

import contextlib
import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitor.test_faults import Prometheus
from tests.monitor.test_rules import expressions, series
from tests.sandbox.conftest import Host
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.monitor import rules
from vllm_doctor.monitor.dashboards import dashboards
from vllm_doctor.monitor.metric_names import metric_names

pytestmark = pytest.mark.sandbox
AT = f"127.0.0.1:{os.environ.get('PORT') or '8000'}"
RELEASE = [as_version("0.32.0")]
# Of the doctor's text file, node-exporter and Alertmanager, which are not scraped here.
OTHERS = re.compile(r"vllm_|node_|alertmanager_|prometheus_notifications_errors_total")


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Requests for as long as it is used: a rate needs tokens between two scrapes."""
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            body = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 16, "ignore_eos": True}).encode()
            wanted = urllib.request.Request(
                f"http://{AT}/v1/completions", body, headers={"Content-Type": "application/json"}
            )
            with contextlib.suppress(OSError), urllib.request.urlopen(wanted, timeout=60) as got:
                got.read()
            done.wait(0.25)  # some requests between any two scrapes; more of them only take processors

    users = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    for user in users:
        user.start()
    try:
        yield
    finally:
        done.set()
        for user in users:
            user.join()


def test_every_query_has_data_on_a_real_server(host: Host, tmp_path: Path) -> None:
    """What has none is of a source that is not scraped here, and the test names that."""
    host.whole()
    job = {
        "job_name": "vllm",
        "scrape_timeout": "2s",
        "static_configs": [{"targets": [AT], "labels": {"host": "h", "unit": "vllm@main.service"}}],
    }
    prometheus = Prometheus(tmp_path, [job], rules.text(RELEASE), every="2s")
    try:
        with load():
            time.sleep(30)
        the_words_are_series(prometheus)
        every_panel_of_vllm_has_figures(prometheus)
        every_rule_reads_series_that_are_there(prometheus)
        firing = {row["metric"]["alertname"] for row in asked(prometheus, 'ALERTS{alertstate="firing"}')}
        assert not firing
    finally:
        prometheus.stop()


def asked(prometheus: Prometheus, query: str) -> list[dict[str, dict[str, str]]]:
    """The answer to an instant query."""
    told: list[dict[str, dict[str, str]]] = prometheus.ask("/api/v1/query", query=query)["result"]
    return told


def the_words_are_series(prometheus: Prometheus) -> None:
    known, lacking = metric_names(RELEASE)
    assert not lacking
    histograms = {row["metric"] for row in rules.source()["objectives"] if "metric" in row}
    for word, selector in known.items():
        name = rules.suffixed(selector, "_bucket") if word in histograms else selector
        assert asked(prometheus, name), name


def every_panel_of_vllm_has_figures(prometheus: Prometheus) -> None:
    queries = {q for made in dashboards(RELEASE).values() for q in expressions(json.loads(made))}
    silent = []
    for query in sorted(queries):
        bare = re.sub(r',?(model|card)=~"[$][a-z]+"', "", query)  # labels of the role's targets
        if not asked(prometheus, re.sub(r"[$][a-z]+", ".*", bare)):
            silent.append(query)
    assert not [query for query in silent if not OTHERS.search(query) and "ALERTS" not in query]


def every_rule_reads_series_that_are_there(prometheus: Prometheus) -> None:
    there = set(prometheus.ask("/api/v1/label/__name__/values"))
    read = {name for group in rules.groups(RELEASE) for rule in group["rules"] for name in series(rule)}
    assert not {name for name in read - there if not OTHERS.match(name)}
    wanted = {row["alert"] for row in rules.source()["objectives"]}
    end = time.monotonic() + 180  # a server on a busy machine answers too late for a scrape now and then
    while (recorded := objectives_of(prometheus)) != wanted and time.monotonic() < end:
        time.sleep(1)
    assert recorded == wanted


def objectives_of(prometheus: Prometheus) -> set[str]:
    """The objectives whose late and failed requests are recorded at this moment."""
    return {row["metric"]["objective"] for row in asked(prometheus, "vllm_objective:missed:ratio_rate5m")}
