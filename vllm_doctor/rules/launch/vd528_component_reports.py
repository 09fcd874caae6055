"""VD528: a component reports at the level ERROR that it failed, without a traceback, and nothing works after it."""

from itertools import takewhile

from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.layers import Layer, layer_of, layers
from vllm_doctor.knowledge.layers.headings import named_in, part_of_title
from vllm_doctor.knowledge.pattern import compiled
from vllm_doctor.log.last_words import complaints
from vllm_doctor.log.match import read, says
from vllm_doctor.log.report_title import ReportTitle, failing_title, report_title
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.log import LogLine
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.layer import cut_off_in, for_the_title
from vllm_doctor.rules.remedies.said_to_help import without_the_named
from vllm_doctor.rules.say import finding

_CHANGES = 3
# Steps in a row for which a request waits for another server's blocks.
_STILL = 3
# The part that works beside the engine, which goes on without it; how often it must complain, and how many lines of it
# are read.
_BESIDE, _OFTEN, _LATEST = "kv-transfer", 2, 200
_TAGS = frozenset({"bug", "issue", "error", "problem"})
# Answers that came since the last complaint.
_ANSWERED = 3
_COMPLAINS = frozenset({"WARNING", "ERROR", "CRITICAL"})


def judge(case: Case) -> Outcome:
    """Does what was said last, below the last work of the engine, name a part of the whole?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if run.root is not None or run.stopped is not None or run.client is not None:
        return NotHere("a traceback or a stop shows how the server ended")
    title = report_title(run.lines)
    if run.deaths:
        return _titled(case, run) or NotHere("a death shows how the server ended")
    told = tuple(line for line in complaints(run) if title is None or line is not run.lines[title.at])
    found = next(((line, part) for line in told if (part := _part(line)) is not None), None)
    if found is None and (repeated := _repeated(run)) is not None:
        told, found = repeated
    if found is None and (titled := _titled(case, run)) is not None:
        return titled
    if found is None:
        return Clear("no line below the engine's last work names a part that failed")
    line, part = found
    said = "\n".join(one.text for one in told)
    named = next((a.title for a in part.answers if a.title and a.said and applies(a, said)), "")
    return finding(
        RULE,
        title=named or f"{part.name} failed: {_said(line)}",
        detail=excerpt.said(line.text.strip()) if named else "",
        severity=Severity.DEGRADED if run.served() or _of_a_request(line) else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(run.lines.index(line)),),
        changes=changes_of(case, part.answers, said)[:_CHANGES],
        refute="the same line stands in the log of a server whose requests are answered",
        layer=part.id,
        then=part.next,
    )


def _titled(case: Case, run: AnalysedRun) -> Finding | None:
    """What a report's title names, where no line below it tells what failed, nor do calls of the same part."""
    title = failing_title(run.lines)
    if title is None or run.served():
        return None
    named = named_in(title.words)
    part = part_of_title(title.words)
    if part is None:
        return _with_a_setting(case, title)
    answered = next((a.title for a in part.answers if a.title and a.said and applies(a, title.words)), "")
    cut = cut_off_in(case)
    if cut is not None and cut[1].id == part.id and not answered:
        return None
    serves = named.told if named is not None else ""
    name = named.name if named is not None and named.name else part.name
    changes = for_the_title(case, part, title.words, named.calls if named is not None else "")[:_CHANGES]
    told = answered or f"{serves or f'{name} failed'}, as the title of this report says"
    severity = Severity.DEGRADED if serves else Severity.BLOCKS_START
    return _of_the_title(case, title, told, changes, layer=part.id, then=part.next, severity=severity)


def _with_a_setting(case: Case, title: ReportTitle) -> Finding | None:
    """Of a title that names no part the settings with which it says that the server fails."""
    changes = without_the_named(case, title.words)
    if not changes:
        return None
    return _of_the_title(
        case, title, f"The server fails with {changes[0].name}, as the title of this report says", changes
    )


def _of_the_title(
    case: Case,
    title: ReportTitle,
    told: str,
    changes: tuple[Change, ...],
    *,
    layer: str = "",
    then: str = "",
    severity: Severity = Severity.BLOCKS_START,
) -> Finding:
    return finding(
        RULE,
        title=told,
        detail=excerpt.said(title.words),
        severity=severity,
        confidence=Confidence.LIKELY if changes else Confidence.POSSIBLE,
        evidence=(case.line(title.at),),
        changes=changes,
        refute="the log below the title shows another failure",
        layer=layer,
        then=then,
    )


def _repeated(run: AnalysedRun) -> tuple[tuple[LogLine, ...], tuple[LogLine, Layer]] | None:
    """What a connector says again and again while the engine works on: it serves, without what the connector is for."""
    part = next(layer for layer in layers() if layer.id == _BESIDE)
    if waits := _waits(run):
        return waits, (waits[-1], part)
    known = [answer for answer in part.answers if answer.title and answer.said]
    told = [line for line in run.lines if line.level in _COMPLAINS and _of(part, line)]
    told = [line for line in told[-_LATEST:] if any(applies(answer, line.text) for answer in known)]
    if len(told) < _OFTEN or _over(run, told[-1]):
        return None
    return tuple(told), (told[-1], part)


def _over(run: AnalysedRun, last: LogLine) -> bool:
    """Did requests come and go since it was said last? A side that came back is asked by each of them."""
    return sum(run.lines[hit.index].number > last.number for hit in run.all("request-ok")) >= _ANSWERED


def _waits(run: AnalysedRun) -> tuple[LogLine, ...]:
    """The last lines of a log of level DEBUG, where the scheduler says of a request at each step that it waits."""
    written = (line for line in reversed(run.lines) if line.text.strip())
    told = tuple(takewhile(lambda line: says(line.text, "waits-for-remote-kv"), written))[::-1]
    return told if len(told) >= _STILL else ()


def _of(part: Layer, line: LogLine) -> bool:
    of_module = line.module is not None and compiled(part.files).search(f"/{line.module}") is not None
    return of_module or compiled(part.said).search(line.text) is not None


def _part(line: LogLine) -> Layer | None:
    """By what it says, else by the file that its logger names."""
    return layer_of((line.text,), (f"/{line.module}",) if line.module else ())


def _said(line: LogLine) -> str:
    """What a line says, without a page's mark of a heading and the word that it is a defect."""
    told = read("heading-of-report", line.text)
    said = told["what"].strip() if told is not None else line.text.strip()
    head, _, rest = said.partition(": ")
    return rest if told is not None and head.lower() in _TAGS else said


def _of_a_request(line: LogLine) -> bool:
    """Does a module write it that has a request in its hands? Then a server serves, whatever the log lacks."""
    return line.module is not None and says(line.module, "module-of-requests")


RULE = rule("VD528", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
