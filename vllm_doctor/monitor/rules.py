"""alerts.yml as a rules file of Prometheus, for the releases that are watched."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any

from vllm_doctor import __version__
from vllm_doctor.knowledge.version import Version
from vllm_doctor.monitor.metric_names import MetricNames, metric_names
from vllm_doctor.records import excerpt

# Long window, short window, how many times too fast the budget burns, how long it must hold, severity, and the time
# back with which a server is compared whose bound nobody chose.
_BURNS = (
    ("1h", "5m", 14.4, "2m", "critical", "1d"),
    ("6h", "30m", 6.0, "15m", "critical", "1d"),
    ("3d", "6h", 1.0, "1h", "warning", "3d"),
)
# What nobody promised is no incident where it was always so: twice the misses of that time back.
_WORSE = 2
_WINDOWS = ("5m", "30m", "1h", "6h", "3d")
_WORD = re.compile(r"<([a-z_]+)>")
# What the doctor's text file tells; vLLM's own metrics have a colon.
_TEXT_FILE = re.compile(r"\bvllm_(?!objective)[a-z_]+\b(?!:)")


class PolicyError(ValueError):
    """A number that alerts.yml does not know or cannot be; the text says what is needed."""


@cache
def source() -> Mapping[str, Any]:
    """alerts.yml."""
    import yaml

    loaded: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("alerts.yml").read_text(encoding="utf-8"))
    return loaded


def alerts() -> tuple[str, ...]:
    """The names of all alerts."""
    told = [row["alert"] for part in ("objectives", "alerts") for row in source()[part]]
    return (*dict.fromkeys(told), "VllmMetricMissing")


def more(name: str) -> str:
    """What there is to know of an alert beside its rows; "" where they say it all."""
    return str(source()["pages"].get(name, ""))


def groups(
    releases: Sequence[Version],
    *,
    numbers: Mapping[str, float] | None = None,
    without: Sequence[str] = (),
    job: str = "vllm",
) -> list[dict[str, Any]]:
    """The groups of a rules file, as its YAML has them. Raises PolicyError, and NoCommonNameError for such releases."""
    known, lacking = metric_names(releases)
    told = {**known, **_numbers(numbers or {}), **_xids(), "once": source()["once"], "job": job}
    unknown = sorted(set(without) - set(alerts()))
    if unknown:
        raise PolicyError(f"no such alert: {', '.join(unknown)}; there are {', '.join(alerts())}")
    rows = [row for row in source()["alerts"] if not _needs(row["expr"]) & set(lacking)]
    firing = [_alert(row, told) for row in rows]
    objectives = [row for row in source()["objectives"] if row.get("metric") not in lacking]
    records = [record for row in objectives for record in _records(row, told)]
    firing += [alert for row in objectives for alert in _burns(row, told, set(numbers or ()))]
    firing.append(_missing(known, lacking, objectives, told))
    firing = [row for row in firing if row["alert"] not in without]
    return [
        {"name": "vllm-objectives", "interval": "30s", "rules": records},
        {"name": "vllm-alerts", "rules": firing},
    ]


def latest(row: Mapping[str, Any]) -> str:
    """From the fault to the firing alert: what a row of groups() takes at most, in words.

    One of the scrapes is the evaluation, which comes as often (evaluation_interval). Of a burn rate where every request
    misses its objective: a smaller fault burns the budget more slowly.
    """
    first = row["expr"].partition("\nunless ")[0].partition(" unless ")[0].partition("\nand on ")[0]
    runs = "two runs" if row["alert"] == "VllmDoctorFinding" else "a run"
    # The fault is in the next scrape, and the evaluation after it sees it. What no longer grows is seen in the scrape
    # after the next: the next still has what was counted before the fault.
    scrapes = "three scrapes" if "idelta(" in row["expr"] else "two scrapes"
    parts = [_fills(row), row["for"], f"{runs} of the text file" if _TEXT_FILE.search(first) else "", scrapes]
    return " + ".join(part for part in parts if part not in {"", "0m"})


def _fills(row: Mapping[str, Any]) -> str:
    window = row["labels"].get("window")
    if window is None:
        return next((one["fills"] for one in source()["alerts"] if one["alert"] == row["alert"] and "fills" in one), "")
    budget = next(one["budget"] for one in source()["objectives"] if one["alert"] == row["alert"])
    factor = next(burn[2] for burn in _BURNS if burn[0] == window)
    hours = int(window[:-1]) * (24 if window.endswith("d") else 1)
    return f"{math.ceil(factor * source()['numbers'][budget] * hours * 60 + 0.5)}m"  # records are made every 30 s


def text(
    releases: Sequence[Version],
    *,
    numbers: Mapping[str, float] | None = None,
    without: Sequence[str] = (),
    job: str = "vllm",
) -> str:
    """The rules file."""
    import yaml

    made = groups(releases, numbers=numbers, without=without, job=job)
    head = (
        f"# vllm-doctor {__version__}: alerts for vLLM {', '.join(map(str, releases))}; made by `vllm-doctor export`.\n"
        "# Each target needs the labels host and unit (vllm@main.service), as its host's text file has them.\n"
    )
    return head + yaml.safe_dump({"groups": made}, sort_keys=False, width=10_000, allow_unicode=True)


def _numbers(given: Mapping[str, float]) -> dict[str, str]:
    known: dict[str, float] = source()["numbers"]
    for name, value in given.items():
        if name not in known:
            raise PolicyError(f"no number of the alerts is called {excerpt.value(name)}; there are {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise PolicyError(f"{name}: found {excerpt.value(str(value))}; needed: a number above 0")
        if name in source()["parts"] and value >= 1:
            raise PolicyError(f"{name}: found {value}; needed: a number between 0 and 1, such as 0.9 for 90 %")
    high, full = (given.get(name, known[name]) for name in ("kv_high", "kv_full"))
    if high > full:
        raise PolicyError(f"kv_high: found {high}; needed: at most kv_full ({full}), the number of the graver alert")
    return {name: _figure(value) for name, value in {**known, **given}.items()}


def _xids() -> dict[str, str]:
    from vllm_doctor.rules.gates.xid import APPLICATION, CONSEQUENCE, HARMLESS, SUMMARY

    told = {"xid_application": APPLICATION, "xid_harmless": CONSEQUENCE | HARMLESS | {SUMMARY}}
    return {word: "|".join(map(str, sorted(codes))) for word, codes in told.items()}


def _figure(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _needs(expression: str) -> set[str]:
    return set(_WORD.findall(expression))


def _filled(text: str, told: Mapping[str, str]) -> str:
    return _WORD.sub(lambda found: told[found[1]], text)


def _alert(row: Mapping[str, Any], told: Mapping[str, str]) -> dict[str, Any]:
    return {
        "alert": row["alert"],
        "expr": _filled(row["expr"], told),
        "for": _filled(row["for"], told),
        "labels": {"severity": row["severity"], **row.get("labels", {})},
        "annotations": {word: _filled(row[word], told) for word in ("summary", "do", "explain")},
    }


def _ratio(row: Mapping[str, Any], told: Mapping[str, str], window: str) -> str:
    """How many of the requests of a window missed the objective, 0 to 1."""
    if "metric" not in row:
        finished, http = told["finished"], _http(told)
        failed = selected(http, 'status="5xx"')
        return (
            f"sum without (handler, method, status) (rate({failed}[{window}]))"
            f" / sum without (handler, method, status) (rate({http}[{window}]))"
            f" or sum without (engine, finished_reason) (rate({selected(finished, _ERROR)}[{window}]))"
            f" / sum without (engine, finished_reason) (rate({finished}[{window}]))"
        )
    metric, bound = told[row["metric"]], _bound(told[row["bound"]])
    good = selected(suffixed(metric, "_bucket"), f'le="{bound}"')
    count = suffixed(metric, "_count")
    return f"1 - sum without (engine, le) (rate({good}[{window}])) / sum without (engine) (rate({count}[{window}]))"


_ERROR = 'finished_reason="error"'


def _http(told: Mapping[str, str]) -> str:
    """Requests as the API server counts them: also those that fail before the engine has them."""
    return f'http_requests_total{{job="{told["job"]}",handler=~"/v[0-9].*"}}'


def _bound(number: str) -> str:
    """As the client library writes a bucket's bound."""
    return repr(float(number))


def suffixed(selector: str, suffix: str) -> str:
    """A selector of names() for the series of a histogram (`_bucket`, `_count`)."""
    if not selector.startswith("{"):
        return selector + suffix
    either = json.loads(selector.removeprefix("{__name__=~").removesuffix("}"))
    return f"{{__name__=~{json.dumps('|'.join(name + suffix for name in either.split('|')))}}}"


def selected(selector: str, matcher: str) -> str:
    """A selector with one more matcher."""
    return f"{selector[:-1]},{matcher}}}" if selector.endswith("}") else f"{selector}{{{matcher}}}"


def _records(row: Mapping[str, Any], told: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for window in _WINDOWS:
        yield {
            "record": f"vllm_objective:missed:ratio_rate{window}",
            "expr": _ratio(row, told, window),
            "labels": {"objective": row["alert"]},
        }


def _burns(row: Mapping[str, Any], told: Mapping[str, str], chosen: Set[str]) -> Iterator[dict[str, Any]]:
    counted = [told["finished"]] if "metric" in row else [told["finished"], _http(told)]
    enough = " or ".join(
        f"sum by (job, instance) (increase({name}[WINDOW])) >= {told['objective_requests']}" for name in counted
    )
    enough = f"({enough})" if len(counted) > 1 else enough
    for long, short, factor, hold, gravest, back in _BURNS:
        promised = row.get("bound", "") in {"", *chosen}
        over = f"{factor:g} * {told[row['budget']]}"
        missed = f'vllm_objective:missed:ratio_rateWINDOW{{objective="{row["alert"]}"}}'
        now = missed.replace("WINDOW", long)
        worst = f"max by (job, instance) ({now})", f"max by (job, instance) ({now} offset {back})"
        worse = f"\nand on (job, instance) {worst[0]} > {_WORSE} * {worst[1]}"
        yield {
            "alert": row["alert"],
            "expr": (
                f"{missed.replace('WINDOW', long)} > {over}\n"
                f"and {missed.replace('WINDOW', short)} > {over}\n"
                f"and on (job, instance) {enough.replace('WINDOW', long)}" + ("" if promised else worse)
            ),
            "for": hold,
            "labels": {"severity": gravest if promised else "warning", "window": long},
            "annotations": {
                "summary": f"{_filled(row['summary'], told)}: {{{{ $value | humanizePercentage }}}} within {long}",
                "do": row["do"],
                "explain": row["explain"],
            },
        }


def _missing(
    known: MetricNames, lacking: Sequence[str], objectives: Sequence[Mapping[str, Any]], told: Mapping[str, str]
) -> dict[str, Any]:
    """A server that answers without a metric that the alerts read: its name changed, or the bucket is another."""
    bounds = {row["metric"]: row["bound"] for row in objectives if "metric" in row}
    parts = []
    for word, selector in known.items():
        if word in lacking:
            continue
        asked, found = selector, re.findall(r"vllm:\w+", selector)
        lacks = " or ".join(found)
        if word in bounds:
            bound = _bound(told[bounds[word]])
            asked = selected(suffixed(selector, "_bucket"), f'le="{bound}"')
            lacks += f" with a bucket le={bound}"
        silent = f'up{{job="{told["job"]}"}} == 1 unless on (job, instance) {asked}'
        named = f'label_replace({silent}, "metric", "{found[0]}", "", "")'
        parts.append(f'label_replace({named}, "lacks", "{lacks}", "", "")')
    return {
        "alert": "VllmMetricMissing",
        "expr": "\nor ".join(parts),
        "for": "15m",
        "labels": {"severity": "warning"},
        "annotations": {
            "summary": "The server has no {{ $labels.lacks }}, so alerts that read it are silent",
            "do": "Export the rules for the release that runs: playbooks/monitoring.yml, or vllm-doctor export.",
            "explain": "vllm-doctor explain {{ $labels.metric }}",
        },
    }
