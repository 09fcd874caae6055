"""VD206: a kernel wanted more scratch memory than its workspace has, which is fixed after the start."""

from vllm_doctor.knowledge import versions
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.named_fault import severity
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.step import fewer_tokens
from vllm_doctor.rules.say import environment, finding, gib, upgrade

_VARIABLE = "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE"


def judge(case: Case) -> Outcome:
    """Did an allocation from the locked workspace fail?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    if root is not None and "flashinfer-workspace" in root.ids:
        return _flashinfer(case, root)
    if root is None or "workspace-locked" not in root.ids:
        return NotHere("no allocation failed in a locked workspace")
    fields = root.fields("workspace-locked")
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        evidence=(case.line(next(h.index for h in root.hits if h.id == "workspace-locked")),),
        arithmetic=(
            gib("asked for", float(fields["asked"]) / 1024, f"{fields['asked']} MB", "the error line"),
            gib(
                "workspace",
                float(fields["size"]) / 1024,
                f"{fields['size']} MB, as measured at start",
                "the error line",
            ),
        ),
        changes=(
            upgrade(case, "the profile run did not cover this shape, which is a defect of this release"),
            fewer_tokens(case, None, measuring=False),
        ),
        refute="the same request passes after a restart with the same settings",
    )


def _flashinfer(case: Case, root: Fault) -> Finding:
    """FlashInfer's own buffer, whose size a variable sets in the releases that have it."""
    fields = root.fields("flashinfer-workspace")
    asked, size = int(fields["asked"]), int(fields.get("size", 0))
    fact = versions.env(_VARIABLE, case.release)
    # What the buffer has where nothing is set, in bytes.
    default = fact.default if fact is not None and isinstance(fact.default, int) else 0
    why = f"vLLM makes FlashInfer's buffer once, with this many bytes; FlashInfer asked for {asked} and had {size} left"
    return finding(
        RULE,
        title=f"FlashInfer's workspace is too small for {fields['buffer']}",
        severity=severity(case, root),
        evidence=(case.line(next(h.index for h in root.hits if h.id == "flashinfer-workspace")),),
        arithmetic=(
            gib("asked for", asked / GIB, f"{asked} bytes", "the error line"),
            gib("left in the workspace", size / GIB, f"{size} bytes", "the error line"),
        ),
        changes=(
            environment(_VARIABLE, Direction.RAISE, why, to=1 << (asked + default - 1).bit_length())
            if fact is not None and fact.exists
            else upgrade(case, f"in this release {_VARIABLE} sets its size"),
            fewer_tokens(case, None, measuring=False),
        ),
        refute="the same request passes after a restart with the same settings",
    )


RULE = rule("VD206", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.GPUS, Signal.VERSION}), judge=judge)
