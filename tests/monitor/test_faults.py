"""From a fault to a firing alert on a real Prometheus, sixty times as fast: a second here is a minute there.

Windows, offsets and `for` of the rules are divided by 60 and a scrape is every half second, so 30 s; VllmNoRequests,
which needs an hour of use before it, is divided by 300. A healthy idle server and one under load are watched for
the whole time, an hour there.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from tests import ports
from tests.debian import program
from tests.monitor.test_host import snapshot
from tests.monitor.test_rules import expressions, series
from tests.render.sample import MEMORY, diagnosis, finding
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.monitor import over_time, rules
from vllm_doctor.monitor.dashboards import dashboards
from vllm_doctor.monitor.host_text import host_rows
from vllm_doctor.render import prometheus as prometheus_text

SCRAPE_S = 0.5
SLACK_S = 4.0  # a busy machine: two processors for everything else that is tested
# On one, a scrape may miss its 0.4 s, and the `for` of a rule that needs it begins again.
AGAIN_S = 30.0
HOSTILE = 'a"} or vector(1) {{ 7*7 }}\nvllm:num_requests_waiting 99'
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Vllm:
    """A server whose page grows as vLLM's does; its faults are attributes."""

    def __init__(self, name: str, *, load: bool = True) -> None:
        self.name, self.load, self.began = name, load, time.time()
        self.kv, self.running, self.waiting = (0.6, 8, 1) if load else (0.0, 0, 0)
        self.preempts = self.stalled = self.html = self.hangs = False
        self.renamed = ""
        self.tokens = self.ended = self.preempted = 0.0
        self.before = time.monotonic()
        self.lock = threading.Lock()
        outer = self

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if outer.hangs:
                    time.sleep(5)
                body = b"<html>proxy error</html>" if outer.html else outer.page().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html" if outer.html else "text/plain; version=0.0.4")
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # it hung for longer than it was waited for
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def page(self) -> str:
        with self.lock:
            now = time.monotonic()
            passed, self.before = now - self.before, now
            if self.load and not self.stalled:
                self.tokens += 900 * passed
                self.ended += 60 * passed
            if self.preempts:
                self.preempted += 30 * passed
            label = f'engine="0",model_name={json.dumps(HOSTILE)}'
            lines = [f"process_start_time_seconds {self.began}"]
            gauges = {"kv_cache_usage_perc": self.kv, "num_requests_running": self.running}
            gauges["num_requests_waiting"] = self.waiting
            counters = {"num_preemptions_total": self.preempted, "generation_tokens_total": self.tokens}
            counters |= {"prompt_tokens_total": self.tokens, "prefix_cache_queries_total": self.tokens}
            counters["prefix_cache_hits_total"] = self.tokens / 2
            lines += [f"vllm:{name}{{{label}}} {value}" for name, value in (gauges | counters).items()]
            lines.append(f'vllm:request_success_total{{{label},finished_reason="stop"}} {self.ended}')
            for name, bound in (
                ("time_to_first_token_seconds", "2.5"),
                ("inter_token_latency_seconds", "0.1"),
                ("e2e_request_latency_seconds", "60.0"),
            ):
                lines += [f'vllm:{name}_bucket{{{label},le="{le}"}} {self.ended}' for le in (bound, "+Inf")]
                lines += [f"vllm:{name}_count{{{label}}} {self.ended}", f"vllm:{name}_sum{{{label}}} {self.ended}"]
            text = "\n".join(lines) + "\n"
        return text.replace(self.renamed, self.renamed + "_v2") if self.renamed else text

    def kill(self) -> None:
        self.http.shutdown()
        self.http.server_close()


def scaled(text: str, by: float) -> str:
    """A rule's expression or `for` with every span divided."""

    def span(found: re.Match[str]) -> str:
        return f"{round(int(found[1]) * UNITS[found[2]] * 1000 / by)}ms"

    text = re.sub(r"(?<=[\[:])(\d+)([smhd])(?=[\]:])", span, text)
    text = re.sub(r"(?<=offset )(\d+)([smhd])", span, text)
    if re.fullmatch(r"(\d+[smhd])+", text):  # 4m45s
        held = sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))
        return f"{round(held * 1000 / by)}ms"
    return text


def fast_rules(*, without: Sequence[str] = ()) -> str:
    groups = rules.groups([as_version("0.32.0")], numbers={"first_token_s": 2.5}, without=without)
    for group in groups:
        group["interval"] = "500ms"
        for rule in group["rules"]:
            by = 300 if rule.get("alert") == "VllmNoRequests" else 60
            rule["expr"] = scaled(rule["expr"], by)
            if "for" in rule:
                rule["for"] = scaled(rule["for"], by)
    return str(yaml.safe_dump({"groups": groups}))


class Prometheus:
    """A real one on a port of its own, which scrapes itself as the job monitoring."""

    def __init__(
        self, folder: Path, jobs: list[dict[str, Any]], rules_text: str, *, every: str = "500ms", alertmanager: str = ""
    ) -> None:
        (folder / "rules.yml").write_text(rules_text, encoding="utf-8")
        port = ports.unused()
        itself = {"job_name": "monitoring", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        config: dict[str, Any] = {
            "global": {"scrape_interval": every, "scrape_timeout": "400ms", "evaluation_interval": every},
            "rule_files": ["rules.yml"],
            "scrape_configs": [*jobs, itself],
        }
        if alertmanager:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self.url = f"http://127.0.0.1:{port}"
        words = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [program("prometheus"), *words, f"--web.listen-address=127.0.0.1:{port}"], stderr=self.log, stdout=self.log
        )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=2):
                return
            time.sleep(0.2)
        raise TimeoutError((folder / "log").read_text()[-2000:])

    def ask(self, path: str, **words: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(words)}", timeout=20) as got:
            return json.load(got)["data"]

    def firing(self) -> dict[tuple[str, str], float]:
        """Alert and host, and when it began to fire."""
        told = self.ask("/api/v1/query", query='min_over_time((timestamp(ALERTS{alertstate="firing"}))[10m:500ms])')
        began: dict[tuple[str, str], float] = {}
        for one in told["result"]:  # an alert may fire as a warning, and later as critical
            who = one["metric"]["alertname"], one["metric"].get("host", "")
            began[who] = min(float(one["value"][1]), began.get(who, float("inf")))
        return began

    def held_since(self, alert: str, host: str, fault: float) -> float:
        """When the rule's condition first held after a fault; infinity where it never did."""
        window = max(1, round(time.time() - fault))
        series_ = f'timestamp(ALERTS{{alertname="{alert}",host="{host}"}})'
        told = self.ask("/api/v1/query", query=f"min_over_time(({series_})[{window}s:500ms])")
        return min((float(one["value"][1]) for one in told["result"]), default=float("inf"))

    def unanswered(self) -> set[tuple[str, str]]:
        """The alert that is right of a host whose answer once came later than the timeout, as on a machine with no
        processor to spare."""
        told = self.ask("/api/v1/query", query='min_over_time(up{job="vllm"}[10m]) == 0')
        return {("VllmDown", one["metric"]["host"]) for one in told["result"]}

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        self.log.close()


def jobs(servers: list[Vllm], text: Text) -> list[dict[str, Any]]:
    """What is scraped: the servers, and the text file of a host."""
    targets = [
        {"targets": [f"127.0.0.1:{s.port}"], "labels": {"host": s.name, "unit": "vllm@main.service"}} for s in servers
    ]
    told = [{"targets": [f"127.0.0.1:{text.port}"], "labels": {"host": "h"}}]
    return [{"job_name": "vllm", "static_configs": targets}, {"job_name": "node", "static_configs": told}]


class Text(Vllm):
    """The doctor's text file, as node-exporter serves it."""

    def page(self) -> str:
        told = msgspec.structs.replace(diagnosis(finding(title=HOSTILE)), memory_use=MEMORY)
        return prometheus_text.text([told], time.time(), rows=host_rows([snapshot()]))


# Alert that must come → the fault.
FAULTS: dict[str, dict[str, object]] = {
    "VllmKvCacheHigh": {"kv": 0.92, "waiting": 3},
    "VllmKvCacheFull": {"kv": 0.99, "preempts": True},
    "VllmBacklog": {"waiting": 40},
    "VllmEngineStandsStill": {"stalled": True},
    "VllmWaitingWithoutTokens": {"stalled": True, "running": 0, "waiting": 4},
    "VllmPreemptions": {"preempts": True},
    "VllmDown": {"html": True},
    "VllmMetricMissing": {"renamed": "vllm:kv_cache_usage_perc"},
    "VllmNoRequests": {"load": False, "running": 0, "waiting": 0, "kv": 0.0},
}
KILLED, HUNG = "killed", "hung"


class Seen(NamedTuple):
    """What fired and when, when each fault began, and the Prometheus that saw it."""

    at: dict[tuple[str, str], float]
    began: dict[str, float]
    prometheus: Prometheus


@contextlib.contextmanager
def fired(folder: Path) -> Iterator[Seen]:
    """Every fault once, all at the same time, each on a server of its own."""
    servers = {name: Vllm(name) for name in (*FAULTS, KILLED, HUNG, "busy")}
    servers["idle"] = Vllm("idle", load=False)
    text = Text("text")
    prometheus = Prometheus(folder, jobs(list(servers.values()), text), fast_rules())
    try:
        time.sleep(26)  # VllmNoRequests looks back on an hour and 20 minutes of use: 24 s
        began: dict[str, float] = {}
        for alert, fault in FAULTS.items():
            for word, value in fault.items():
                setattr(servers[alert], word, value)
            began[alert] = time.time()
        servers[KILLED].kill()
        servers[HUNG].hangs = True
        began[KILLED] = began[HUNG] = time.time()
        least, end = time.monotonic() + 34, time.monotonic() + 34 + AGAIN_S
        wanted = {(alert, alert) for alert in FAULTS} | {("VllmDown", KILLED), ("VllmDown", HUNG)}
        while time.monotonic() < end and (time.monotonic() < least or not wanted <= set(prometheus.firing())):
            time.sleep(1)
        yield Seen(prometheus.firing(), began, prometheus)
    finally:
        prometheus.stop()
        for server in (*servers.values(), text):
            server.kill()


def test_from_fault_to_alert(tmp_path: Path) -> None:
    """One test for all: each worker of a run side by side would make the minute of the faults anew."""
    with fired(tmp_path) as seen:
        every_fault_is_an_alert_in_time(seen)
        an_hour_of_health_has_no_alert(seen)
        every_panel_has_figures(seen)
        every_selector_of_every_rule_is_a_series_or_is_listed(seen)
        the_page_of_a_prometheus(seen, tmp_path)


def every_fault_is_an_alert_in_time(seen: Seen) -> None:
    """At most two scrapes after the fault the `for` begins, so no rule waits for a window to empty; and it fires."""
    late = {}
    for alert, host in [*((alert, alert) for alert in FAULTS), ("VllmDown", KILLED), ("VllmDown", HUNG)]:
        took = seen.prometheus.held_since(alert, host, seen.began[host]) - seen.began[host]
        print(f"{alert} on {host}: `for` began after {took:.1f} s")
        if took > 2 * SCRAPE_S + SLACK_S or (alert, host) not in seen.at:
            late[alert, host] = took
    assert not late


def an_hour_of_health_has_no_alert(seen: Seen) -> None:
    healthy = {one for one in seen.at if one[1] in {"idle", "busy"} and one[0] != "VllmDoctorMissing"}
    assert not healthy - seen.prometheus.unanswered()


def every_panel_has_figures(seen: Seen) -> None:
    """All of charts.yml, the queries of the dashboards too: none is empty where servers and text file are scraped."""
    now = time.time()
    charts = over_time.of_prometheus(seen.prometheus.url, now - 60, now, [as_version("0.32.0")])
    assert [chart.title for chart in charts] == [row["title"] for row in over_time.source()]
    assert not [chart.title for chart in charts if not chart.lines]
    asked = {q for made in dashboards([as_version("0.32.0")]).values() for q in expressions(json.loads(made))}
    for query in sorted(asked):
        lately = f"last_over_time(({re.sub(r'[$][a-z]+', '.*', query)})[60s:1s])"
        assert seen.prometheus.ask("/api/v1/query", query=lately)["result"], query


def every_selector_of_every_rule_is_a_series_or_is_listed(seen: Seen) -> None:
    """What no server here has: the instrumentator's counters, node-exporter's own, and Alertmanager's."""
    absent = {
        "http_requests_total", "vllm:engine_sleep_state", "node_textfile_scrape_error",
        "node_memory_MemAvailable_bytes", "node_filesystem_avail_bytes", "node_filesystem_size_bytes",
        "alertmanager_notifications_failed_total", "prometheus_notifications_errors_total",
        "alertmanager_config_last_reload_successful",
        "vllm_certificate_expiry_timestamp_seconds", "vllm_fabric_manager_mismatch", "vllm_gpu_row_remap_failed",
        "vllm_doctor_finding_since_timestamp_seconds",
        "vllm_guard_last_restart_timestamp_seconds", "vllm_guard_restarts_left", "vllm_plan_kv_cache_bytes",
        "vllm_start_kv_cache_bytes",
    }  # fmt: skip
    names = set(seen.prometheus.ask("/api/v1/label/__name__/values"))
    told = {name for group in rules.groups([as_version("0.32.0")]) for rule in group["rules"] for name in series(rule)}
    assert told - names == absent


def the_page_of_a_prometheus(seen: Seen, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = ["report", "--prometheus", seen.prometheus.url, "--since", "2m", "--output", str(page)]
    doctor = str(Path(sys.executable).with_name("vllm-doctor"))
    done = subprocess.run([doctor, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    html = page.read_text()
    assert html.count("<polyline") > 20
    assert "<script" not in html
    assert "vector(1) {{ 7*7 }}\nvllm" not in html
