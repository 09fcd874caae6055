"""A scenario as a snapshot: `VDnnn.yaml` holds the rule's scenarios, each what was given and what the rule must answer.

The text is ours: vLLM's message templates with our own figures. Logs go through the real reader, from a file each.
"""

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from vllm_doctor.gather.kernel import events
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.gather.metrics import parse
from vllm_doctor.knowledge.version import Version, parse_version
from vllm_doctor.launch.command import parse_line
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.host import Gpu, Kernel, Metrics, Scrape
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

FOLDER = Path(__file__).parent
GIB = 1 << 30
_LOGS = tempfile.TemporaryDirectory(prefix="scenarios-")


@cache
def _scenarios() -> dict[str, dict[str, Any]]:
    """Every scenario by its name; `rule` is the code that its file is named by."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(FOLDER.glob("VD*.yaml")):
        for name, said in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).items():
            assert name not in found, f"{name} stands twice"
            found[name] = {"rule": path.stem, **said}
    return found


@cache
def names() -> tuple[str, ...]:
    """Every scenario, by rule."""
    return tuple(_scenarios())


@cache
def with_a_log() -> tuple[str, ...]:
    """Those that give a log."""
    return tuple(name for name in names() if "log" in scenario(name))


def scenario(name: str) -> dict[str, Any]:
    """What was given, and what must be answered."""
    return _scenarios()[name]


def log_text(name: str) -> str:
    """The log that was given."""
    text: str = scenario(name)["log"]
    return text


@cache
def log_file(name: str) -> Path:
    """The same as a file, until this process ends."""
    path = Path(_LOGS.name) / name / "log.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(log_text(name), encoding="utf-8")
    return path


def without_its_place(text: str) -> str:
    """A text in which the files of the logs are named by their scenario alone."""
    return text.replace(f"{_LOGS.name}/", "")


@cache
def diagnosis(name: str) -> Diagnosis:
    """The verdict on a scenario. Each is made once in a process: whoever tests it looks at the same frozen record."""
    return diagnose(snapshot(name), preview=True)


@cache
def snapshot(name: str) -> Snapshot:
    """What was given, as the command line would gather it."""
    return gathered(scenario(name), log_file(name) if "log" in scenario(name) else None)


def gathered(said: Mapping[str, Any], log: Path | None) -> Snapshot:
    """A scenario and the file with its log as a snapshot; `given.snapshot` has fields as the records' own JSON."""
    given = said.get("given", {})
    fields: dict[str, Any] = {}
    if log is not None:
        fields["log"] = read_logs([str(log)])
    if "launch" in given:
        fields["launch"] = Known(parse_line(given["launch"]), "--launch")
    if "version" in given:
        fields["version"] = Known(given["version"], "--vllm-version")
    if "gpu" in given:
        gpu = given["gpu"]
        size = round(gpu["total_gib"] * GIB) if gpu.get("total_gib") else None
        cards = tuple(Gpu(i, gpu.get("name", ""), total_bytes=size) for i in range(gpu.get("count", 1)))
        fields["gpus"] = Known(cards, "the command line")
    if "kernel" in given:
        fields["kernel"] = Known(Kernel(events(given["kernel"])), "--kernel-log")
    if "metrics" in given:
        scrapes = []
        for index, text in enumerate(given["metrics"]):
            samples = parse(text)
            assert not isinstance(samples, str), samples
            scrapes.append(Scrape(at=1000.0 + 10 * index, samples=samples))
        fields["metrics"] = Known(Metrics("http://127.0.0.1:8000/metrics", tuple(scrapes)), "--metrics")
    if "model_config" in given:
        fields["model_config"] = Known(given["model_config"], "--model-config")
    types = {f.name: f.type for f in msgspec.structs.fields(Snapshot)}
    for field, value in given.get("snapshot", {}).items():
        fields[field] = msgspec.convert(value, types[field], strict=False)
    return Snapshot(taken_at="2026-01-01T00:00:00+00:00", **fields)


def until(name: str) -> Version | None:
    """The last release that writes what the scenario's log says, where the log does not name its own."""
    return parse_version(scenario(name).get("until", ""))
