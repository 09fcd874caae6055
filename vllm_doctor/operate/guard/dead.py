"""Is a start silent, or an engine dead behind its server?"""

import msgspec

from vllm_doctor.operate.guard.memory import Decision, DecisionKind, UnitMemory
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.records.sample import Look

# Part of a processor that a process of an engine takes which only waits: a worker of a real vLLM 0.32 took 0.019. Who
# computes takes all of one, however many others wait for it.
_IDLE, _BUSY = 0.05, 0.5


def starting(policy: Policy, memory: UnitMemory, look: Look, found: list[Decision]) -> UnitMemory:
    """A start that neither ends nor says anything."""
    age = look.up - memory.began
    silent = look.silent_s
    if age < policy.start_s or silent is None or silent < policy.start_silent_s:
        return memory
    found.append(
        Decision(
            DecisionKind.SILENT_START,
            f"started {age:.0f} s ago (limit {policy.start_s:.0f}), never answered, and its last line is "
            f"{silent:.0f} s old (limit {policy.start_silent_s:.0f})",
            restart=True,
            cut=True,
        )
    )
    return memory


def dead_engine(policy: Policy, memory: UnitMemory, look: Look, found: list[Decision]) -> UnitMemory:
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
        found.append(_dead(f"nothing runs, and {failed} completions in a row did not come back", policy, look))
        return memory
    due = memory.asked is None or look.up - memory.asked >= (policy.canary_every_s if not failed else policy.beat_s)
    gone = look.health not in {200, 0} and memory.answered
    return msgspec.structs.replace(memory, ask=gone or (policy.canary_every_s > 0 and due))


def each_engine(policy: Policy, memory: UnitMemory, look: Look, found: list[Decision]) -> UnitMemory:
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
        found.append(Decision(DecisionKind.ONE_ENGINE_DEAD, why, restart=True))
    return msgspec.structs.replace(memory, engines=tuple(kept))


def _computes(memory: UnitMemory, look: Look, still: float) -> bool:
    """Did the engine's processes take processor time since it last moved? Where that is not known, they may have."""
    if memory.cpu is None or look.engine_cpu is None:
        return True
    return look.engine_cpu - memory.cpu > min(_BUSY, _IDLE * look.engine_processes) * still


def _dead(seen: str, policy: Policy, look: Look) -> Decision:
    health = f"/health {look.health}" if look.health is not None else "/health silent"
    why = f"{seen}; {health}; a completion of one token did not come within {policy.canary_s:.0f} s"
    return Decision(DecisionKind.ENGINE_DEAD, why, restart=True, cut=True)
