"""What the first start of a launch takes while its code is compiled, which is inside the profile.

torch.compile runs in the profile's pass (v1/worker/gpu_worker.py determine_available_memory), and what torch allocates
meanwhile counts as peak. Since vLLM asks for combined kernels and their benchmark (config/compilation.py, combo_kernels
and benchmark_combo_kernel), Inductor makes every input of a kernel that it times anew; the largest is the embedding
table, which the compiled part of a model of text looks its tokens up in. A start that finds its code in vLLM's cache
takes none of it: vLLM issues 54122 and 54383.

Compared with seven starts that compiled: the table is what they logged within 0.05 GiB (0.28 on an RTX 5090 and an L40S
twice, 0.24 on an RTX 5090, 0.30 on an A100, 0.31 on an RTX 5070 Ti, 0.23 on an RTX 4090 D).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vllm_doctor.plan.launch.compiled import Timed
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.draft_model import BLOCKS, EAGLE
from vllm_doctor.plan.terms.encoder import text_only
from vllm_doctor.plan.terms.matrices import padded_vocab
from vllm_doctor.plan.terms.term import Term

_NAME = "compiling, embedding table"
_DRAFTER = "compiling, the drafter's embedding table"
_COPIES = frozenset({_NAME, _DRAFTER})
_SOURCE = "config/compilation.py benchmark_combo_kernel; vLLM issue 54122"
# From where on the copy is planned to stay: three starts of four on compute capability 12 (0.28 on an RTX 5090 and on
# an RTX PRO 4000; 0.30 on an RTX 5070 Ti, whose pool 0.31 made 1.09 GiB larger, the table being 1.16). The fourth was
# of 0.24, which runs on torch 2.11, as did two more that kept nothing of it (0.20 on an RTX 5090, whose table is 2.37
# GiB, and 0.23 on an RTX PRO 6000); the three run on 2.13. Of five hosts below, on torch 2.13, it stayed on two (0.28
# on an RTX 4090; 0.29 on a card of 6 GB, which logged 0.53 GiB taken, the table being 0.58) and not on three (0.27 on
# an RTX 4090 under WSL, 0.28 on an L40S, 0.30 on an A100), so there the range has it.
PINNED_FROM = 12.0
# The least compute capability for which this is known: a Tesla V100 showed nothing of it.
COMPILED_FROM = 7.5


class Copy(msgspec.Struct, frozen=True):
    """A copy of an embedding table, and the bytes that are alive while it is made."""

    table: Term
    beneath: float = 0.0


def table_copies(
    a: Architecture,
    s: Settings,
    capability: float | None,
    *,
    first_stage: bool,
    last_stage: bool,
    under: float,
) -> list[Copy]:
    """The copies of embedding tables on one rank of a pipeline stage, none where nothing of it is compiled. The model
    is compiled before its pass, the drafter while what the pass leaves is alive: its states, and the `under` bytes."""
    if s.timed is Timed.NEVER or s.engine != "V1" or (capability is not None and capability < COMPILED_FROM):
        return []
    # A model that takes images looks its tokens up before the compiled part (v1/worker/gpu_model_runner.py), so what
    # its compilation takes is not known.
    seen = a.vision is not None and not s.language_only and not text_only(a, s)
    copies: list[Copy] = []
    if first_stage and not seen and not a.encoder_decoder:
        copies.append(Copy(_table(_NAME, a, s)))
    if last_stage and s.draft is not None and _looks_up(s, seen=seen):
        copies.append(Copy(_table(_DRAFTER, s.draft, s), under + s.batched * a.hidden * s.element))
    return copies


def _looks_up(s: Settings, *, seen: bool) -> bool:
    """Does the compiled part of the drafter look tokens up? DFlash's does beside every model (qwen3_dflash.py
    DFlashQwen3Model, whose dummy_run hands it token ids), others where the model takes no images
    (spec_decode/llm_base_proposer.py dummy_run)."""
    return s.speculative in BLOCKS or (not seen and s.speculative in EAGLE | {"draft_model"})


def _table(name: str, a: Architecture, s: Settings) -> Term:
    rows = padded_vocab(a.vocab, s.parallel.tp) // s.parallel.tp
    return Term(name, float(rows * a.hidden * s.element), f"{rows} × {a.hidden} × {s.element} B", _SOURCE)


def may_stay(terms: Iterable[Term], s: Settings, *, names: frozenset[str] = _COPIES) -> float:
    """Bytes of the copy that may stay: with torch 2.13 until 0.31, where no large block is split in the profile's pass,
    a small block cut from a freed one keeps the whole of it (v1/worker/gpu_worker.py, in the words of its own comment).
    """
    if s.expandable or s.does.keeps_profile_whole or not s.does.allocates_by_torch_2_13:
        return 0.0
    # The drafter's takes the block that the model's has left.
    return max((t.bytes for t in terms if t.name in names), default=0.0)


def left_behind(terms: Iterable[Term], s: Settings, capability: float | None, *, highest: bool) -> float:
    """Of the bytes that may stay, what is planned to: the copy for the model with torch 2.13 (requirements/cuda.txt)
    from compute capability 12 on, where a copy is what the pass takes `highest`; a wider step takes its block again.
    Of a drafter's alone no start shows that it stays."""
    left = may_stay(terms, s, names=frozenset({_NAME}))
    own = highest or s.timed is Timed.EVERY
    planned = s.does.allocates_by_torch_2_13 and (capability or 0.0) >= PINNED_FROM
    return left if planned and own else 0.0


def left_by_compiling(size: float) -> Term:
    """The copy that stays, as one of the plan's terms."""
    return Term(
        "left by compiling",
        size,
        "the copy of the embedding table, whose block a small one keeps; the next start has it free",
        "v1/worker/gpu_worker.py determine_available_memory",
    )
