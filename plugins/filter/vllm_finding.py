"""What the doctor found, as the text of a failed play: evidence, arithmetic, and the inventory line to change."""

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.remedy.inventory import setting  # noqa: E402


def finding_text(
    answer: str, host: str, groups: Collection[str] = (), sources: Collection[str] = (), journal: str = ""
) -> str:
    """Write `vllm-doctor diagnose --format json`'s answer for people.

    `sources` are the inventories of the run: the file and line that set a variable are looked up there. Without an
    answer, the end of the service's own journal is shown, and that the doctor could not be asked.
    """
    try:
        diagnosis = json.loads(answer)
    except (ValueError, TypeError):
        diagnosis = None
    if not isinstance(diagnosis, dict):
        return f"The doctor could not be asked.{_indent(journal)}"
    findings = [one for one in diagnosis.get("findings") or [] if isinstance(one, dict)]
    if not findings:
        unseen = [one for one in diagnosis.get("unknown") or [] if isinstance(one, dict)]
        why = "; ".join(f"{one.get('signal')}: {one.get('reason')}" for one in unseen[:3])
        could_not_see = f"; not seen: {why}" if why else ""
        return f"The doctor has no finding (verdict {diagnosis.get('verdict')}{could_not_see}).{_indent(journal)}"
    root, rest = findings[0], findings[1:]
    lines = [f"{root.get('code')} {root.get('title')}"]
    lines += [f"  {root['detail']}"] if root.get("detail") else []
    lines += [f"  seen:  {one.get('excerpt')} [{one.get('source')}]" for one in root.get("evidence") or []]
    lines += [
        f"  sum:   {one.get('name')} = {_number(one.get('value'))} {one.get('unit') or ''}"
        + (f"   ({one.get('formula')})" if one.get("formula") else "")
        for one in root.get("arithmetic") or []
    ]
    lines += [f"  change: {_change(one, host, groups, sources)}" for one in root.get("changes") or []]
    lines += [f"  also:  {one.get('code')} {one.get('title')}" for one in rest]
    return "\n".join(lines)


def _indent(journal: str) -> str:
    lines = [f"  {line}" for line in str(journal).splitlines()[-25:]]
    return "\n".join([" The service's last lines:", *lines]) if lines else ""


def _number(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def _change(change: Mapping[str, Any], host: str, groups: Collection[str], sources: Collection[str]) -> str:
    variable = change.get("inventory_var")
    before = change.get("from")
    to = change.get("to")
    if not variable:
        done = next((word for word in (to, change.get("command"), change.get("why")) if word is not None), "")
        by = f" by {change['by']:g}" if to is None and isinstance(change.get("by"), int | float) else ""
        text = f"{change.get('direction')} {change.get('name')}{by}: {done}"
    elif to is None:
        text = f"take out {variable}"
    else:
        name = str(change.get("variable") or change.get("name"))
        text = setting(variable, name, to, option=change.get("kind") == "flag")
    was = f"   # now {before}" if before is not None else ""
    place = where(variable, host, groups, sources) if variable else ""
    return f"{text}{was}" + (f"\n          in {place}" if place else "")


def where(variable: str, host: str, groups: Collection[str], sources: Iterable[str]) -> str:
    """Name the file and line of the inventory that set a variable for a host, the nearest to the host first."""
    pattern = re.compile(rf"^\s*{re.escape(variable)}\s*:")
    ranked = [
        (rank, -number, path)  # of two inventories the later one wins
        for number, source in enumerate(sources)
        for path in _files(Path(source))
        if (rank := _rank(path, host, groups)) is not None
    ]
    for _, _, path in sorted(ranked):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for number, line in enumerate(lines, 1):
            if pattern.match(line):
                return f"{_shown(path)}:{number}"
    return f"the inventory of {host}, where no line sets it yet"


def _files(source: Path) -> Iterator[Path]:
    base = source if source.is_dir() else source.parent
    if source.is_file():
        yield source
    for folder in ("host_vars", "group_vars"):
        yield from (p for p in (base / folder).rglob("*") if p.is_file())
    if source.is_dir():
        yield from (p for p in source.iterdir() if p.suffix in {".yml", ".yaml"})


def _rank(path: Path, host: str, groups: Iterable[str]) -> int | None:
    """Order files as Ansible weighs them, the strongest first; None for those of other hosts and groups."""
    for folder, names, rank in (("host_vars", (host,), 0), ("group_vars", groups, 2), ("group_vars", ("all",), 3)):
        if folder in path.parts and {path.stem, path.parent.name} & set(names):
            return rank
    return 1 if not {"host_vars", "group_vars"} & set(path.parts) else None


def _shown(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


class FilterModule:
    """The filters of role vllm."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name them."""
        return {"vllm_finding": finding_text, "vllm_where": where}
