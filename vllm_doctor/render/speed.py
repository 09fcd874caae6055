"""A launch's speed as another tool estimates it, and that it is this tool's word."""

from __future__ import annotations

from vllm_doctor.operate.speed.estimated import NoSpeed, Speed


def speed_dict(speed: Speed | NoSpeed | None) -> dict[str, object] | None:
    """The same as JSON; None where nobody asked."""
    if speed is None:
        return None
    if isinstance(speed, NoSpeed):
        return {"estimate": None, "reason": speed.reason, "needed": speed.needed or None}
    return {
        "estimate": {
            "prompt_tokens": speed.lengths.prompt,
            "answer_tokens": speed.lengths.answer,
            "requests_at_once": speed.requests,
            "time_to_first_token_ms": round(speed.first_token_ms, 1),
            "time_per_output_token_ms": round(speed.per_token_ms, 2),
            "output_tokens_per_second": round(speed.tokens_per_s, 1),
            "requests_per_second": round(speed.requests_per_s, 3),
            "price_per_million_output_tokens": None if speed.per_million is None else round(speed.per_million, 4),
        },
        "by": speed.tool,
        "measured_with_vllm": speed.measured_with,
        "left_out": list(speed.left_out),
    }


def speed_lines(speed: Speed | NoSpeed | None) -> list[str]:
    """The estimate with its author before anything is read as measured; why there is none, and what would give one."""
    if speed is None:
        return []
    if isinstance(speed, NoSpeed):
        needed = [f"           needed: {speed.needed}"] if speed.needed else []
        return [f"  speed    no estimate: {speed.reason}", *needed]
    asked = f"{speed.requests} requests at once of {speed.lengths.prompt:,} tokens in and {speed.lengths.answer:,} out"
    each = 1000 / speed.per_token_ms
    without = [f"           without {' and '.join(speed.left_out)}, which it does not model"] if speed.left_out else []
    price = (
        [f"           {speed.per_million:.2f} for a million tokens of answers, if it is always this busy"]
        if speed.per_million is not None
        else []
    )
    rates = f"{speed.tokens_per_s:,.0f} tokens/s in all, {speed.requests_per_s:.2f} requests/s"
    return [
        f"  speed    {asked}:",
        f"           first token after {speed.first_token_ms / 1000:.2f} s, then {each:.0f} tokens/s each; {rates}",
        *price,
        f"           NVIDIA's {speed.tool} estimates it from steps of vLLM {speed.measured_with}; not measured here",
        *without,
    ]
