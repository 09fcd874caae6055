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

from vllm_doctor.plan.launch.compiled import Timed
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.encoder import text_only
from vllm_doctor.plan.terms.matrices import padded_vocab
from vllm_doctor.plan.terms.term import Term

_NAME = "compiling, embedding table"
# From where on the copy is planned to stay: three starts of four on compute capability 12 (0.28 on an RTX 5090 and on
# an RTX PRO 4000; 0.30 on an RTX 5070 Ti, whose pool 0.31 made 1.09 GiB larger, the table being 1.16). The fourth was
# of 0.24, which runs on torch 2.11, as did two more that kept nothing of it (0.20 on an RTX 5090, whose table is 2.37
# GiB, and 0.23 on an RTX PRO 6000); the three run on 2.13. Of five hosts below, on torch 2.13, it stayed on two (0.28
# on an RTX 4090; 0.29 on a card of 6 GB, which logged 0.53 GiB taken, the table being 0.58) and not on three (0.27 on
# an RTX 4090 under WSL, 0.28 on an L40S, 0.30 on an A100), so there the range has it.
PINNED_FROM = 12.0
# The least compute capability for which this is known: a Tesla V100 showed nothing of it.
COMPILED_FROM = 7.5


def table_copy(a: Architecture, s: Settings, capability: float | None, *, first_stage: bool) -> Term | None:
    """The copy of the embedding table, on one rank of the first pipeline stage; None where nothing of it is compiled.
    A model that takes images looks its tokens up before the compiled part (v1/worker/gpu_model_runner.py), so what its
    compilation takes is not known."""
    if s.timed is Timed.NEVER or s.engine != "V1" or not first_stage:
        return None
    seen = a.vision is not None and not s.language_only and not text_only(a, s)
    if seen or a.encoder_decoder or (capability is not None and capability < COMPILED_FROM):
        return None
    rows = padded_vocab(a.vocab, s.parallel.tp) // s.parallel.tp
    return Term(
        _NAME,
        float(rows * a.hidden * s.element),
        f"{rows} × {a.hidden} × {s.element} B",
        "config/compilation.py benchmark_combo_kernel; vLLM issue 54122",
    )


def may_stay(terms: Iterable[Term], s: Settings) -> float:
    """Bytes of the copy that may stay: with torch 2.13 until 0.31, where no large block is split in the profile's pass,
    a small block cut from a freed one keeps the whole of it (v1/worker/gpu_worker.py, in the words of its own comment).
    """
    if s.expandable or s.does.keeps_profile_whole or not s.does.allocates_by_torch_2_13:
        return 0.0
    return sum(t.bytes for t in terms if t.name == _NAME)


def left_behind(s: Settings, left: float, capability: float | None, *, highest: bool) -> float:
    """Of the `left` bytes that may stay, what is planned to: all of them with torch 2.13 (requirements/cuda.txt) from
    compute capability 12 on, where the copy is what the pass takes `highest`; a wider step takes its block again."""
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
