"""What is predicted of one start: the record that the plan's readers take."""

from __future__ import annotations

from math import floor
from typing import Literal

import msgspec

from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.prediction.points import UNDER_LOAD
from vllm_doctor.plan.prediction.spreads import Spread
from vllm_doctor.plan.prediction.sums import StartTerm
from vllm_doctor.plan.terms.activation import Activation
from vllm_doctor.plan.terms.host import HostUse
from vllm_doctor.plan.terms.kv import Pool
from vllm_doctor.plan.terms.term import Term

GIB = 1 << 30
PlanVerdict = Literal["starts", "fails-under-load", "does-not-start", "uncertain", "unknown"]


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM would log, per GPU, in GiB; None where the question gave no card. `outcome` is that of the middle of
    the range, `terms` explain every figure."""

    outcome: str
    odds: float | None  # how likely it starts, where at some point what is needed lies inside the range
    doubtful: str | None  # what it would end with at that point
    widest: Spread | None  # the term that widens the range most
    taken: tuple[StartTerm, ...]  # what the card holds beside the KV cache
    weights_gib: float
    non_torch_gib: float | None
    activation_gib: float
    cudagraph_gib: float
    cudagraph_budget_gib: float
    available_kv_gib: float | None
    margin_gib: tuple[float, float] | None
    kv_tokens: int | None
    gpu_blocks: int | None
    length: int
    concurrency: float | None
    longest: int | None
    needed_kv_gib: float
    budget_gib: float | None
    total_gib: float | None
    terms: tuple[Term, ...]
    pool: Pool | None
    checked: Pool | None  # what vLLM checks one request against: the same pool, but for pipeline stages of 0.14 to 0.16
    activation: Activation
    settings: Settings
    host: HostUse = HostUse()
    stage: int = 0  # of the pipeline, counted from 0
    staying_gib: float = 0.0  # what the first start's compilation leaves behind
    lacking_gib: float | None = None  # what the first full step lacks at the bad end, where it is in doubt or fails

    @property
    def compiling_gib(self) -> float:
        """GiB that the KV cache of a start has more which finds its code compiled; 0.0 where the pool is given, or a
        log's peak stands in the plan's place."""
        given = self.margin_gib is None or self.margin_gib[0] == self.margin_gib[1]
        if given or self.activation_gib != self.activation.peak / GIB:
            return 0.0
        more = (self.activation.peak - self.activation.compiled) / GIB
        return more + self.staying_gib if more else 0.0

    @property
    def sizes_only(self) -> bool:
        """Are weights and cache arithmetic all that is known: the device runs another build than CUDA's?"""
        return self.total_gib is not None and self.budget_gib is None

    @property
    def verdict(self) -> PlanVerdict:
        """Does it start, as far as that can be said?"""
        if self.outcome == "unknown":
            return "unknown"
        if self.odds is not None or (self.settings.depends and self.outcome in {"ok", UNDER_LOAD}):
            return "uncertain"
        if self.outcome == UNDER_LOAD:
            return "fails-under-load"
        return "starts" if self.outcome == "ok" else "does-not-start"

    @property
    def smaller_pool(self) -> tuple[str, str] | None:
        """The option and its value that leave the first full step what it lacks; None where it lacks nothing, or where
        no value does."""
        s = self.settings
        if self.lacking_gib is None or self.total_gib is None:
            return None
        if s.kv_bytes:
            left = int(s.kv_bytes - self.lacking_gib * GIB) >> 20 << 20
            return ("kv-cache-memory-bytes", str(left)) if left > 0 else None
        hundredths = floor(100 * (s.utilization - self.lacking_gib / self.total_gib) + 1e-9)
        return ("gpu-memory-utilization", f"{hundredths / 100:g}") if hundredths > 0 else None
