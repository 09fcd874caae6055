"""VD008: Slurm ended the job, or will never start it: its state and its reason are the whole of the matter."""

from collections.abc import Callable

import msgspec

from vllm_doctor.log.match import read
from vllm_doctor.records import excerpt
from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.container import none, shell_word, state, state_messages
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, rule
from vllm_doctor.rules.say import finding, thing


class Ended(msgspec.Struct, frozen=True):
    """A state of Slurm's: the title for it, and what to do."""

    title: str
    change: Callable[[Container], Change]


def _do(name: str, why: str, command: str = "", direction: Direction = Direction.CHANGE) -> Change:
    return thing(ChangeKind.OS, name, direction, why, command=command or None)


def _longer(container: Container) -> Change:
    why = "a server ends with its job: ask for a longer time, as far as the partition allows it"
    return _do("job-time-limit", f"#SBATCH --time=; it was {container.limit or 'the default'}; {why}",
               "sinfo -o '%P %l'   # the longest time of each partition", Direction.RAISE)  # fmt: skip


def _again(container: Container) -> Change:
    why = "#SBATCH --requeue starts a preempted job again; a partition or QOS that is not preempted keeps it"
    return _do("job-requeue", why, f"scontrol requeue {shell_word(container.name)}")


def _elsewhere(container: Container) -> Change:
    node = shell_word(container.node or "NODE")
    why = "the node or its slurmd stopped answering; run the job on another node until this node is repaired"
    return _do("job-node", f"#SBATCH --exclude={node}; {why}", f"sinfo -R -n {node}", Direction.REPAIR)


_STATES = {
    "TIMEOUT": Ended("The job reached its time limit", _longer),
    "DEADLINE": Ended("The job reached its deadline", _longer),
    "PREEMPTED": Ended("A job of higher priority preempted this one", _again),
    "NODE_FAIL": Ended("The job's node failed", _elsewhere),
    "BOOT_FAIL": Ended("The job's node did not boot", _elsewhere),
    "LAUNCH_FAILED": Ended("The job's node could not start it", _elsewhere),
}

# Reasons that no waiting ends: what one job asks for is out of bounds, or somebody has to act. A limit of what a user,
# an account or a QOS has at one time (...PerUser, ...PerAccount, ...JobsLimit, ...Grp...) ends when other jobs do, and
# a node that is not available may come back.
_NEVER = (
    ("slurm-unmeetable", "no node has what the job asks for (--gres, --mem, --constraint, -w)",
     "sinfo -o '%N %G %m %t %f'"),
    ("slurm-partition-refuses",
     "the partition does not take the job: its time limit, its number of nodes, or nodes that it needs are down",
     "scontrol show partition"),
    ("slurm-partition-closed", "the partition starts no jobs until its administrators open it",
     "scontrol show partition"),
    ("slurm-job-above-limit",
     "the job asks for more than its account or QOS allows to one job",
     "sacctmgr show qos format=Name,MaxTRES,MaxWall"),
    ("slurm-job-below-limit", "the job asks for less than its QOS requires of each job",
     "sacctmgr show qos format=Name,MinTRES"),
    ("slurm-memory-refused", "the job asks for more memory per CPU or node than Slurm allows",
     "scontrol show config | grep MaxMemPer"),
    ("slurm-account-refused", "its account is unknown, or not one of the partition",
     "sacctmgr show associations user=$USER format=Account,Partition"),
    ("slurm-qos-refused", "its QOS is unknown, or not one of its account or partition",
     "sacctmgr show associations user=$USER format=Account,QOS"),
    ("slurm-reservation-gone", "the reservation that it asks for is gone", "scontrol show reservation"),
    ("slurm-dependency-failed", "the job that this one waits for failed", "scancel"),
    ("slurm-held", "somebody holds it", "scontrol release"),
    ("slurm-held-after-requeues", "it was requeued as often as Slurm allows; read why it ended before",
     "scontrol release"),
    ("slurm-launch-failed", "its node could not start it, and Slurm holds it now", "scontrol release"),
)  # fmt: skip


def judge(case: Case) -> Outcome:
    """Did Slurm end the job, or does it keep it from starting?"""
    container = case.container
    if container is None:
        return _told(case) or none(case)
    if not container.is_job:
        return NotHere("it is not a batch job")
    ended = _STATES.get(container.reason)
    if ended is not None:
        return finding(
            RULE,
            title=ended.title,
            severity=Severity.WILL_FAIL_UNDER_LOAD,
            evidence=(state(container), *state_messages(container)),
            changes=(ended.change(container),),
            refute=f"sacct -j {shell_word(container.name)} shows another state",
        )
    told = (read("slurm-reason", container.error) or {}).get("reason", "")
    never = next((row for row in _NEVER if read(row[0], told) is not None), None)
    if never is None or (container.started and container.reason != "FAILED"):
        return Clear("Slurm did not end the job, and the job does not wait for something that never comes")
    _, why, command = never
    if command in {"scancel", "scontrol release"}:
        command = f"{command} {shell_word(container.name)}"
    return finding(
        RULE,
        title=excerpt.title(f"Slurm will not start the job: {told}"),
        evidence=(state(container), *state_messages(container)),
        changes=(_do("job-request", why, command),),
        refute="squeue shows another reason, or that the job runs",
    )


_DUE = {"TO TIME LIMIT": "TIMEOUT", "TO PREEMPTION": "PREEMPTED", "TO NODE FAILURE": "NODE_FAIL"}


def _told(case: Case) -> Finding | None:
    """The line in which slurmstepd says why it ended the job, where nothing failed before it."""
    run = case.run
    if run is None or run.root is not None or run.deaths:
        return None
    for index, line in enumerate(run.lines):
        told = read("slurm-ended-job", line.text)
        ended = _STATES.get(_DUE.get(told["reason"], "")) if told is not None else None
        if told is None or ended is None:
            continue
        return finding(
            RULE,
            title=ended.title,
            severity=Severity.WILL_FAIL_UNDER_LOAD,
            confidence=Confidence.LIKELY,
            evidence=(case.line(index),),
            changes=(ended.change(Container(name=told["job"], runtime="slurm", limit="too short")),),
            refute=f"sacct -j {told['job']} shows another state",
        )
    return None


RULE = rule("VD008", reads=frozenset({Signal.CONTAINER, Signal.LOG}), judge=judge)
