"""What a plan says, before it is written for a person or for a program."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.advice.recommendation import Choice, Reason
from vllm_doctor.plan.advice.remedies import Remedy
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner


class Plan(msgspec.Struct, frozen=True):
    """All that a plan says. `remedies` and `hardware` are filled when the launch does not fit; `left` is what the
    choice does not touch."""

    planner: Planner
    predicted: Prediction
    choice: Choice | None
    remedies: Sequence[Remedy] = ()
    hardware: Sequence[tuple[Card, int, Prediction]] = ()
    left: Sequence[Reason] = ()
    four_bits: Prediction | None = None  # the recommended launch of such a checkpoint, where this one has none
