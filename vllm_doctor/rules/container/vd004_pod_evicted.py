"""VD004: Kubernetes took the pod from its node: the node was short of something, or another pod came first."""

from vllm_doctor.log.match import read
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.container import describe_command, first_of_container, none, state
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, rule
from vllm_doctor.rules.say import finding, thing

# The kubelet's own sentences.
_SHORT = ("pod-low-on-resource", "pod-volume-outgrown", "pod-storage-outgrown")


def judge(case: Case) -> Outcome:
    """Was the pod evicted or pre-empted?"""
    container = case.container
    if container is None:
        return _pasted(case) or none(case)
    if not container.is_pod:
        return NotHere("no orchestrator manages it")
    told = first_of_container(container, "pod-evicted")
    if told is None or container.state == "running":
        return Clear("the pod was not taken from its node")
    _, fields, where = told
    title, why = _words(fields)
    return finding(
        RULE,
        title=title,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        evidence=(where, state(container)),
        changes=(thing(ChangeKind.OS, "pod-resources", Direction.CHANGE, why, command=describe_command(container)),),
        refute="the pod runs on the same node again and nothing was changed",
    )


def _pasted(case: Case) -> Finding | None:
    """What `kubectl describe` or the events say of it, where somebody put them beside the log or in its place."""
    run = case.run
    told = run.first(*_SHORT) if run is not None else None
    if run is None or told is None or run.root is not None:
        return None
    fields = read("pod-evicted", run.lines[told.index].text) or {}
    title, why = _words(fields)
    command = "kubectl describe node NODE   # its conditions, and what its pods ask for"
    return finding(
        RULE,
        title=title,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        phase=Phase.HOST_RAM if fields.get("resource") == "memory" else None,
        evidence=(case.line(told.index),),
        changes=(thing(ChangeKind.OS, "pod-resources", Direction.CHANGE, why, command=command),),
        refute="the pod runs on the same node again and nothing was changed",
    )


def _words(fields: dict[str, str]) -> tuple[str, str]:
    if "preempted" in fields:
        return (
            "The pod was preempted by one of higher priority",
            "give it a priorityClassName that no other pod preempts",
        )
    if "volume" in fields:
        limit = fields["limit"]
        return (
            excerpt.title(f"The pod was evicted: its volume {fields['volume']} outgrew {limit}"),
            f"raise sizeLimit of the emptyDir {fields['volume']} above {limit}; one in memory counts for limits.memory",
        )
    resource = fields.get("resource", "ephemeral-storage")
    if resource == "memory":
        why = "set requests.memory to what the server holds (requests equal to limits are evicted last)"
    else:
        why = (
            "put the model and vLLM's caches on a volume (HF_HOME, VLLM_CACHE_ROOT), and request ephemeral-storage for "
            "the rest"
        )
    return excerpt.title(f"The pod was evicted: its node was short of {resource}"), why


RULE = rule("VD004", reads=frozenset({Signal.CONTAINER, Signal.LOG}), judge=judge)
