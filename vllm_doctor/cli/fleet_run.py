"""What `fleet` does with its options."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.output import settle, unwritten
from vllm_doctor.cli.streams import say
from vllm_doctor.gather.bounded import whole_file
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.reading import Known
from vllm_doctor.render.file import put
from vllm_doctor.render.fleet import Fleet, Host, fleet, page

_MOST = 16 << 20
_HOSTS = 5000
_BEHIND = {"unreachable", "failed", "unreadable", "unknown"}


def run(paths: Sequence[str], *, html: bool, output: str | None, force: bool) -> int:
    """Write the page or the JSON; the exit code: 1 with findings, 3 where a host gave no answer."""
    files = list(_files(paths))
    if not files:
        raise UsageProblem(
            f"fleet: no answer in {excerpt.said(', '.join(paths))}: needed: files of diagnose --format json"
        )
    if len(files) > _HOSTS:
        raise UsageProblem(f"fleet: {len(files)} answers; {_HOSTS} are read at most")
    target = settle(output, force=force, reads=[("fleet", str(f)) for f in files]) if output is not None else None
    told = fleet([_host(file) for file in files], datetime.now(UTC).isoformat(timespec="seconds"))
    text = page(told) if html else json.dumps(msgspec.to_builtins(told), indent=2) + "\n"
    if target is None:
        say(text)
    else:
        try:
            put(target, text)
        except OSError as problem:
            raise unwritten(output or "-", problem) from None
    return _code(told)


def gathered(said: Mapping[str, str], folder: str) -> None:
    """Write what a playbook gathered, {host: answer}: FOLDER/answers, these alone, and of them fleet.html and .json.

    Raises OSError, and UsageProblem where there is no answer.
    """
    answers = Path(folder, "answers")
    if answers.is_symlink() or answers.is_file():
        answers.unlink()
    elif answers.exists():
        shutil.rmtree(answers)
    answers.mkdir(mode=0o700, parents=True)
    for host, answer in said.items():
        name = f"{host.replace('/', '%2F')}.json"
        file = os.open(answers / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as out:
            out.write(answer)
    for form in ("html", "json"):
        run([str(answers)], html=form == "html", output=str(Path(folder, f"fleet.{form}")), force=True)


def _code(told: Fleet) -> int:
    if any(row.code for row in told.services):
        return Exit.FINDINGS
    return Exit.INCOMPLETE if any(row.verdict in _BEHIND for row in told.services) else Exit.OK


def _files(paths: Sequence[str]) -> Iterator[Path]:
    for name in paths:
        path = Path(name)
        if os.path.isdir(name):  # noqa: PTH112 - it says no to what can be no name; Path raises for a long one
            yield from sorted(f for f in path.iterdir() if f.suffix == ".json" and not f.name.startswith("."))
        elif os.path.lexists(path):
            yield path
        else:
            raise UsageProblem(f"fleet: {excerpt.name(name)}: no such file or folder")


def _host(file: Path) -> Host:
    """A host's answer, with or without what the playbook puts around it. Its text is a stranger's."""
    read = whole_file(file, _MOST)
    if not isinstance(read, Known):
        return Host(file.stem, "unreadable", said=read.reason)
    try:
        raw = msgspec.json.decode(read.value)
        if isinstance(raw, dict) and raw.keys() >= {"services", "counts"}:
            beside = file.parent / "answers"
            name = beside if beside.is_dir() else "the answers that the page was made of"
            raise UsageProblem(f"fleet: {file}: this is the page of fleet itself; name {name}")
        if isinstance(raw, dict) and "host" in raw and "verdict" not in raw:
            return msgspec.convert(raw, Host)
        answer = msgspec.convert(raw, Diagnosis)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        return Host(file.stem, "unreadable", said=f"no answer of diagnose --format json: {excerpt.said(str(wrong))}")
    return Host(answer.subject.host or file.stem, answer=answer)
