"""`kubectl get pod NAME -o json` and the events about it as records: state, last end, probes, limits, node."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from vllm_doctor.gather import json_path
from vllm_doctor.gather.bounded import json_value
from vllm_doctor.gather.inspected import Inspected, unshelled
from vllm_doctor.gather.launch import is_vllm
from vllm_doctor.knowledge.images import release_of
from vllm_doctor.records import excerpt
from vllm_doctor.records.container import Beside, Check, Container, End, Event
from vllm_doctor.records.reading import Known, Reading, Unknown

_REMEDY = "kubectl get pod NAME -o json > FILE"
_EVENTS_REMEDY = "kubectl get events --field-selector involvedObject.name=NAME -o json > FILE"
_KINDS = {"startupProbe": "startup", "livenessProbe": "liveness", "readinessProbe": "readiness"}
# Kubernetes' own defaults of a probe's numbers.
_PERIOD_S, _TIMEOUT_S, _FAILURES = 10, 1, 3
_SHM = "/dev/shm"  # noqa: S108 - the place itself
# What the container runtime gives where no volume is mounted there.
_SHM_DEFAULT = 64 << 20
_GPU = "nvidia.com/gpu"
_OTHER_GPU = re.compile(r"(gpu|xpu|habana|tpu|npu|neuron)", re.IGNORECASE)
_MOST_EVENTS = 200
# The kubelet's reasons for a container whose process the runtime could not start: what it said then is the cause.
_NEVER_RAN = {"StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError"}


def read(data: bytes, name: str) -> Reading[tuple[Inspected, ...]]:
    """The pods' containers that serve vLLM; of a pod without one its first, which then is what was meant."""
    told = json_value(data, name, _REMEDY)
    if isinstance(told, Unknown):
        return told
    found = tuple(one for pod in pods(told.value) for one in containers(pod))
    return Known(found, name) if found else Unknown(f"{name}: no pod is described in it", _REMEDY)


def read_events(data: bytes, name: str) -> Reading[tuple[Event, ...]]:
    """Events as kubectl prints them, the oldest first."""
    told = json_value(data, name, _EVENTS_REMEDY)
    if isinstance(told, Unknown):
        return told
    return Known(events(told.value), name)


def pods(value: object) -> list[object]:
    """The pods in a list of them, or the one."""
    return [one for one in _items(value) if is_pod(one)][:64]


def is_pod(value: object) -> bool:
    """Is this a pod, with its state?"""
    return json_path.text(value, "kind") == "Pod" and isinstance(json_path.at(value, "spec"), Mapping)


def is_event(value: object) -> bool:
    """Is this an event?"""
    return json_path.text(value, "kind") == "Event" or (
        isinstance(json_path.at(value, "involvedObject"), Mapping)
        and "reason" in (value if isinstance(value, dict) else ())
    )


def holds(value: object) -> str:
    """`pod`, `events`, or "" for another JSON."""
    items = _items(value)
    if any(is_pod(one) for one in items):
        return "pod"
    kind = json_path.text(value, "kind")
    return "events" if kind == "EventList" or any(is_event(one) for one in items) else ""


def _items(value: object) -> list[object]:
    return json_path.rows(value, "items") if json_path.text(value, "kind").endswith("List") else [value]


def events(value: object) -> tuple[Event, ...]:
    """The events in a list of them."""
    found = [
        Event(
            reason=excerpt.word(json_path.text(one, "reason")),
            text=json_path.text(one, "message") or json_path.text(one, "note"),
            count=json_path.whole(one, "count") or json_path.whole(one, "series", "count") or 1,
            at=json_path.moment(one, "lastTimestamp")
            or json_path.moment(one, "series", "lastObservedTime")
            or json_path.moment(one, "eventTime")
            or json_path.moment(one, "firstTimestamp"),
        )
        for one in _items(value)
        if is_event(one)
    ]
    return tuple(sorted(found, key=lambda event: event.at or "")[-_MOST_EVENTS:])


def containers(pod: object) -> tuple[Inspected, ...]:
    """The containers of a pod that serve vLLM, else the first; each with those before it and beside it."""
    specs = [one for one in json_path.rows(pod, "spec", "containers") if isinstance(one, Mapping)]
    every = [_seen(pod, one) for one in specs]
    ours = tuple(one for one in every if one.serves) or tuple(every[:1])
    names = {one.container.name for one in ours}
    rest = [spec for spec, one in zip(specs, every, strict=True) if one.container.name not in names]
    before = [one for one in json_path.rows(pod, "spec", "initContainers") if isinstance(one, Mapping)]
    beside = (*(_beside(pod, one, first=True) for one in before), *(_beside(pod, one, first=False) for one in rest))
    others = tuple(
        ((*json_path.words(one, "command"), *json_path.words(one, "args")), _environment(one))
        for one in (*before, *rest)
    )
    return tuple(
        msgspec.structs.replace(one, container=msgspec.structs.replace(one.container, beside=beside), others=others)
        for one in ours
    )


def _beside(pod: object, spec: Mapping[str, object], *, first: bool) -> Beside:
    own = json_path.text(spec, "name")
    status = _status(pod, own, "initContainerStatuses" if first else "containerStatuses")
    state, reason, error, _ = _own_state(status)
    return Beside(
        name=excerpt.name(own),
        first=first,
        state=state,
        reason=reason,
        error=error,
        end=_end(status),
        restarts=json_path.whole(status, "restartCount"),
        memory_limit=json_path.quantity(spec, "resources", "limits", "memory"),
    )


def _status(pod: object, name: str, kind: str) -> object:
    return next((one for one in json_path.rows(pod, "status", kind) if json_path.text(one, "name") == name), None)


def named(pod: object) -> str:
    """NAMESPACE/NAME."""
    space = json_path.text(pod, "metadata", "namespace") or "default"
    return f"{excerpt.name(space)}/{excerpt.name(json_path.text(pod, 'metadata', 'name'))}"


def _seen(pod: object, spec: Mapping[str, object]) -> Inspected:
    own = json_path.text(spec, "name")
    status = _status(pod, own, "containerStatuses")
    ready = json_path.at(status, "ready")
    state, reason, error, started = _state(pod, status)
    image = json_path.text(spec, "image")
    argv = unshelled((*json_path.words(spec, "command"), *json_path.words(spec, "args")))
    if not json_path.words(spec, "command") and not is_vllm(argv) and release_of(image) is not None:
        argv = ("vllm", "serve", *argv)  # the entry point of vLLM's image
    container = Container(
        name=f"{named(pod)}/{excerpt.name(own)}",
        runtime="kubernetes",
        image=excerpt.name(image),
        state=state,
        reason=reason,
        error=error,
        end=_end(status),
        restarts=json_path.whole(status, "restartCount"),
        started_at=started,
        memory_limit=json_path.quantity(spec, "resources", "limits", "memory"),
        shm_bytes=_shm(pod, spec),
        shares_shm=json_path.at(pod, "spec", "hostIPC") is True,
        gpus=_gpus(spec),
        checks=tuple(_check(kind, probe) for name, kind in _KINDS.items() if (probe := _mapping(spec.get(name)))),
        node=json_path.text(pod, "spec", "nodeName") or None,
        address=json_path.text(pod, "status", "podIP") or None,
        ready=ready if isinstance(ready, bool) else None,
        owner=_owner(pod),
    )
    return Inspected(container, json_path.text(pod, "metadata", "uid") or container.name, argv, _environment(spec))


def _owner(pod: object) -> str:
    """The workload that made it. A ReplicaSet is a Deployment's, under the name that the template's hash follows."""
    for one in json_path.rows(pod, "metadata", "ownerReferences"):
        kind, name = json_path.text(one, "kind").lower(), excerpt.name(json_path.text(one, "name"))
        if not kind or not name or json_path.at(one, "controller") is False:
            continue
        template = json_path.text(pod, "metadata", "labels", "pod-template-hash")
        if kind == "replicaset" and template and name.endswith(f"-{template}"):
            return f"deployment/{name.removesuffix(f'-{template}')}"
        return f"{excerpt.word(kind)}/{name}"
    return ""


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _state(pod: object, status: object) -> tuple[str, str, str, str | None]:
    """The state in one word, the reason and the message for it, and when the present run began."""
    reason, message = json_path.text(pod, "status", "reason"), json_path.text(pod, "status", "message")
    state, word, text, started = _own_state(status)
    if state in {"running", "exited"}:
        return state, reason or word, message or text, started
    if reason:
        return "exited", reason, message, None
    if state:
        return state, word, text, None
    unmet = next((one for one in json_path.rows(pod, "status", "conditions") if _refused(one)), None)
    return "waiting", json_path.text(unmet, "reason"), json_path.text(unmet, "message"), None


def _own_state(status: object) -> tuple[str, str, str, str | None]:
    """What a container's own status says; "" where it has none."""
    running = json_path.at(status, "state", "running")
    if isinstance(running, Mapping):
        return "running", "", "", json_path.moment(running, "startedAt")
    ended = json_path.at(status, "state", "terminated")
    if isinstance(ended, Mapping):
        began = json_path.moment(ended, "startedAt")
        return "exited", json_path.text(ended, "reason"), json_path.text(ended, "message"), began
    waiting = json_path.at(status, "state", "waiting")
    if isinstance(waiting, Mapping):
        last = json_path.at(status, "lastState", "terminated")
        why = last if json_path.text(last, "reason") in _NEVER_RAN else waiting
        return "waiting", json_path.text(waiting, "reason"), json_path.text(why, "message"), None
    return "", "", "", None


def _refused(condition: object) -> bool:
    return json_path.text(condition, "type") == "PodScheduled" and json_path.text(condition, "status") == "False"


def _end(status: object) -> End | None:
    for where in ("state", "lastState"):
        told = json_path.at(status, where, "terminated")
        if isinstance(told, Mapping):
            reason = excerpt.word(json_path.text(told, "reason"))
            return End(
                exit_code=json_path.whole(told, "exitCode"),
                reason=reason,
                oom_killed=reason == "OOMKilled",
                started_at=json_path.moment(told, "startedAt"),
                finished_at=json_path.moment(told, "finishedAt"),
            )
    return None


def _shm(pod: object, spec: object) -> int | None:
    """The size of /dev/shm: the volume's limit (None: half of the node's memory), else what a runtime gives."""
    mount = next(
        (m for m in json_path.rows(spec, "volumeMounts") if json_path.text(m, "mountPath").rstrip("/") == _SHM), None
    )
    if mount is None:
        return _SHM_DEFAULT
    wanted = json_path.text(mount, "name")
    volume = next((v for v in json_path.rows(pod, "spec", "volumes") if json_path.text(v, "name") == wanted), None)
    return json_path.quantity(volume, "emptyDir", "sizeLimit")


def _gpus(spec: object) -> int | None:
    limits = _mapping(json_path.at(spec, "resources", "limits"))
    given = json_path.quantity(limits, _GPU)
    if given is not None:
        return given
    claimed = any(_OTHER_GPU.search(str(name)) for name in limits) or bool(json_path.rows(spec, "resources", "claims"))
    return None if claimed else 0


def _check(kind: str, probe: Mapping[str, object]) -> Check:
    def number(name: str, default: int) -> int:
        found = json_path.whole(probe, name)
        return default if found is None else found

    path = json_path.text(probe, "httpGet", "path")
    return Check(
        kind=kind,
        delay_s=number("initialDelaySeconds", 0),
        period_s=number("periodSeconds", _PERIOD_S) or _PERIOD_S,
        timeout_s=number("timeoutSeconds", _TIMEOUT_S) or _TIMEOUT_S,
        failures=number("failureThreshold", _FAILURES) or _FAILURES,
        asks=excerpt.said(f"GET {path}") if path else "",
        port=excerpt.word(
            str(json_path.at(probe, "httpGet", "port") or json_path.at(probe, "tcpSocket", "port") or "")
        ),
    )


def _environment(spec: object) -> dict[str, str]:
    """What is assigned in the pod's own text; what comes from a secret is not there."""
    listed = json_path.rows(spec, "env")
    return {json_path.text(one, "name"): json_path.text(one, "value") for one in listed if json_path.text(one, "value")}


def with_events(found: Iterable[Inspected], told: tuple[Event, ...]) -> tuple[Inspected, ...]:
    """The containers with the events about their pod."""
    return tuple(
        msgspec.structs.replace(one, container=msgspec.structs.replace(one.container, events=told)) for one in found
    )
