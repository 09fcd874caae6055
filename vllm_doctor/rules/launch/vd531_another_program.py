"""VD531: another program beside vLLM wrote the last error, and vLLM wrote no line about it."""

from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.programs import steps
from vllm_doctor.log.another_program import ForeignError, foreign_error, speaks_of_vllm, told_of_a_request
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.sentence_call import told_by_words
from vllm_doctor.log.traceback import in_packages
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import exception_line, severity
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.layer import layer
from vllm_doctor.rules.remedies.sentence import beside, first_words
from vllm_doctor.rules.say import finding

_ALONE = "vLLM wrote no line about it"
# So many words before it are callers', and so many of its own are a sentence.
_CALLERS, _FEWEST = 2, 3
_OWN_NAME = "vllm"
_RUNS_WORKERS = frozenset({"ray-head", "triton"})
_ARTICLES = ("A ", "The ", "Another ")


def judge(case: Case) -> Outcome:
    """Did another program fail below the last line that shows that vLLM works, and vLLM write of no failure?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    own = run.root if run.client is None and not run.by_vllm else None
    if own is not None and (found := _in_its_own_code(case, own)) is not None:
        return found
    if run.root is not None or run.refused is not None or run.client is not None:
        return NotHere("vLLM or its client says what failed")
    told = foreign_error(run)
    if not speaks_of_vllm(run) and (told is None or not (told_of_a_request(run, told) or _started_it(told))):
        return NotHere("nothing here speaks of vLLM")
    if told is None:
        return Clear("no other program wrote an error below the last line that shows that vLLM works")
    if any(death.index < told.index for death in run.deaths):
        return NotHere("a process of vLLM died before it")
    step = next((one for one in steps() if applies(one, told.what)), None)
    named = step.title if step is not None else ""
    title = named or f"{told.name}: {told.what}"
    short = not named and len(title) <= excerpt.TITLE
    certain = told.fatal or not run.by_vllm or (step is not None and _OWN_NAME in told.what.lower())
    return finding(
        RULE,
        title=title if named or short else _innermost(told) or beside(f"{told.name}: ", " ".join(told.what.split())),
        detail=_ALONE if short else excerpt.said(told.what),
        severity=Severity.WILL_FAIL_UNDER_LOAD
        if told_of_a_request(run, told)
        else Severity.DEGRADED
        if run.served()
        else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY if certain else Confidence.POSSIBLE,
        evidence=(case.line(told.index),),
        changes=changes_of(case, (step,), told.what) if step is not None else (),
        refute=_refute(told),
        layer=told.program.id,
        then=told.program.next,
    )


def _started_it(told: ForeignError) -> bool:
    """Did a program end itself that runs vLLM's workers as its own? Its last words need not name them."""
    return told.fatal and told.program.id in _RUNS_WORKERS


def _innermost(told: ForeignError) -> str:
    """What failed first, behind the last colon: each caller, in Go most, sets its own words before those of its own."""
    *before, last = told.what.split(": ")
    title = f"{told.name}: {last.strip()}"
    return title if len(before) >= _CALLERS and len(last.split()) >= _FEWEST and len(title) <= excerpt.TITLE else ""


def _in_its_own_code(case: Case, root: Fault) -> Finding | None:
    """A program in Python that drives vLLM, and failed before it called it: no call of the traceback is vLLM's."""
    links = root.crash.links if root.crash is not None else ()
    frames = [frame for link in links for frame in link.frames]
    if root.hits or not frames or any(says(frame.file, "call-of-vllm") for frame in frames):
        return None
    if any(told_by_words(link) for link in links):
        return None  # who called it stands nowhere
    packages = (read("file-in-packages", in_packages(frame.file)) for frame in reversed(frames))
    name = next((told["package"] for told in packages if told is not None), "")
    if not name or layer(case, root) is not None:
        return None
    said = f"{links[0].kind}: {first_words(case, root)}"
    title = f"{name}: {first_words(case, root)}"
    return finding(
        RULE,
        title=title if len(title) <= excerpt.TITLE else f"{name} failed in its own code; no call is vLLM's",
        detail=excerpt.said(said),
        severity=severity(case, root),
        confidence=Confidence.LIKELY,
        evidence=(exception_line(case, root),),
        refute="an earlier line, which this log does not contain, shows a failure of vLLM",
        layer="python-program",
        then=f"send the whole traceback, the release of {name} and its settings to its project: it had not called vLLM",
    )


def _refute(told: ForeignError) -> str:
    name = told.name
    named = name[0].lower() + name[1:] if name.startswith(_ARTICLES) else name
    return f"vLLM goes on below this line, or {named} tries again and succeeds"


RULE = rule("VD531", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
