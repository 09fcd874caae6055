"""VD510: the address of the server is taken by another process."""

import shlex

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import environment, finding, set_flag, thing

_IDS = ("address-in-use",)
# Below this number the kernel gives no port by itself (ip_local_port_range).
_EPHEMERAL = 32768
# NCCL tells its last error below its own message.
_ASK_FOR_ANY = frozenset({"get_open_port", "_get_open_port"})
_OF_NCCL = frozenset({"nccl-any", "nccl-numbered", "nccl-internal", "nccl-system", "nccl-unhandled"})


def judge(case: Case) -> Outcome:
    """Did binding the port fail?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    if fault.ids & _OF_NCCL:
        return Clear("NCCL could not bind its socket; the server's port is another")
    told = fault.fields("address-in-use")
    if socket := told.get("socket"):
        return _socket(case, fault, socket)
    if _of_any_port(fault):
        return _none_free(case, fault)
    # A port between processes: a connector's, or the one at which torch's ranks meet.
    group = told.get("rendezvous") or told.get("store")
    inner = told.get("bound") or group
    said = str(told.get("port") or inner or case.flag("port") or "")
    port = said if said.isdecimal() and said.isascii() and len(said) < 6 else None  # it goes into a command to paste
    return finding(
        RULE,
        title=f"Port {port} is taken by another process" if port else RULE.title,
        severity=severity(case, fault),
        evidence=(*shown(case, fault, *_IDS), *_holder(case, port)),
        changes=(
            _ports_of_its_own(case) if group and not _named(case, group) else None,
            thing(
                ChangeKind.OS,
                "port-holder",
                Direction.STOP,
                "the process is often the server of an earlier run; this command names the process",
                command=f"ss -ltnp 'sport = :{port}'" if port else "ss -ltnp",
            ),
            None if inner else _other_port(case, port),
        ),
        refute="`ss -ltnp` shows nobody on the port before the start",
    )


def _named(case: Case, port: str) -> bool:
    """Does the launch name this port, as an option's value or a variable's?"""
    return port in {str(value) for value in (*case.flags.values(), *case.variables.values())} or int(port) < _EPHEMERAL


def _ports_of_its_own(case: Case) -> Change | None:
    """vLLM asks the kernel for a free port, closes it, and torch binds it seconds later (utils/network_utils.py)."""
    why = (
        "vLLM chose this port while it was free, and another engine of this host took it before torch did: start the "
        "engines one after another, or give each another number, from which it looks for free ports"
    )
    if case.env("VLLM_PORT") is not None:
        return None
    return environment("VLLM_PORT", Direction.SET, why, command="export VLLM_PORT=20000   # the next engine: 21000")


def _of_any_port(fault: Fault) -> bool:
    """Was the kernel asked for a port of its own choice (`bind` to port 0)? That fails only where none is left."""
    frames = fault.crash.root.frames if fault.crash is not None else ()
    inner = frames[-1] if frames else None
    return inner is not None and (inner.function in _ASK_FOR_ANY or says(inner.code, "bind-to-any-port"))


def _none_free(case: Case, fault: Fault) -> Finding:
    """Each port that the kernel gives away by itself is taken, mostly by connections that nobody closed."""
    return finding(
        RULE,
        title="The kernel has no free port left to give (ip_local_port_range)",
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "ports-holder",
                Direction.STOP,
                "a process that opens connections and does not close them, or many servers, holds these ports",
                command="ss -s; ss -tanp | awk '{print $1, $6}' | sort | uniq -c | sort -n | tail",
            ),
            thing(
                ChangeKind.OS,
                "ip-local-port-range",
                Direction.CHANGE,
                "widens the range from which the kernel takes a port (by default 32768 to 60999)",
                to="1024 65535",
                command="sudo sysctl -w net.ipv4.ip_local_port_range='1024 65535'",
            ),
        ),
        refute="`ss -s` counts far fewer sockets than net.ipv4.ip_local_port_range has ports",
    )


def _socket(case: Case, fault: Fault, path: str) -> Finding:
    """A socket that is a file: another engine with the same name for it has it, or one that ended left it."""
    return finding(
        RULE,
        title="Another process has the socket file that an engine asks for",
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "socket-holder",
                Direction.STOP,
                "an engine of an earlier run, or another rank or server of this host that is configured alike, holds "
                "it; a connector's port or name in --kv-transfer-config must differ for each engine",
                command=f"ss -xlp | grep -F {shlex.quote(path)}; fuser -v {shlex.quote(path)}",
            ),
        ),
        refute="`ss -xlp` shows nobody on that path before the start",
    )


def _holder(case: Case, port: str | None) -> tuple[Evidence, ...]:
    """Who listens there now."""
    listeners = case.machine.listeners if case.machine is not None else ()
    return tuple(
        Evidence("/proc/net/tcp", f"port {held.port}", f"{held.pid} ({held.name or '?'}) of {held.unit or 'no unit'}")
        for held in listeners
        if str(held.port) == port
    )


def _other_port(case: Case, port: str | None) -> Change | None:
    """The next that nobody listens on, as far as the host was read."""
    if port is None:
        return set_flag(case, "port", None, Direction.CHANGE, "use another port for this server instead")
    taken = {held.port for held in case.machine.listeners} if case.machine is not None else set()
    to = next((n for n in range(int(port) + 1, int(port) + 50) if n not in taken and n < 65536), None)
    seen = "free on this host" if taken else "if `ss -ltn` does not show the port"
    return set_flag(case, "port", to, Direction.CHANGE, f"use another port for this server instead: {seen}")


RULE = rule("VD510", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.MACHINE, Signal.VERSION}), judge=judge)
