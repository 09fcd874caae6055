"""VD002: a probe of Kubernetes ended the container: the start takes longer than it waits, or the server was silent."""

import math

from vllm_doctor.knowledge.versions import default_port
from vllm_doctor.log.clock import seconds_between, seconds_of
from vllm_doctor.log.match import read, says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.container import Check, Container
from vllm_doctor.records.finding import Arithmetic, Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.container import first_of_container, none, state
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, rule
from vllm_doctor.rules.remedies.pod import patch
from vllm_doctor.rules.say import finding, thing

# What comes after the weights (profile run, graphs) took up to as long again in logged starts.
_AFTER_WEIGHTS = 2.0
# Where nothing tells how far the start was: as long as VD522 gives to a start that was cut off.
_LONGER = 3
_PERIOD_S = 10
# Lines that say who ended it.
_ASKED = frozenset({"control-c", "job-cancelled", "sigterm-systemd"})
# failureThreshold of a probe, where nobody sets it.
_PATIENT = 3
# Where a line of the kubelet is all that tells of the probe: what weights of a hundred GiB take from a slow disk.
_UNKNOWN_S = 600.0
# Where a line of the kubelet is all that is known of the pod.
_POD = Container(name="NAMESPACE/POD/vllm", runtime="kubernetes")


def judge(case: Case) -> Outcome:
    """Did the kubelet end the container because of a probe?"""
    container, run = case.container, case.run
    if container is None:
        return _listed(case) or none(case)
    told = first_of_container(container, "probe-ended-container")
    if told is None and (unready := _unready(case, container)) is not None:
        return unready
    if told is None:
        return Clear("no probe ended the container") if container.is_pod else NotHere("no orchestrator probes it")
    _, fields, where = told
    kind = fields["probe"]
    check = next((c for c in container.checks if c.kind == kind), None)
    if run is not None and run.root is not None:
        return NotHere("the log says what failed before the probe")
    starting = run is None or not run.served()
    failed = first_of_container(container, "probe-failed")
    evidence = (where, *((failed[2],) if failed is not None else ()), state(container))
    if run is not None and run.lines:
        evidence += (case.line(len(run.lines) - 1),)
    if failed is not None and says(failed[1]["why"], "probe-path-refused"):
        return _elsewhere(case, kind, evidence, container, check)
    if not starting:
        return finding(
            RULE,
            title=f"The {kind} probe ended a server that had become ready",
            severity=Severity.WILL_FAIL_UNDER_LOAD,
            confidence=Confidence.LIKELY,
            evidence=evidence,
            arithmetic=_patience(check),
            changes=(_timeout(container, check),),
            refute="/health answers within the probe's time while the server is under load",
        )
    needed, sums = _needed(case, container)
    return finding(
        RULE,
        title=f"The {kind} probe ended the server while it was starting",
        confidence=Confidence.CONFIRMED if run is not None else Confidence.LIKELY,
        evidence=evidence,
        arithmetic=(*_patience(check), *sums),
        changes=(_startup(container, check, needed),),
        refute="the start does not end within ten times the limit: then the start hangs",
    )


def _listed(case: Case) -> Finding | None:
    """A row of `kubectl get events` or of a node's log, where no pod was read: only the kubelet writes it."""
    run = case.run
    if run is None or run.root is not None:
        return None
    said = ((at, read("probe-ended-container", line.text)) for at, line in enumerate(run.lines))
    index, fields = next(((at, told) for at, told in said if told is not None), (0, None))
    if fields is None:
        return _unanswered(case) or _ended_early(case)
    refused = next((at for at, line in enumerate(run.lines) if says(line.text, "probe-path-refused")), None)
    if refused is not None:
        return _elsewhere(case, fields["probe"], (case.line(refused), case.line(index)), _POD, None)
    served = run.served()
    which = "server that had become ready" if served else "server while it was starting"
    needed, sums = (None, ()) if served else _needed(case, _POD)
    cure = _timeout(_POD, None) if served else _startup(_POD, None, max(needed or 0.0, _UNKNOWN_S))
    return finding(
        RULE,
        title=f"The {fields['probe']} probe ended {'a' if served else 'the'} {which}",
        severity=Severity.WILL_FAIL_UNDER_LOAD if served else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(index),),
        arithmetic=sums,
        changes=(cure,),
        refute="the container that the line names is not the one that serves vLLM",
    )


def _unanswered(case: Case) -> Finding | None:
    """The kubelet's events without its word for an end: as often as a probe is patient by default, and again, it got no
    answer; then it ended the container, and a server that stopped was that one."""
    run = case.run
    if run is None:
        return None
    ending = next((at for at, line in enumerate(run.lines) if says(line.text, "uvicorn-stops")), None)
    ended = ending if run.served() else None
    if (run.by_vllm or run.served()) and ended is None:
        return None
    for index in range(len(run.lines) - 1, -1, -1):
        text = run.lines[index].text
        failed, often = read("probe-failed", text), read("event-times", text)
        if failed is None or often is None or int(often["times"]) <= _PATIENT or failed["probe"] == "Readiness":
            continue
        if says(text, "probe-path-refused"):
            return _elsewhere(case, failed["probe"].lower(), (case.line(index),), _POD, None)
        if ended is not None:
            return finding(
                RULE,
                title=f"The {failed['probe'].lower()} probe ended a server that had become ready",
                severity=Severity.WILL_FAIL_UNDER_LOAD,
                confidence=Confidence.LIKELY,
                evidence=(case.line(index), case.line(ended)),
                changes=(_timeout(_POD, None),),
                refute="the container that the line names is not the one that stopped here",
            )
        return finding(
            RULE,
            title=f"The {failed['probe'].lower()} probe has had no answer for {often['span']}",
            confidence=Confidence.POSSIBLE,
            evidence=(case.line(index),),
            refute="the container's own log goes on towards `Application startup complete`",
            then="kubectl logs POD (with --previous after a restart) says how far the start came or what failed; a "
            "start that goes on needs a startupProbe with a higher failureThreshold",
        )
    return None


def _ended_early(case: Case) -> Finding | None:
    """A start that a SIGTERM ended, and nothing tells who sent it: Ctrl-C sends another signal."""
    run = case.run
    if run is None or run.stopped is None or run.served() or run.answered:
        return None
    at = next((i for i in range(len(run.lines) - 1, -1, -1) if says(run.lines[i].text, "asked-to-end")), None)
    if at is None or any(hit.id in _ASKED for hit in run.hits):
        return None
    return finding(
        RULE,
        title="SIGTERM ended the start before the server was ready",
        confidence=Confidence.POSSIBLE,
        evidence=(case.line(at),),
        refute="somebody stopped the server, or the container, at that moment",
        then="the sender: kubectl describe pod POD tells of a probe (raise failureThreshold of a startupProbe), "
        "systemctl status UNIT of TimeoutStartSec, or a script's own limit; a start takes minutes",
    )


def _elsewhere(
    case: Case, kind: str, evidence: tuple[Evidence, ...], container: Container, check: Check | None
) -> Finding:
    """The server answered the probe, and refused it: it is well, and the path or the port is another's."""
    return finding(
        RULE,
        title=f"The {kind} probe asks for a path that the server does not have",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        evidence=evidence,
        changes=(_at_health(case, container, kind, check),),
        refute="/health itself is answered with this status",
    )


def _unready(case: Case, container: Container) -> Finding | None:
    """The server became ready, and the readiness probe keeps the Service's requests from it."""
    run = case.run
    failed = first_of_container(container, "probe-failed")
    if container.ready is not False or container.state != "running" or failed is None:
        return None
    if failed[1]["probe"] != "Readiness" or run is None or run.root is not None or not run.served():
        return None
    return finding(
        RULE,
        title="The readiness probe fails, so the Service sends no requests",
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(failed[2], state(container)),
        changes=(_readiness(case, container, failed[1]["why"]),),
        refute="kubectl get pod shows READY 1/1: the probe failed while the server was starting",
    )


def _readiness(case: Case, container: Container, why: str) -> Change:
    check = next((c for c in container.checks if c.kind == "readiness"), None)
    if says(why, "probe-too-late"):
        to = max(10, math.ceil((check.timeout_s if check is not None else 1) * 5))
        told = "a server that is busy answers /health late"
        return _probe(container, "readiness", Direction.RAISE, told, {"timeoutSeconds": to})
    return _at_health(case, container, "readiness", check)


def _at_health(case: Case, container: Container, kind: str, check: Check | None) -> Change:
    port = case.count("port") or default_port()
    before = " ".join(filter(None, (check.asks, f"port {check.port}" * bool(check.port)))) if check is not None else ""
    told = "vLLM answers /health without a key; other paths and other ports do not say whether it serves"
    fields: dict[str, object] = {"httpGet": {"path": "/health", "port": port}}
    return _probe(container, kind, Direction.CHANGE, told, fields, before=before or None)


def _probe(
    container: Container,
    kind: str,
    direction: Direction,
    why: str,
    fields: dict[str, object],
    *,
    before: str | None = None,
) -> Change:
    """The probe with these fields; one that is new asks where another does, and what it no longer asks goes."""
    known = next((c for c in container.checks if c.kind == kind), None)
    whole = dict(fields)
    if known is None:
        whole = {"httpGet": _asks(container), **whole}
    elif "httpGet" in whole and not known.asks:
        whole |= {"tcpSocket": None, "exec": None}
    return thing(
        ChangeKind.OS,
        f"{kind}-probe",
        direction,
        why,
        to=_in_yaml(fields),
        before=before,
        command=patch(container, {f"{kind}Probe": whole}),
    )


def _asks(container: Container) -> dict[str, object]:
    known = next((c for c in container.checks if c.asks and c.port), None)
    if known is None:
        return {"path": "/health", "port": default_port()}
    return {"path": known.asks.split()[-1], "port": int(known.port) if known.port.isdigit() else known.port}


def _in_yaml(fields: dict[str, object]) -> str:
    """The fields in one line, as they stand in a manifest."""
    told = {key: f"{{{_in_yaml(has)}}}" if isinstance(has, dict) else has for key, has in fields.items()}
    return ", ".join(f"{key}: {has}" for key, has in told.items())


def _patience(check: Check | None) -> tuple[Arithmetic, ...]:
    if check is None:
        return ()
    how = f"{check.delay_s:g} + {check.period_s:g} × {check.failures}"
    return (Arithmetic("the probe waits", check.patience_s, "s", how, f"the {check.kind} probe"),)


def _needed(case: Case, container: Container) -> tuple[float | None, tuple[Arithmetic, ...]]:
    """Seconds that a whole start takes: from the progress of the weights where the log shows it, else a multiple."""
    run = case.run
    end = container.end
    lived = seconds_between(end.started_at, end.finished_at) if end is not None else None
    if run is None:
        return (None if lived is None else lived * _LONGER), ()
    stamped = [line for line in run.lines if line.at]
    if lived is None and stamped:
        lived = seconds_between(stamped[0].at, stamped[-1].at)
    if lived is None:
        return None, ()
    progress = [p for line in run.lines if (p := read("shards-progress", line.text)) is not None]
    last = next((p for p in reversed(progress) if int(p["done"]) and int(p["total"]) >= int(p["done"])), None)
    if last is None or run.reached() not in {StartupPhase.WEIGHTS, None}:
        told = Arithmetic("it was given", round(lived), "s", "start to end", "the container")
        return lived * _LONGER, (told,)
    done, total, took = int(last["done"]), int(last["total"]), seconds_of(last["took"])
    weights = took * total / done
    whole = max(0.0, lived - took) + weights * _AFTER_WEIGHTS
    return whole, (
        Arithmetic("a whole start", round(whole), "s", f"{lived - took:.0f} + {_AFTER_WEIGHTS:g} × {weights:.0f}", ""),
        Arithmetic("weights", round(weights), "s", f"{took:g} s for {done} of {total} files", "the log"),
    )


def _startup(container: Container, check: Check | None, needed: float | None) -> Change:
    """A start-up probe whose patience is half as long again as the start is expected to take."""
    beside = check is None or check.kind != "startup"
    why = "the liveness probe then waits until the start-up probe has succeeded once" if beside else ""
    if needed is None:
        return thing(
            ChangeKind.OS, "startup-probe", Direction.RAISE, why or "the start takes longer than the probe waits"
        )
    failures = max(2, math.ceil(needed * 1.5 / _PERIOD_S))
    return _probe(
        container,
        "startup",
        Direction.RAISE,
        f"{failures * _PERIOD_S} s, half as much again as a start of {needed:.0f} s needs"
        + (f"; {why}" if why else "; under the container in the pod's spec: startupProbe, with the same path"),
        {"periodSeconds": _PERIOD_S, "failureThreshold": failures},
        before=f"periodSeconds: {check.period_s:g}, failureThreshold: {check.failures}" if check is not None else None,
    )


def _timeout(container: Container, check: Check | None) -> Change:
    to = max(10, math.ceil((check.timeout_s if check is not None else 1) * 5))
    return _probe(
        container,
        "liveness",
        Direction.RAISE,
        "a server that is busy answers /health late; a probe that ends it loses every request in flight",
        {"timeoutSeconds": to, "failureThreshold": 6},
        before=f"timeoutSeconds: {check.timeout_s:g}, failureThreshold: {check.failures}"
        if check is not None
        else None,
    )


RULE = rule("VD002", reads=frozenset({Signal.CONTAINER, Signal.LOG, Signal.LAUNCH}), judge=judge)
