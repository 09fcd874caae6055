"""The one thing that the guard does: start a unit anew. Root does it; the guard's own user asks root's helper.

Whoever asks, the same is looked at first: the policy's units, the stop file, the budget, whether the unit is drained,
stopped or being changed. Only one restart goes on at a time on a host.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from vllm_doctor.gather import look, systemd
from vllm_doctor.gather.launch import is_vllm
from vllm_doctor.gather.processes import NotRun, run
from vllm_doctor.gather.systemd import Found
from vllm_doctor.operate.guard import policy as policies
from vllm_doctor.operate.guard.decide import permitted
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.operate.history import deeds
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Known

SOCKET = Path("/run/vllm-doctor/restart.sock")
LOCK = Path("/run/vllm-doctor/lock")
# A stop may take as long as the unit's TimeoutStopSec, and a drain with it.
_RESTART_S = 1800.0
_ANSWER = 4096


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the helper is asked: start `unit` anew (`cut` where what runs cannot be finished; `why` for the record), or,
    where the guard's user may not read its key, whether a completion comes back within `within_s` seconds."""

    unit: str
    what: Literal["restart", "complete"] = "restart"
    cut: bool = False
    why: str = ""
    within_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 15.0


class NotPermitted(Exception):  # noqa: N818 - it names what the operator meets
    """The restart was not done; why."""


@contextmanager
def alone() -> Iterator[None]:
    """Hold the host's one lock for changes of its services. Raises NotPermitted where another holds it."""
    file = LOCK
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            change = look.changing(time.time())
            who = change.who if change is not None else "another vllm-doctor"
            raise NotPermitted(f"{who} is changing a service of this host; needed: wait until it has ended") from None
        yield
    finally:
        os.close(descriptor)


def refused(unit: str, policy: Policy, now: float) -> str | None:
    """Why `unit` is not started anew now, or None; what systemd and the files say at this moment."""
    if policies.STOP.exists():
        return f"{policies.STOP} is there"
    restarts = tuple(e.at for e in deeds.events(unit, 0.0) if e.kind == deeds.RESTARTED)
    why = permitted(policy, unit, restarts, now)
    if why is not None:
        return why
    change = look.changing(now)
    if change is not None:
        return f"{'it' if change.of(unit) else 'another service'} is being changed: {change.who}"
    found = systemd.find(unit, 5)
    if not isinstance(found, Known):
        return found.reason
    if found.value[0].unit.drained:
        return "it is drained (playbooks/undrain.yml puts it into service again)"
    if not _of_vllm(found.value[0]):
        return "its command line does not start vLLM"
    state = found.value[0].unit.active_state
    return None if state == "active" else f"it is {state}: somebody stopped it on purpose"


def _of_vllm(found: Found) -> bool:
    """A wrapper's command line does not show vLLM, and then the unit's name has to."""
    return is_vllm(found.argv) or found.unit.name.startswith("vllm")


def here(ask: Ask, policy: Policy) -> None:
    """Start it anew, as root. Raises NotPermitted, also where systemd refuses."""
    with alone():
        why = refused(ask.unit, policy, time.time())
        if why is not None:
            raise NotPermitted(why)
        try:
            deeds.record(ask.unit, deeds.RESTARTED, f"by the guard: {ask.why[:1000]}")
        except OSError as full:
            raise NotPermitted(
                f"{deeds.deeds_file()}: {full.strerror}: the guard restarts nothing that it cannot record"
            ) from None
        if ask.cut:
            # Its requests can never end, so the unit's time for draining would only be waited for.
            run(["systemctl", "kill", "--signal=SIGKILL", "--", ask.unit], deadline_s=30)
        run(["systemctl", "reset-failed", "--", ask.unit], deadline_s=30)
        done = run(["systemctl", "restart", "--", ask.unit], deadline_s=_RESTART_S)
        if isinstance(done, NotRun) or done.code != 0:
            said = done.reason if isinstance(done, NotRun) else excerpt.said(done.err.strip())
            raise NotPermitted(f"systemctl restart {ask.unit}: {said}")


def by_helper(ask: Ask, at: Path = SOCKET) -> bool | None:
    """Have root's helper do it; whether a completion came, where that was asked. Raises NotPermitted with its word."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_RESTART_S + 60)
            line.connect(str(at))
            line.sendall(msgspec.json.encode(ask))
            line.shutdown(socket.SHUT_WR)
            said = line.recv(_ANSWER)
        answer = json.loads(said)
    except (OSError, ValueError) as problem:
        raise NotPermitted(
            f"no right to restart: {at}: {problem} (role vllm_doctor's vllm-doctor-restart.socket gives it)"
        ) from None
    if answer.get("done") is not True:
        raise NotPermitted(str(answer.get("why", "the helper gave no reason")))
    came = answer.get("came")
    return came if isinstance(came, bool) else None


def restart(ask: Ask, policy: Policy) -> None:
    """Start it anew in the way that this user has. Raises NotPermitted."""
    if os.geteuid() == 0:
        here(ask, policy)
    else:
        by_helper(ask)
