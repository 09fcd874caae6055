"""Does a step hold the largest item of a prompt, where an item is not cut?"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """A step that is shorter than a video (encoder_cache_manager.py compute_mm_encoder_budget). Where fewer videos or
    frames are asked for, the longest item is not known here."""
    if not s.does.keeps_items_whole or s.engine != "V1" or s.language_only or s.video_limit is not None:
        return
    if s.batched < a.whole_item:
        yield Refusal(
            "--max-num-batched-tokens",
            str(s.batched),
            f"at least {a.whole_item}: a video of {a.name} has as many tokens, which are not cut into steps",
        )
