"""vLLM that runs on this host and that no unit explains: it was seen and not judged."""

import shlex

from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Missing
from vllm_doctor.records.host import Process
from vllm_doctor.records.reading import Absent, Known
from vllm_doctor.records.snapshot import Snapshot

_JUDGE = "vllm-doctor diagnose --log"
# Processes that are named beside one that is told of in full.
_NAMED = 9


def unjudged(snapshot: Snapshot) -> tuple[Missing, ...]:
    """One entry for each container, log or server without a unit, with what to run instead."""
    if not snapshot.live or not isinstance(snapshot.unit, Absent) or not isinstance(snapshot.machine, Known):
        return ()
    if snapshot.subject.place is not None:
        return ()  # it is the one that is judged
    found = {p.pid: p for p in snapshot.machine.value.processes if p.serves}
    roots = [p for p in found.values() if p.ppid not in found]
    together: dict[str, list[Process]] = {}
    for one in roots:
        together.setdefault(_instead(one), []).append(one)
    return tuple(
        Missing("unit", f"this host also runs a vLLM that the doctor did not check: {_who(p)}{_more(others)}", instead)
        for instead, (p, *others) in list(together.items())[:20]
    )


def _more(others: list[Process]) -> str:
    if not others:
        return ""
    named = ", ".join(str(p.pid) for p in others[:_NAMED])
    beyond = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f", and process{'es' if len(others) > 1 else ''} {named}{beyond}"


def _who(process: Process) -> str:
    told = [word.rpartition("/")[2] if at < 2 else word for at, word in enumerate(process.cmdline)]
    told = told[1:] if len(told) > 1 and told[0].startswith("python") else told
    words = excerpt.word(" ".join(told[:3]))
    if process.container is not None:
        where = f" in the container {process.container[1]}"
    elif process.unit is not None:
        where = f" of {process.unit}"
    elif process.user_unit is not None:
        where = f" of {process.user_unit[1]} of user {process.user or process.user_unit[0]}"
    else:
        where = f" of {process.user}" if process.user else ""
    return f"process {process.pid} ({words}){where}"


def _instead(process: Process) -> str:
    if process.container is not None:
        program, number = process.container
        if process.around:
            inside = "".join(f"{runtime or 'docker'} exec {outer} " for runtime, outer in process.around)
            return f"{inside}{program or 'docker'} logs {number} 2>&1 | {_JUDGE} -"
        if program in {"docker", "podman"}:
            return f"vllm-doctor diagnose {program}:{number}"
        return f"{program or 'docker'} logs {number} 2>&1 | {_JUDGE} -"
    if process.user_unit is not None:
        uid, name = process.user_unit
        return f"journalctl -b -o short-iso _UID={uid} {shlex.quote(f'_SYSTEMD_USER_UNIT={name}')} | {_JUDGE} -"
    if process.output is not None:
        return f"{_JUDGE} {shlex.quote(process.output)}"
    if process.unit is not None:
        return f"vllm-doctor diagnose --unit {shlex.quote(process.unit)}"
    return f"{_JUDGE} FILE, with what it wrote"
