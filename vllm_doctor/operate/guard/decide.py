"""What a look at a unit asks for: a pure function of the policy, what is remembered and the look.

A restart has four reasons, and no other is taken for one: the engine is dead behind a server that says it is healthy;
a start says nothing for longer than any step takes; memory grows without end and nears its limit; and, only where the
policy says so, pressure. What cannot be seen is no reason.
"""

import msgspec

from vllm_doctor.operate.guard.begin import counted, over_gap, started
from vllm_doctor.operate.guard.dead import dead_engine, each_engine, starting
from vllm_doctor.operate.guard.memory import Decision, DecisionKind, UnitMemory, rested, with_said
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.operate.guard.pressure import grown, pressed
from vllm_doctor.operate.history.slope import Slope
from vllm_doctor.records.sample import Look

DAY = 86400.0


def decide(
    policy: Policy, memory: UnitMemory, look: Look, slopes: tuple[Slope, ...] = ()
) -> tuple[UnitMemory, tuple[Decision, ...]]:
    """The new memory and what is to be said or done, mostly nothing. `slopes` are the unit's own, over hours."""
    found: list[Decision] = []
    memory = over_gap(policy, memory, look, found)
    memory = started(policy, memory, look, found)
    if look.active != "active" or look.drained or look.held:
        if look.held and look.held not in memory.said:
            found.append(Decision(DecisionKind.HELD, f"the guard waits while the unit is changed: {look.held}"))
            memory = with_said(memory, look.held)
        return rested(memory, look), tuple(found)
    memory = counted(memory, look, found)
    if look.health == 200 and not memory.answered and memory.last is not None and memory.last.health != 200:
        age = look.up - memory.began
        found.append(Decision(DecisionKind.ANSWERS, f"/health answers 200, {age:.0f} s after this run was first seen"))
    memory = msgspec.structs.replace(memory, answered=memory.answered or look.health == 200, ask=False)
    if not memory.answered:
        memory = starting(policy, memory, look, found)
    else:
        memory = dead_engine(policy, memory, look, found)
        memory = each_engine(policy, memory, look, found)
        memory = grown(policy, memory, look, slopes, found)
        memory = pressed(policy, memory, look, found)
    if len(memory.starts) >= policy.flapping:
        found = [msgspec.structs.replace(d, restart=False) if d.restart else d for d in found]
    return msgspec.structs.replace(memory, last=look), tuple(found)


def permitted(policy: Policy, unit: str, restarts: tuple[float, ...], now: float) -> str | None:
    """Why a restart is not permitted now, or None. `restarts` are the wall times of those that the guard did; one that
    lies ahead, because the clock was put back, counts as one of today."""
    if not policy.act and not policy.units:
        return "no policy names a unit (vllm_doctor_guard: true writes one)"
    if not policy.act:
        return "the policy only watches (act is false)"
    if unit not in policy.units:
        return f"{unit} is not among the policy's units"
    today = [at for at in restarts if now - at < DAY]
    if len(today) >= policy.restarts_a_day:
        return f"{len(today)} of {policy.restarts_a_day} restarts a day are used up"
    last = max(today, default=None)
    if last is not None and now - last < policy.cool_down_s:
        return f"the last restart was {max(0.0, now - last):.0f} s ago, less than {policy.cool_down_s:.0f} s"
    return None
