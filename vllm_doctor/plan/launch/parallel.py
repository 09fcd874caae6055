"""How a model is spread over cards."""

from __future__ import annotations

import enum
from math import ceil

import msgspec

from vllm_doctor.plan.launch.all_stages import OnEach


class Shared(enum.Enum):
    """How ranks that split tokens hold the shared experts: each a part of their width, or each all of it."""

    SPLIT = "split"
    WHOLE = "whole"
    PERHAPS = "perhaps whole"  # what decides it is not known


class Parallel(msgspec.Struct, frozen=True):
    """How the model is spread: tensor, pipeline and data parallel sizes, and whether experts are spread whole."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    expert: bool = False
    local: int = 1  # data-parallel ranks of this host
    layers: tuple[int, ...] = ()  # of each pipeline stage, where VLLM_PP_LAYER_PARTITION says so
    rest_last: bool = False  # does the last stage take the layers that an equal division leaves?
    shared: Shared = Shared.SPLIT
    spare: int = 0  # copies of experts beside the model's own, where experts are balanced
    prefill: int = 1  # ranks that share the context of a prefill; each has what a tensor parallel rank has
    whole_tower: bool = False  # each rank has the vision tower whole, and encodes items of its own
    on_each: OnEach = OnEach.NEITHER  # of embedding and head, what each stage makes
    hosts: int = 1  # that share the ranks of one copy of the model

    @property
    def cards(self) -> int:
        """GPUs of this host that the launch takes."""
        return ceil(self.tp * self.pp * self.prefill * self.local / self.hosts)

    @property
    def width_split(self) -> int:
        """Ranks that share the width of each expert: without expert parallel all tensor, data and prefill parallel
        ranks are one tensor parallel group for them (fused_moe/config.py flatten_tp_across_dp_and_pcp, in 0.8.2
        layer.py)."""
        return 1 if self.expert else self.tp * self.dp * self.prefill

    @property
    def expert_split(self) -> int:
        """Ranks that share the experts (fused_moe/config.py: TP x DP x PCP under expert parallel)."""
        return self.tp * self.dp * self.prefill if self.expert else self.tp

    @property
    def tower_split(self) -> int:
        """Ranks that share the width of the vision tower."""
        return 1 if self.whole_tower else self.tp

    def embeds(self, stage: int, *, tied: bool) -> bool:
        """Does this stage make the embedding? The last one does where it is the head too."""
        each = self.on_each in {OnEach.BOTH, OnEach.EMBEDDING}
        return stage == 0 or each or (tied and stage == self.pp - 1)

    def heads(self, stage: int) -> bool:
        """Does this stage make the head?"""
        return stage == self.pp - 1 or self.on_each in {OnEach.BOTH, OnEach.HEAD}

    def held(self, experts: int) -> int:
        """Experts of a layer on one rank, spare copies and all."""
        return ceil((experts + self.spare) / self.expert_split) if self.expert else experts

    @property
    def shared_split(self) -> int:
        """Ranks that share the width of the shared experts."""
        return 1 if self.shared is Shared.WHOLE else self.tp

    def stages(self, count: int) -> tuple[int, ...]:
        """How many of `count` layers each pipeline stage has."""
        told = len(self.layers) == self.pp and sum(self.layers) == count
        return self.layers if told else stage_layers(count, self.pp, rest_last=self.rest_last)


def stage_layers(count: int, pp: int, *, rest_last: bool = False) -> tuple[int, ...]:
    """Layers of each pipeline stage: equal parts, and what remains one each to the stages before the last, or all to
    the last (distributed/utils.py get_pp_indices)."""
    parts = [count // pp] * pp
    if rest_last:
        parts[-1] += count % pp
        return tuple(parts)
    for i in range(count % pp):
        parts[-(i + 2)] += 1
    return tuple(parts)
