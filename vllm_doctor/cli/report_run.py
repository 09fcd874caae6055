"""What `report` does with its options."""

import re
import time
from typing import NamedTuple

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.output import settle, unwritten
from vllm_doctor.cli.span import seconds
from vllm_doctor.cli.streams import say
from vllm_doctor.gather import http_config
from vllm_doctor.gather.http import NO_PASS, Login
from vllm_doctor.knowledge.versions import newest_known, parse_version
from vllm_doctor.monitor.over_time import NotTold, of_guard, of_prometheus
from vllm_doctor.operate.history import deeds
from vllm_doctor.operate.history.store_format import store_file
from vllm_doctor.operate.history.store_reader import Reader, Unreadable
from vllm_doctor.records import excerpt
from vllm_doctor.records.unit_name import service
from vllm_doctor.render.file import put
from vllm_doctor.render.report import ReportEvent, ServiceReport, page

_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?")
_EVENTS = 200
_LONGEST = 366 * 86400.0


class PrometheusOptions(NamedTuple):
    """The Prometheus that is asked: its address, the file with its password, the release whose metrics it has."""

    url: str | None
    http_config: str | None
    version: str | None


def run(since: str, unit: str | None, asked: PrometheusOptions, *, output: str | None, force: bool) -> int:
    """Write the page; the exit code. Raises UsageProblem, also where there was nothing to draw."""
    url, config, version = asked
    if url is not None and unit is not None:
        raise UsageProblem("--unit names a service of the guard's records; with --prometheus all services are drawn")
    if url is None and version is not None:
        raise UsageProblem("--vllm-version names the metrics of a Prometheus; the guard's records need none")
    if url is None and config is not None:
        raise UsageProblem("--http-config has the password of a Prometheus; name it with --prometheus URL")
    span = seconds(since)
    if span is None or not 0 < span <= _LONGEST:
        raise UsageProblem(
            f"--since: found {excerpt.value(since)}; needed: a span of at most a year, such as 90m, 24h or 7d"
        )
    target = settle(output, force=force) if output is not None else None
    until = time.time()
    told = _prometheus(url, until - span, until, asked) if url is not None else _guard(unit, until - span, until)
    if not any(chart.lines for one in told for chart in one.charts):
        raise UsageProblem(f"report: {told[0].source} has no figures of the last {since}")
    text = page(told)
    if target is None:
        say(text)
        return Exit.OK
    try:
        put(target, text)
    except OSError as problem:
        raise unwritten(output or "-", problem) from None
    return Exit.OK


def _login(url: str, file: str) -> Login:
    login = http_config.read(file)
    if isinstance(login, http_config.Wrong):
        raise UsageProblem(f"--http-config {login.why}")
    if http_config.in_plain_text(url, login):
        raise UsageProblem(
            f"--prometheus {url}: the password of --http-config would cross the network in plain text: write https://, "
            "or ask through ssh -L 9090:127.0.0.1:9090"
        )
    return login


def _prometheus(url: str, since: float, until: float, asked: PrometheusOptions) -> list[ServiceReport]:
    if not _URL.fullmatch(url):
        raise UsageProblem(
            f"--prometheus: found {excerpt.value(url)}; needed: an address such as http://127.0.0.1:9090"
        )
    version = asked.version
    at = parse_version(version) if version is not None else newest_known()
    if at is None:
        raise UsageProblem(f"--vllm-version {excerpt.value(str(version))}: needed: a version such as 0.32.0")
    try:
        login = _login(url, asked.http_config) if asked.http_config is not None else NO_PASS
        charts = of_prometheus(url, since, until, [at], login)
    except NotTold as problem:
        raise UsageProblem(f"--prometheus: {problem}") from None
    return [ServiceReport("vLLM, all services", since, until, f"Prometheus at {url}", charts)]


def _guard(unit: str | None, since: float, until: float) -> list[ServiceReport]:
    name = service(unit) if unit is not None else None
    try:
        reader = Reader(store_file())
    except FileNotFoundError:
        raise UsageProblem(
            f"report: no records of a guard ({store_file()}): vllm_doctor_guard: true keeps them; --prometheus URL "
            "takes the figures from a Prometheus"
        ) from None
    except Unreadable as problem:
        raise UsageProblem(f"report: {problem}") from None
    try:
        known = reader.units()
        if name is not None and name not in known:
            raise UsageProblem(
                f"--unit {excerpt.name(name)}: the guard has no records of it; it knows {', '.join(known) or 'none'}"
            )
        told = [_of_unit(reader, one, since, until) for one in ([name] if name is not None else known)]
        shown = sorted((one for one in told if one.charts or one.events), key=lambda one: not one.charts)
        return shown or [ServiceReport("vLLM", since, until, str(store_file()), ())]
    except Unreadable as problem:
        raise UsageProblem(f"report: {problem}") from None
    finally:
        reader.close()


def _of_unit(reader: Reader, unit: str, since: float, until: float) -> ServiceReport:
    from vllm_doctor.redact.text import without_secrets

    events = sorted([*reader.events(unit, since), *deeds.events(unit, since)], key=lambda e: -e.at)[:_EVENTS]
    shown = tuple(ReportEvent(e.at, e.unit, e.kind, without_secrets(e.text)) for e in events)
    charts = of_guard(reader.minutes(unit, since), reader.cards(unit, since))
    drawn = charts if any(chart.lines for chart in charts) else ()  # the host itself has events alone
    return ServiceReport(unit, since, until, "the guard's records of this host", drawn, shown)
