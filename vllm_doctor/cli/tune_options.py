"""The command line of `tune`."""

import msgspec


class TuneOptions(msgspec.Struct, frozen=True):
    """What was asked for; times in seconds."""

    unit: str
    yes: bool
    dry_run: bool
    budget_s: float
    step_s: float
    ready_s: float
    from_seqs: int | None
    from_tokens: int | None
    most_seqs: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    kv_use: float
    slowdown: float
    ttft_ms: float | None
    itl_ms: float | None
    load: str
    without_plan: bool
    busy: bool
    fresh: bool
    json: bool
