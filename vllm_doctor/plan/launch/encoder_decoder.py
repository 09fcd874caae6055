"""What the first engine's runner of models with an encoder and a decoder does not take (worker/utils.py
assert_enc_dec_mr_supported_scenario, the same in 0.6.4 and 0.9.2). The second engine has its own tests
(history/joint.json)."""

from __future__ import annotations

from collections.abc import Iterator, Set

from vllm_doctor.knowledge.versions import Engine
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import Architecture

# A model whose images are attended across, which this engine runs as an encoder-decoder (config.py is_encoder_decoder).
_CROSSED = "MllamaForConditionalGeneration"
_SWITCHES = ("enable-prefix-caching", "enable-chunked-prefill", "enable-lora", "enable-prompt-adapter")


def refused(
    flags: Flags,
    a: Architecture,
    par: Parallel,
    method: str | None,
    does: Behaviour,
    *,
    engine: Engine,
    already: Set[str],
) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts; an option of `already` is not said again."""
    if engine != "V0" or not does.v0_refuses_beside_encoders or not (a.encoder_decoder or a.name == _CROSSED):
        return
    why = f"{a.name or a.model_type} has an encoder and a decoder"
    for option in _SWITCHES:
        if flags.on(option, default=False) and f"--{option}" not in already:
            yield Refusal(f"--{option}", "set", f"no --{option}: {why}")
    if par.pp > 1 and "--pipeline-parallel-size" not in already:
        yield Refusal("--pipeline-parallel-size", str(par.pp), f"1: {why}")
    if method is not None:
        yield Refusal("--speculative-model", method, f"no drafts: {why}")
