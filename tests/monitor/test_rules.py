"""Each alert on Prometheus' own evaluation: it fires, just does not, and says nothing without its series."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.debian import program
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.monitor import rules
from vllm_doctor.monitor.alert_page import page
from vllm_doctor.monitor.dashboards import dashboards
from vllm_doctor.monitor.metric_names import NoCommonNameError
from vllm_doctor.rules.explain import about
from vllm_doctor.rules.order import by_code

CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("cases.yml").read_text(encoding="utf-8"))
REPO = Path(__file__).parents[2]
PINNED = [as_version("0.32.0")]
SERVER = {"job": "vllm", "instance": "a:8000", "host": "a"}
PROMISED = {"first_token_s": 2.5, "between_tokens_s": 0.1, "end_to_end_s": 60.0}
ENGINE = {**SERVER, "unit": "main", "engine": "0", "model_name": "m"}
EXPORTER = {"job": "node", "instance": "a:9100", "host": "a"}


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == set(rules.alerts())


def test_promtool_takes_the_rules_of_every_release(tmp_path: Path) -> None:
    """Also the oldest, which lack some metrics, and releases side by side that name one metric in two ways."""
    files = []
    for at, releases in enumerate((["0.32.0"], ["0.33.0"], ["0.6.3"], ["0.4.3"], ["0.12.0", "0.8.5"])):
        files.append(tmp_path / f"{at}.yml")
        files[-1].write_text(rules.text([as_version(r) for r in releases]), encoding="utf-8")
    done = _promtool("check", "rules", *map(str, files))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "duplicate" not in done.stdout + done.stderr
    assert "vllm:kv_cache_usage_perc" in files[0].read_text(encoding="utf-8")
    assert "vllm:gpu_cache_usage_perc" in files[3].read_text(encoding="utf-8")


def test_no_two_rules_raise_one_alert_with_the_same_labels() -> None:
    """Alertmanager knows an alert by its labels alone: of two such rules the end of one ends the other's message."""
    for numbers in ({}, PROMISED):
        made = [(r["alert"], *sorted(r["labels"].items())) for r in rules.groups(PINNED, numbers=numbers)[1]["rules"]]
        assert [one for one in made if made.count(one) > 1] == []


def test_releases_without_a_name_in_common_are_refused() -> None:
    with pytest.raises(NoCommonNameError, match=r"no one name for kv \(0\.12\.0: .*0\.9\.2"):
        rules.text([as_version(v) for v in ("0.12.0", "0.9.2", "0.8.5")])


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"kv_hihg": 0.5}, "no number of the alerts is called 'kv_hihg'"),
        ({"kv_high": float("nan")}, "a number above 0"),
        ({"kv_high": 85}, "kv_high: found 85; needed: a number between 0 and 1, such as 0.9 for 90 %"),
        ({"late": 1}, "late: found 1; needed: a number between 0 and 1"),
        ({"kv_high": 0.97}, r"kv_high: found 0.97; needed: at most kv_full \(0.95\)"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(numbers: dict[str, float], told: str) -> None:
    with pytest.raises(rules.PolicyError, match=told):
        rules.text(PINNED, numbers=numbers)


def test_every_alert_says_what_to_do_and_its_explain_is_a_command() -> None:
    for row in rules.groups(PINNED)[1]["rules"]:
        told = row["annotations"]
        assert row["labels"]["severity"] in {"critical", "warning", "info"}
        assert told["summary"]
        assert told["do"]
        asked = told["explain"].removeprefix("vllm-doctor explain ")
        if not asked.startswith(("vllm-doctor diagnose", "{{")):
            assert asked in by_code() or page(asked, None) or about(asked, None), told["explain"]


@pytest.mark.parametrize("releases", [["0.32.0"], ["0.12.0", "0.8.5"]])
def test_a_metric_that_is_missing_is_named_so_that_explain_takes_it(releases: list[str]) -> None:
    """Of a histogram without its suffix and bound, of releases side by side one of the names."""
    (row,) = [
        r for r in rules.groups([as_version(r) for r in releases])[1]["rules"] if r["alert"] == "VllmMetricMissing"
    ]
    named = re.findall(r'"metric", "([^"]*)"', row["expr"])
    lacks = re.findall(r'"lacks", "([^"]*)"', row["expr"])
    assert len(named) == len(lacks) > 8
    assert not [name for name in named if about(name, None) is None]
    assert "vllm:time_to_first_token_seconds with a bucket le=2.5" in lacks
    assert (len(releases) > 1) == ("vllm:gpu_cache_usage_perc or vllm:kv_cache_usage_perc" in lacks)


def test_every_alert_fires_just_does_not_and_is_silent_without_its_series(tmp_path: Path) -> None:
    """Each alert beside the records that it reads, and no other: promtool evaluates every rule for every minute."""
    records, firing = (group["rules"] for group in rules.groups(PINNED, numbers=PROMISED))
    files = []
    for alert in CASES:
        own = [row for row in firing if row["alert"] == alert]
        read = [row for row in records if row["labels"]["objective"] == alert]
        made = {"groups": [{"name": alert, "rules": [*read, *own]}]}
        (tmp_path / f"{alert}.rules.yml").write_text(yaml.safe_dump(made), encoding="utf-8")
        asked = {
            "rule_files": [f"{alert}.rules.yml"],
            "evaluation_interval": "10m" if int(CASES[alert]["fires"]["at"][:-1]) > 150 else "1m",
            "tests": [_group(*one) for one in _questions(alert)],
        }
        files.append(tmp_path / f"{alert}.yml")
        files[-1].write_text(yaml.safe_dump(asked), encoding="utf-8")
    done = _promtool("test", "rules", *map(str, files))
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


# Alert, its window → healthy for so many minutes, then what the fault makes of the series.
FAULTS: dict[tuple[str, str], tuple[int, dict[str, str]]] = {
    ("VllmTokensLate", "1h"): (120, {
        "vllm:inter_token_latency_seconds_bucket le=0.1": "0+10x120 1200x900",
        "vllm:inter_token_latency_seconds_count": "0+10x1020",
        "vllm:request_success_total finished_reason=stop": "0+10x1020",
    }),
    ("VllmTokensLate", "6h"): (400, {
        "vllm:inter_token_latency_seconds_bucket le=0.1": "0+10x400 4000x900",
        "vllm:inter_token_latency_seconds_count": "0+10x1300",
        "vllm:request_success_total finished_reason=stop": "0+10x1300",
    }),
    ("VllmErrors", "1h"): (120, {
        "vllm:request_success_total finished_reason=stop": "0+10x120 1200x900",
        "vllm:request_success_total finished_reason=error": "0x120 0+10x900",
    }),
    ("VllmGpuThrottled", ""): (60, {"vllm_gpu_throttled gpu=0 reason=hw-thermal": "0x60 1x60"}),
    ("VllmGpuLink", ""): (90, {
        "vllm_gpu_pcie_lanes gpu=0": "16x90 8x120", "vllm_gpu_pcie_lanes gpu=1": "16x210",
        "vllm_gpu_pcie_lanes_max gpu=0": "16x210", "vllm_gpu_pcie_lanes_max gpu=1": "16x210",
    }),
    ("VllmPrefixHitsFell", ""): (1510, {
        "vllm:prefix_cache_hits_total": "0+500x1510 755000+100x200",
        "vllm:prefix_cache_queries_total": "0+1000x1710",
    }),
    ("VllmGpuMemoryGrows", ""): (400, {"vllm_gpu_memory_free_bytes gpu=0": "20000000000x400 20000000000-20000000x500"}),
    ("VllmDoctorSilent", ""): (60, {"vllm_doctor_last_run_timestamp_seconds": "0+60x60 3600x90"}),
}  # fmt: skip


def test_a_window_tells_of_a_fault_as_soon_as_the_table_says(tmp_path: Path) -> None:
    """tests/monitor/test_faults.py measures the alerts whose condition is true at once."""
    records, firing = (group["rules"] for group in rules.groups(PINNED, numbers=PROMISED))
    assert {row["alert"] for row in rules.source()["alerts"] if "fills" in row} - {alert for alert, _ in FAULTS} == {
        "VllmHostMemoryGrows",  # as of a GPU
        "VllmDoctorBlind",  # as VllmDoctorSilent
    }
    for (alert, window), (healthy, series) in FAULTS.items():
        (own, *_) = (r for r in firing if r["alert"] == alert and r["labels"].get("window", "") == window)
        read = [row for row in records if row["labels"]["objective"] == alert]
        name = f"{alert}{window}"
        (tmp_path / f"{name}.rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": [*read, own]}]}))
        asked = {
            "rule_files": [f"{name}.rules.yml"],
            "evaluation_interval": "1m",
            "tests": [_group(alert, {"at": f"{at}m", "series": series}, fires) for at, fires in (
                (healthy, False), (healthy + _minutes(rules.latest(own)), True),
            )],
        }  # fmt: skip
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(asked))
    files = [str(tmp_path / f"{alert}{window}.yml") for alert, window in FAULTS]
    done = _promtool("test", "rules", *files)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


# Window → when it is asked, and how many of a hundred requests (errors: of a thousand) miss the objective steadily:
# with the first it fires, with the second it just does not. The windows burn the budget, which is one of those, 14.4, 6
# and 1 times too fast.
BURNS = {"1h": ("70m", 14.7, 14.1), "6h": ("400m", 6.3, 5.7), "3d": ("4500m", 1.1, 0.9)}
LATE = {
    "VllmFirstTokenLate": ("vllm:time_to_first_token_seconds", "2.5"),
    "VllmTokensLate": ("vllm:inter_token_latency_seconds", "0.1"),
    "VllmRequestsLate": ("vllm:e2e_request_latency_seconds", "60.0"),
}


def _missed(alert: str, part: float) -> dict[str, str]:
    """Steady requests of which so many miss the objective."""
    ended = "vllm:request_success_total finished_reason"
    if alert == "VllmErrors":
        return {f"{ended}=stop": f"0+{1000 - part:g}x1000", f"{ended}=error": f"0+{part:g}x1000"}
    metric, bound = LATE[alert]
    good = {f"{metric}_bucket le={bound}": f"0+{100 - part:g}x1000", f"{metric}_count": "0+100x1000"}
    return {**good, f"{ended}=stop": "0+100x1000"}


@pytest.mark.parametrize("window", BURNS)
def test_each_window_of_each_objective_fires_and_just_does_not(tmp_path: Path, window: str) -> None:
    at, fires, quiet = BURNS[window]
    step = {"1h": "1m", "6h": "5m", "3d": "30m"}[window]
    records, firing = (group["rules"] for group in rules.groups(PINNED, numbers=PROMISED))
    own = [row for row in firing if row["labels"].get("window") == window]
    assert {row["alert"] for row in own} == {*LATE, "VllmErrors"}
    files = []
    for row in own:  # beside the records that it reads, and no other objective's: each is evaluated at each step
        alert = row["alert"]
        made = {"groups": [{"name": "a", "rules": [*(r for r in records if r["labels"]["objective"] == alert), row]}]}
        (tmp_path / f"{alert}.rules.yml").write_text(yaml.safe_dump(made))
        asked = {
            "rule_files": [f"{alert}.rules.yml"],
            "evaluation_interval": step,
            "tests": [
                _group(alert, {"at": at, "series": _missed(alert, part)}, part == fires, step=step)
                for part in (fires, quiet)
            ],
        }
        files.append(tmp_path / f"{alert}.yml")
        files[-1].write_text(yaml.safe_dump(asked))
    done = _promtool("test", "rules", *map(str, files))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def test_each_series_that_an_alert_reads_is_in_one_of_its_cases() -> None:
    """What an `or` or an `unless` adds to a condition is a way of its own to fire, or to be silent."""
    made = rules.groups(PINNED, numbers=PROMISED)
    lacking = {}
    for alert, case in CASES.items():
        rows = [row for row in made[1]["rules"] if row["alert"] == alert]
        rows += [row for row in made[0]["rules"] if row["labels"]["objective"] == alert]
        cases = (case["fires"], *case.get("also", ()), *case["quiet"])
        told = {name.split(" ")[0] for one in cases for name in one["series"]}
        lacking[alert] = {name for row in rows for name in series(row)} - told
    assert [alert for alert, names in lacking.items() if names] == ["VllmMetricMissing"]  # it reads their absence


def _minutes(told: str) -> int:
    """The sum of what latest() says, where a scrape is a minute and the series here are the text file itself."""
    spans = [(int(number), unit) for number, unit in re.findall(r"(\d+)([mh])", told)]
    return sum(number * (60 if unit == "h" else 1) for number, unit in spans) + 2


def test_an_empty_prometheus_has_one_alert(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules.text(PINNED), encoding="utf-8")
    others = {"expr": 'count(ALERTS{alertname!="VllmNotWatched"})', "eval_time": "40m", "exp_samples": []}
    asked = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "5m",
        "tests": [{"interval": "5m", "input_series": [], "promql_expr_test": [others]}],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(asked), encoding="utf-8")
    done = _promtool("test", "rules", str(tmp_path / "tests.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def _questions(alert: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Alert, its series with when they are asked, whether it fires."""
    case = CASES[alert]
    fires = case["fires"]
    for fired in (fires, *case.get("also", ())):
        yield alert, fired, True
    for quiet in (*case["quiet"], *([case["reset"]] if "reset" in case else [])):
        yield alert, quiet, False
    for name in fires["series"]:
        left = {other: values for other, values in fires["series"].items() if other != name}
        yield alert, {**fires, "series": left}, name in case.get("without", ())


def _group(alert: str, one: dict[str, Any], fires: bool, *, step: str = "1m") -> dict[str, Any]:
    series, at = one["series"], one["at"]
    grave = f',severity="{one["severity"]}"' if "severity" in one else ""
    firing = f'count(group by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"{grave}}}))'
    expected = [{"labels": "{}", "value": 1}] if fires else []
    return {
        "name": f"{alert} {'fires' if fires else 'quiet'} {sorted(series)}",
        "interval": step,
        "input_series": [{"series": _series(name), "values": _values(v)} for name, v in series.items()],
        "promql_expr_test": [{"expr": firing, "eval_time": at, "exp_samples": expected}],
    }


def _series(told: str) -> str:
    name, *pairs = told.split(" ")
    given = dict(pair.split("=", 1) for pair in pairs)
    base = ENGINE if name.startswith("vllm:") else SERVER if given.get("job") == "vllm" else EXPORTER
    labels = ",".join(f'{key}="{value}"' for key, value in {**base, **given}.items())
    return f"{name}{{{labels}}}"


def _values(told: str) -> str:
    """promtool's own: `70x20` is written `70+0x20` for its older versions."""
    return " ".join(re.sub(r"^([0-9.]+)x", r"\1+0x", word) for word in told.split(" "))


def _promtool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *words], capture_output=True, text=True, check=False)


def test_the_command_writes_the_file_and_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("vllm-doctor")), "export", str(tmp_path / "new")]
    done = subprocess.run(
        [*command, "--vllm-version", "0.32.0", "--number", "kv_high=0.8"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "> 0.8" in Path(done.stdout.split()[0]).read_text(encoding="utf-8")
    for words, told in (
        (["--vllm-version", "0.32.0"], "replace it with --force"),
        (["--vllm-version", "newest", "--force"], "needed: a version such as 0.32.0"),
        (["--vllm-version", "0.32.0", "--without", "Vllm", "--force"], "no such alert: Vllm"),
        (["--vllm-version", "0.32.0", "--job", 'a"} or vector(1)', "--force"], "needed: a word of letters"),
    ):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert told in done.stderr


def test_a_release_newer_than_all_that_are_known_is_said(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("vllm-doctor")), "export", str(tmp_path / "new")]
    done = subprocess.run([*command, "--vllm-version", "9.9"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert re.search(
        r"vLLM 9\.9 is newer than (\S+), the newest release that is known here: the files have \1's", done.stderr
    )


def test_an_objective_is_a_warning_until_its_bound_is_set() -> None:
    """No default suits a batch queue or a model that thinks for minutes; errors are the same everywhere."""

    def grave(numbers: dict[str, float]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for row in rules.groups(PINNED, numbers=numbers)[1]["rules"]:
            if "window" in row["labels"]:
                found.setdefault(row["alert"], set()).add(row["labels"]["severity"])
        return found

    both = {"critical", "warning"}
    assert grave({}) == {
        "VllmFirstTokenLate": {"warning"},
        "VllmTokensLate": {"warning"},
        "VllmRequestsLate": {"warning"},
        "VllmErrors": both,
    }
    assert grave({"first_token_s": 2.5})["VllmFirstTokenLate"] == both


@pytest.mark.parametrize(
    ("in_time", "fires"),
    [
        ("0+8x1560", False),  # a fifth is late, as yesterday: nobody promised less
        ("0+9.8x1500 14700+8x60", True),
        ("_x1440 0+8x120", False),  # the first day
    ],
    ids=["always-so", "worse-than-yesterday", "first-day"],
)
def test_a_bound_that_nobody_chose_is_compared_with_yesterday(tmp_path: Path, in_time: str, fires: bool) -> None:
    records, firing = (group["rules"] for group in rules.groups(PINNED))
    read = [row for row in records if row["labels"]["objective"] == "VllmTokensLate"]
    own = [row for row in firing if row["alert"] == "VllmTokensLate"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": [*read, *own]}]}))
    count = "_x1440 0+10x120" if in_time.startswith("_") else "0+10x1560"
    told = {
        "vllm:inter_token_latency_seconds_bucket le=0.1": in_time,
        "vllm:inter_token_latency_seconds_count": count,
        "vllm:request_success_total finished_reason=stop": count,
    }
    asked = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "5m",
        "tests": [_group("VllmTokensLate", {"at": "1555m", "series": told}, fires)],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(asked))
    done = _promtool("test", "rules", str(tmp_path / "tests.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboards_are_what_the_builder_makes_of_the_charts() -> None:
    done = subprocess.run(
        [sys.executable, "tools/dashboards.py", "--check"], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_dashboards_ask_for_the_releases_own_names_and_for_what_is_chosen() -> None:
    told = {name: json.loads(text) for name, text in dashboards([as_version("0.8.5")]).items()}
    assert set(told) == {"fleet.json", "host.json"}
    asked = [query for made in told.values() for query in expressions(made)]
    assert len(asked) > 30
    assert not [query for query in asked if "<" in query.replace("<=", "")]
    chosen = 'site=~"$site",host=~"$host",model=~"$model",card=~"$card"'
    assert f"max by (host, unit) (vllm:gpu_cache_usage_perc{{{chosen}}})" in asked
    unchosen = [q for q in asked if "$host" not in q and "ALERTS" not in q]
    assert not unchosen
    variables = [one["name"] for one in told["host.json"]["templating"]["list"]]
    assert variables == ["source", "site", "host", "model", "card"]
    for text, at in product(map(json.dumps, told.values()), variables):
        assert f"${at}" in text or f"${{{at}}}" in text, f"nothing asks for {at}"


def test_every_query_of_a_dashboard_parses(tmp_path: Path) -> None:
    asked = {q for made in dashboards(PINNED).values() for q in expressions(json.loads(made))}
    made = [{"record": f"a:b:c{at}", "expr": re.sub(r"\$\w+", ".*", q)} for at, q in enumerate(sorted(asked))]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": made}]}))
    done = _promtool("check", "rules", str(tmp_path / "queries.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "expr":
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for one in value:
            yield from expressions(one)


def series(rule: dict[str, Any]) -> set[str]:
    """The names of the series that an expression reads."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", rule["expr"])
    found = re.findall(r"\b(?:vllm|node|prometheus|alertmanager|http|up|process)[A-Za-z_:]*[A-Za-z_]\b|\bup\b", bare)
    return {name for name in found if not name.startswith("vllm_objective:")}
