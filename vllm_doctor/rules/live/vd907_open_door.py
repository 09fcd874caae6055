"""VD907: whoever reaches the server's port can use it, wholly or past its key."""

import ipaddress

from vllm_doctor.records.finding import Change, Evidence
from vllm_doctor.records.host import Launch, Listener, Probe
from vllm_doctor.records.reading import NOT_GIVEN
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag, thing

# What an operator who means it to be open writes into the unit; role vllm does for vllm_allow_open.
ACCEPTED = ("API_OPEN", "accepted")
_REFUSED = {401, 403}
_GUARD = (
    "with vllm_api_key set, role vllm guards every path. Elsewhere set --host 127.0.0.1 and put "
    "a proxy in front that passes only the paths that clients need"
)


def judge(case: Case) -> Outcome:
    """Is it reached from the network, and does somebody without a key get in?"""
    launch = case.launch
    if launch is not None and ACCEPTED[0] in launch.env:  # its value may be hidden, as others' are
        return NotHere("the unit says that it is open on purpose")
    return _running(case) if case.live else _written(case, launch)


def _running(case: Case) -> Outcome:
    machine, probe = case.machine, case.probe
    if machine is None:
        return Unseen(frozenset({Signal.MACHINE}))
    here = [one for one in machine.listeners if one.address and not _local(one.address)]
    if not here:
        return Clear("the service does not listen on an address of the network")
    if probe is None or probe.keyless is None:
        return Unseen(frozenset({Signal.PROBE}))
    return _answers(case, here[0], probe)


def _answers(case: Case, here: Listener, probe: Probe) -> Outcome:
    """What the server itself said to somebody without a key."""
    where = Evidence("/proc/net/tcp", f"port {here.port}", f"listens on {here.address}")
    if probe.keyless == 200:
        asked = Evidence("probe", "GET /v1/models without a key", "answers 200")
        return _open(case, (where, asked), Confidence.CONFIRMED)
    if probe.keyless not in _REFUSED:
        return Clear(f"/v1/models answers {probe.keyless} without a key")
    if probe.keyless_beside is None or probe.keyless_beside in {*_REFUSED, 404}:
        return Clear("every path that was asked without a key refuses")
    refused = Evidence("probe", "GET /v1/models without a key", f"answers {probe.keyless}")
    beside = Evidence("probe", "OPTIONS /invocations without a key", f"answers {probe.keyless_beside}")
    return _past_the_key((where, refused, beside), Confidence.CONFIRMED)


def _written(case: Case, launch: Launch | None) -> Outcome:
    """Without a host: what the line that is to be judged says. Beside a log the question is what went wrong there."""
    if case.reading(Signal.LOG) != NOT_GIVEN:
        return NotHere("only a log was given")
    if launch is None:
        return Unseen(frozenset({Signal.LAUNCH}))
    host = launch.flags.get("host")
    if not isinstance(host, str):
        return NotHere("the launch names no address to listen on")
    if "uds" in launch.flags or _local(host):
        return Clear(f"it listens on {host} alone")
    where = Evidence("launch", "--host", host)
    if "api-key" not in launch.flags and "VLLM_API_KEY" not in launch.env:
        return _open(case, (where,), Confidence.LIKELY)
    if "middleware" in launch.flags:
        return Clear("a middleware guards every path")
    return _past_the_key((where, Evidence("launch", "--middleware", "none")), Confidence.LIKELY)


def _local(host: str) -> bool:
    """A name is the network's, but for the one that is this host's by custom."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _open(case: Case, evidence: tuple[Evidence, ...], confidence: Confidence) -> Outcome:
    why = "only this host then reaches the server; a proxy on it can ask for a key"
    key = "clients send it; keep it in the vault. " + _GUARD
    return finding(
        RULE,
        title="Anyone who reaches the port can use the server: it asks for no key",
        severity=Severity.ADVICE,
        confidence=confidence,
        evidence=evidence,
        changes=(
            set_flag(case, "host", "127.0.0.1", Direction.SET, why, applicability=Applicability.NEEDS_REVIEW),
            thing(ChangeKind.OS, "vllm_api_key", Direction.ADD, key),
        ),
        refute="a firewall or a published port that only a proxy reaches stands in front; then set in the unit: "
        f"Environment={'='.join(ACCEPTED)}",
    )


def _past_the_key(evidence: tuple[Evidence, ...], confidence: Confidence) -> Outcome:
    change: Change = thing(ChangeKind.OS, "guard", Direction.ADD, _GUARD)
    return finding(
        RULE,
        title="The key guards /v1 alone: /invocations completes without it",
        severity=Severity.ADVICE,
        confidence=confidence,
        evidence=evidence,
        changes=(change,),
        refute="curl -X OPTIONS of /invocations without the key answers 401 or 403 from another host",
    )


RULE = rule(
    "VD907", reads=frozenset({Signal.LAUNCH, Signal.LOG, Signal.MACHINE, Signal.PROBE, Signal.VERSION}), judge=judge
)
