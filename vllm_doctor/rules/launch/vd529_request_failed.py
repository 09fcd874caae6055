"""VD529: the last request failed, and nothing shows that another one was answered after it.

With a traceback, or the last ones with an error of the server's own (500) or with its word for what it refuses.
"""

from vllm_doctor.knowledge.layers import Layer, layers
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.traceback import Crash
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.redact.raised import exception_words
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import exception_line, text
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.client_input import (
    JUDGED_WHILE_UP,
    check_of_request,
    other_input,
    own_sentence,
    refused_field,
    refuses_the_request,
)
from vllm_doctor.rules.remedies.decided import decided
from vllm_doctor.rules.remedies.failed_requests import failed_requests
from vllm_doctor.rules.remedies.known_issue import issue_of
from vllm_doctor.rules.remedies.layer import answer_of, cures, first_of_each, layer, unforeseen
from vllm_doctor.rules.remedies.library_place import title_of_library_place
from vllm_doctor.rules.remedies.mentioned import switches_named
from vllm_doctor.rules.remedies.own_words import own_words
from vllm_doctor.rules.remedies.refusal import asked, packages
from vllm_doctor.rules.remedies.run_time_adapters import adapter_path
from vllm_doctor.rules.remedies.sentence import begins, beside
from vllm_doctor.rules.say import finding

# What stands for a client's words in a title, and how many letters of vLLM's own beside it say something.
_LEFT_OUT, _SAYS = "…", 8


def judge(case: Case) -> Outcome:
    """Did the server go on, and the last request fail?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    fault = run.refused
    if fault is None and run.root is None and (off := adapter_path(case)) is not None:
        return finding(
            RULE,
            title=off.title,
            severity=Severity.DEGRADED,
            confidence=Confidence.LIKELY,
            evidence=(case.line(off.line),),
            changes=off.changes,
            refute="the same request is answered with 200",
        )
    if fault is None and (failed := failed_requests(case)) is not None:
        return finding(
            RULE,
            title=failed.title,
            detail=failed.said,
            severity=Severity.DEGRADED,
            confidence=Confidence.LIKELY,
            evidence=(case.line(failed.line),),
            changes=failed.changes,
            refute="other requests of this kind are answered after it",
            layer="requests",
            then="send the body of the request, without what is private, and the whole log of its minute",
        )
    if fault is None or fault.crash is None:
        return NotHere("no request failed with a traceback, or others were answered after it")
    part = layer(case, fault)
    issue = issue_of(case, fault.crash)
    told: tuple[Change, ...] = ()
    if issue is not None:
        title = f"{issue.title}; matches {issue.address}"
        told = changes_of(case, issue.answers, text(case, fault))
    else:
        title = _title(case, fault, fault.crash)
    usual = cures(case, fault, part) if part is not None else ()
    if issue is None and refuses_the_request(fault, part) and not any(c.name == other_input().name for c in usual):
        of_parser = part is not None and part.id == "tool-parser"
        usual = (*switches_named(case, fault), other_input(), *(() if of_parser else usual))
    return finding(
        RULE,
        title=title,
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(exception_line(case, fault),),
        changes=first_of_each((*told, *packages(case, fault), *asked(case, fault), *decided(case, fault), *usual))
        or _of_the_request(case, fault, part),
        refute="other requests of this kind are answered after it",
        layer=part.id if part is not None else "",
        then=_next(case, fault, part),
    )


def _of_the_request(case: Case, fault: Fault, part: Layer | None) -> tuple[Change, ...]:
    """What is left where nothing else is known: a switch of the launch that the refusal names, and the request."""
    answered = case.run is not None and case.run.answered_as_wrong(fault)
    if not answered and not check_of_request(case, fault, part):
        return ()
    return (*switches_named(case, fault), other_input())


def _next(case: Case, fault: Fault, part: Layer | None) -> str:
    """What to send along: of a request that a model's own code refuses, the request."""
    if part is None:
        return ""
    of_request = part.id in JUDGED_WHILE_UP and check_of_request(case, fault, part)
    return next((one.next for one in layers() if of_request and one.id == "requests"), part.next)


def _title(case: Case, fault: Fault, crash: Crash) -> str:
    """By the part's own sentence, by the part whose code failed, or by the exception."""
    part, answer = layer(case, fault), answer_of(case, fault)
    if told := title_of_library_place(case, fault, part):
        return told
    # their answers are about a parser or a backend that failed, not about a request that it refuses
    of_request = (
        part is not None and part.id in {"structured-output", "tool-parser"} and refuses_the_request(fault, part)
    )
    if answer is not None and not of_request:
        return answer.title
    if lacks := packages(case, fault):
        return f"A request needs the package {lacks[0].after or lacks[0].name}, which is not installed"
    if told := own_words(case, fault, part):
        return told
    if part is not None and part.broken and unforeseen(fault):
        return part.broken
    message = exception_words(case.run.lines, crash, crash.root) if case.run is not None else ""
    told = excerpt.said(message.splitlines()[0]) if message else ""
    if said := own_sentence(case, fault):
        return beside("A request is refused: ", said)
    if field := refused_field(case, fault):
        return f"A request is refused for its field {field}"
    if check := check_of_request(case, fault, part):
        own = told.replace(HIDDEN, _LEFT_OUT)
        if sum(c.isalpha() for c in own) >= _SAYS:
            return beside("A request is refused: ", own)
        return f"A request is refused by vLLM's own check: {check}"
    if fault.cut:
        return "A request failed, and its exception is cut off"
    whole = f"A request failed: {crash.root.kind}" + (f": {told}" if told else "")
    return (len(whole) > excerpt.TITLE and begins(case, fault, "A request failed")) or whole


RULE = rule("VD529", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
