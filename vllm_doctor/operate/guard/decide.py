"""What a look at a unit asks for: a pure function of the policy, what is remembered and the look.

A restart has four reasons, and no other is taken for one: the engine is dead behind a server that says it is healthy;
a start says nothing for longer than any step takes; memory grows without end and nears its limit; and, only where the
policy says so, pressure. What cannot be seen is no reason.
"""

from enum import StrEnum

import msgspec

from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.operate.history.slope import Slope
from vllm_doctor.records.sample import Counters, Look

HOUR, DAY = 3600.0, 86400.0
# Two looks further apart than this many usual ones show nothing of what lay between.
_GAP = 4
# The wall clock may be set by this much without anybody wondering.
_CLOCK_S = 5.0
# Part of a processor that threads of an engine take which only wait.
_IDLE = 0.02


class Kind(StrEnum):
    """What a decision is about; its name in the journal and in the store."""

    STARTED = "started"
    CRASHED = "crashed"
    GAP = "gap"
    CLOCK = "clock"
    UNREADABLE = "unreadable"
    RESET = "counter-reset"
    TWO_SERVERS = "two-servers"
    ENGINE_DEAD = "engine-dead"
    ONE_ENGINE_DEAD = "one-engine-dead"
    SILENT_START = "silent-start"
    GROWTH = "growth"
    PRESSURE = "pressure"
    RELIEVED = "relieved"
    LOOP = "restart-loop"
    HELD = "held"


class Decision(msgspec.Struct, frozen=True):
    """One line of the journal. `restart` asks for one; `cut` says that what runs cannot be finished, so nothing is
    waited for."""

    kind: Kind
    sum: str
    restart: bool = False
    cut: bool = False


class Memory(msgspec.Struct, frozen=True):
    """What is remembered of a unit between two looks; times are seconds since boot, suspend included."""

    last: Look | None = None
    counters: Counters | None = None
    began: float = 0.0
    answered: bool = False
    moved: float | None = None
    cpu: float | None = None
    asked: float | None = None
    silent_canaries: int = 0
    starts: tuple[float, ...] = ()
    pressed: tuple[float, ...] = ()
    pressure: bool = False
    resets: tuple[float, ...] = ()
    quiet_since: float | None = None
    said: frozenset[str] = frozenset()
    ask: bool = False
    engines: tuple[tuple[str, tuple[float | None, ...], float], ...] = ()


def decide(
    policy: Policy, memory: Memory, look: Look, slopes: tuple[Slope, ...] = ()
) -> tuple[Memory, tuple[Decision, ...]]:
    """The new memory and what is to be said or done, mostly nothing. `slopes` are the unit's own, over hours."""
    found: list[Decision] = []
    memory = _over_gap(policy, memory, look, found)
    memory = _started(policy, memory, look, found)
    if look.active != "active" or look.drained or look.held:
        if look.held and look.held not in memory.said:
            found.append(Decision(Kind.HELD, f"nothing is done while it is changed: {look.held}"))
            memory = _say(memory, look.held)
        return _rested(memory, look), tuple(found)
    memory = _counted(memory, look, found)
    memory = msgspec.structs.replace(memory, answered=memory.answered or look.health == 200, ask=False)
    if not memory.answered:
        memory = _starting(policy, memory, look, found)
    else:
        memory = _engine(policy, memory, look, found)
        memory = _each_engine(policy, memory, look, found)
        memory = _grown(policy, memory, look, slopes, found)
        memory = _pressed(policy, memory, look, found)
    if len(memory.starts) >= policy.flapping:
        found = [msgspec.structs.replace(d, restart=False) if d.restart else d for d in found]
    return msgspec.structs.replace(memory, last=look), tuple(found)


def permitted(policy: Policy, unit: str, restarts: tuple[float, ...], now: float) -> str | None:
    """Why a restart is not permitted now, or None. `restarts` are the wall times of those that the guard did; one that
    lies ahead, because the clock was put back, counts as one of today."""
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


def _say(memory: Memory, what: str) -> Memory:
    return msgspec.structs.replace(memory, said=memory.said | {what})


def _rested(memory: Memory, look: Look) -> Memory:
    """Begin to watch anew: what was seen before says nothing of what comes."""
    return msgspec.structs.replace(
        memory,
        last=look,
        counters=None,
        moved=None,
        asked=None,
        silent_canaries=0,
        pressed=(),
        quiet_since=None,
        ask=False,
        engines=(),
    )


def _over_gap(policy: Policy, memory: Memory, look: Look, found: list[Decision]) -> Memory:
    """After a pause of ours, a suspend or a change of the clock nothing that was counted before it counts."""
    last = memory.last
    if last is None:
        return memory
    passed = look.up - last.up
    slept = passed - (look.awake - last.awake)
    off = (look.at - last.at) - passed
    rest = _rested(memory, last)
    if slept > _CLOCK_S:
        found.append(Decision(Kind.GAP, f"the host slept for {slept:.0f} s: it is watched anew"))
        return rest
    if abs(off) > _CLOCK_S:
        found.append(Decision(Kind.CLOCK, f"the clock was set by {off:+.0f} s; what is timed here does not go by it"))
    if passed < 0 or passed > _GAP * policy.every_s:
        found.append(Decision(Kind.GAP, f"nothing was seen for {passed:.0f} s: it is watched anew"))
        return rest
    return memory


def _started(policy: Policy, memory: Memory, look: Look, found: list[Decision]) -> Memory:
    """A new invocation is a new server: only how often it began is remembered."""
    before = memory.last
    if before is not None and before.invocation == look.invocation:
        return memory
    if before is None or not before.invocation or not look.invocation:
        return msgspec.structs.replace(_rested(memory, look), began=look.up, answered=False)
    starts = tuple(at for at in memory.starts if look.up - at < policy.flapping_s)
    if look.restarts > before.restarts:
        starts = (*starts, look.up)
        times = f"{len(starts)} times in {policy.flapping_s:.0f} s"
        found.append(Decision(Kind.CRASHED, f"it ended, and systemd started it anew, {times}"))
    else:
        found.append(Decision(Kind.STARTED, "it was started anew, and not by systemd itself"))
    fresh = Memory(last=look, began=look.up, starts=starts, said=memory.said & {Kind.LOOP})
    if len(starts) >= policy.flapping and Kind.LOOP not in memory.said:
        found.append(
            Decision(
                Kind.LOOP,
                f"{len(starts)} starts in {policy.flapping_s:.0f} s: one more does not help (vllm-doctor diagnose)",
            )
        )
        fresh = _say(fresh, Kind.LOOP)
    return fresh


def _counted(memory: Memory, look: Look, found: list[Decision]) -> Memory:
    """When the engine last moved. A counter that fell belongs to another server, and says nothing of this one."""
    now, before = look.counters, memory.counters
    if now is None:
        if look.why and look.health == 200 and look.why not in memory.said:
            found.append(Decision(Kind.UNREADABLE, look.why))
            memory = _say(memory, look.why)
        return memory
    if before is None:
        return msgspec.structs.replace(memory, counters=now, moved=look.up, cpu=look.engine_cpu)
    if _fell(before, now):
        resets = (*(at for at in memory.resets if look.up - at < 600), look.up)
        kind, text = Kind.RESET, "a counter of /metrics fell without a new start: it is watched anew"
        if len(resets) > 2:
            kind, text = Kind.TWO_SERVERS, "the counters of /metrics fall again and again: two servers answer by turns"
        if kind not in memory.said:
            found.append(Decision(kind, text))
            memory = _say(memory, kind)
        return msgspec.structs.replace(
            _rested(memory, look), counters=now, moved=look.up, cpu=look.engine_cpu, resets=resets
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


def _starting(policy: Policy, memory: Memory, look: Look, found: list[Decision]) -> Memory:
    """A start that neither ends nor says anything."""
    age = look.up - memory.began
    silent = look.silent_s
    if age < policy.start_s or silent is None or silent < policy.start_silent_s:
        return memory
    found.append(
        Decision(
            Kind.SILENT_START,
            f"started {age:.0f} s ago (limit {policy.start_s:.0f}), never answered, and its last line is "
            f"{silent:.0f} s old (limit {policy.start_silent_s:.0f})",
            restart=True,
            cut=True,
        )
    )
    return memory


def _engine(policy: Policy, memory: Memory, look: Look, found: list[Decision]) -> Memory:
    """Is the engine dead behind its server? Standing counters only raise the question; a completion answers it."""
    now = look.counters
    if look.health == 0:  # the server itself is gone or going; systemd starts it anew
        return msgspec.structs.replace(memory, silent_canaries=0, ask=False)
    if now is not None and now.asleep:
        return msgspec.structs.replace(memory, silent_canaries=0, ask=False)
    busy = now is not None and bool(now.running or now.waiting)
    still = look.up - memory.moved if memory.moved is not None else 0.0
    computes = _computes(memory, look, still)
    limit = policy.engine_busy_silent_s if computes else policy.engine_silent_s
    readable = now is not None and memory.counters is not None
    if look.canary is True:
        # It works: what stood still was no work of its own (requests that were given up, a long prompt).
        return msgspec.structs.replace(
            memory, moved=look.up, cpu=look.engine_cpu, asked=look.up, silent_canaries=0, ask=False
        )
    failed = memory.silent_canaries + (look.canary is False)
    memory = msgspec.structs.replace(
        memory, silent_canaries=failed, asked=look.up if look.canary is not None else memory.asked
    )
    if busy and readable and len(memory.resets) < 2:
        if failed and still >= limit and now is not None:
            state = "compute" if computes else "do not compute"
            seen = f"{now.running or 0:.0f} running, {now.waiting or 0:.0f} waiting, no token for {still:.0f} s"
            found.append(_dead(f"{seen} (limit {limit:.0f}: the engine's processes {state})", policy, look))
        return msgspec.structs.replace(memory, ask=still >= limit * 2 / 3)
    if busy or (now is None and look.health == 200):
        # Under load, or where the load is not known, a completion may only wait its turn.
        return msgspec.structs.replace(memory, ask=False, silent_canaries=0)
    if failed >= 2:
        found.append(_dead(f"nothing runs, and {failed} completions in a row did not come", policy, look))
        return memory
    due = memory.asked is None or look.up - memory.asked >= (policy.canary_every_s if not failed else policy.beat_s)
    gone = look.health not in {200, 0} and memory.answered
    return msgspec.structs.replace(memory, ask=gone or (policy.canary_every_s > 0 and due))


def _each_engine(policy: Policy, memory: Memory, look: Look, found: list[Decision]) -> Memory:
    """One of several engines (data-parallel ranks) has requests and makes no token, while the server answers.

    A completion proves nothing here, as the server gives it to another engine. So the limit is the long one, which one
    step of a working engine does not reach, and what the others run is drained first.
    """
    now = look.counters
    if now is None or now.asleep or len(now.engines) < 2:
        return msgspec.structs.replace(memory, engines=())
    before = {name: (done, moved) for name, done, moved in memory.engines}
    kept, still = [], []
    for one in now.engines:
        done, moved = before.get(one.name, (one.done, look.up))
        if done != one.done or not one.running:
            moved = look.up
        kept.append((one.name, one.done, moved))
        if look.up - moved >= policy.engine_busy_silent_s:
            still.append((one, look.up - moved))
    if still and len(still) < len(now.engines):
        one, seconds = max(still, key=lambda pair: pair[1])
        seen = f"engine {one.name} of {len(now.engines)}: {one.running or 0:.0f} running, no token for {seconds:.0f} s"
        why = f"{seen} (limit {policy.engine_busy_silent_s:.0f}), while the others go on; its requests never end"
        found.append(Decision(Kind.ONE_ENGINE_DEAD, why, restart=True))
    return msgspec.structs.replace(memory, engines=tuple(kept))


def _computes(memory: Memory, look: Look, still: float) -> bool:
    """Did the engine's processes take processor time since it last moved? Where that is not known, they may have."""
    if memory.cpu is None or look.engine_cpu is None:
        return True
    return look.engine_cpu - memory.cpu > _IDLE * still


def _dead(seen: str, policy: Policy, look: Look) -> Decision:
    health = f"/health {look.health}" if look.health is not None else "/health silent"
    why = f"{seen}; {health}; a completion of one token did not come within {policy.canary_s:.0f} s"
    return Decision(Kind.ENGINE_DEAD, why, restart=True, cut=True)


def _grown(policy: Policy, memory: Memory, look: Look, slopes: tuple[Slope, ...], found: list[Decision]) -> Memory:
    """Memory that grows for sure and nears its limit: a restart in a quiet moment, before the load decides when."""
    grown = policy.growth
    near = [s for s in slopes if s.sure and s.used >= grown.used and s.hours_left is not None
            and s.hours_left <= grown.hours_left and s.hours >= grown.hours / 2]  # fmt: skip
    if not near:
        return memory
    worst = min(near, key=lambda s: s.hours_left or 0.0)
    left = worst.hours_left or 0.0
    quiet = memory.quiet_since is not None and look.up - memory.quiet_since >= min(60.0, grown.quiet_s)
    now = grown.restart and (quiet or left * HOUR <= grown.quiet_s)
    key = f"{Kind.GROWTH}:{worst.what}"
    if now or key not in memory.said:
        wait = "" if now or not grown.restart else "; it waits for a quiet moment"
        found.append(Decision(Kind.GROWTH, f"{worst.told}{wait}", restart=now))
    return _say(memory, key)


def _pressed(policy: Policy, memory: Memory, look: Look, found: list[Decision]) -> Memory:
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
            why = "" if limits.restart else "; a restart would lose the queue and help nothing"
            text = (
                f"KV cache {kv:.1%} (mark {limits.kv:.0%}), {waiting:.0f} waiting for {running:.0f} running "
                f"(mark {limits.queue_factor:g} ×), {len(recent)} times in {limits.within_s:.0f} s{why}"
            )
            found.append(Decision(Kind.PRESSURE, text, restart=limits.restart))
            return msgspec.structs.replace(memory, pressure=True, pressed=())
        return msgspec.structs.replace(memory, pressed=recent)
    if kv < limits.kv_off and waiting <= limits.queue_factor / 2 * max(1.0, running):
        found.append(Decision(Kind.RELIEVED, f"KV cache {kv:.1%}, {waiting:.0f} waiting: the pressure is over"))
        return msgspec.structs.replace(memory, pressure=False, pressed=())
    return memory
