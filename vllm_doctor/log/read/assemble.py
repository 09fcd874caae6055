"""The lines of a log as the one record that rules judge: the last run, and how many came before it."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from vllm_doctor.log.match import anchors, read, says
from vllm_doctor.log.read.envelope import without_envelope
from vllm_doctor.log.read.json_rows import rows_read
from vllm_doctor.log.read.misread import well_read
from vllm_doctor.log.read.panel import unpanelled
from vllm_doctor.log.read.pieces import Read, as_written
from vllm_doctor.log.read.prefix import Head, Stripper
from vllm_doctor.log.read.pretty_answer import answered as with_answers
from vllm_doctor.log.read.printable import EXCERPT_LIMIT, LINE_LIMIT, printable_text, shorten
from vllm_doctor.log.read.retold import retold
from vllm_doctor.log.read.runs import launched_with, not_yet_as_long, only_begins, silent_ends, starts
from vllm_doctor.log.read.servers import servers
from vllm_doctor.log.read.unwrap import untypeset, unwrapped
from vllm_doctor.log.read.whole import split
from vllm_doctor.records.log import Log, LogLine, RunLines

_KEPT = 100
# More lines than this in the few MiB that are read are no log of a server: their middle is left out.
_LINES = 60_000
# vLLM writes a blank after each word, and hardly a tab.
_TABS = 20


def log_of_lines(raw: Iterable[str], source: str) -> Log:
    """A log from lines that were read elsewhere (the journal): prefixes stripped, cut into runs."""
    stripper = Stripper()
    lines = [line for number, text in enumerate(raw, 1) for line in stripper.lines(text.rstrip("\n"), number)]
    return cut(lines, source, turns=False)


def parse_lines(read: Read) -> list[LogLine]:
    """The lines of all pieces. After a gap, numbers count from the gap on and the first, broken line is dropped."""
    stripper = Stripper()
    found: list[LogLine] = []
    number = 0
    for index, piece in enumerate(read.pieces):
        text = as_written(piece.data).decode("utf-8", "replace")
        if index == 0 and piece.offset == 0:
            text = text.removeprefix("\ufeff")
        if text.count("\t") > _TABS * text.count(" "):  # an editor or a paste made them of all blanks
            text = text.replace("\t", " ")
        if not read.skipped:
            text = well_read(untypeset(split(text)))
        raw = raw_lines(text)
        if piece.offset and not piece.whole_lines and len(raw) > 1:
            raw = raw[1:]
        if len(raw) > _LINES:
            gap = len(raw) - _LINES
            raw = [*raw[: _LINES // 4], f"[… {gap} lines left out …]", *raw[-(_LINES - _LINES // 4) :]]
        raw, fields = rows_read([line.rstrip("\r") for line in raw])
        raw, heads = without_envelope(raw)
        heads |= fields
        shown: dict[int, str] = {}
        if not read.skipped:
            told = with_answers(raw)
            shown = {at: own for at, (own, said) in enumerate(zip(raw, told, strict=True)) if own != said}
            raw = retold(unwrapped(unpanelled(told)))
        (answered,) = anchors("request-ok")
        served = sum(line.endswith(answered) for line in raw) - _KEPT if read.skipped else 0
        for at, line in enumerate(raw):
            number += 1
            if served > 0 and line.endswith(answered):
                served -= 1  # of a very long log's answered requests the last ones say as much as all of them
                continue
            if line.strip():
                parts = stripper.lines(line, number, heads.get(at, Head()))
                found.extend(parts if at not in shown else _as_it_stands(parts, shown[at]))
    return found


def _as_it_stands(lines: Sequence[LogLine], own: str) -> list[LogLine]:
    """Evidence is the line that the user has, however it was read."""
    excerpt = shorten(printable_text(own.strip()), EXCERPT_LIMIT)
    return [msgspec.structs.replace(line, excerpt=excerpt) for line in lines]


def raw_lines(text: str) -> list[str]:
    """The lines of a text, none above `LINE_LIMIT`; too many carriage returns for a progress bar end lines, too."""
    if text.count("\r") - text.count("\r\n") > _LINES:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return [line if len(line) <= LINE_LIMIT or "\r" in line else shorten(line) for line in text.split("\n")]


def cut(
    lines: Sequence[LogLine], source: str, skipped: int = 0, notes: Sequence[str] = (), *, turns: bool = True
) -> Log:
    """The last run of these lines; the one before it where that failed and the last only begins.

    A head is incomplete where bytes were skipped and no launch was seen. Where several servers wrote into the text, it
    is the first one's, and the others' are beside it.
    """
    parts = servers(lines, turns=turns)
    if len(parts) == 1:
        return _cut(lines, source, skipped, notes)
    logs = [
        _cut(
            part,
            source,
            skipped,
            (*notes, f"{len(parts)} servers wrote into it; the doctor judged {name}"),
        )
        for name, part in parts.items()
    ]
    # One of them shows for all whether uvicorn tells of its own start.
    told = any(says(line.text, "uvicorn-lifespan") for line in lines)
    first, *others = (msgspec.structs.replace(log, lifespan_before=told) for log in logs)
    return msgspec.structs.replace(first, others=tuple(others))


def _cut(lines: Sequence[LogLine], source: str, skipped: int, notes: Sequence[str]) -> Log:
    begins = starts(lines, headless=skipped > 0)
    if begins and only_begins(lines[begins[-2] if len(begins) > 1 else 0 : begins[-1]], lines[begins[-1] :]):
        notes = (*notes, "the doctor judged the start before the last: it failed, and the last one is still under way")
        lines, begins = lines[: begins[-1]], begins[:-1]
    if begins and not_yet_as_long(lines[begins[-2] if len(begins) > 1 else 0 : begins[-1]], lines[begins[-1] :]):
        notes = (
            *notes,
            (
                "the doctor judged the run before the last: its engine died, and the last one, of the same launch, has "
                "not served as much yet"
            ),
        )
        lines, begins = lines[: begins[-1]], begins[:-1]
    last = begins[-1] if begins else 0
    run = RunLines(
        lines=tuple(lines[last:]),
        complete_head=skipped == 0 or bool(begins) or _launches(lines[:400]),
        skipped_bytes=skipped,
    )
    edges = [0, *begins, len(lines)] if begins and begins[0] else [*begins, len(lines)]
    runs = [lines[a:b] for a, b in pairwise(edges)]
    kv = earlier_kv(runs)
    told = any(says(line.text, "uvicorn-lifespan") for line in lines[:last])
    return Log(source, run, len(begins), tuple(notes), kv, lifespan_before=told, silent_ends=silent_ends(runs))


def earlier_kv(runs: Sequence[Sequence[LogLine]]) -> tuple[float, ...]:
    """What each earlier run of the last one's launch had for its KV cache; a rank's smallest figure counts."""
    if len(runs) < 2:
        return ()
    launches = [next((line.text for line in run if launched_with(line.text)), None) for run in runs]
    found: list[float] = []
    for launch, run in zip(launches[:-1], runs[:-1], strict=True):
        sizes = [float(said["size"]) for line in run if (said := read("kv-available", line.text)) is not None]
        if sizes and launch is not None and launch == launches[-1]:
            found.append(min(sizes))
    return tuple(found)


def _launches(lines: Sequence[LogLine]) -> bool:
    return any(a in line.text for line in lines for a in anchors("engine-config", "server-version"))
