"""One service's own output, cut into runs; a run is one start of the process up to its end."""

import msgspec

from vllm_doctor.records.reading import Unknown

# How the server's own processes sign, in which no step of the engine runs.
FRONT_END = ("APIServer", "ApiServer")


class LogLine(msgspec.Struct, frozen=True):
    """One line without its prefixes. `number` counts from 1 in the source; `process` is `EngineCore`, `Worker_TP1` …

    `stream` is the pod or service whose name stands in front of it.
    """

    number: int
    text: str
    level: str | None = None
    process: str | None = None
    pid: int | None = None
    at: str | None = None
    module: str | None = None
    excerpt: str = ""
    stream: str | None = None


class RunLines(msgspec.Struct, frozen=True):
    """One start of the server. `complete_head` is false where its beginning was not in what was read."""

    lines: tuple[LogLine, ...]
    complete_head: bool = True
    skipped_bytes: int = 0


# How a note on an earlier run begins; its invocation and its end follow.
EARLIER_RUN = "earlier run"


class Log(msgspec.Struct, frozen=True):
    """The last run, which is judged, and how many came before it.

    `earlier_kv_gib` is what earlier runs of the very same launch had for their KV cache, oldest first.
    `unread` are the files that were named and gave nothing.
    `others` are the logs of further servers that wrote into the same text.
    `lifespan_before`: uvicorn told of its own start in an earlier run of this text, or in another server's.
    `silent_ends`: so many earlier runs of this launch served and ended without a word, and the last answered nobody.
    """

    source: str
    last: RunLines
    earlier_runs: int = msgspec.field(default=0, name="earlier_lives")
    notes: tuple[str, ...] = ()
    earlier_kv_gib: tuple[float, ...] = ()
    unread: tuple[Unknown, ...] = ()
    others: tuple["Log", ...] = ()
    lifespan_before: bool = False
    silent_ends: int = 0
