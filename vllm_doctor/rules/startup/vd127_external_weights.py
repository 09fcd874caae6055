"""VD127: weights that another process holds on the card are larger than the budget of this engine (0.33.0)."""

import math

from vllm_doctor.knowledge.versions import HIGHEST_UTILIZATION
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, gib, set_flag

# Room for a KV cache, activations and the context of this process, GiB.
_ROOM = 2.0


def judge(case: Case) -> Outcome:
    """Did the check of externally held weights fail?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    fields = root.fields("external-weights-exceed") if root is not None else {}
    if root is None or not fields:
        return NotHere("no other process holds this engine's weights")
    held, fraction, want = float(fields["held"]), float(fields["util"]), float(fields["want"])
    if not fraction or not want:
        return Clear("the error line has a 0 where a size is needed")
    total = want / fraction
    to = min(HIGHEST_UTILIZATION, math.ceil((held + _ROOM) / total * 100) / 100)
    return finding(
        RULE,
        evidence=(case.line(root.hits[0].index),),
        arithmetic=(
            gib("weights held outside", held, "by the process that shares them", "the error line"),
            gib("budget", want, f"{total:.2f} GiB × {fraction:g}", "the error line"),
        ),
        changes=(
            set_flag(
                case,
                "gpu-memory-utilization",
                to,
                Direction.RAISE,
                (
                    f"({held:.2f} + {_ROOM:g}) / {total:.2f}: the budget includes the shared weights and needs "
                    "room beside them"
                ),
            ),
        ),
        refute="the process that holds the weights does not share them on purpose",
    )


RULE = rule("VD127", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
