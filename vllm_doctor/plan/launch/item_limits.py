"""How many images, videos and sounds a prompt may hold: --limit-mm-per-prompt and --language-model-only."""

from __future__ import annotations

from vllm_doctor.plan.launch.flags import Flags


def item_limit(value: object) -> int | None:
    """A number, or {"count": …, …} (config/multimodal.py)."""
    if isinstance(value, dict):
        value = value.get("count")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def takes_no_items(flags: Flags) -> bool:
    """May a prompt have no item at all?"""
    limits = flags.object("limit-mm-per-prompt")
    none = bool(limits) and all(item_limit(value) == 0 for value in limits.values())
    return none or flags.on("language-model-only", default=False)
