"""VD606: code that is no Python crashed, and the dump of its calls says in which part."""

from pathlib import PurePath

from vllm_doctor.knowledge.layers import Layer, layer_of_native
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.log.native_crash import NATIVE, native_crash
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase, startup_phase_of
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.deaths import signal_of
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.kernel_kind import kernel_kind
from vllm_doctor.rules.remedies.layer import first_of_each, off
from vllm_doctor.rules.remedies.other_kernel import other_kernel
from vllm_doctor.rules.say import finding, thing, upgrade

_CUBLAS = thing(
    ChangeKind.PACKAGE,
    "nvidia-cublas-cu12",
    Direction.UPGRADE,
    "a plain product runs cuBLAS, which divides by zero where it is older than the card (H20 with CUDA 12.1 to 12.3)",
    command="pip install -U 'nvidia-cublas-cu12>=12.3.4.1,<13'; pip check",
)
_WORDS = {"11": "SIGSEGV", "6": "SIGABRT", "4": "SIGILL", "8": "SIGFPE"}


def judge(case: Case) -> Outcome:
    """Did native code crash before anything else failed, and do its calls name a part of the whole?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    fault = _first(run)
    if fault is None or fault.crash is None:
        return NotHere("no process wrote the calls of a crash in native code")
    if run.root is not None and run.root.index < fault.index:
        return NotHere("something else failed first")
    if run.stopped is not None and run.stopped < fault.index:
        return NotHere("it crashed when the service had been told to stop")
    frames = fault.crash.root.frames
    native = [f"{f.function} {f.file}".strip() for f in frames if PurePath(f.file).suffix != ".py"]
    part = layer_of_native(native, [f.file for f in frames if PurePath(f.file).suffix == ".py"])
    if part is None:
        return Clear("the calls of the crash name no part that the doctor knows")
    hit = next(h for h in run.deaths if h.index == fault.index)
    how = _WORDS.get(signal_of(hit) or "", "a crash in native code")
    inner = frames[-1]
    named = f"{inner.function} ({inner.file.rpartition('/')[2]}:{inner.line})"
    where = named if inner.line else inner.function or PurePath(inner.file).name
    return finding(
        RULE,
        title=f"{part.name} crashed: {how}, in {where.partition('(at::')[0]}",
        severity=Severity.WILL_FAIL_UNDER_LOAD if run.up_at(fault) else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=tuple(case.line(at) for at in sorted({fault.index, fault.last})),
        changes=_cures(case, fault, part),
        refute="the same launch crashes again without this part, or an earlier line shows another failure",
        layer=part.id,
        then=part.next,
    )


def _first(run: AnalysedRun) -> Fault | None:
    """The first crash whose calls are known, with the phase that they show."""
    for hit in run.deaths:
        crash = native_crash(run.lines, hit) if hit.id in NATIVE else None
        if crash is not None:
            phase = startup_phase_of(crash.functions) or run.reached(hit.index) or StartupPhase.CONFIG
            return Fault(hit.index, crash.last, crash, (), phase)
    return None


def _divides(case: Case, fault: Fault) -> bool:
    """Did a plain matrix product divide by zero? The one native code that it runs is cuBLAS."""
    run = case.run
    lines = run.lines[fault.index : fault.last + 1] if run is not None else ()
    frames = fault.crash.root.frames if fault.crash is not None else ()
    return any(says(line.text, "divides-by-zero") for line in lines) and says(frames[-1].file, "call-of-plain-product")


def _cures(case: Case, fault: Fault, part: Layer) -> tuple[Change, ...]:
    """The component's own switch, another kernel, what the part's answers say; else a newer release."""
    said = f"{fault.crash.root.kind}: {fault.crash.root.message}" if fault.crash is not None else ""
    offered: list[Change | None] = [*off(case, fault)]
    if kernel_kind(case, fault) is not None:
        offered += [c for c in other_kernel(case, fault) if c is None or c.name != "CUDA_LAUNCH_BLOCKING"]
    offered += changes_of(case, part.answers, said, fault)
    if _divides(case, fault):
        offered.insert(0, _CUBLAS)
    why = "a crash of native code is a defect of the release or of the library; a newer one may have fixed it"
    offered.append(upgrade(case, why))
    return first_of_each(offered)


RULE = rule("VD606", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
