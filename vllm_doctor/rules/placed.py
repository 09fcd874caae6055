"""The verdict without a finding on what no unit runs: a container, a pod, a process, a server behind a URL."""

from vllm_doctor.records.container import Container
from vllm_doctor.records.host import Probe
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import NO_CONTAINER, Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.gates.container import shell_word

# Exit codes of a program that a signal ended: TERM is a request to stop, KILL is none.
_TERM, _KILL = 143, 137
_NOT_FOUND = 404


def verdict(snapshot: Snapshot) -> tuple[Verdict, str] | None:
    """What can be said; None where a unit runs it, or the log alone decides."""
    container = snapshot.container.value if isinstance(snapshot.container, Known) else None
    if container is not None and container.state not in {"running", "paused"}:
        return _stopped(container)
    if container is not None and container.state == "paused":
        return Verdict.UNKNOWN, _paused(container)
    if not snapshot.live or (container is None and snapshot.subject.place is None):
        return None
    return _running(snapshot)


def tried(probe: Probe) -> str:
    """Whether a completion came back. /health may answer while no token comes."""
    if probe.completion:
        return "a completion of one token came back"
    if probe.completion is False:
        return "the server generates tokens for other clients, but returned no completion of one token in time"
    return f"no completion was tried ({probe.untried or '--no-canary'})"


def _stopped(container: Container) -> tuple[Verdict, str]:
    end = container.end
    if container.is_job and container.reason == "CANCELLED":
        return Verdict.OK, "the job was cancelled (scancel), and nothing had failed"
    if container.state in {"waiting", "created", ""} or end is None:
        first = next((one for one in container.beside if one.first and one.state == "running"), None)
        if first is not None and not container.started:
            space, _, rest = container.name.partition("/")
            where = (
                f"kubectl logs -n {shell_word(space)} {shell_word(rest.partition('/')[0])} -c {shell_word(first.name)}"
            )
            return Verdict.UNKNOWN, f"the init container {first.name} still runs, and vLLM starts after it: {where}"
        told = ": ".join(filter(None, (container.reason, container.error))) or _ask(container)
        return Verdict.UNKNOWN, f"the {container.kind} does not run ({container.state or 'unknown'}): {told}"
    code = end.exit_code
    if code == 0:
        return Verdict.OK, f"the {container.kind} ended by itself with exit code 0, and nothing had failed"
    if code == _TERM:
        return Verdict.OK, f"the {container.kind} was stopped (SIGTERM, exit code 143), and nothing had failed"
    if code == _KILL:
        return Verdict.UNKNOWN, (
            f"the {container.kind} was killed (SIGKILL, exit code 137) and its runtime records no lack of memory: a "
            "stop that took too long, a kill by hand, or the host's own OOM killer (journalctl -k)"
        )
    return Verdict.UNKNOWN, f"the {container.kind} ended with exit code {code}, and nothing that was read says why"


def _paused(container: Container) -> str:
    if container.is_job:
        return f"the job is suspended: scontrol resume {container.name}"
    return f"the container is paused: {container.runtime} unpause {container.name}"


def _ask(container: Container) -> str:
    """podman tells its reason to who starts the container, and keeps it nowhere."""
    if container.is_pod:
        return "its events do not say why"
    if container.is_job:
        return f"squeue -j {container.name} -o '%T %r' shows what it waits for"
    return (
        f"the container runtime keeps no reason; {container.runtime} start --attach {container.name} shows the reason"
    )


def _by_figures(snapshot: Snapshot) -> tuple[Verdict, str]:
    """Of what is known by its metrics alone."""
    if isinstance(snapshot.metrics, Known):
        return Verdict.OK, (
            "its metrics show no problem; no completion was tried, and its log, its host and its GPUs were not seen"
        )
    if isinstance(snapshot.metrics, Unknown) and snapshot.container == NO_CONTAINER:
        return Verdict.UNKNOWN, snapshot.metrics.reason
    return Verdict.UNKNOWN, "neither the server nor its log was reached"


def _running(snapshot: Snapshot) -> tuple[Verdict, str] | None:
    """A server that runs: does it answer, and was its log read?"""
    if not isinstance(snapshot.probe, Known):
        return None if isinstance(snapshot.log, Known) else _by_figures(snapshot)
    probe = snapshot.probe.value
    if probe.completion_unknown:
        return Verdict.UNKNOWN, probe.completion_unknown
    if probe.health_status != 200:
        why = probe.health_error or f"/health answers {probe.health_status}"
        if probe.health_status == _NOT_FOUND:
            why += ", and vLLM's server always has that path: another program or a proxy answers there"
        if snapshot.subject.place is not None and isinstance(snapshot.machine, Unknown):
            return Verdict.UNKNOWN, f"the server does not answer: {why}"
        return Verdict.UNKNOWN, f"the process runs and does not serve ({why}); no sign of a failure yet"
    told = tried(probe)
    by_url = snapshot.subject.place is not None and isinstance(snapshot.metrics, Known)
    if not isinstance(snapshot.log, Known) and not by_url:
        return Verdict.UNKNOWN, f"/health answers, {told}; but its log could not be read: {snapshot.log.reason}"
    unread = "" if isinstance(snapshot.log, Known) else "; its log, its host and its GPUs were not seen"
    return Verdict.OK, f"/health answers, {told}, and no rule found a problem{unread}"
