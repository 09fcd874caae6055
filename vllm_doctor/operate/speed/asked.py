"""The lengths of `--speed`, prompt and answer: checked and turned into numbers."""

from __future__ import annotations

import re

import msgspec

from vllm_doctor.plan.question.planner import PlanProblem
from vllm_doctor.records import excerpt

_EXAMPLE = "4000:500"
_MOST = 1 << 24


class Lengths(msgspec.Struct, frozen=True):
    """Tokens of the mean request: its prompt and its answer."""

    prompt: int
    answer: int

    @property
    def tokens(self) -> int:
        """What one request keeps in the KV cache when it ends."""
        return self.prompt + self.answer


def lengths(text: str) -> Lengths:
    """The lengths of a text. Raises PlanProblem for what is none."""
    found = re.fullmatch(r"\s*([0-9]{1,9}):([0-9]{1,9})\s*", text)
    prompt, answer = (int(found[1]), int(found[2])) if found is not None else (0, 0)
    # An answer of one token has no time between two tokens.
    if not (1 <= prompt <= _MOST and 2 <= answer <= _MOST):
        needed = f"tokens of the mean prompt and of the mean answer (2 or more), as in {_EXAMPLE}"
        raise PlanProblem(f"--speed: found {excerpt.value(text)}; needed: {needed}")
    return Lengths(prompt, answer)
