"""The dashboards of Grafana, made by tools/dashboards.py, under the names of the releases that are watched."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm_doctor.knowledge.version import Version
from vllm_doctor.monitor.over_time import filled
from vllm_doctor.monitor.rules import selected

FOLDER = Path(__file__).with_name("dashboards")
_HOST = 'site=~"$site",host=~"$host"'
_CHOSEN = f'{_HOST},model=~"$model",card=~"$card"'
_BARE = re.compile(r"\b(vllm[:_][a-z_:]{1,120}+)(\{([^{}]{0,1000}+)\})?(?=[\[\s)]|$)")


def dashboards(releases: Sequence[Version], job: str = "vllm") -> dict[str, str]:
    """Each dashboard's file name and JSON."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        made = _with(json.loads(path.read_text(encoding="utf-8")), releases, job)
        found[path.name] = json.dumps(made, indent=1) + "\n"
    return found


def _with(value: Any, releases: Sequence[Version], job: str) -> Any:
    """The same with each `expr` under the releases' names, of the host, model and card that are chosen."""
    if isinstance(value, dict):
        return {
            key: chosen(filled(inner, releases).replace('job="vllm"', f'job="{job}"'))
            if key == "expr"
            else inner.replace('job="vllm"', f'job="{job}"')
            if isinstance(inner, str)
            else _with(inner, releases, job)
            for key, inner in value.items()
        }
    return [_with(one, releases, job) for one in value] if isinstance(value, list) else value


def chosen(query: str) -> str:
    """A query for what the variables choose; the doctor's text file knows a host and no model."""

    def put(found: re.Match[str]) -> str:
        return selected(found[1] + (found[2] or ""), _CHOSEN if found[1].startswith("vllm:") else _HOST)

    query = re.sub(r'\{__name__=~"[^"]*"\}', lambda found: selected(found[0], _CHOSEN), query)
    return _BARE.sub(put, query).replace("up{job=", f"up{{{_CHOSEN},job=")
