"""VD311: sleep mode gave almost nothing back."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, gib, upgrade

# A sleeping engine keeps its context, NCCL's buffers and its graphs: some GiB, not the larger part.
_KEPT = 0.5


def judge(case: Case) -> Outcome:
    """Did the last sleep leave more in use than it freed?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    hit = run.last("sleep-freed")
    if hit is None or "freed" not in hit.fields:
        return NotHere("sleep mode was not used")
    freed, kept = float(hit.fields["freed"]), float(hit.fields["kept"])
    if kept <= 4 or kept < _KEPT * (freed + kept):
        return Clear(f"sleep freed {freed:.2f} GiB and kept {kept:.2f}")
    return finding(
        RULE,
        title=f"Sleep mode freed {freed:.2f} GiB and kept {kept:.2f}",
        severity=Severity.DEGRADED,
        evidence=(case.line(hit.index),),
        arithmetic=(gib("kept while asleep", kept, f"of {freed + kept:.2f}", "the log"),),
        changes=(
            upgrade(
                case, "sleep frees only the memory of vLLM's pool; releases differ in what they put into that pool"
            ),
        ),
        refute=f"{maker_tool(case).name} shows the memory free while the engine sleeps",
    )


RULE = rule("VD311", reads=frozenset({Signal.LOG, Signal.VERSION}), judge=judge)
