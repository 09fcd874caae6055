"""What one run of a playbook did, as JSON and as text, on the controller. Secrets are taken out of both."""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from vllm_doctor.preflight import host_table
from vllm_doctor.preflight.judged import Checked, Result
from vllm_doctor.redact.launch import SHORTEST_SECRET, scrub_values
from vllm_doctor.redact.text import scrub
from vllm_doctor.redact.visible import visible

_LONGEST = 20_000  # characters of one text of a host
_HEAD = ("host", "state", "changed", "answers", "what failed")


@dataclass(frozen=True)
class Report:
    """A run. `hosts`: name to {count, changed, said, answers, failed, doctor}, `refused`: rows of preflight's judge."""

    playbook: str
    began: datetime
    ended: datetime
    inventories: tuple[str, ...]
    limit: str
    tags: tuple[str, ...]
    check: bool
    hosts: Mapping[str, Mapping[str, object]]
    refused: tuple[Mapping[str, str], ...]


def secrets(values: object) -> Iterator[str]:
    """Every text inside these values that is long enough to be looked for."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list | tuple):
        for value in values:
            yield from secrets(value)
    elif isinstance(values, str) and len(values) >= SHORTEST_SECRET:
        yield values


def write(folder: Path, run: Report, hidden: Collection[str]) -> Path:
    """Write both files, named by time and playbook; gives the text's path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{run.began:%Y%m%dT%H%M%SZ}-{Path(run.playbook).stem}-{os.getpid()}"
    told = json.dumps(clean(machine(run), hidden), indent=1) + "\n"
    for suffix, text in ((".json", told), (".txt", human(run, hidden))):
        path = folder / f"{stem}{suffix}"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640), "w") as file:
            file.write(text)
    return folder / f"{stem}.txt"


def machine(run: Report) -> dict[str, object]:
    """For programs; `outcome` is ok, changed, failed or refused (nothing was changed on any host)."""
    return {
        "schema_version": 1,
        "playbook": run.playbook,
        "inventories": list(run.inventories),
        "limit": run.limit,
        "tags": list(run.tags),
        "check": run.check,
        "began": run.began.isoformat(timespec="seconds"),
        "seconds": round((run.ended - run.began).total_seconds(), 1),
        "outcome": outcome(run),
        "refused": [dict(row) for row in run.refused],
        "hosts": {name: dict(host) for name, host in sorted(run.hosts.items())},
    }


def outcome(run: Report) -> str:
    """What became of it, in one word."""
    if any(row.get("verdict") == "fail" for row in run.refused):
        return "refused"
    if any(host.get("failed") for host in run.hosts.values()):
        return "failed"
    return "changed" if any(host.get("changed") for host in run.hosts.values()) else "ok"


def human(run: Report, hidden: Collection[str]) -> str:
    """For people: what was run, one line a host, what was refused, and what failed in full."""
    seconds = (run.ended - run.began).total_seconds()
    words = [run.playbook, *(["--check"] if run.check else []), *(["--limit", run.limit] if run.limit else [])]
    words += ["--tags", ",".join(run.tags)] if run.tags else []
    lines = [f"{' '.join(words)}: {outcome(run)} ({run.began:%Y-%m-%d %H:%M:%S} UTC, {seconds:.0f} s)", ""]
    rows = [_HEAD, *(_host(name, host) for name, host in sorted(run.hosts.items()))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if run.refused:
        lines += ["", host_table.table(_by_host(run.refused))]
    for name, host in sorted(run.hosts.items()):
        for title, texts in _parts(host):
            said = [f"  {visible(line)}" for text in texts for line in _short(text).splitlines()]
            lines += ["", f"{name}: {title}", *said]
    return _without("\n".join(lines) + "\n", hidden)


def clean(value: object, hidden: Collection[str]) -> object:
    """`value` without secrets in any text of it, and each text bounded: what a host said may be of any length."""
    if isinstance(value, Mapping):
        return {str(name): clean(item, hidden) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item, hidden) for item in value]
    return _without(_short(value), hidden) if isinstance(value, str) else value


def _without(text: str, hidden: Collection[str]) -> str:
    return scrub(scrub_values(text, hidden), users=False)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} […] {text[-_LONGEST // 2 :]}"


def _host(name: str, host: Mapping[str, object]) -> tuple[str, ...]:
    failed = _mapping(host.get("failed"))
    changed = host.get("changed")
    answers = visible(", ".join(f"{unit}: {model}" for unit, model in _mapping(host.get("answers")).items()), 200)
    state = "failed" if failed else "ok"
    count = str(len(changed)) if isinstance(changed, list) else "0"
    return (name, state, count, answers, str(failed.get("task", "")))


def _parts(host: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    for title, key in (("changed", "changed"), ("said", "said")):
        texts = host.get(key)
        if isinstance(texts, list) and texts:
            yield title, [str(text) for text in texts]
    if failed := _mapping(host.get("failed")):
        yield f"failed at {failed.get('task')}", [str(failed.get("message", ""))]


def _by_host(rows: Iterable[Mapping[str, str]]) -> dict[str, list[Checked]]:
    found: dict[str, list[Checked]] = {}
    for row in rows:
        line = Checked(row["check"], Result(row["verdict"]), row["found"], row["needed"], row["action"])
        found.setdefault(row["host"], []).append(line)
    return found


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
