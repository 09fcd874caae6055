"""VD001: the runtime refused to start the container, so vLLM never ran: what it said is the whole of the matter."""

from vllm_doctor.knowledge.versions import default_port
from vllm_doctor.log.match import read
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.container import Container
from vllm_doctor.records.excerpt import said as said_by
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.container import describe_command, first_of_container, none, shell_word, state
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, rule
from vllm_doctor.rules.remedies.pod import patch
from vllm_doctor.rules.remedies.runtime_messages import OF_THE_GPUS, RuntimeMessage, repair
from vllm_doctor.rules.say import finding


def _more_gpus(_: Container, said: dict[str, str]) -> Change:
    resource = said.get("resource", "nvidia.com/gpu")
    return repair(
        "node-gpus", f"no node has enough free {resource} for the pod: other pods hold them, or the device "
        "plugin does not offer them",
        "kubectl get nodes -o custom-columns='NODE:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu'; "
        "kubectl get pods -A -o wide | grep -v Completed",
    )  # fmt: skip


def _pool_limit(_: Container, said: dict[str, str]) -> Change:
    pool = shell_word(said.get("pool") or "POOL")
    return repair(
        "node-pool-limit", "an autoscaler makes nodes for the pod, and its pool is at its limit: raise the limit "
        "(spec.limits of the nodepool, the maximum of the node group), or end what uses it",
        f"kubectl describe nodepool {pool}; kubectl get configmap -n kube-system cluster-autoscaler-status -o yaml",
        Direction.RAISE,
    )  # fmt: skip


def _larger_nodes(_: Container, said: dict[str, str]) -> Change:
    return repair(
        "node-pool-kind", f"even an empty node of its groups has less {said['resource']} than the pod asks for: add a "
        "group of larger nodes, or ask for less (fewer GPUs: --tensor-parallel-size). A group that is at zero must be "
        "labelled with its GPUs for the autoscaler to count them",
        "kubectl get configmap -n kube-system cluster-autoscaler-status -o yaml; kubectl describe pod POD",
        Direction.CHANGE,
    )  # fmt: skip


def _no_capacity(_: Container, said: dict[str, str]) -> Change:
    return repair(
        "node-capacity", f"the cloud refused the node ({said['said']}): ask for another zone, another kind of instance "
        "or on-demand instead of spot, reserve it, or raise the account's quota of that kind",
        "kubectl get events -A | grep -iE 'scale|nodeclaim|capacity|quota'", Direction.CHANGE,
    )  # fmt: skip


def _quota(_: Container, said: dict[str, str]) -> Change:
    quota = shell_word(said["quota"])
    return repair(
        "quota", f"the namespace's quota {quota} has {said['used']} in use of {said['limit']}, and the pod asks for "
        f"{said['asked']}: end or shrink what uses it, ask for less (fewer GPUs: --tensor-parallel-size), or raise it",
        f"kubectl describe resourcequota {quota}; kubectl get pods", Direction.RAISE,
    )  # fmt: skip


def _unsaid(_: Container, said: dict[str, str]) -> Change:
    return repair(
        "pod-resources", f"the namespace's quota takes only pods that state {said['lacks']}: write them in "
        "resources.requests and resources.limits of each container",
        "kubectl explain pod.spec.containers.resources", Direction.ADD,
    )  # fmt: skip


def _admission(_: Container, said: dict[str, str]) -> Change:
    rule = said.get("why") or said.get("rule", "")
    return repair(
        "pod-settings", f"the cluster does not accept a pod with these settings: {said_by(rule)}",
        "kubectl get events --field-selector reason=FailedCreate", Direction.CHANGE,
    )  # fmt: skip


def _placed(container: Container, _: dict[str, str]) -> Change:
    return repair("placement", "no node meets what the pod asks for", describe_command(container))


def _claim(_: Container, __: dict[str, str]) -> Change:
    return repair(
        "volume-claim", "the pod waits for its volume: create the claim, or the volume that it asks for (size, access "
        "mode and storage class must fit; a storage class needs a provisioner), in the zone of the node with the GPU",
        "kubectl get pvc,pv,storageclass; kubectl describe pvc CLAIM",
    )  # fmt: skip


def _resource(_: Container, said: dict[str, str]) -> Change:
    resource = said.get("resource") or "pods"
    return repair(
        "pod-resources", f"no node has that much {resource} free: request less of it "
        "(resources.requests), end what holds it, or add a larger node; a name with a slash is a device plugin's",
        "kubectl describe nodes | grep -A12 'Allocated resources'", Direction.LOWER,
    )  # fmt: skip


def _selector(_: Container, __: dict[str, str]) -> Change:
    return repair(
        "node-selector", "the pod's nodeSelector, affinity or spread fits no node: compare it with the labels that the "
        "nodes have (NVIDIA's, such as nvidia.com/gpu.product, come from its feature discovery)",
        "kubectl get nodes --show-labels; kubectl get pod POD -o jsonpath='{.spec.nodeSelector}{.spec.affinity}'",
        Direction.CHANGE,
    )  # fmt: skip


def _toleration(_: Container, said: dict[str, str]) -> Change:
    key = said["taint"].partition(":")[0]
    return repair(
        "tolerations", f"the nodes keep out pods that do not tolerate {said_by(said['taint'])}: write tolerations: "
        f"[{{key: {key.strip()}, operator: Exists}}] into the pod's spec",
        "kubectl get nodes -o custom-columns='NODE:.metadata.name,TAINTS:.spec.taints'", Direction.ADD,
    )  # fmt: skip


def _image(container: Container, said: dict[str, str]) -> Change:
    image = said.get("image") or container.image
    program = "crictl" if container.is_pod else container.runtime
    return repair(
        "image-name", "the registry has no such image for this user: its name, its tag, or the pull secret",
        f"{program} pull {shell_word(image)}",
    )  # fmt: skip


def _processor(_: Container, __: dict[str, str]) -> Change:
    return repair(
        "image", "it was built for other processors: take an image that lists this one (vllm/vllm-openai has amd64 and "
        "arm64 in newer releases, vllm-cpu others), or build it here",
        "uname -m; docker manifest inspect IMAGE | grep architecture", Direction.CHANGE,
    )  # fmt: skip


def _command(container: Container, said: dict[str, str]) -> Change:
    told = said.get("command") or said.get("named") or "the command"
    why = f"the image has no program {told}"
    if told[:1] == "-":
        why += ": the image's entry point was replaced, so its first argument is taken for a program"
    where = "args, not command" if container.is_pod else "after the image, without --entrypoint"
    shown = f"{container.runtime} inspect -f '{{{{json .Path}}}} {{{{json .Args}}}}' {shell_word(container.name)}"
    made = patch(container, {"command": None}) if container.is_pod else shown
    return repair("command", f"{why}; give vLLM's image the model and its options {where}", made or "")


def _port(_: Container, said: dict[str, str]) -> Change:
    port = said.get("port") or said.get("bound") or default_port()
    return repair("host-port", f"port {port} of the host is taken; stop what holds it, or publish another port",
                   f"ss -ltnp 'sport = :{port}'")  # fmt: skip


def _secret(_: Container, said: dict[str, str]) -> Change:
    kind, name = said.get("kind", "secret"), said.get("name") or said.get("key", "")
    return repair(f"{kind} {name}".strip(), "the pod names an object that does not exist", f"kubectl get {kind}s")


def _volume(container: Container, _: dict[str, str]) -> Change:
    return repair("volume", "the volume with the model could not be attached", describe_command(container))


_REFUSALS = (
    *OF_THE_GPUS,
    RuntimeMessage("pod-over-quota", "The namespace's quota is used up, so no pod is made", _quota),
    RuntimeMessage("pod-quota-unsaid", "The quota refuses a pod that does not state its resources", _unsaid),
    RuntimeMessage("pod-refused", "The cluster's admission rules refuse the pod", _admission),
    RuntimeMessage("pod-autoscaler-at-limit", "The autoscaler may add no more nodes for the pod", _pool_limit),
    RuntimeMessage("pod-cloud-has-none", "The cloud gives the cluster no node for the pod", _no_capacity),
    RuntimeMessage("pod-fits-no-group", "No node that the autoscaler can add would fit the pod", _larger_nodes),
    RuntimeMessage("pod-short-of-gpus", "No node has the GPUs that the pod asks for", _more_gpus),
    RuntimeMessage("pod-claim-unbound", "The pod's volume claim has no volume, so no node takes the pod", _claim),
    RuntimeMessage("pod-short-of-resource", "No node has what the pod requests", _resource),
    RuntimeMessage("pod-selects-no-node", "The pod's selector or affinity fits no node", _selector),
    RuntimeMessage("pod-not-tolerant", "The nodes have a taint that the pod does not tolerate", _toleration),
    RuntimeMessage("pod-not-placed", "No node accepts the pod", _placed),
    RuntimeMessage("image-of-other-processors", "The image has no build for this host's processor", _processor),
    RuntimeMessage("program-of-other-processors", "The image's program is not for this host's processor", _processor),
    RuntimeMessage("image-not-pulled", "The image could not be pulled", _image),
    RuntimeMessage("command-not-in-image", "The image has no such command", _command, Phase.FLAG_ERROR),
    RuntimeMessage("host-port-taken", "The host's port belongs to another container or process", _port),
    RuntimeMessage("pod-needs-secret", "A secret or configuration that the pod names does not exist", _secret),
    RuntimeMessage("pod-volume-missing", "A volume of the pod could not be attached", _volume),
)  # fmt: skip


# Messages that only one program writes, so they count where the line that names the program is cut off.
_DOCKER = Container(name="NAME", runtime="docker")
_POD = Container(name="NAMESPACE/POD/vllm", runtime="kubernetes")
_SPOKEN_BY = {
    **{one.message: _DOCKER for one in OF_THE_GPUS},
    "pod-over-quota": _POD,
    "pod-quota-unsaid": _POD,
    "pod-refused": _POD,
    "pod-autoscaler-at-limit": _POD,
    "pod-cloud-has-none": _POD,
    "pod-fits-no-group": _POD,
    "pod-short-of-gpus": _POD,
    "pod-claim-unbound": _POD,
    "pod-short-of-resource": _POD,
    "pod-selects-no-node": _POD,
    "pod-not-tolerant": _POD,
    "pod-not-placed": _POD,
    "program-of-other-processors": _DOCKER,
    "image-of-other-processors": _DOCKER,
    "image-not-pulled": _POD,
    "pod-needs-secret": _POD,
    "pod-volume-missing": _POD,
}
_AGAIN = {
    "docker": "the same command starts the container when it is typed again",
    "kubernetes": "the pod runs by now: kubectl get pod -A",
}


def judge(case: Case) -> Outcome:
    """Is the container kept from starting, and does its runtime say why?"""
    container = case.container
    if container is None:
        return _typed_by_hand(case) or none(case)
    if container.state in {"running", "paused"}:
        return NotHere("the container runs")
    for one in _REFUSALS:
        found = first_of_container(container, one.message)
        if found is None:
            continue
        _, fields, where = found
        evidence: tuple[Evidence, ...] = (where, state(container))
        return finding(
            RULE,
            title=one.title,
            phase=one.phase,
            confidence=Confidence.CONFIRMED
            if not container.events or container.state == "waiting"
            else Confidence.LIKELY,
            evidence=evidence,
            changes=(one.changed(container, fields),),
            refute="the same container starts when it is started again",
        )
    return Clear("the container runtime did not refuse to start it")


def _typed_by_hand(case: Case) -> Finding | None:
    """What `docker run` or `podman run` printed where it was typed, and nothing else is known of a container."""
    run = case.run
    if run is None or run.by_vllm:
        return None
    named: Container | None = None
    for index, line in enumerate(run.lines):
        refused = read("container-not-started", line.text)
        if refused is not None:  # what its hooks printed stands on the lines below
            named = Container(name="NAME", runtime="docker" if refused.get("by") else "podman")
        if named is None:
            continue
        for one in _REFUSALS:
            fields = read(one.message, line.text)
            if fields is not None:
                return finding(
                    RULE,
                    title=one.title,
                    phase=one.phase,
                    evidence=(case.line(index),),
                    changes=(one.changed(named, fields),),
                    refute=_AGAIN["docker"],
                )
    first = None if run.root is None else run.lines[run.root.index].text
    own = first is None or any(read(message, first) is not None for message in _SPOKEN_BY)
    return _listed(case, run) if own else None


def _listed(case: Case, run: AnalysedRun) -> Finding | None:
    """A row of `kubectl get events`, or a line of a runtime alone: who wrote it is clear from its words."""
    for one in _REFUSALS:
        container = _SPOKEN_BY.get(one.message)
        for index, line in enumerate(run.lines) if container is not None else ():
            if container is None or (fields := read(one.message, line.text)) is None:
                continue
            return finding(
                RULE,
                title=one.title,
                phase=one.phase,
                confidence=Confidence.LIKELY,
                evidence=(case.line(index),),
                changes=(one.changed(container, fields),),
                refute=_AGAIN[container.runtime],
            )
    return None


RULE = rule("VD001", reads=frozenset({Signal.CONTAINER, Signal.LOG}), judge=judge)
