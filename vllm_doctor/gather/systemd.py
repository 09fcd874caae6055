"""What systemd says of a unit: its state, how it ended, what it starts, what its cgroup counted."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vllm_doctor.gather.bounded import text_of_start
from vllm_doctor.gather.environment_file import environment_files
from vllm_doctor.gather.exec_variables import expanded
from vllm_doctor.gather.launch import is_vllm
from vllm_doctor.gather.processes import NotRun, run
from vllm_doctor.gather.unit_files import output_path
from vllm_doctor.records import excerpt
from vllm_doctor.records.host import Unit
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown
from vllm_doctor.records.unit_name import service
from vllm_doctor.redact.launch import scrub_argv
from vllm_doctor.redact.text import scrub

UNLIMITED = (1 << 64) - 1

_ASKED = (
    "Id,LoadState,ActiveState,SubState,Result,InvocationID,MainPID,ExecMainPID,ExecMainCode,"
    "ExecMainStatus,NRestarts,MemoryMax,MemoryPeak,MemoryCurrent,DropInPaths,FragmentPath,ControlGroup,"
    "ExecStart,Environment,EnvironmentFiles,User,KillMode,KillSignal,Restart,RestartUSec,StartLimitBurst,"
    "StartLimitIntervalUSec,TimeoutStartUSec,TimeoutStopUSec,OOMPolicy,LimitMEMLOCK,UnitFileState,"
    "NeedDaemonReload,StandardOutput,ActiveEnterTimestamp,InactiveEnterTimestamp,ExecMainStartTimestamp,"
    "ExecMainExitTimestamp,WorkingDirectory"
)
_HOW_IT_ENDED = {"1": "exited", "2": "killed", "3": "dumped"}
_NO_SYSTEMD = re.compile(r"not been booted with systemd|Failed to connect to bus", re.IGNORECASE)
# One unit's name; systemctl takes `*`, `?` and `[` for a pattern of many.
_ONE = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}")
_OURS = re.compile(r"^vllm-(doctor|gateway|monitoring)")


class Found(msgspec.Struct, frozen=True):
    """A unit and what is needed to look further but is not for the snapshot: secrets are still in `argv` and `env`.

    `output_file` is where it writes, "" for a file that is not known, None for the journal.
    """

    unit: Unit
    argv: tuple[str, ...]
    env: dict[str, str]
    control_group: str
    output_file: str | None


def find(name: str | None, deadline_s: float) -> Reading[tuple[Found, ...]]:
    """The unit `name`, or every vLLM unit of the host, those in trouble first."""
    if name is not None and not _ONE.fullmatch(name):
        return Absent(f"{excerpt.value(name)} is not the name of one unit")
    installed = _installed(deadline_s) if name is None else ()
    if isinstance(installed, NotRun):
        return _silent(installed)
    wanted = service(name) if name is not None else "vllm*.service"
    pattern = [wanted, *installed]
    shown = run(["systemctl", "show", "--no-pager", f"--property={_ASKED}", "--", *pattern], deadline_s=deadline_s)
    if isinstance(shown, NotRun):
        return _silent(shown)
    if _NO_SYSTEMD.search(shown.err):
        return Absent("this host was not booted with systemd")
    if shown.code != 0 and not shown.out.strip():
        why = excerpt.said(shown.err.strip()) or f"exit code {shown.code}"
        return Unknown(f"systemctl show failed: {why}", f"systemctl show {shlex.quote(pattern[0])}")
    units = list({f.unit.name: f for f in map(_found, _blocks(shown.out.decode(errors="replace")))}.values())
    if name is None:
        units = [u for u in units if _is_service_of_vllm(u)]
    else:
        units = [u for u in units if u.unit.load_state != "not-found"]
    if units:
        return Known(tuple(sorted(units, key=_trouble)), "systemctl show")
    if name is not None:
        return Absent(f"there is no unit {pattern[0]} on this host")
    return Absent("no vLLM unit on this host (looked for vllm*.service)")


def _silent(asked: NotRun) -> Absent | Unknown:
    """A systemd that does not answer is not a host without units."""
    if asked.missing:
        return Absent("this host has no systemd: systemctl is not installed")
    return Unknown(f"systemd: {asked.reason}", "look at the host: systemctl list-jobs; journalctl -b -u systemd-logind")


def _installed(deadline_s: float) -> list[str] | NotRun:
    """Unit files by name: a unit that is neither enabled nor running is not loaded, so no pattern finds it."""
    listed = run(["systemctl", "list-unit-files", "--no-legend", "--no-pager", "vllm*.service"], deadline_s=deadline_s)
    if isinstance(listed, NotRun):
        return listed
    names = [line.split()[0] for line in listed.out.decode(errors="replace").splitlines() if line.strip()]
    return [name for name in names if "@." not in name]


def _is_service_of_vllm(found: Found) -> bool:
    unit = found.unit
    if unit.load_state == "not-found" or _OURS.match(unit.name):
        return False
    return is_vllm(found.argv) or unit.name == "vllm.service" or unit.name.startswith("vllm@")


_ORDER = ("failed", "activating", "deactivating", "active")


def _trouble(found: Found) -> tuple[int, str]:
    """Failed and restarting units first, then running, then stopped by hand."""
    state = found.unit.active_state
    return ((*_ORDER, state).index(state), found.unit.name)


def _blocks(text: str) -> list[dict[str, str]]:
    blocks: list[dict[str, str]] = []
    for block in text.split("\n\n"):
        values: dict[str, str] = {}
        command = ""  # the property whose words go on: one may hold a line's end, and then what looks like a property
        for line in block.split("\n"):
            name, equals, value = line.partition("=")
            if command:
                values[command] += f"\n{line}"
                command = "" if line.endswith(" }") else command
            elif name == "EnvironmentFiles" and name in values:  # each file is a line of its own
                values[name] += f"\n{value}"
            elif equals and name not in values:
                values[name] = value
                command = name if value.startswith("{ path=") and not value.endswith(" }") else ""
        if values.get("Id"):
            blocks.append(values)
    return blocks


def _found(shown: Mapping[str, str]) -> Found:
    group = shown.get("ControlGroup", "")
    cgroup = Path("/sys/fs/cgroup") / group.lstrip("/") if group else None
    argv, env = exec_start(shown.get("ExecStart", "")), _environment(shown.get("Environment", ""))
    unit = Unit(
        name=shown["Id"],
        load_state=shown.get("LoadState", ""),
        active_state=shown.get("ActiveState", ""),
        sub_state=shown.get("SubState", ""),
        result=shown.get("Result", ""),
        invocation_id=shown.get("InvocationID") or None,
        main_pid=_number(shown.get("MainPID")) or None,
        exit_code=_HOW_IT_ENDED.get(shown.get("ExecMainCode", "")),
        exit_status=_number(shown.get("ExecMainStatus")),
        restarts=_number(shown.get("NRestarts")),
        memory_max=_number(shown.get("MemoryMax")),
        memory_peak=_number(shown.get("MemoryPeak")) or _cgroup_number(cgroup, "memory.peak"),
        oom_kills=_oom_kills(cgroup),
        drop_ins=tuple(shown.get("DropInPaths", "").split()),
        fragment=shown.get("FragmentPath") or None,
        properties={k: scrub(v) for k, v in shown.items() if k not in {"ExecStart", "Environment"} and v}
        | {"ExecStart": " ".join(scrub_argv(argv))},
    )
    return Found(
        unit=unit,
        argv=effective(argv, env, shown.get("EnvironmentFiles", "")),
        env=env,
        control_group=group,
        output_file=_output_file(unit, shown.get("StandardOutput", "")),
    )


def _output_file(unit: Unit, shown: str) -> str | None:
    """Where a unit writes that writes to a file, "" where that is not known; None for the journal. systemd tells the
    kind alone (`append`); the path stands in the unit's own files."""
    kind, _, path = shown.partition(":")
    if kind not in {"file", "append", "truncate"}:
        return None
    said = path or output_path(unit)
    name, suffix = unit.name.rpartition(".")[::2]
    prefix, _, instance = name.partition("@")
    known = {"%n": f"{name}.{suffix}", "%N": name, "%p": prefix, "%i": instance, "%%": "%"}
    said = re.sub("%.?", lambda found: known.get(found[0], "\0"), said)
    return said if said.startswith("/") and "\0" not in said else ""


def effective(argv: tuple[str, ...], env: Mapping[str, str], files: str) -> tuple[str, ...]:
    """The command line with its variables replaced; what a file sets wins over what the unit sets."""
    if not any("$" in word for word in argv):
        return argv
    return expanded(argv, {**env, **environment_files(files)}, all_seen=not files or os.geteuid() == 0)


def exec_start(shown: str) -> tuple[str, ...]:
    """The argument list in `systemctl show`'s ExecStart. It is written with spaces between words, so words that hold
    spaces cannot be told apart; JSON values, the only such words that vLLM has, are put together again."""
    _, begins, after = shown.partition("argv[]=")
    line, ends, _ = after.partition(" ; ignore_errors=")
    if not (begins and ends):
        return ()
    words: list[str] = []
    for word in line.split(" "):
        if words and words[-1].startswith(("{", "[")) and _open(words[-1]):
            words[-1] += f" {word}"
        else:
            words.append(word)
    return tuple(w for w in words if w)


def _open(text: str) -> bool:
    return text.count("{") > text.count("}") or text.count("[") > text.count("]")


def _environment(shown: str) -> dict[str, str]:
    """What the unit sets, secrets included. systemd quotes an assignment with spaces as "NAME=a b"."""
    pairs = re.findall(r"\"((?:[^\"\\]|\\.)*)\"|(\S+)", shown)
    assigned = (quoted or bare for quoted, bare in pairs)
    return dict(a.split("=", 1) for a in assigned if "=" in a)


def _number(text: str | None) -> int | None:
    if text is None or not re.fullmatch("[0-9]{1,20}", text):
        return None
    value = int(text)
    return None if value >= UNLIMITED else value


def _cgroup_number(cgroup: Path | None, file: str) -> int | None:
    return _number((text_of_start(cgroup / file) or "").strip()) if cgroup is not None else None


def _oom_kills(cgroup: Path | None) -> int | None:
    """`oom_kill` of the cgroup's memory.events; None where the kernel keeps no account or the unit is gone."""
    if cgroup is None:
        return None
    try:
        events = dict(line.split() for line in (text_of_start(cgroup / "memory.events") or "").splitlines())
    except ValueError:
        return None
    return _number(events.get("oom_kill"))
