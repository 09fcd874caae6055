"""Memory that grows, and a pool or a queue that is full."""

import msgspec

from vllm_doctor.operate.guard.memory import Decision, DecisionKind, UnitMemory, with_said
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.operate.history.slope import HOUR, Slope
from vllm_doctor.records.sample import Look


def grown(
    policy: Policy, memory: UnitMemory, look: Look, slopes: tuple[Slope, ...], found: list[Decision]
) -> UnitMemory:
    """Memory that grows for sure and nears its limit: a restart in a quiet moment, before the load decides when."""
    limits = policy.growth
    near = [s for s in slopes if s.sure and s.used >= limits.used and s.hours_left is not None
            and s.hours_left <= limits.hours_left and s.hours >= limits.hours / 2]  # fmt: skip
    if not near:
        return memory
    worst = min(near, key=lambda s: s.hours_left or 0.0)
    left = worst.hours_left or 0.0
    quiet = memory.quiet_since is not None and look.up - memory.quiet_since >= min(60.0, limits.quiet_s)
    now = limits.restart and (quiet or left * HOUR <= limits.quiet_s)
    key = f"{DecisionKind.GROWTH}:{worst.what}"
    if now or key not in memory.said:
        wait = "" if now or not limits.restart else "; it waits for a quiet moment"
        found.append(Decision(DecisionKind.GROWTH, f"{worst.told}{wait}", restart=now))
    return with_said(memory, key)


def pressed(policy: Policy, memory: UnitMemory, look: Look, found: list[Decision]) -> UnitMemory:
    """A full pool or a long queue, with a mark for its begin and a lower one for its end."""
    now, limits = look.counters, policy.pressure
    if now is None:
        return memory
    kv, running, waiting = now.kv or 0.0, now.running or 0.0, now.waiting or 0.0
    queue = waiting > limits.queue_factor * max(1.0, running)
    if not memory.pressure:
        recent = tuple(at for at in memory.pressed if look.up - at < limits.within_s)
        if kv > limits.kv or queue:
            recent = (*recent, look.up)
        if len(recent) >= limits.times:
            why = "" if limits.restart else "; a restart would lose the queue and would not help"
            text = (
                f"KV cache {kv:.1%} (mark {limits.kv:.0%}), {waiting:.0f} waiting for {running:.0f} running "
                f"(mark {limits.queue_factor:g} ×), {len(recent)} times in {limits.within_s:.0f} s{why}"
            )
            found.append(Decision(DecisionKind.PRESSURE, text, restart=limits.restart))
            return msgspec.structs.replace(memory, pressure=True, pressed=())
        return msgspec.structs.replace(memory, pressed=recent)
    if kv < limits.kv_off and waiting <= limits.queue_factor / 2 * max(1.0, running):
        found.append(Decision(DecisionKind.RELIEVED, f"KV cache {kv:.1%}, {waiting:.0f} waiting: the pressure is over"))
        return msgspec.structs.replace(memory, pressure=False, pressed=())
    return memory
