"""Look, remember, decide, keep, say; and act in a thread of its own, one unit at a time."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import msgspec

from vllm_doctor.gather.concurrently import Task
from vllm_doctor.operate.guard.act import DeedEnd, Hands, Tell, restarted, what_it_took, why_ended
from vllm_doctor.operate.guard.decide import decide
from vllm_doctor.operate.guard.memory import Decision, DecisionKind, UnitMemory
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.operate.history.slope import Slope
from vllm_doctor.operate.history.slopes import slopes
from vllm_doctor.operate.history.store import Store
from vllm_doctor.operate.history.store_format import UnitEvent
from vllm_doctor.operate.history.store_reader import Reader, Unreadable
from vllm_doctor.records.reading import Known
from vllm_doctor.records.sample import Look
from vllm_doctor.redact.text import without_secrets

MINUTE = 60.0
_SLOPES_EVERY_S = 600.0
HOST = "the host"
_RESTARTED = "restarted"
# Diagnoses that wait their turn; a host has fewer services.
_MOST_LATER = 64


class _Deed(msgspec.Struct, frozen=True):
    """What is under way: of which unit, and what is done with it, in words."""

    unit: str
    what: str
    task: Task[DeedEnd | None]


class Guard:
    """The state of the watch over all units. `say` gets each line of the journal."""

    def __init__(
        self,
        policy: Policy,
        store: Store | None,
        hands: Hands,
        say: Callable[[str], None],
        *,
        dry: bool = False,
        records: Path | None = None,
    ) -> None:
        """With `dry` nothing is done, and without a store nothing is kept. `records` is where a guard's records lie,
        which tell how memory grows; the store's own where it is not given."""
        self.policy, self.hands, self.dry = policy, hands, dry
        self._store, self._tell = store, say
        self._records = records or (store.path if store is not None else None)
        self._memories: dict[str, UnitMemory] = {}
        self._slopes: dict[str, tuple[Slope, ...]] = {}
        self._cards: dict[str, Look] = {}
        self._next = {"cards": 0.0, "kept": 0.0, "slopes": 0.0}
        self._kernel_at: float | None = None
        self._acting: _Deed | None = None
        self._steps: SimpleQueue[UnitEvent] = SimpleQueue()
        self._later: deque[tuple[str, Callable[[Tell], DeedEnd]]] = deque(maxlen=_MOST_LATER)
        self._silent: frozenset[str] = frozenset()
        self._rests: dict[str, float] = {}

    def beat(self) -> tuple[tuple[Look, Decision], ...]:
        """One look at everything; the decisions, each with its look."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._noted()
        self._finished()
        full = now >= self._next["cards"]
        asked = {unit: self.policy.canary_s for unit, memory in self._memories.items() if memory.ask}
        seen = self.hands.look(self.policy.units, cards=full, canaries=asked)
        if not isinstance(seen, Known):
            self._say_once(HOST, seen.reason)
            return ()
        if full:
            self._next["cards"] = now + self.policy.every_s
            self._kernel_lines(seen.value)
        found: list[tuple[Look, Decision]] = []
        for look in seen.value:
            look = self._with_cards(look, full=full)  # noqa: PLW2901 - the same look, with what was seen before it
            found += [(look, one) for one in self._decided(look)]
        for missing in set(self.policy.units) - {look.unit for look in seen.value}:
            self._say_once(missing, "the policy names it, but this host has no such unit")
        if self._acting is None and self._later:  # a restart goes first
            unit, work = self._later.popleft()
            self._act(unit, "diagnosed", work)
        self._keep(seen.value, now)
        return tuple(found)

    def wait(self) -> None:
        """Until the next look is due."""
        time.sleep(self.policy.beat_s)

    def _with_cards(self, look: Look, *, full: bool) -> Look:
        if full:
            self._cards[look.unit] = look
            return look
        before = self._cards.get(look.unit)
        same = before is not None and before.invocation == look.invocation
        return msgspec.structs.replace(look, cards=before.cards) if before is not None and same else look

    def _decided(self, look: Look) -> tuple[Decision, ...]:
        memory = self._memories.get(look.unit, UnitMemory())
        if self._acting is not None and self._acting.unit == look.unit and self._acting.what == _RESTARTED:
            return ()
        memory, decisions = decide(self.policy, memory, look, self._slopes.get(look.unit, ()))
        self._memories[look.unit] = memory
        for one in decisions:
            self._take(look, one)
        if not any(one.restart for one in decisions):  # what comes again is said again
            self._silent = frozenset(key for key in self._silent if not key.startswith(f"{look.unit} would"))
        return decisions

    def _take(self, look: Look, one: Decision) -> None:
        """Say it and, where it asks for a restart, do it."""
        if not one.restart:
            self._event(look.unit, one.kind, one.sum)
            asks = {DecisionKind.CRASHED: why_ended, DecisionKind.ANSWERS: what_it_took}.get(one.kind)
            if asks is not None and not self.dry:
                self._later.append((look.unit, partial(asks, self.hands, look.unit)))
            return
        why = f"{one.kind}: {one.sum}"
        refusal = self.hands.refused(look.unit) if not self.dry else "a rehearsal (--dry-run)"
        if self._acting is not None:
            refusal = refusal or f"{self._acting.unit} is being {self._acting.what}"
        if look.up < self._rests.get(look.unit, 0.0):
            refusal = refusal or "the last attempt failed"
        if refusal is not None:
            # The same sum comes with each look; its reason is told once.
            self._say_once(look.unit, f"would restart it ({refusal}): {why}", key=f"would {one.kind} {refusal[:40]}")
            return
        self._event(look.unit, one.kind, f"restarts it: {one.sum}")
        self._act(look.unit, _RESTARTED, partial(restarted, self.hands, self.policy, look.unit, one))

    def _act(self, unit: str, what: str, work: Callable[[Tell], DeedEnd]) -> None:
        """Begin it. Its steps come back by a queue: the store has one thread."""

        def tell(kind: str, text: str) -> None:
            self._steps.put(UnitEvent(time.time(), unit, kind, text))

        self._acting = _Deed(unit, what, Task(partial(work, tell)))

    def _finished(self) -> None:
        """Write down the steps of what is under way; once it has ended, watch its unit anew."""
        if self._acting is None:
            return
        unit, end = self._acting.unit, self._acting.task.within(0.0, None)
        while not self._steps.empty():
            self._written(self._steps.get())
        if end is None:
            return
        self._acting = None
        if end is DeedEnd.REFUSED:
            self._rests[unit] = time.clock_gettime(time.CLOCK_BOOTTIME) + self.policy.cool_down_s
        elif end is DeedEnd.RESTARTED:
            self._memories[unit] = UnitMemory(starts=self._memories.get(unit, UnitMemory()).starts)
            self._silent = frozenset(key for key in self._silent if not key.startswith(f"{unit} "))

    def _keep(self, seen: tuple[Look, ...], now: float) -> None:
        """One record a minute of each unit, and the slopes now and then."""
        if self._store is not None and now >= self._next["kept"]:
            self._next["kept"] = now + MINUTE - min(1.0, self.policy.beat_s / 2)
            for look in seen:
                self._store.keep(self._with_cards(look, full=False))
        if now >= self._next["slopes"]:
            self._next["slopes"] = now + _SLOPES_EVERY_S
            self._slopes = {look.unit: self._grown(look) for look in seen}
        self._noted()

    def _noted(self) -> None:
        """Say what the store has to say of itself."""
        if self._store is not None:
            notes, self._store.notes = self._store.notes, []
            for note in notes:
                self._tell(note)

    def _grown(self, look: Look) -> tuple[Slope, ...]:
        if self._records is None:
            return ()
        try:
            reader = Reader(self._records)
            try:
                return slopes(reader, look.unit, look.at, self.policy.growth.hours)
            finally:
                reader.close()
        except (OSError, Unreadable):
            return ()

    def _kernel_lines(self, seen: tuple[Look, ...]) -> None:
        """What the kernel said since the last look, once."""
        now = seen[0].at if seen else time.time()
        if self._kernel_at is not None:
            for line in self.hands.kernel(self._kernel_at)[-20:]:
                self._event(HOST, "kernel", line)
        self._kernel_at = now

    def _event(self, unit: str, kind: str, text: str) -> None:
        self._written(UnitEvent(time.time(), unit, kind, text))

    def _written(self, event: UnitEvent) -> None:
        event = msgspec.structs.replace(event, text=without_secrets(event.text))
        self._tell(f"{event.unit}: {event.kind}: {event.text}")
        if self._store is not None:
            self._store.event(event)

    def _say_once(self, unit: str, text: str, key: str = "") -> None:
        name = f"{unit} {key or text}"
        if name not in self._silent:
            self._silent |= {name}
            self._event(unit, "note", text)
