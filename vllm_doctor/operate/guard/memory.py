"""What the guard decides and what it remembers of a unit between two looks."""

from enum import StrEnum

import msgspec

from vllm_doctor.records.sample import Counters, Look


class DecisionKind(StrEnum):
    """What a decision is about; its name in the journal and in the store."""

    STARTED = "started"
    CRASHED = "crashed"
    ANSWERS = "answers"
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
    HELD = "left-alone"


class Decision(msgspec.Struct, frozen=True):
    """One line of the journal. `restart` asks for one; `cut` says that what runs cannot be finished, so nothing is
    waited for."""

    kind: DecisionKind
    sum: str
    restart: bool = False
    cut: bool = False


class UnitMemory(msgspec.Struct, frozen=True):
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


def with_said(memory: UnitMemory, what: str) -> UnitMemory:
    """What is told once is remembered."""
    return msgspec.structs.replace(memory, said=memory.said | {what})


def rested(memory: UnitMemory, look: Look) -> UnitMemory:
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
