"""One look at a unit: what the guard decides by and what the store keeps. Sizes are bytes, times are seconds."""

import msgspec


class EngineUse(msgspec.Struct, frozen=True):
    """One engine (data-parallel rank) of a server that has several; the fields are those of Counters."""

    name: str
    running: float | None = None
    prompt: float | None = None
    generated: float | None = None
    finished: float | None = None
    kv: float | None = None

    @property
    def done(self) -> tuple[float | None, ...]:
        """What changes when this engine works."""
        return (self.prompt, self.generated, self.finished, self.kv)


class Counters(msgspec.Struct, frozen=True):
    """What /metrics says of serving; None is what this server does not tell. `kv` lies between 0 and 1.

    `prompt`, `generated`, `finished` and `preemptions` count since the server's start. `server` is the time at which
    the process that answered began, so that two servers behind one port can be told apart; `asleep` that it was put to
    sleep. `first` and `between` are sum (seconds) and count of the times to the first token and between tokens.
    `engines` are the data-parallel ranks, where there is more than one: all other fields are of the server.
    """

    running: float | None = None
    waiting: float | None = None
    kv: float | None = None
    prompt: float | None = None
    generated: float | None = None
    finished: float | None = None
    preemptions: float | None = None
    server: float | None = None
    first: tuple[float, float] | None = None
    between: tuple[float, float] | None = None
    asleep: bool = False
    engines: tuple[EngineUse, ...] = ()

    @property
    def done(self) -> tuple[float | None, ...]:
        """What changes when the engine works: tokens, ended requests, the use of the pool."""
        return (self.prompt, self.generated, self.finished, self.kv)


class CardUse(msgspec.Struct, frozen=True):
    """A GPU's memory: what the unit's own processes hold of it, what others hold, and all of it."""

    uuid: str
    own: int | None
    others: int | None
    total: int | None
    free: int | None


# Why of a server on a Unix socket nothing but its processes is seen.
UNIX_SOCKET = "it listens on a Unix socket (--uds), which the guard does not ask: only its memory is watched"


class Look(msgspec.Struct, frozen=True):
    """A unit at one moment. `at` is the wall clock; `up` counts since boot, suspend included; `awake` without it.

    `restarts` is how often systemd itself started it anew. `health` is the status of /health, 0 where nobody
    listens, None where it is silent. `why` says what of /metrics could not be read. `canary` is whether a
    completion of one token came back; None where none was asked for. `held` is who changes the unit just now.
    `host` is the memory of the unit's processes that no file backs, `engine_cpu` the processor time of those beside
    the main one, which are `engine_processes`; `silent_s` the age of the last line of a start.
    """

    unit: str
    at: float
    up: float
    awake: float
    active: str = "active"
    invocation: str = ""
    restarts: int = 0
    drained: bool = False
    held: str = ""
    health: int | None = 200
    counters: Counters | None = None
    why: str = ""
    canary: bool | None = None
    host: int | None = None
    host_limit: int | None = None
    cards: tuple[CardUse, ...] = ()
    engine_cpu: float | None = None
    engine_processes: int = 1
    silent_s: float | None = None

    @property
    def state(self) -> str:
        """How it answers, in words. Any program may answer /health; healthy is one whose figures are vLLM's."""
        if self.why == UNIX_SOCKET:
            return "not asked"
        if self.health == 200:
            return "healthy" if self.counters is not None else "/health 200"
        return {0: "not listening", None: "silent"}.get(self.health, f"/health {self.health}")
