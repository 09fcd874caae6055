"""VD605: memory that the GPU reads directly could not be pinned: too much of it was asked, or a limit forbids it."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import Hit
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.host_claims import SWAPPED, host_claims
from vllm_doctor.rules.gates.pinned import invalid, names_pinning, pins
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.host_pool import full_pool, kv_offloaded, pools_by_calls
from vllm_doctor.rules.say import MEMLOCK, finding, gib, set_flag, thing

# The calls that take memory of the host, by their names; CUDA's own word for both is the same.
_HOST = frozenset({"host-register", "host-alloc", "host-malloc", "host-pool-too-large"})
# Of what is free, the part that a pool may take (v1/hisparse/runtime.py).
_ROOM = 0.95
_REFUSED = _HOST | {"cuda-oom", "device-oom"}


def judge(case: Case) -> Outcome:
    """Did pinning host memory fail?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    fault = case.root
    if fault is not None and (pool := full_pool(case, fault)) is not None:
        return finding(
            RULE,
            title="The KV connector's pool in host memory is full",
            confidence=Confidence.LIKELY,
            severity=Severity.WILL_FAIL_UNDER_LOAD,
            evidence=(case.line(_at(fault)),),
            changes=(pool,),
            refute="the same requests fail with a pool twice as large",
        )
    if fault is None or not (fault.ids & _REFUSED or invalid(fault)):
        return NotHere("no call of CUDA failed for lack of memory")
    pending = _pending(case, fault)
    if pending is None and not fault.ids & _HOST and not pins(fault):
        return Clear("the failed call asks for GPU memory, not for pinned host memory")
    if (told := fault.fields("host-pool-too-large")).get("free"):
        return _refused(case, fault, told)
    return finding(
        RULE,
        confidence=Confidence.LIKELY
        if pending is None and not fault.ids & _HOST and not names_pinning(fault)
        else Confidence.CONFIRMED,
        evidence=(case.line(_at(fault)), *((case.line(pending.index),) if pending is not None else ())),
        changes=(
            *((kv_offloaded(case),) if pending is not None else _pools(case, fault)),
            thing(
                ChangeKind.OS,
                "LimitMEMLOCK",
                Direction.RAISE,
                "set it in the unit: pinned memory counts as locked memory",
                to="infinity",
                command=MEMLOCK,
            ),
        ),
        refute="the same start fails with --swap-space 0 and without offload",
    )


def _pools(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """What pins memory of the host here: the pool whose calls failed, else those that the launch asks for."""
    named = pools_by_calls(case, fault)
    held = host_claims(case)
    if named or held:
        known = {claim.change.name: claim.change for claim in held if claim.change is not None}
        return (*(known.pop(one.name, one) for one in named), *known.values())
    if case.run is not None and case.run.engine == "V1":
        return ()
    why = "vLLM pins CPU blocks at start, this many GiB per GPU (4 by default)"
    old = SWAPPED if case.run is not None and case.run.engine == "V0" else None
    return (set_flag(case, "swap-space", 0, Direction.LOWER, why, until=old),)


def _refused(case: Case, fault: Fault, told: dict[str, str]) -> Finding:
    """A connector's own check refused the pool of its settings before anything was pinned."""
    free = float(told["free"])
    why = f"host_pool_gib in kv_connector_extra_config: at most {int(free * _ROOM)}, as {told['free']} GiB are free"
    return finding(
        RULE,
        title=f"{told['pool']} would pin {told['want']} GiB of the host, and {told['free']} GiB are free",
        evidence=(case.line(_at(fault)),),
        arithmetic=(gib("missing", float(told["want"]) - free, f"{told['want']} − {told['free']}", "the error line"),),
        changes=(set_flag(case, "kv-transfer-config", None, Direction.CHANGE, why),),
        refute="`free -g` shows that much available before the start",
    )


def _at(fault: Fault) -> int:
    """The line that says it."""
    at = fault.crash.root.at if fault.crash is not None and not fault.hits else None
    return at if at is not None else fault.hits[0].index if fault.hits else fault.last


def _pending(case: Case, fault: Fault) -> Hit | None:
    """The warning that a region was left unpinned, where CUDA's error has no figures of torch: releases that go on
    after it leave the error pending, and the next call that asks for errors reports it as its own (vLLM 51080)."""
    run = case.run
    if run is None or not fault.ids & {"cuda-oom", "device-oom"} or run.oom is not None:
        return None
    return next((hit for hit in run.all("host-left-unpinned") if hit.index < fault.index), None)


RULE = rule("VD605", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
