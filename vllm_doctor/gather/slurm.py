"""Slurm: a job as scontrol and sacct tell of it, its batch script's launch, and the files that it wrote."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from vllm_doctor.gather import containers, trust
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.gather.processes import NotRun, Ran, run
from vllm_doctor.launch.command import parse_line
from vllm_doctor.launch.line import LaunchError
from vllm_doctor.records import excerpt
from vllm_doctor.records.container import Container, End
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown

_MAX = 4 << 20
_MAX_SCRIPT = 1 << 20
# Of an array's tasks: as many as anybody reads.
_MOST = 16
# scontrol's own words stand between blanks; a path may hold one, so a value ends where the next NAME= begins.
_NAME = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/]{0,40}+)=")
_USER = re.compile(r"[^()]{0,64}\((\d{1,10})\)")
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,4})?)([KMGTP]?)[nc]?")
_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_NONE = frozenset({"", "(null)", "N/A", "None", "Unknown", "none"})
# What sacct knows when scontrol has forgotten the job (MinJobAge, five minutes by default). WorkDir is the last: it may
# hold the sign between two fields.
_ACCOUNT = ("JobID", "State", "ExitCode", "Reason", "Start", "End", "Timelimit", "AllocTRES", "ReqTRES", "NodeList",
            "NNodes", "UID", "WorkDir")  # fmt: skip
_RUNNING = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING"})
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_PAUSED = frozenset({"SUSPENDED", "STOPPED"})


def read(job: str, deadline_s: float) -> Reading[tuple[Inspected, ...]]:
    """The job, or the tasks of an array; with the launch in its batch script where this user may see that."""
    live = _asked(["scontrol", "show", "job", job], deadline_s)
    if isinstance(live, Ran):
        found = jobs(live.out.decode(errors="replace"))
    elif "Invalid job id" in live.reason or "not installed" in live.reason:
        told = _asked(["sacct", "-X", "-n", "-P", "-j", job, "-o", ",".join(_ACCOUNT)], deadline_s)
        if isinstance(told, Unknown):
            return Unknown(f"{live.reason}; {told.reason}", told.remedy)
        found = accounted(told.out.decode(errors="replace"))
    else:
        return live
    if not found:
        return Absent(f"Slurm knows no job {job}")
    script = _script(job, deadline_s)
    return Known(tuple(seen(one, script) for one in found[:_MOST]), "scontrol show job")


def holds(text: str) -> bool:
    """Is this what `scontrol show job` prints?"""
    return text.lstrip().startswith("JobId=")


def jobs(text: str) -> list[dict[str, str]]:
    """The jobs that `scontrol show job` describes, each by its fields."""
    found: list[dict[str, str]] = []
    for line in text[:_MAX].splitlines():
        if line.startswith("JobId="):
            found.append({})
        if found:
            found[-1] |= {name: value for name, value in _fields(line[:8192]) if value not in _NONE}
    return found


def _fields(line: str) -> Iterator[tuple[str, str]]:
    names = list(_NAME.finditer(line))
    for name, following in pairwise([*names, None]):
        if name is not None:
            yield name[1], line[name.end() : following.start() if following is not None else len(line)].rstrip()


def accounted(text: str) -> list[dict[str, str]]:
    """The jobs in sacct's rows, by scontrol's names for the same fields."""
    found: list[dict[str, str]] = []
    for line in text[:_MAX].splitlines():
        cells = line[:8192].split("|", len(_ACCOUNT) - 1)
        if len(cells) != len(_ACCOUNT) or not cells[0]:
            continue
        told = {name: cell for name, cell in zip(_ACCOUNT, cells, strict=True) if cell not in _NONE}
        state, _, by = told.get("State", "").partition(" ")
        found.append(
            {
                "JobId": told["JobID"],
                "JobState": state,
                "Reason": by or told.get("Reason", ""),
                "UserId": f"({told.get('UID', '')})",
                "StartTime": told.get("Start", ""),
                "EndTime": told.get("End", ""),
                "TimeLimit": told.get("Timelimit", ""),
                "NumNodes": told.get("NNodes", ""),
                "StdOut": f"{told['WorkDir']}/slurm-{told['JobID']}.out" if "WorkDir" in told else "",
                **{name: told[name] for name in ("ExitCode", "AllocTRES", "ReqTRES", "NodeList") if name in told},
            }
        )
    return found


def seen(job: Mapping[str, str], script: str | None = None) -> Inspected:
    """A job as the other places are: what ran, what it was given, how it stands."""
    status = job.get("JobState", "").upper()
    state = "running" if status in _RUNNING else "waiting" if status in _WAITING else "exited"
    number = job.get("ArrayJobId", job.get("JobId", "?"))
    task = job.get("ArrayTaskId", "")
    name = _word(f"{number}_{task}" if task.isdecimal() else job.get("JobId", number))
    argv, env = _launch(script)
    container = Container(
        name=name,
        runtime="slurm",
        state="paused" if status in _PAUSED else state,
        reason=status,
        error=_why(job),
        end=_end(job, status) if state == "exited" else None,
        restarts=_whole(job.get("Restarts")),
        started_at=_moment(job.get("StartTime")) if state != "waiting" else None,
        memory_limit=_memory(job),
        shares_shm=True,
        gpus=_gpus(job),
        node=_word(job.get("BatchHost") or job.get("NodeList", "")) or None,
        limit=excerpt.word(job.get("TimeLimit", "")),
    )
    files = tuple(dict.fromkeys(f"{job[kind]}" for kind in ("StdOut", "StdErr") if job.get(kind, "").startswith("/")))
    owner = _USER.fullmatch(job.get("UserId", ""))
    return Inspected(container, name, argv, env, files=files, owner=int(owner[1]) if owner else None)


def log(found: Inspected) -> Reading[Log]:
    """What the job wrote. Its owner names the files, so only plain files of that user are read."""
    name = found.container.name
    give = f"give the job's output as a file: vllm-doctor diagnose FILE (scontrol show job {name} names it)"
    good: list[str] = []
    problem = Unknown(f"job {name}: its output file is not known", give)
    for file in found.files:
        try:
            status = Path(file).stat()
        except OSError as failed:
            problem = Unknown(f"{excerpt.name(file)}: {failed.strerror}", give)
            continue
        if status.st_uid != found.owner or not Path(file).is_file():
            problem = Unknown(f"{excerpt.name(file)}: it is not a file of the job's user", give)
        elif status.st_size:
            good.append(file)
        else:
            problem = Unknown(f"{excerpt.name(file)}: the job wrote nothing", give)
    return read_logs(good) if good else problem


def _script(job: str, deadline_s: float) -> str | None:
    """The batch script; only the job's user and operators may see it."""
    told = _asked(["scontrol", "write", "batch_script", job, "-"], deadline_s)
    return told.out[:_MAX_SCRIPT].decode(errors="replace") if isinstance(told, Ran) else None


def _launch(script: str | None) -> tuple[tuple[str, ...], dict[str, str]]:
    if not script:
        return (), {}
    try:
        launch = parse_line(script)
    except (LaunchError, ValueError):
        return (), {}
    return launch.argv, dict(launch.env)


def _why(job: Mapping[str, str]) -> str:
    reason = job.get("Reason", "")
    return f"Reason={excerpt.said(reason)}" if reason else ""


def _end(job: Mapping[str, str], status: str) -> End:
    """Slurm writes a code and a signal, `1:0` or `0:9`; a shell would have made 137 of the second."""
    code, _, signal = job.get("ExitCode", "").partition(":")
    number = _whole(code)
    if number is not None and (by := _whole(signal)):
        number = 128 + by
    killed = status == "OUT_OF_MEMORY"
    return End(number, status, killed, _moment(job.get("StartTime")), _moment(job.get("EndTime")))


def _tres(job: Mapping[str, str]) -> dict[str, str]:
    """What the job was given, by kind: the field is called TRES before 23.02, AllocTRES since."""
    told = next((job[name] for name in ("AllocTRES", "TRES", "ReqTRES") if job.get(name)), "")
    return dict(part.split("=", 1) for part in told.split(",") if "=" in part)


def _memory(job: Mapping[str, str]) -> int | None:
    """Bytes of host memory on one node; None where the job is not limited."""
    found = _MEMORY.fullmatch(_tres(job).get("mem", ""))
    nodes = _whole(job.get("NumNodes", "1").partition("-")[0]) or 1
    return int(float(found[1]) * _UNITS[found[2]]) // nodes or None if found else None


def _gpus(job: Mapping[str, str]) -> int | None:
    """How many GPUs it was given: 0 only where no field names one. A site need not count GPUs among its TRES."""
    counted = _whole(_tres(job).get("gres/gpu"))
    if counted:
        return counted
    asked = [value for name, value in job.items() if name.startswith(("Tres", "Gres")) and "gpu" in value]
    whole_node = job.get("OverSubscribe") == "NO"
    return None if asked or whole_node or "OverSubscribe" not in job else 0


def _word(text: str) -> str:
    """A job's or a node's name: it stands in commands, and a file of somebody else's may hold anything there."""
    return excerpt.name(re.sub(r"[^\w.,+\[\]-]", "", text))


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 12 else None


def _moment(text: str | None) -> str | None:
    return text if text and re.match(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d$", text) else None


def _environment() -> dict[str, str] | Unknown:
    """The caller's cluster. Its configuration names plugins that scontrol loads, so nobody else may change it."""
    env = containers.environment()
    named = os.environ.get("SLURM_CONF", "")
    if not named:
        return env
    why = trust.why_not(named) if named.startswith("/") else f"{excerpt.name(named)}: needed: a whole path"
    if why is not None:
        return Unknown(f"SLURM_CONF is not used: {why}", "give it to its owner alone (chmod go-w), or unset SLURM_CONF")
    return {**env, "SLURM_CONF": named}


def _asked(command: list[str], deadline_s: float) -> Ran | Unknown:
    env = _environment()
    if isinstance(env, Unknown):
        return env
    got = run(command, deadline_s=deadline_s, max_bytes=_MAX, env=env)
    what = shlex.join(command[:3])
    if isinstance(got, NotRun):
        return Unknown(f"{what}: {got.reason}", shlex.join(command))
    if got.code == 0 and got.out.strip():
        return got
    said = excerpt.last_said(got.err, "it printed nothing")
    return Unknown(f"{what}: {said}", shlex.join(command))
