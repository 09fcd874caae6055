"""VD599: something failed for good that no other rule knows; it is shown, and it is not memory."""

from vllm_doctor.knowledge import api
from vllm_doctor.knowledge.layers import Layer
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import severity
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.asked_already import asked_already
from vllm_doctor.rules.remedies.decided import decided
from vllm_doctor.rules.remedies.layer import cures, cut_off_in, eager_mode, layer, waits_for_another
from vllm_doctor.rules.remedies.library_place import asked_in_words
from vllm_doctor.rules.remedies.other_release import or_another_release
from vllm_doctor.rules.remedies.own_words import own_words
from vllm_doctor.rules.remedies.refusal import by_place
from vllm_doctor.rules.remedies.said_to_help import said_to_help
from vllm_doctor.rules.remedies.sentence import begins, first_words
from vllm_doctor.rules.say import finding, upgrade

_ELSEWHERE = "judge the whole log: the process that this one waits for wrote its own error above"
# What fails in each step, where its calls alone are left.
_STEPS = {
    StartupPhase.DEVICE: "Setting up a worker",
    StartupPhase.WEIGHTS: "Loading the model",
    StartupPhase.PROFILE: "The run that measures memory",
    StartupPhase.PROFILE_ENCODER: "The run that measures memory",
    StartupPhase.KV: "Setting up the KV cache",
    StartupPhase.GRAPHS: "Capturing CUDA graphs",
    StartupPhase.WARMUP: "Warming up",
    StartupPhase.SAMPLER: "Warming up",
    StartupPhase.READY: "A step of the engine",
    StartupPhase.SERVING: "A step of the engine",
}
_CUT = "the lines below the last call say what failed: give them, too"


def judge(case: Case) -> Outcome:
    """Did anything end this run?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    cut = cut_off_in(case)
    root = cut[0] if cut is not None else run.root
    if root is None and (whole := _in_a_step(case, run)) is not None:
        return whole
    if root is None:
        return NotHere("the log shows no failure that ended the run")
    if root.ids & EXHAUSTED:
        return NotHere("the first failure is exhausted GPU memory")
    part = layer(case, root)
    title = _title(case, root, part.name if part is not None else "")
    short = begins(case, root, _speaker(root, part)) if len(title) > excerpt.TITLE else ""
    told = _once(
        *asked_already(case, root),
        *decided(case, root),
        eager_mode(case, root),
        by_place(case, root),
        *(cures(case, root, part) if part is not None else ()),
        *asked_in_words(case, root),
        _of_a_worker(case, root),
        _of_own_class(case, root),
        *said_to_help(case),
    )
    # of a traceback that is cut nobody knows in which function it failed
    changes = told if root.cut else or_another_release(case, root, told)
    return finding(
        RULE,
        title=short or title,
        detail=title if short else "",
        severity=severity(case, root),
        confidence=Confidence.POSSIBLE if root.cut and not changes else Confidence.LIKELY,
        evidence=_shown(case, root),
        changes=changes,
        refute="an earlier line, which this log does not contain, shows another failure",
        layer=part.id if part is not None else "",
        then=_CUT if root.cut else part.next if part is not None else "",
    )


def _in_a_step(case: Case, run: AnalysedRun) -> Finding | None:
    """A traceback that ends before its exception, in calls that any failure comes through: the step they are of."""
    cut = run.cut_root
    if cut is None or run.deaths:
        return None
    waits = waits_for_another(cut)
    step = _STEPS.get(cut.startup_phase, "The start")
    changes = said_to_help(case)
    return finding(
        RULE,
        title="Another process failed, and its error is not in this log"
        if waits
        else f"{step} failed, and the exception is cut off",
        severity=severity(case, cut),
        confidence=Confidence.LIKELY if changes else Confidence.POSSIBLE,
        evidence=_shown(case, cut),
        changes=changes,
        refute="an earlier line, which this log does not contain, shows another failure",
        then=_ELSEWHERE if waits else _CUT,
    )


def _of_a_worker(case: Case, root: Fault) -> Change | None:
    """What a worker's own code met and nobody wrote a sentence for, of which its parent's word alone is left."""
    relayed = case.run is not None and says(case.run.lines[root.index].text, "worker-error-relay")
    bare = root.crash is not None and not root.crash.root.frames
    if not relayed or not bare or not own_words(case, root, None):
        return None
    return upgrade(case, "the worker's own code did not expect this: a newer release may; its log has the calls")


def _of_own_class(case: Case, root: Fault) -> Change | None:
    """A newer release, where a class of vLLM lacks what was read of it, and torch's own call that says so is all that
    was kept: within the engine vLLM's code read it."""
    link = root.crash.root if root.crash is not None else None
    told = read("object-lacks", link.message) if link is not None else None
    if case.run is None or link is None or told is None or case.run.lines[root.index].module is None:
        return None
    if not all(says(frame.file, "call-of-torch-module") for frame in link.frames) or not api.is_class(told["owner"]):
        return None
    return upgrade(case, f"vLLM's own code read what its class {told['owner']} lacks: a defect of the release")


def _speaker(root: Fault, part: Layer | None) -> str:
    """Who said it: the part, else the exception's class."""
    if part is not None and part.voice:
        return part.voice
    return root.crash.root.kind if root.crash is not None else ""


def _once(*changes: Change | None) -> tuple[Change, ...]:
    """Each option once: what the place tells stands before what its layer does."""
    told: dict[tuple[ChangeKind, str], Change] = {}
    for change in changes:
        if change is not None:
            told.setdefault((change.kind, change.name), change)
    return tuple(told.values())


def _title(case: Case, root: Fault, part: str) -> str:
    """What failed, in which call, under the part of the whole that it belongs to."""
    if root.crash is None:
        return f"{part} failed" if part else ""
    first = root.crash.root
    if root.cut:
        return f"{part} failed, and the exception is cut off" if part else ""
    told = f"{first.kind}: {first_words(case, root)}".strip(" :")
    where = next((f"{f.function} ({f.file.rpartition('/')[2]}:{f.line})" for f in reversed(first.frames) if f.line), "")
    return (f"{part} failed: " if part else "") + told + (f", in {where}" if where else "")


def _shown(case: Case, root: Fault) -> tuple[Evidence, ...]:
    """The exception's own line: a traceback begins and ends with lines that say nothing."""
    at = root.crash.root.at if root.crash is not None else None
    return (case.line(at),) if at is not None else (case.line(root.index), case.line(root.last))


RULE = rule("VD599", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
