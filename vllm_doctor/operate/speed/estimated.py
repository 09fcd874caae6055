"""What is said of a launch's speed, and by whom."""

from __future__ import annotations

import msgspec

from vllm_doctor.operate.speed.asked import Lengths


class Speed(msgspec.Struct, frozen=True):
    """An estimate of another tool. Times in milliseconds, rates of all cards together; `measured_with` is the release
    of vLLM whose steps the tool's authors measured, `left_out` what the launch has and the tool does not model,
    `per_million` the price of a million tokens of answers, in the currency of the price that was given."""

    lengths: Lengths
    requests: int
    first_token_ms: float
    per_token_ms: float
    tokens_per_s: float
    requests_per_s: float
    tool: str
    measured_with: str
    left_out: tuple[str, ...] = ()
    per_million: float | None = None


class NoSpeed(msgspec.Struct, frozen=True):
    """Why there is no estimate, and what would give one, where anything does."""

    reason: str
    needed: str = ""
