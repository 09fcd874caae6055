"""What an alert means, for `vllm-doctor explain NAME`: its conditions under a release's own names, and what to do."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.version import Version
from vllm_doctor.monitor import rules

_LABEL = re.compile(r"\{\{\s*\$labels\.([a-z_]+)\s*\}\}")
_VALUE = re.compile(r"\{\{(?:(?!\$value)[^{}]){0,200}+\$value[^{}]{0,200}+\}\}")


def page(name: str, at: Version | None) -> str | None:
    """The page in Markdown; None for a name that no alert has, or none in this release."""
    rows = [row for row in rules.groups([at or versions.newest_known()])[1]["rules"] if row["alert"] == name]
    if not rows:
        return None
    told = [f"# {name}", ""]
    if more := rules.more(name):
        told += [more, ""]
    for row in rows:
        told += _row(name, row)
    return "\n".join(told).rstrip("\n")


def _row(name: str, row: Mapping[str, Any]) -> Sequence[str]:
    said = row["annotations"]
    lines = [f"## {row['labels']['severity']}: {_plain(said['summary'])}", "", _plain(said["do"])]
    command = _plain(said["explain"])
    if command != f"vllm-doctor explain {name}":
        lines += ["", f"More: `{command}`"]
    held = f", for {row['for']}" if row["for"] != "0m" else ""
    told = f"It fires when this is true{held}; after the fault it takes at most {rules.latest(row)}:"
    return [*lines, "", told, "", "```", row["expr"], "```", ""]


def _plain(text: str) -> str:
    return _VALUE.sub("N", _LABEL.sub(lambda found: found[1].upper(), text))
