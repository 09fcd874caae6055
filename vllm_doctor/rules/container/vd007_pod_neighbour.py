"""VD007: another container of the pod fails: vLLM waits for it, or gets no requests because of it."""

import math

from vllm_doctor.records.container import Beside, Container
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.container import none, shell_word
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, rule
from vllm_doctor.rules.remedies.pod import patch
from vllm_doctor.rules.say import finding, thing

_TITLE = 70
# Of what the container wrote last: its error stands there.
_LINES = 3


def judge(case: Case) -> Outcome:
    """Does a container before vLLM, or beside it, fail?"""
    container = case.container
    if container is None:
        return _told(case) or none(case)
    if not container.is_pod:
        return NotHere("vLLM does not run in a pod, so no other container runs before or beside it")
    if not container.beside:
        return Clear("the pod has no other container")
    failing = [one for one in container.beside if one.fails]
    if not container.started:
        failing = [one for one in failing if one.first]
    if not failing or (container.started and container.state != "running"):
        return Clear("no other container of the pod fails")
    one = failing[0]
    return finding(
        RULE,
        title=_title(one),
        severity=Severity.DEGRADED if container.started else Severity.BLOCKS_START,
        confidence=Confidence.CONFIRMED,
        evidence=_evidence(container, one),
        changes=(_change(container, one),),
        refute=f"kubectl get pod shows that {one.name} ended with code 0 since, or that it runs",
    )


def _told(case: Case) -> Finding | None:
    """Of a list of pods that somebody pasted: the status says that init containers have not ended, for minutes."""
    run = case.run
    told = run.last("pod-init-runs") if run is not None else None
    if run is None or told is None or run.by_vllm or run.root is not None:
        return None
    why = (
        "vLLM starts when it has ended with code 0: a download takes long, and a service, as a proxy is, never ends. "
        "Make that one a sidecar (restartPolicy: Always on the init container, Kubernetes 1.29 and newer), or one of "
        "the containers"
    )
    see = "kubectl describe pod POD; kubectl logs POD -c INIT-CONTAINER --tail=50"
    return finding(
        RULE,
        title=f"vLLM waits for an init container of its pod, {told.fields['age']} by now",
        severity=Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(told.index),),
        changes=(thing(ChangeKind.OS, "pod-container", Direction.REPAIR, why, command=see),),
        refute="a later kubectl get pods shows that the init container has ended",
    )


def _title(one: Beside) -> str:
    why = "is out of memory" if one.end is not None and one.end.oom_killed else "fails"
    if one.first:
        return f"The init container {one.name} {why}, so vLLM never starts"[:_TITLE]
    return f"The pod gets no requests: its container {one.name} {why}"[:_TITLE]


def _pod(container: Container) -> str:
    return container.name.rpartition("/")[0]


def _evidence(container: Container, one: Beside) -> tuple[Evidence, ...]:
    end = one.end
    told = [one.state, one.reason]
    if end is not None:
        told += [end.reason, f"exit code {end.exit_code}"]
    if one.restarts:
        told.append(f"{one.restarts} restart{'s' * (one.restarts > 1)}")
    name = f"{_pod(container)}/{one.name}"
    stands = Evidence("pod", name, ", ".join(dict.fromkeys(filter(None, told))), end.finished_at if end else None)
    return (stands, *(Evidence("kubectl logs", name, line) for line in one.wrote[-_LINES:]))


def _change(container: Container, one: Beside) -> Change:
    if one.end is not None and one.end.oom_killed:
        to = f"{math.ceil(one.memory_limit / GIB * 1.5)}Gi" if one.memory_limit else None
        why = f"resources.limits.memory of {one.name}; a download also counts the files that it writes to memory"
        kind = "initContainers" if one.first else "containers"
        command = patch(container, {"resources": {"limits": {"memory": to}}}, of=one.name, kind=kind) if to else None
        return thing(ChangeKind.OS, "container-memory", Direction.RAISE, why, to=to, command=command)
    space, _, name = _pod(container).partition("/")
    before = " --previous" if one.restarts and one.state != "exited" else ""
    command = f"kubectl logs -n {shell_word(space)} {shell_word(name)} -c {shell_word(one.name)} --tail=50{before}"
    after = (
        "vLLM starts when it has ended with code 0" if one.first else "a pod is ready when each of its containers is"
    )
    return thing(ChangeKind.OS, "pod-container", Direction.REPAIR, f"repair {one.name}: {after}", command=command)


RULE = rule("VD007", reads=frozenset({Signal.CONTAINER, Signal.LOG}), judge=judge)
