"""What a plan says, before it is written for a person or for a program."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.operate.speed.estimated import NoSpeed, Speed
from vllm_doctor.plan.advice.recommendation import Choice, Reason, Workload, requests_held
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
    work: Workload = Workload()
    speed: Speed | NoSpeed | None = None  # of the launch to paste; None: not asked

    @property
    def told(self) -> Prediction:
        """What the launch to paste does; where there is none, what the launch as asked does."""
        return self.predicted if self.choice is None else self.choice.predicted

    @property
    def requests_held(self) -> tuple[float, float] | None:
        """How many requests of the workload the KV cache of all data-parallel ranks holds at once, at the low end of
        the range and in its middle; None where the workload does not say both how long they are and how many, or
        there is no such cache."""
        p, length = self.told, self.work.mean_tokens or self.work.context
        return requests_held(p, length) if length is not None and self.work.concurrency is not None else None
