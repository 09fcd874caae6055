"""kubectl: one pod with its events, its node and what its container wrote, the run before the present one too."""

import os
import shlex

import msgspec

from vllm_doctor.gather import containers, json_path, pod, trust
from vllm_doctor.gather.bounded import json_value
from vllm_doctor.gather.concurrently import Task
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.gather.processes import NotRun, Ran, run
from vllm_doctor.gather.target import POD
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records import excerpt
from vllm_doctor.records.container import Beside
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown

_MAX_JSON, _MAX_LOG, _TAIL = 16 << 20, 24 << 20, 20_000
# Of a container beside the server: enough for its error.
_LAST_LINES, _LONGEST = 20, 500


def environment() -> dict[str, str]:
    """The caller's cluster: KUBECONFIG, else the one in the user's own folder."""
    env = containers.environment()
    named = os.environ.get("KUBECONFIG", "")
    if named and _refused() is None:
        env["KUBECONFIG"] = named
    return env


def read(name: str, space: str | None, deadline_s: float) -> Reading[tuple[Inspected, ...]]:
    """The containers of vLLM in a pod, with its events and its node's memory."""
    got = _asked(["get", "pod", name, *_in(space), "-o", "json"], deadline_s)
    if isinstance(got, Unknown | Absent):
        return got
    remedy = shlex.join(["kubectl", "get", "pod", name, *_in(space), "-o", "json"])
    told = json_value(got.out, "kubectl get pod", remedy)
    if isinstance(told, Unknown):
        return told
    if not pod.is_pod(told.value):
        return Unknown("kubectl get pod: it describes no pod", remedy)
    node = json_path.text(told.value, "spec", "nodeName")
    own = json_path.text(told.value, "metadata", "namespace") or space
    selected = ["--field-selector", f"involvedObject.name={name}"]
    events = Task(lambda: _asked(["get", "events", *_in(own), *selected, "-o", "json"], deadline_s))
    size = Task(lambda: _node_memory(node, deadline_s))
    said = events.within(deadline_s + 1, Unknown("kubectl get events: not read in time", "kubectl get events"))
    happened = pod.read_events(said.out, "kubectl get events") if isinstance(said, Ran) else said
    listed = happened.value if isinstance(happened, Known) else ()
    unseen = "" if isinstance(happened, Known) else happened.reason
    memory = size.within(deadline_s + 1, None)
    seen = pod.with_events(pod.containers(told.value), listed)
    wrote = (
        {one.name: _wrote(seen[0], one, deadline_s) for one in seen[0].container.beside if one.fails} if seen else {}
    )
    return Known(tuple(_with(one, memory, unseen, wrote) for one in seen), "kubectl get pod")


def _with(seen: Inspected, memory: int | None, unseen: str, wrote: dict[str, tuple[str, ...]]) -> Inspected:
    beside = tuple(msgspec.structs.replace(one, wrote=wrote.get(one.name, ())) for one in seen.container.beside)
    more = msgspec.structs.replace(seen.container, host_memory=memory, unseen=unseen, beside=beside)
    return msgspec.structs.replace(seen, container=more)


def _wrote(seen: Inspected, one: Beside, deadline_s: float) -> tuple[str, ...]:
    """The last lines of a container that failed: of the run that ended, where it waits for the next."""
    space, name, _ = seen.container.name.split("/", 2)
    scope = [name, "-c", one.name, "-n", space, f"--tail={_LAST_LINES}"]
    lines = _lines([*scope, *(["--previous"] if one.state != "exited" and one.restarts else [])], deadline_s)
    return tuple(line[:_LONGEST] for line in lines if line.strip()) if isinstance(lines, list) else ()


def log(seen: Inspected, deadline_s: float) -> Reading[Log]:
    """What the container wrote; of one that was started again, the run before it first: it is the one that failed."""
    space, name, own = seen.container.name.split("/", 2)
    scope = [name, "-c", own, "-n", space, "--timestamps", f"--tail={_TAIL}"]
    before = _lines([*scope, "--previous"], deadline_s) if seen.container.restarts else []
    now = _lines(scope, deadline_s)
    lines = [line for each in (before, now) if isinstance(each, list) for line in each]
    if isinstance(now, Unknown) and not lines:
        return now
    title = f"kubectl logs {name}"
    if not lines:
        return Unknown(f"{title}: it wrote nothing", f"kubectl logs -n {space} {name} -c {own} --previous")
    return Known(log_of_lines(lines, title), title)


def _refused() -> str | None:
    """Why the caller's KUBECONFIG is not used: it names programs that kubectl starts. Another cluster would be read
    without it, so then none is asked."""
    named = [part for part in os.environ.get("KUBECONFIG", "").split(":") if part]
    whys = [trust.why_not(part) if part.startswith("/") else f"{part}: needed: a whole path" for part in named]
    return next((why for why in whys if why is not None), None)


def _lines(arguments: list[str], deadline_s: float) -> list[str] | Unknown:
    got = run(["kubectl", "logs", *arguments], deadline_s=deadline_s, max_bytes=_MAX_LOG, env=environment())
    if isinstance(got, NotRun):
        return Unknown(f"kubectl logs: {got.reason}", "kubectl logs")
    if got.code != 0 and not got.out:
        return Unknown(f"kubectl logs: {excerpt.last_said(got.err, '?')}", "kubectl logs")
    return got.out.decode(errors="replace").splitlines()


def _node_memory(node: str, deadline_s: float) -> int | None:
    """What the node has for pods; None where this user may not look at nodes."""
    if not POD.fullmatch(node):
        return None
    got = _asked(["get", "node", node, "-o", "json"], deadline_s)
    told = json_value(got.out, "kubectl get node", "") if isinstance(got, Ran) else None
    return json_path.quantity(told.value, "status", "allocatable", "memory") if isinstance(told, Known) else None


def _in(space: str | None) -> list[str]:
    return ["-n", space] if space else []


def _asked(arguments: list[str], deadline_s: float) -> Ran | Unknown | Absent:
    why = _refused()
    if why is not None:
        return Unknown(f"KUBECONFIG is not used: {why}", "give it to its owner alone (chmod go-w), or unset KUBECONFIG")
    got = run(["kubectl", *arguments], deadline_s=deadline_s, max_bytes=_MAX_JSON, env=environment())
    what = f"kubectl {' '.join(arguments[:2])}"
    if isinstance(got, NotRun):
        return Unknown(f"kubectl: {got.reason}", shlex.join(["kubectl", *arguments]))
    if got.code == 0:
        return got
    said = excerpt.last_said(got.err, f"exit code {got.code}")
    if "(NotFound)" in got.err:
        return Absent(f"{what}: {said}")
    return Unknown(f"{what}: {said}", shlex.join(["kubectl", *arguments]))
