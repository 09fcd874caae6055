"""What a look makes of the one before: gaps, new starts, and whether the engine moved in between."""

import msgspec

from vllm_doctor.operate.guard.memory import Decision, DecisionKind, UnitMemory, rested, with_said
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.records.sample import Counters, Look

# Two looks further apart than this many usual ones show nothing of what lay between.
_GAP = 4
# The wall clock may be set by this much without anybody wondering.
_CLOCK_S = 5.0


def over_gap(policy: Policy, memory: UnitMemory, look: Look, found: list[Decision]) -> UnitMemory:
    """After a pause of ours, a suspend or a change of the clock nothing that was counted before it counts."""
    last = memory.last
    if last is None:
        return memory
    passed = look.up - last.up
    slept = passed - (look.awake - last.awake)
    off = (look.at - last.at) - passed
    rest = rested(memory, last)
    if slept > _CLOCK_S:
        found.append(Decision(DecisionKind.GAP, f"the host slept for {slept:.0f} s: observation begins again"))
        return rest
    if abs(off) > _CLOCK_S:
        found.append(
            Decision(
                DecisionKind.CLOCK, f"the system clock was set by {off:+.0f} s; the guard's timers do not follow it"
            )
        )
    if passed < 0 or passed > _GAP * policy.every_s:
        found.append(Decision(DecisionKind.GAP, f"nothing was seen for {passed:.0f} s: observation begins again"))
        return rest
    return memory


def started(policy: Policy, memory: UnitMemory, look: Look, found: list[Decision]) -> UnitMemory:
    """A new invocation is a new server: only how often it began is remembered."""
    before = memory.last
    if before is not None and before.invocation == look.invocation:
        return memory
    if before is None or not before.invocation or not look.invocation:
        return msgspec.structs.replace(rested(memory, look), began=look.up, answered=False)
    starts = tuple(at for at in memory.starts if look.up - at < policy.flapping_s)
    if look.restarts > before.restarts:
        starts = (*starts, look.up)
        times = f"{len(starts)} times in {policy.flapping_s:.0f} s"
        found.append(Decision(DecisionKind.CRASHED, f"it ended, and systemd restarted it, {times}"))
    else:
        found.append(
            Decision(
                DecisionKind.STARTED,
                "a person, a playbook or a command started a new run, not the unit's Restart=",
            )
        )
    fresh = UnitMemory(last=look, began=look.up, starts=starts, said=memory.said & {DecisionKind.LOOP})
    if len(starts) >= policy.flapping and DecisionKind.LOOP not in memory.said:
        found.append(
            Decision(
                DecisionKind.LOOP,
                f"{len(starts)} starts in {policy.flapping_s:.0f} s: one more does not help; see vllm-doctor diagnose",
            )
        )
        fresh = with_said(fresh, DecisionKind.LOOP)
    return fresh


def counted(memory: UnitMemory, look: Look, found: list[Decision]) -> UnitMemory:
    """When the engine last moved. A counter that fell belongs to another server, and says nothing of this one."""
    now, before = look.counters, memory.counters
    if now is None:
        if look.why and look.health == 200 and look.why not in memory.said:
            found.append(Decision(DecisionKind.UNREADABLE, look.why))
            memory = with_said(memory, look.why)
        return memory
    if before is None:
        return msgspec.structs.replace(memory, counters=now, moved=look.up, cpu=look.engine_cpu)
    if _fell(before, now):
        resets = (*(at for at in memory.resets if look.up - at < 600), look.up)
        kind, text = DecisionKind.RESET, "a counter of /metrics fell without a new start: observation begins again"
        if len(resets) > 2:
            kind, text = (
                DecisionKind.TWO_SERVERS,
                "the counters of /metrics fall repeatedly: two servers answer in turn",
            )
        if kind not in memory.said:
            found.append(Decision(kind, text))
            memory = with_said(memory, kind)
        return msgspec.structs.replace(
            rested(memory, look), counters=now, moved=look.up, cpu=look.engine_cpu, resets=resets
        )
    idle = not now.running and not now.waiting
    moves = idle or now.done != before.done or now.running != before.running
    memory = msgspec.structs.replace(
        memory,
        counters=now,
        moved=look.up if moves else memory.moved,
        cpu=look.engine_cpu if moves else memory.cpu,
        quiet_since=(memory.quiet_since if memory.quiet_since is not None else look.up) if idle else None,
    )
    return memory if idle or not moves else msgspec.structs.replace(memory, silent_canaries=0)


def _fell(before: Counters, now: Counters) -> bool:
    pairs = ((before.prompt, now.prompt), (before.generated, now.generated), (before.finished, now.finished))
    return any(b is not None and n is not None and n < b for b, n in pairs) or (
        before.server is not None and now.server is not None and abs(before.server - now.server) > 1
    )
