"""What every rule about a failure that names itself asks first."""

from msgspec.structs import replace

from vllm_doctor.knowledge.cuda_statuses import worded
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import headings, says
from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.outcome import NotHere, Unseen

# What a message that begins below its exception's own line adds to that line.
_SAID = 300
_ABOVE, _LOGGED = 400, 40
# Libraries whose exception has but a number or a class, and that log the reason in lines above it.
_LOGS = {"of-an-npu": ("cann-log", "npu-warned"), "of-nixl": ("ucx-log",)}


def named(case: Case, *ids: str) -> Fault | NotHere | Unseen:
    """The first fault, if one of these messages is in it and it is not exhausted memory."""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    if root is None:
        return NotHere("the log shows no failure that ended the run")
    if not root.ids & frozenset(ids):
        return NotHere("another failure came first")
    if root.ids & EXHAUSTED:
        return NotHere("the first failure is exhausted GPU memory")
    return root


def shown(case: Case, fault: Fault, *ids: str) -> tuple[Evidence, ...]:
    """The first line of each of these messages in the fault; one that only heads its reason after those."""
    seen: dict[int, bool] = {}
    for wanted in ids:
        for hit in fault.hits:
            if hit.id == wanted:
                seen.setdefault(hit.index, wanted in headings())
    first = sorted(seen, key=lambda i: (seen[i], i))
    return tuple(case.line(i) for i in first[:3]) or (exception_line(case, fault),)


def exception_line(case: Case, fault: Fault) -> Evidence:
    """The line that says what failed: of a traceback the exception's own, which its first and last lines may not be."""
    at = fault.crash.root.at if fault.crash is not None else None
    line = case.line(at if at is not None else fault.index if fault.crash is None else fault.last)
    said = fault.crash.root.message if fault.crash is not None and at is not None else ""
    if said[:1] != "\n" or not said.strip():
        return line
    return replace(line, excerpt=f"{line.excerpt.rstrip()} {' '.join(said.split())[:_SAID]}")


def severity(case: Case, fault: Fault) -> Severity:
    """Did it keep the service from starting, or end one that was serving?"""
    run = case.run
    serving = run is not None and run.up_at(fault)
    return Severity.WILL_FAIL_UNDER_LOAD if serving else Severity.BLOCKS_START


def text(case: Case, fault: Fault) -> str:
    """The fault's lines as one text (bounded), with the words of CUDA's errors that are only named.

    Behind them stands what a library logged of it before: CANN for torch_npu's exception, UCX for NIXL's.
    """
    run = case.run
    if run is None:
        return ""
    lines = [run.lines[i].text for i in range(fault.index, fault.last + 1)[:600]]
    root = fault.crash.root if fault.crash is not None else None
    # a report's heading and a line of code that raises have the exception in other words than Python prints it
    if root is not None and root.name and not any(line.lstrip().startswith(root.name) for line in lines):
        lines = [f"{root.name}: {root.message}", *lines]
    said = worded("\n".join(lines))
    logs = [log for of, own in _LOGS.items() if says(said, of) for log in own]
    logged = (hit.index for log in logs for hit in run.all(log))
    above = [index for index in logged if fault.index - _ABOVE <= index < fault.index]
    return "\n".join((said, *(run.lines[i].text for i in above[:_LOGGED])))
