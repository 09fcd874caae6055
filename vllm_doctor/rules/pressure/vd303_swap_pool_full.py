"""VD303: a V0 engine had to swap out a request and the swap pool was full (or none)."""

from vllm_doctor.knowledge.version import Version
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.step import sequences
from vllm_doctor.rules.say import finding, set_flag

# The last release with the V0 engine, which alone says so.
_LAST = Version((0, 10, 2))


def judge(case: Case) -> Outcome:
    """Did the lack of CPU swap space end the engine?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    if root is None or "swap-lack" not in root.ids:
        return NotHere("no request was lost for lack of swap space")
    now = int(case.number("swap-space") or (0 if case.flag("swap-space") is not None else 4))
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        evidence=(case.line(next(h.index for h in root.hits if h.id == "swap-lack")),),
        changes=(
            set_flag(
                case,
                "swap-space",
                max(4, now * 2),
                Direction.RAISE,
                (
                    "sets the GiB of host memory per GPU; vLLM can preempt groups of n > 1 and beam search only "
                    "by swapping"
                ),
                until=_LAST,
            ),
            set_flag(
                case,
                "max-num-seqs",
                max(1, sequences(case)[0] // 2),
                Direction.LOWER,
                "fewer requests at once cause fewer preemptions",
            ),
        ),
        refute="the same requests with n = 1 end the engine as well",
    )


RULE = rule("VD303", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
