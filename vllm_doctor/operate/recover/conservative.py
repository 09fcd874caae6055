"""The launch with less: what the planner foresees to start, and never more than the article's emergency figures."""

from collections.abc import Mapping

import msgspec

from vllm_doctor.gather.unit_line import UnitLine
from vllm_doctor.launch.positions import option_text
from vllm_doctor.operate import launch_text
from vllm_doctor.operate.tune.unit import flag_number
from vllm_doctor.plan.advice.recommendation import Predict
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.rules.say import inventory_var

UTILIZATION, SEQUENCES, TOKENS = 0.75, 16, 8192
_FLAGS = ("gpu-memory-utilization", "max-num-seqs", "max-num-batched-tokens")


class Less(msgspec.Struct, frozen=True):
    """The options that are lowered, and how sure it is that this starts."""

    changes: tuple[Change, ...]
    why: str


def less(argv: tuple[str, ...], predict: Predict | None, resolved: Mapping[str, float]) -> Less:
    """The most conservative launch that the plan does not foresee to fail. `resolved` are the values in effect where
    the line does not say them."""
    wanted: dict[str, float | int] = {}
    for flag, ceiling in zip(_FLAGS, (UTILIZATION, SEQUENCES, TOKENS), strict=True):
        now = _value(argv, flag, resolved)
        if now is None or now > ceiling:
            wanted[flag] = ceiling
    if predict is None:
        wanted.pop("gpu-memory-utilization", None)
        wanted.pop("max-num-batched-tokens", None)
        seqs = "lowered" if wanted else f"at most {SEQUENCES} already"
        return Less(_changes(argv, wanted), f"max_num_seqs is {seqs}; only with a plan does recover lower more")
    for left_out in ((), ("gpu-memory-utilization",), ("gpu-memory-utilization", "max-num-batched-tokens"), _FLAGS):
        kept = {flag: value for flag, value in wanted.items() if flag not in left_out}
        told = predict({flag: f"{value:g}" for flag, value in kept.items()})
        if told.outcome in {"ok", "uncertain"}:
            without = f"; with {' and '.join(left_out)} lowered too it would not start" if left_out and kept else ""
            return Less(_changes(argv, kept), f"the plan predicts {told.outcome}{without}")
    return Less((), f"the plan predicts {told.outcome} for the present launch, and no smaller setting helps")


def text(line: UnitLine, changes: tuple[Change, ...]) -> str:
    """The drop-in's text."""
    comment = "`vllm-doctor recover`: a smaller launch, until the time in this file's name or the next reboot."
    return launch_text.text(comment, line, changes)


def _value(argv: tuple[str, ...], flag: str, resolved: Mapping[str, float]) -> float | None:
    if flag != "gpu-memory-utilization":
        found = flag_number(argv, flag)
        return resolved.get(flag) if found is None else found
    text = option_text(argv, flag)
    if text is None:
        return resolved.get(flag)
    try:
        return float(text)
    except ValueError:
        return None


def _changes(argv: tuple[str, ...], wanted: Mapping[str, float | int]) -> tuple[Change, ...]:
    return tuple(
        Change(
            kind=ChangeKind.FLAG,
            name=flag,
            before=_value(argv, flag, {}),
            after=value,
            direction=Direction.LOWER,
            applicability=Applicability.NEEDS_REVIEW,
            inventory_var=inventory_var(flag),
            why="an emergency",
        )
        for flag, value in wanted.items()
    )
