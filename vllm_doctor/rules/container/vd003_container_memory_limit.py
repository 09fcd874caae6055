"""VD003: the container's own memory limit ended it: the host may have had plenty."""

import math

from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.container import none, state
from vllm_doctor.rules.outcome import Clear, Outcome, rule
from vllm_doctor.rules.remedies.pod import limits
from vllm_doctor.rules.say import finding, gib, set_flag, thing


def judge(case: Case) -> Outcome:
    """Did the kernel end the container for its limit, or for the host's memory?"""
    container = case.container
    if container is None:
        return none(case)
    end = container.end
    if end is None or not end.oom_killed:
        return Clear("the container runtime records no out-of-memory kill")
    run = case.run
    served = run is not None and run.served()
    limit = container.memory_limit
    return finding(
        RULE,
        title=_title(container, limit),
        severity=Severity.WILL_FAIL_UNDER_LOAD if served else Severity.BLOCKS_START,
        evidence=(state(container),),
        arithmetic=_sums(case, container),
        changes=(
            _raise(container, limit) if limit is not None else None,
            set_flag(case, "cpu-offload-gb", 0, Direction.LOWER, "this option takes this much host memory")
            if case.number("cpu-offload-gb")
            else None,
            thing(
                ChangeKind.HARDWARE,
                "host-ram",
                Direction.RAISE,
                f"the host ran out of memory, not the {container.kind}",
            )
            if limit is None
            else None,
        ),
        refute="OOMKilled is from an earlier run with another limit",
    )


def _title(container: Container, limit: int | None) -> str:
    if limit is None:
        return f"The {container.kind} was killed for lack of memory; the {container.kind} itself has no limit"
    return f"The {container.kind} was killed at its memory limit of {limit / GIB:.1f} GiB"


def _sums(case: Case, container: Container) -> tuple[Arithmetic, ...]:
    limit, host = container.memory_limit, container.host_memory or _host(case)
    found: list[Arithmetic] = []
    if limit is not None:
        found.append(gib("limit", limit / GIB, _option(container), f"the {container.kind}"))
    if host is not None:
        found.append(gib("host memory", host / GIB, "allocatable" if container.is_pod else "MemTotal", "the host"))
    return tuple(found)


def _option(container: Container) -> str:
    return {"kubernetes": "limits.memory", "slurm": "--mem"}.get(container.runtime, "--memory")


def _host(case: Case) -> int | None:
    machine = case.machine
    return machine.memory_total if machine is not None else None


def _raise(container: Container, limit: int) -> Change:
    """Half as much again: what it would have taken next is not known."""
    to = math.ceil(limit / GIB * 1.5)
    if container.is_job:
        why = "#SBATCH --mem= of one node; 1.5 times as much, because the log does not show how much more it needs"
        return thing(ChangeKind.OS, "job-memory", Direction.RAISE, why, to=f"{to}G")
    name = f"{to}Gi" if container.is_pod else f"{to}g"
    how = "resources.limits.memory of the pod" if container.is_pod else "--memory"
    why = f"{how}; 1.5 times as much, because the log does not show how much more it needs; or set no limit"
    command = (
        limits(container, "memory", name)
        if container.is_pod
        else f"{container.runtime} update --memory {name} {container.name}   # then start"
    )
    return thing(ChangeKind.OS, "container-memory", Direction.RAISE, why, to=name, command=command)


RULE = rule(
    "VD003", reads=frozenset({Signal.CONTAINER, Signal.LOG, Signal.LAUNCH, Signal.MACHINE, Signal.VERSION}), judge=judge
)
