"""A scenario folder as a snapshot: `scenario.json` says what was given and what a rule must answer.

The text is ours: vLLM's message templates with our own figures. Logs go through the real reader.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from vllm_doctor.gather.kernel import events
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.gather.metrics import parse
from vllm_doctor.launch.command import parse_line
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.host import Gpu, Kernel, Metrics, Scrape
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

FOLDER = Path(__file__).parent
GIB = 1 << 30


@cache
def folders() -> tuple[Path, ...]:
    """Every scenario, by name."""
    return tuple(sorted(p.parent for p in FOLDER.glob("*/scenario.json")))


@cache
def scenario(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "scenario.json").read_text(encoding="utf-8"))
    return read


@cache
def diagnosis(folder: Path) -> Diagnosis:
    """The verdict on a scenario. Each is made once in a process: whoever tests it looks at the same frozen record."""
    return diagnose(snapshot(folder))


@cache
def snapshot(folder: Path) -> Snapshot:
    """What was given, as the command line would gather it; `snapshot` gives fields as the records' own JSON."""
    given = scenario(folder).get("given", {})
    fields: dict[str, Any] = {}
    if (folder / "log.txt").exists():
        fields["log"] = read_logs([str(folder / "log.txt")])
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
    for name, value in given.get("snapshot", {}).items():
        fields[name] = msgspec.convert(value, types[name], strict=False)
    return Snapshot(taken_at="2026-01-01T00:00:00+00:00", **fields)
