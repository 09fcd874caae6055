"""Can this release run this launch of this model on this card at all?

One answer for the plan, the sweep, the cards and changes that are offered, preflight, and what a diagnosis foresees:
refusals, each of which ends the start whatever memory there is; doubts, each of which leaves it open whether vLLM or
this plan knows the thing at all; and what it depends on beside the launch, by which it is uncertain.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.settings import Dependence, Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.support import (
    adapters,
    bits,
    card,
    checkpoint_keys,
    connectors,
    experts,
    gguf,
    graph_sizes,
    handed,
    items,
    marlin,
    model,
    model_tests,
    offloaded,
    other_builds,
    own_code,
    packed,
    quantized,
    ropes,
    sampler,
    schemes,
    shapes,
    shared_memory,
    states,
    this_host,
    torch_build,
    without_experts,
)


class Support(msgspec.Struct, frozen=True):
    """What vLLM would refuse, and what cannot be said."""

    refusals: tuple[Refusal, ...] = ()
    doubts: tuple[str, ...] = ()
    depends: tuple[Dependence, ...] = ()


def judge(a: Architecture, s: Settings, gpu: Card | None) -> Support:
    """The verdict. Raises ConfigError for a broken quantization_config."""
    return _judged(a, s, gpu, s.does)


@lru_cache(maxsize=512)
def _judged(a: Architecture, s: Settings, gpu: Card | None, _does: Behaviour) -> Support:
    refusals = [
        *card.refusals(a, s, gpu),
        *other_builds.refusals(a, s, gpu),
        *experts.refusals(a, s, gpu),
        *model.refusals(a, s),
        *own_code.refusals(a, s),
        *ropes.refusals(a, s),
        *gguf.refusals(a, s),
        *offloaded.refusals(a, s),
        *handed.refusals(a, s),
        *connectors.refusals(s),
        *card.floats(a, s, gpu),
        *items.refusals(a, s),
        *(list(without_experts.refusals(a, s, gpu)) or bits.refusals(a, s)),
        *states.refusals(a, s, gpu),
        *(list(quantized.refusals(a, s)) or list(schemes.refusals(a, s, gpu)) or checkpoint_keys.refusals(a, s)),
        *(list(shapes.refusals(a, s)) or packed.refusals(a, s, gpu)),
        *marlin.refusals(a, s, gpu),
        *adapters.refusals(a, s, gpu),
        *sampler.refusals(s, gpu),
        *graph_sizes.refusals(a, s, gpu),
        *card.indexer(a, s, gpu),
    ]
    told = {one.flag for one in (*s.refusals, *refusals)}
    refusals += [one for one in model_tests.refusals(a, s, gpu) if one.flag not in told]
    if s.kv_stored:
        refusals = [_of_checkpoint(one, s) if one.flag == "--kv-cache-dtype" else one for one in refusals]
    return Support(
        tuple(refusals),
        (
            *card.doubts(a, s, gpu),
            *card.unheard(a, s),
            *experts.doubts(a, s, gpu),
            *shared_memory.doubts(a, s, gpu),
            *model.doubts(a, s),
        ),
        (
            *torch_build.depends(s, gpu),
            *this_host.depends(s, gpu),
            *experts.depends(a, s, gpu),
            *other_builds.depends(a, s, gpu),
            *model_tests.depends(a, s, gpu),
            *gguf.depends(a, s),
            *own_code.depends(a, s),
            *sampler.depends(s, gpu),
        ),
    )


def _of_checkpoint(told: Refusal, s: Settings) -> Refusal:
    """A refused type of the cache, where no option asked for it: "auto" is what the launch has."""
    obeys = not s.does.cache_scheme_over_option
    instead = f"--kv-cache-dtype {s.dtype}" if obeys else "a checkpoint without kv_cache_scheme"
    needed = instead + told.needed.removeprefix("auto") if told.needed.startswith("auto") else told.needed
    return Refusal("quantization_config", f"a cache of the checkpoint's own type, {told.found}", needed)
