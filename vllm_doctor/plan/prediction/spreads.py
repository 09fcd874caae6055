"""How far each term may bring the real pool below and above the predicted one, and the range that follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import hypot, sqrt

import msgspec

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.launch.compiled import Timed
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.families import LOADED
from vllm_doctor.plan.model.quantization import Scheme
from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.prediction.stage import Stage
from vllm_doctor.plan.terms.activation import Activation
from vllm_doctor.plan.terms.draft_model import keeps_head
from vllm_doctor.plan.terms.outside_torch import Estimate
from vllm_doctor.plan.terms.weights import EAGLE3_VOCAB

GIB = 1 << 30
# How far the activations of 0.20 and later may be off, in GiB and as a share. Fitted: 42 starts of 35 hosts, 0.20 to
# 0.30, each host left out once; a third narrower holds 88 % of them.
RECENT, RECENT_SHARE = 0.05, 0.02
# How much more they may be off beside a drafter, in GiB: a model of its own brings buffers that its config does not
# show (v1/spec_decode), the model's own layers of multi-token prediction are one more layer over the same step (twelve
# starts of 0.20 to 0.27: 0.01 to 0.36 GiB off in all), and what looks drafts up in the prompt has no tensors.
DRAFTER, OWN_LAYERS = 0.8, 0.03
_WITHOUT_TENSORS = frozenset({None, "ngram", "suffix"})
_LIKE_ITSELF = _WITHOUT_TENSORS | {"mtp"}
# How far they may be off, in GiB, where LoRA's kernels keep the compiler from fusing. Two starts: 0.15 and 0.2 more.
ADAPTERS = 0.25

# What would tell, of each term that a launch leaves open; --learn of one start's log settles every one of them.
_TOLD_BY = {
    "weights": "--weights-gib, from the checkpoint's index or a log of any start of it",
    "layout of the weights": "whether triton_kernels is installed: with it MXFP4 experts are Triton's, else Marlin's",
    "shared experts": "the all-to-all backend, and a log of any start of this launch: each rank may hold them whole",
    "balancing of experts": "whether NIXL is installed: with it the profile gathers no experts; or communicator of "
    "--eplb-config",
    "sampler": "whether FlashInfer is installed, or VLLM_USE_FLASHINFER_SAMPLER set either way",
    "drafter": "--weights-gib, from a log of any start with this drafter",
    "memory outside torch": "the card's name, which says how cards are linked, and a log of any start on this host",
    "CUDA graphs": "a log of any start of this launch",
    "activation": "a log of any start of this launch",
    "model type": "a log of one start of this model",
    "memory of the card": "--gpu-memory-gib, as a log of any start here gives it: older drivers leave more",
    "default step": "--gpu: by default an A100 takes fewer sequences and tokens in a step than other cards of its size",
    "compiled code": "whether this launch has started here before: the first start compiles inside the profile, and "
    "the next one, which finds the code in ~/.cache/vllm, has the larger pool",
}

_ON_HOST = "a log of any start on this host"
_UNDER_WSL = "whether it runs under WSL, where CUDA sees all of the card"
_OF_HOST = "free -g, or MemTotal in /proc/meminfo: hosts of one name show different totals"
_ITEMS = "the largest image: preprocessor_config.json beside config.json, or max_pixels of --mm-processor-kwargs"


class Spread(msgspec.Struct, frozen=True):
    """How far below and above the predicted pool one term may bring the real one, in GiB."""

    term: str
    below: float
    above: float
    fact: str | None = None  # what would tell here, where that is another fact than the term's own

    @property
    def told_by(self) -> str:
        """The fact that would narrow it."""
        return self.fact or _TOLD_BY[self.term]


OUTSIDE, COMPILED = "memory outside torch", "compiled code"
STEP = "default step"
# The spreads of what is loaded, of what the profile's pass takes beside it, and of what is not torch's.
OF_WEIGHTS = frozenset({"weights", "layout of the weights", "shared experts", "drafter"})
OF_PASS = frozenset({"activation", "sampler", "balancing of experts", COMPILED, STEP})

# Spreads that are one way or the other, and no deviation from a middle: added whole.
_WHOLE = frozenset(
    {
        "layout of the weights",
        "shared experts",
        "sampler",
        "balancing of experts",
        "model type",
        "drafter",
        COMPILED,
        STEP,
    }
)


def range_of(spreads: Iterable[Spread]) -> tuple[float, float]:
    """GiB below and above: the terms' uncertainties taken as independent."""
    free = [x for x in spreads if x.term not in _WHOLE]
    whole = [x for x in spreads if x.term in _WHOLE]
    below = sqrt(sum(x.below**2 for x in free)) + sum(x.below for x in whole)
    return below, sqrt(sum(x.above**2 for x in free)) + sum(x.above for x in whole)


def _of_weights(a: Architecture, fmt: Scheme) -> float:
    """How far weights may be off, as a share. What packs a checkpoint follows from its config: of 43 starts in 4 and 8
    bits 31 are within half a percent and 20 MiB, and most of the others had another config than was filled in. What
    loading strands of MXFP4 does not follow, nor which single layers a checkpoint of bitsandbytes leaves."""
    left = fmt.name == "bitsandbytes" and a.quantization is not None
    packed = 0.012 if fmt.name == "mxfp4" else 0.005
    return 0.001 if fmt.name == "none" else packed if fmt.exact and not left else 0.1


def _of_experts(act: Activation) -> float:
    """GiB of the peak that experts have a part in: what lies under the sampler's pass, where that is the widest."""
    sampler = next((t.bytes for t in act.terms if t.name == act.winner == "logits and sampler"), 0.0)
    return max(0.0, act.peak - sampler) / GIB


def _beside_drafts(s: Settings) -> float:
    """GiB by which drafting may move the activations further."""
    if s.speculative in _WITHOUT_TENSORS:
        return 0.0
    return OWN_LAYERS if s.speculative == "mtp" else DRAFTER


def spreads_of(  # noqa: PLR0917
    a: Architecture,
    s: Settings,
    fmt: Scheme,
    weights: float,
    stage: Stage,
    outside: Estimate,
    charged: Estimate | None,
    known: KnownTerms,
    *,
    gpu: Card | None,
    total_gib: float | None,
) -> list[Spread]:
    """How far below and above the predicted pool each term may bring the real one."""
    act = stage.activation
    found: list[Spread] = []
    if known.weights_gib is None:
        found += _of_loading(a, s, fmt, weights, stage)
    if known.activation_gib is None:
        found += (_of_activation(a, s, act), *_of_either_way(s, stage))
    if known.non_torch_gib is None:
        found.append(Spread(OUTSIDE, outside.above, outside.below, _ON_HOST if gpu is not None else None))
    if gpu is not None and gpu.up_to_gib is not None and total_gib == gpu.total_gib:
        kept = (gpu.up_to_gib - gpu.total_gib) * s.utilization
        told = _UNDER_WSL if gpu.of_pc else _OF_HOST if gpu.unified else None
        found.append(Spread("memory of the card", 0.0, kept, told))
    if charged is not None and known.graphs_gib is None:
        found.append(Spread("CUDA graphs", charged.above, charged.below, charged.fact))
    if not a.known:
        strange = _strange(a, weights, act.peak / GIB)
        found.append(Spread("model type", strange, strange))
    return [x for x in found if x.below or x.above]


def _of_loading(a: Architecture, s: Settings, fmt: Scheme, weights: float, stage: Stage) -> Iterator[Spread]:
    """Of what is loaded, `weights` in GiB."""
    apart = _of_weights(a, fmt) * weights + 0.02
    yield Spread("weights", apart, apart)
    yield Spread("layout of the weights", stage.heavier / GIB, 0.0)
    yield Spread("shared experts", stage.replicated / GIB, 0.0)
    if s.speculative == "eagle3":
        words = max(0, a.vocab - EAGLE3_VOCAB) if s.draft is None else 0
        # Of the model's shape, a head may be the model's.
        alike = s.draft is not None and s.draft.draft_words == a.vocab and keeps_head(a, s.draft, s)
        table = a.hidden * s.element / s.parallel.tp / GIB
        yield Spread("drafter", words * table, a.vocab * table if alike and s.engine == "V1" else 0.0)


def _of_either_way(s: Settings, stage: Stage) -> Iterator[Spread]:
    """Of the pass, what a start does or does not."""
    act = stage.activation
    differs = (act.otherwise - act.peak) / GIB
    yield Spread("balancing of experts", 0.0, stage.lighter / GIB)
    yield Spread("sampler", max(differs, 0.0), max(-differs, 0.0))
    yield _of_compiling(stage, (act.peak - act.compiled) / GIB, every=s.timed is Timed.EVERY)


def _of_activation(a: Architecture, s: Settings, act: Activation) -> Spread:
    """How far the peak of the pass may be off; deviations to one side are taken as independent."""
    peak, encoder = act.peak / GIB, sum(t.bytes for t in act.terms if t.name == "vision encoder") / GIB
    # Logs of eleven starts, from 0.10.1 on: the encoder's own peak is within a tenth. So is InternVL's in V0 (one).
    sure = s.engine == "V1" or (a.vision is not None and a.vision.tiles > 0)
    step = _of_a_step(a, s, act)
    # Blocks that torch kept after the pass counted as used.
    kept = 0.3 * peak if s.engine == "V0" and s.does.counts_used_memory else 0.0
    smaller = _smaller_images(a, s, act)
    below = hypot(step + (0.1 if sure else 0.5) * encoder, kept)
    wide = (0.1 if sure else 0.3) * peak if encoder > 0.8 * peak else 0.0
    above = hypot(step + wide, smaller, _without_sampling(s, act))
    return Spread("activation", below, above, _ITEMS if smaller > 0.5 * above else None)


def _of_a_step(a: Architecture, s: Settings, act: Activation) -> float:
    """GiB by which the language model's own pass may be off."""
    peak = act.peak / GIB
    # From 0.20 on the runner, the sampler and the graph estimate change from release to release, drafts most.
    recent = RECENT + RECENT_SHARE * peak + _beside_drafts(s) if s.version >= Version((0, 20)) else 0.0
    experts = 0.1 * _of_experts(act) if a.moe is not None else 0.0
    drafts = 0.15 * peak if s.speculative not in _LIKE_ITSELF else 0.0
    return 0.03 + 0.02 * peak + recent + experts + drafts + (ADAPTERS if s.loras else 0.0)


def _smaller_images(a: Architecture, s: Settings, act: Activation) -> float:
    """GiB by which the pass of the largest image may be smaller than vLLM's largest makes it.

    The checkpoint's preprocessor_config.json may allow smaller images, and no launch shows it: a Qwen2-VL-7B that was
    tuned for screenshots logs 1.16 GiB where the largest image takes 3.77. With Qwen3's towers and later ones no start
    of fourteen does.
    """
    told = s.image_pixels is not None or (a.vision is not None and a.vision.pixels is not None)
    if a.vision is None or not a.vision.kind.startswith("qwen2") or told or act.winner != "vision encoder":
        return 0.0
    rest = max((t.bytes for t in act.terms if t.name != "vision encoder"), default=0.0)
    return max(0.0, act.peak - rest) / GIB


def _without_sampling(s: Settings, act: Activation) -> float:
    """GiB by which the peak is smaller on a V0 worker that does not sample. One card's worker is the driver's, which
    does: so do all seven logs of whole prompts, 0.6.4 to 0.8.5."""
    if s.engine != "V0" or act.winner != "logits and sampler" or not (s.chunked or s.parallel.tp > 1):
        return 0.0
    forward = max((t.bytes for t in act.terms if t.name.startswith("forward")), default=0.0)
    return (act.peak - forward) / GIB


def _strange(a: Architecture, weights: float, peak: float) -> float:
    """GiB by which a model type may differ of which no start was compared: where its weights are known, what a pass
    takes may be half as much again or less, with what else its class makes beside them."""
    return 0.02 * weights + 0.5 * peak + 0.5 if a.model_type in LOADED else 0.1 * (weights + peak) + 0.5


def _of_compiling(stage: Stage, compiled: float, *, every: bool) -> Spread:
    """What a start has less whose copy stays against the plan, and more which finds its code compiled, or whose copy
    does not stay."""
    less = (stage.pinned - stage.staying) / GIB if compiled or every else 0.0
    return Spread(COMPILED, less, compiled + (stage.staying / GIB if compiled or every else 0.0))
