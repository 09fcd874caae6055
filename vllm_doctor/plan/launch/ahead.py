"""What goes with steps that are scheduled ahead, several at once, or in chunks: engine/arg_utils.py
create_engine_config of each release from 0.5.5 to 0.11.0, config.py, and config/vllm.py since 0.11.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags

_STEPS, _CHUNKED, _AHEAD = "num-scheduler-steps", "enable-chunked-prefill", "async-scheduling"


def refusals(
    flags: Flags, env: Mapping[str, str], method: str | None, stages: int, does: Behaviour
) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts. Chunks that nobody asked for give way."""
    chunked = flags.on(_CHUNKED, default=False)
    if flags.on(_AHEAD, default=False):
        yield from _ahead(flags, env, method, stages, does)
    if flags.int(_STEPS, 1, 1, 10**6) > 1 and does.takes_several_steps:
        steps = str(flags.values[_STEPS])
        if method is not None:
            yield Refusal(f"--{_STEPS}", steps, "1: drafts are not made beside several steps at once")
        elif chunked and (stages > 1 or does.several_steps_unchunked):
            within = f"or no --{_CHUNKED}" if does.several_steps_unchunked else f"no --{_CHUNKED}, or one stage"
            yield Refusal(f"--{_STEPS}", steps, f"1, {within}: chunks are not made beside several steps at once")
    if chunked and does.adapters_unchunked and flags.on("enable-lora", default=False):
        yield Refusal(f"--{_CHUNKED}", "set", "no --enable-chunked-prefill beside adapters")
    elif chunked and does.drafts_unchunked and method is not None:
        yield Refusal(f"--{_CHUNKED}", "set", "no --enable-chunked-prefill beside drafts")
    if method is not None and does.drafts_ask_block_manager and not flags.on("use-v2-block-manager", default=False):
        yield Refusal("--use-v2-block-manager", "absent", "set: drafts need the second block manager")


def _ahead(flags: Flags, env: Mapping[str, str], method: str | None, stages: int, does: Behaviour) -> Iterator[Refusal]:
    launcher = flags.text("distributed-executor-backend")
    if does.ahead_in_one_stage and stages > 1:
        yield Refusal(f"--{_AHEAD}", "set", "no --async-scheduling, or one pipeline stage")
    elif does.ahead_without_drafts and method is not None:
        yield Refusal(f"--{_AHEAD}", "set", "no --async-scheduling beside drafts")
    elif does.ahead_not_in_process and launcher == "uni":
        yield Refusal("--distributed-executor-backend", "uni", "mp, which --async-scheduling needs")
    elif does.ahead_without_ray and launcher == "ray" and env.get("VLLM_USE_RAY_V2_EXECUTOR_BACKEND") != "1":
        yield Refusal("--distributed-executor-backend", "ray", "mp, which --async-scheduling needs")
