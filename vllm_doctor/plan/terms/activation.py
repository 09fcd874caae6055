"""What the profiling run allocates beyond weights: the transient peak, and what it leaves behind.

vLLM profiles a forward pass of max_num_batched_tokens tokens, then logits and the sampler for max_num_seqs rows
(v1/worker/gpu_model_runner.py profile_run, _dummy_sampler_run; V0: worker/model_runner.py profile_run). The peak is
the larger of the two stages, not their sum; what is allocated once and kept (MoE workspace, encoder outputs of the
profile) lies under both. Sizes in bytes on one rank; T tokens, S sequences, H hidden, V vocabulary, e bytes per value.
"""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.generations import ADA, BLACKWELL, HOPPER
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch.compiled import Timed
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import RECURRENT, Architecture, Mla
from vllm_doctor.plan.terms.compiling import Copy, table_copies
from vllm_doctor.plan.terms.compressed_pass import compressed_pass, gathered_latents
from vllm_doctor.plan.terms.draft_model import handed
from vllm_doctor.plan.terms.encoder import encoder, no_items, profiles_encoder, v0_rows
from vllm_doctor.plan.terms.matrices import padded_vocab
from vllm_doctor.plan.terms.pages import state_bytes
from vllm_doctor.plan.terms.term import Term
from vllm_doctor.plan.terms.unpacked import packed_pass

MIB = 1 << 20
# cuBLAS keeps one workspace a handle: 32 MiB on Hopper, 8 MiB before (torch, aten/src/ATen/cuda/CublasHandlePool.cpp);
# the index and mask tensors of a dummy batch add a few MiB.
CUBLAS = {9: 32 * MIB, 10: 32 * MIB, 12: 32 * MIB}
SMALL = 8 * MIB


class Activation(msgspec.Struct, frozen=True):
    """The transient peak (what the log calls peak activation) and what stays allocated after it, with the terms.
    `otherwise` is the peak if what the launch does not tell is the other way round (which sampler is installed, whether
    the profile reached it); `compiled` the peak of a start that finds its code compiled; `warm_up` what the sampler
    asks for once graphs are captured."""

    peak: float
    kept: float
    terms: tuple[Term, ...]
    winner: str
    otherwise: float
    compiled: float
    warm_up: float


# Bytes a logit beside the logits in the second runner's warm-up: fp32 copy, filtered copy, probabilities.
V2_WARM_UP = 12


def tensor(tokens: int, width: int, element: int) -> int:
    """Bytes of one (tokens x width) activation, such as 200000 x 14336 x 2 B."""
    return tokens * width * element


def sampler_bytes_per_logit(version: Version, engine: str, v2_runner: bool, element: int) -> tuple[int, str]:
    """Bytes per (sequence x vocabulary) while the dummy sampler runs, and why.

    Sorting samplers: logits e, fp32 copy 4, sorted values 4, int64 indices 8, softmax 4, cumulative mask and
    exponentials …: v1/sample/ops/topk_topp_sampler.py apply_top_k_top_p. Since 0.17 a Triton kernel filters in
    place: e + 4 + 4 (probabilities) + 4 (exponential noise). The V2 runner draws by Gumbel noise without a copy: e,
    until 0.33 profiles its warm-up pass too.
    """
    does = behaviour(version)
    if engine == "V1" and v2_runner:
        if does.v2_sampler_warm_up:
            return element + V2_WARM_UP, "V2 sampler in the warm-up: logits, fp32 copy, filtered copy, probabilities"
        return element, "V2 sampler: logits alone (Gumbel noise is drawn inside the kernel)"
    if engine == "V1" and does.triton_sampler:
        return element + 12, "logits, fp32 copy, probabilities, exponential noise"
    return (
        element + 36,
        "logits, fp32 copy, sorted values 4, int64 indices 8, scatter and mask 8, probabilities and noise 12",
    )


# Releases whose V1 sampler is FlashInfer's wherever that is installed and nothing is asked
# (v1/sample/ops/topk_topp_sampler.py); from 0.11.1 it has to be asked for, since 0.20 it is the default.
_FLASHINFER_EXTRA = 12  # logits, then fp32 copy, probabilities and one more: starts of 0.10.0, 0.10.1 and 0.11.0


def _v0_samples(s: Settings) -> bool:
    """Did the V0 profile run reach the sorting sampler? Start-up logs of 0.6.x and 0.8.x show its 38 bytes per logit,
    those of 0.7.x only on one card and without chunked prefill; those of 0.9.x show the forward pass alone (fitted:
    eleven logs)."""
    if s.does.v0_samples_on_one_card:
        return not s.chunked and s.parallel.tp == 1
    return s.does.v0_samples


def _otherwise(s: Settings, sampler: Term | None, rows: int, vocab: int) -> float | None:
    """The sampler's bytes if the host, which a launch line does not show, is the other way round; None where there is
    one way only."""
    if sampler is None:
        return None
    if s.engine == "V0":
        return sampler.bytes if not _v0_samples(s) else None
    if s.does.flashinfer_where_installed and s.flashinfer_asked is not False and not s.flashinfer_there:
        # Asked for and not installed, or of a version that the release does not take, it is left with a warning.
        per, _ = sampler_bytes_per_logit(s.version, s.engine, s.v2_runner, s.element)
        less = float(rows * vocab * (per - s.element - _FLASHINFER_EXTRA))
        return sampler.bytes + (less if s.flashinfer_asked else -less)
    return None


def _cublas(capability: float | None) -> int:
    return CUBLAS.get(int(capability or 0), 8 * MIB) + SMALL


def _forward(a: Architecture, s: Settings, tokens: int) -> Term:
    """The widest layer: residual stream, its input and output, gate, up and their product.

    4 H: hidden states, residual, norm output and the layer's result live together; 3 I/TP: gate_up (2 I) and its
    product (llama.py), 2 I/TP without a gate."""
    e, tp = s.element, s.parallel.tp
    dense = a.moe is None or len(a.moe.layers) < len(a.layers)
    width = a.width // tp if dense else 0
    if a.moe is not None:
        width = max(width, a.moe.shared_width // tp)
    q = a.heads * a.head_dim // tp
    kv = max(1, a.kv_heads // tp) * a.head_dim
    wide = 3 if a.gated_mlp else 2
    mlp = e * tokens * (4 * a.hidden + wide * width)
    attention = e * tokens * (4 * a.hidden + 2 * q + 2 * kv)
    if a.mla is not None:
        # Sparse attention reads the latents as they are, and makes no keys and values of them.
        made = a.mla.value if a.mla.indexer_top else a.mla.nope + 2 * a.mla.value
        attention = e * tokens * (4 * a.hidden + a.heads // tp * (2 * (a.mla.nope + a.mla.rope) + made))
    if a.linear is not None and a.linear.kind == "gdn":
        keys, values = a.linear.key_heads * a.linear.key_dim // tp, a.linear.value_heads * a.linear.value_dim // tp
        attention = max(attention, e * tokens * (4 * a.hidden + 2 * (2 * keys + 2 * values) + 2 * values))
    if mlp >= attention:
        return Term(
            "forward pass, MLP",
            mlp,
            f"{tokens} × (4×{a.hidden} + {wide}×{width}) × {e} B",
            "model_executor/models/llama.py LlamaMLP",
        )
    return Term(
        "forward pass, attention",
        attention,
        f"{tokens} tokens × attention widths × {e} B",
        "model_executor/layers/attention",
    )


def _direct(s: Settings, experts: str, capability: float | None) -> bool:
    """Do the experts run by a direct call of fused_marlin_moe, which frees its two buffers after each layer? So do
    integer formats until they moved to the modular kernel (gptq_marlin.py: 0.20; awq_marlin.py: 0.22;
    compressed_tensors_moe_wna16_marlin.py: 0.23), and fp8 on cards without it to 0.13."""
    if named := re.fullmatch(r"(int|awq|gptq|auto-round)[48]", experts):
        direct = {"gptq": s.does.direct_gptq_experts, "int": s.does.direct_packed_experts}
        return direct.get(named[1], s.does.direct_integer_experts)
    return experts == "fp8" and (capability or ADA) < ADA and s.does.direct_fp8_experts


def _called(s: Settings, experts: str, *, eight: bool) -> bool:
    """Do the experts run by a call of fused_experts, which frees its buffers after each layer? To 0.13 those do that
    are in 16 bits, or in 8 and not run by DeepGEMM or CUTLASS, unless data-parallel ranks hand each other tokens."""
    own = experts in {"", "plain", "fp8", "int8"} and not eight
    return own and s.parallel.dp == 1 and s.does.frees_experts_workspace


def _by_cutlass(s: Settings, experts: str, capability: float | None) -> bool:
    """Do vLLM's own CUTLASS kernels run experts in four bits: where they are asked for, and to 0.14 on every card that
    has such kernels, unless FlashInfer's are?"""
    if experts != "nvfp4":
        return False
    own = s.does.own_fp4_experts and (capability or 0.0) >= BLACKWELL and not s.flashinfer_experts
    return s.moe_backend == "cutlass" or (own and s.moe_backend is None)


def _sorted(a: Architecture, s: Settings) -> float:
    """Bytes that vLLM's CUTLASS kernels take for experts in four bits beside their workspace, which they free: each
    token's states once for each of its experts, sorted by expert, sorted back, and weighed."""
    moe = a.moe
    if moe is None:
        return 0.0
    return 3.0 * s.element * s.batched * s.parallel.dp * moe.top_k * moe.inputs(a.hidden)


def _moe(
    a: Architecture, s: Settings, *, direct: bool = False, called: bool = False, cutlass: bool = False
) -> Term | None:
    """The experts' two workspaces and their output (fused_moe/modular_kernel.py, fused_moe.py workspace_shapes)."""
    moe = a.moe
    if moe is None:
        return None
    tokens = s.batched * s.parallel.dp
    width, hidden = moe.width // s.parallel.width_split, moe.inputs(a.hidden)
    if direct:
        return Term(
            "MoE workspace",
            s.element * tokens * moe.top_k * (max(2 * width, hidden) + width),
            f"{tokens} × {moe.top_k} × (max({2 * width}, {hidden}) + {width}) × {s.element} B",
            "fused_moe/fused_marlin_moe.py intermediate_cache13, intermediate_cache2",
        )
    if cutlass:
        return Term(
            "MoE workspace",
            s.element * tokens * moe.top_k * (max(2 * width, hidden) + width),
            f"{tokens} × {moe.top_k} × (max({2 * width}, {hidden}) + {width}) × {s.element} B",
            "fused_moe/cutlass_moe.py CutlassExpertsFp4 workspace_shapes",
        )
    if s.does.chunks_experts_at_16384 or s.does.chunks_experts_at_32768:
        tokens = min(tokens, 16384 if s.does.chunks_experts_at_16384 else 32768)
    if called:
        join = "max({}, {})" if s.does.joins_experts_caches else "{} + {}"
        both = max(2 * width, hidden) if s.does.joins_experts_caches else 2 * width + hidden
        return Term(
            "MoE workspace",
            s.element * tokens * moe.top_k * (both + width),
            f"{tokens} × {moe.top_k} × ({join.format(2 * width, hidden)} + {width}) × {s.element} B",
            "fused_moe/fused_moe.py fused_experts_impl",
        )
    size = s.element * tokens * moe.top_k * (max(width, hidden) + max(2 * width, hidden))
    return Term(
        "MoE workspace",
        size,
        f"{tokens} × {moe.top_k} × (max({width}, {hidden}) + max({2 * width}, {hidden})) × {s.element} B",
        "fused_moe/fused_moe.py workspace_shapes",
    )


def _experts(a: Architecture, s: Settings, experts: str, capability: float | None) -> tuple[Term | None, float, bool]:
    """The experts' buffers, the bytes that they take and free beside them, and whether the buffers stay."""
    direct = _direct(s, experts, capability)
    eight = experts == "fp8" and (capability or 0.0) >= HOPPER and s.does.keeps_fp8_workspace
    called = _called(s, experts, eight=eight)
    cutlass = _by_cutlass(s, experts, capability)
    moe = _moe(a, s, direct=direct, called=called, cutlass=cutlass)
    stays = (s.does.keeps_moe_workspace or eight) and a.model_type != "gpt_oss" and not (direct or called)
    return moe, _sorted(a, s) if cutlass else 0.0, s.engine == "V1" and stays


def _hand_over(a: Architecture, s: Settings) -> Term | None:
    """What one pipeline stage hands to the next: hidden states and residuals of a step. None where there is one."""
    if s.parallel.pp == 1:
        return None
    return Term(
        "stage hand-over",
        float(s.element * s.batched * 2 * a.hidden),
        f"{s.batched} × 2 × {a.hidden} × {s.element} B",
        "gpu_model_runner.py intermediate_tensors",
    )


def _for_drafter(s: Settings) -> Term | None:
    size = handed(s)
    if not size:
        return None
    return Term("states for the drafter", size, f"{s.batched} tokens of the layers it joins", "qwen3_dflash.py fc")


def _gathered(a: Architecture, s: Settings) -> Term | None:
    """What data-parallel ranks hand each other, which share the experts: whole ones, or the width of each. The hidden
    states of all ranks' steps, and what the experts make of them (device_communicators/all2all.py)."""
    if a.moe is None or s.parallel.dp == 1:
        return None
    tokens = s.batched * s.parallel.dp
    return Term(
        "all ranks' hidden states",
        float(2 * tokens * a.moe.inputs(a.hidden) * s.element),
        f"2 × {tokens} × {a.moe.inputs(a.hidden)} × {s.element} B",
        "distributed/device_communicators/all2all.py",
    )


# Entries of the indexer's workspace for each token of the length: as many as lie in the space of 5 latents, since 0.32
# of 2 above 256 Ki tokens, or of as many as are asked for; to 0.12 two entries (attention/backends/mla/indexer.py
# get_max_prefill_buffer_size: 576 x 2 // 132).
_GATHERED = 8


# What the profile's pass takes for the scores of a prefill (VLLM_SPARSE_INDEXER_MAX_LOGITS_MB, its default).
_SCORES = 512 * MIB


def _scores(a: Architecture, s: Settings) -> int:
    top = a.mla.indexer_top if a.mla is not None else a.compressed.indexer_top if a.compressed is not None else 0
    return _SCORES if top and s.does.reserves_indexer_scores else 0


def _gathered_entries(s: Settings) -> int:
    if not s.does.gathers_into_latents_space:
        return 2
    if s.sparse_factor is not None and s.does.scales_indexer_workspace:
        return _GATHERED * s.sparse_factor
    return _GATHERED * (2 if s.length > 256 * 1024 and s.does.scales_indexer_workspace else 5)


def _mla(mla: Mla, s: Settings) -> Term | None:
    """What a prefill of latent attention reserves: sparse, for the indexer's gathered keys, else for the latents of a
    chunk; nothing on V0."""
    if mla.indexer_top:
        rows = s.length * _gathered_entries(s)
        each = mla.indexer_dim + 4
        return Term("indexer workspace", rows * each, f"{rows} × {each} B", "layers/sparse_attn_indexer.py")
    if s.engine != "V1":
        return None
    rows, wide = min(max(8 * s.length, 4 * s.seqs * 16), 65536), mla.kv_rank + mla.rope
    return Term("MLA prefill workspace", s.element * rows * wide, f"{rows} × {wide} × {s.element} B", "mla/common.py")


def profiled_rows(a: Architecture, s: Settings) -> int:
    """Sequences of the profile's pass."""
    rows = min(s.seqs, s.batched)
    seen = a.vision is not None and s.engine == "V0" and not (s.language_only or no_items(a, s))
    return min(rows, v0_rows(a.vision, s)) if a.vision is not None and seen else rows


def estimate(
    a: Architecture,
    s: Settings,
    *,
    capability: float | None,
    multiprocessors: int,
    first_stage: bool = True,
    last_stage: bool = True,
    experts: str = "",
    balancing: Term | None = None,
) -> Activation:
    """The activation peak of one rank and what it leaves behind, in bytes. `experts` is their weights' format,
    `balancing` the pass that gathers them, where they are balanced."""
    e, tokens, seqs = s.element, s.batched, profiled_rows(a, s)
    terms: list[Term] = []
    under, kept = 0.0, 0.0  # the first is alive through both stages
    forward = _forward(a, s, tokens)
    moe, sorts, keeps_workspace = _experts(a, s, experts, capability)
    if a.vision is not None and profiles_encoder(a, s, first_stage=first_stage):
        seen = encoder(a, a.vision, s)
        under += seen.kept
        terms += seen.terms
    beside = [t for t in (_hand_over(a, s), _v0_states(a, s), _gathered(a, s), _for_drafter(s)) if t is not None]
    under += sum(t.bytes for t in beside)
    terms += beside
    logits = last_stage and not s.pooling
    sampled = logits and (s.engine == "V1" or _v0_samples(s))
    if s.engine == "V0" and s.parallel.tp > 1:
        # custom all-reduce writes to a new tensor (distributed/device_communicators/custom_all_reduce.py)
        forward = Term(
            forward.name,
            forward.bytes + e * tokens * a.hidden,
            forward.formula + f" + {tokens} × {a.hidden} × {e} B (all-reduce)",
            forward.source,
        )
    stages = [forward]
    if moe is not None:
        terms.append(moe)
        stages[0] = Term(
            "forward pass with experts",
            max(forward.bytes, moe.bytes + sorts + e * tokens * 4 * a.hidden),
            forward.formula,
            forward.source,
        )
        if keeps_workspace:
            under += moe.bytes
            stages[0] = Term(
                "forward pass with experts",
                max(forward.bytes, sorts + e * tokens * 4 * a.hidden),
                forward.formula,
                forward.source,
            )
    padded = compressed_pass(a, s)
    if padded is not None and padded.bytes > stages[0].bytes:
        stages[0] = padded
    stages[0] = replace(stages[0], bytes=stages[0].bytes + _scores(a, s))
    packed = packed_pass(a, s, capability)
    if packed is not None and packed.bytes > stages[0].bytes:
        stages[0] = packed
    latent = _mla(a.mla, s) if a.mla is not None and s.latents else gathered_latents(a, s)
    if latent is not None:
        # One workspace serves indexer and experts (v1/worker/workspace.py).
        indexed = a.compressed is not None or (a.mla is not None and a.mla.indexer_top > 0)
        shared = moe.bytes if indexed and moe is not None and keeps_workspace else 0.0
        under += max(0.0, latent.bytes - shared)
        terms.append(latent)
    sampler = _sampler(a, s, seqs, multiprocessors) if logits else None
    other = _otherwise(s, sampler, seqs, padded_vocab(a.vocab, s.parallel.tp))
    stages += [] if balancing is None else [balancing]
    alone = max(t.bytes for t in stages)
    if sampled and sampler is not None:
        stages.append(sampler)
    winner = max(stages, key=lambda t: t.bytes)
    towers = max((t.bytes for t in terms if t.name == "vision encoder"), default=0.0)
    peak = max(winner.bytes + under, towers) + _cublas(capability)
    if s.engine == "V1" and s.does.measures_consumed and moe is not None and keeps_workspace:
        peak, kept = (
            peak - moe.bytes,
            kept + moe.bytes,
        )  # measured as consumed since 0.27: P1 - A1 leaves persistent blocks out
    differs = 0.0 if other is None else max(other, alone) - winner.bytes
    compiled = Activation(
        peak,
        kept,
        (*terms, *stages),
        winner.name if peak > towers + _cublas(capability) else "vision encoder",
        peak + differs,
        peak,
        _warm_up(a, s, sampler, seqs),
    )
    return _first_start(
        compiled,
        table_copies(a, s, capability, first_stage=first_stage, last_stage=last_stage, under=under),
        s.timed,
    )


def _first_start(compiled: Activation, copies: list[Copy], timed: Timed) -> Activation:
    """The same of a start that compiles, and copies embedding tables for it, as every one does where no code is
    kept."""
    if not copies:
        return compiled
    most = max(copies, key=lambda copy: copy.table.bytes + copy.beneath)
    taken = most.table.bytes + most.beneath + SMALL
    return replace(
        compiled,
        peak=max(compiled.peak, taken),
        otherwise=max(compiled.otherwise, taken),
        compiled=max(compiled.compiled, taken) if timed is Timed.EVERY else compiled.compiled,
        terms=(*compiled.terms, *(copy.table for copy in copies)),
        winner=most.table.name if taken > compiled.peak else compiled.winner,
    )


def _warm_up(a: Architecture, s: Settings, sampler: Term | None, rows: int) -> float:
    """Bytes of the sampler's pass after the graphs are captured: the first runner's is the profile's own again
    (gpu_model_runner.py _dummy_sampler_run), the second one's samples requests of two tokens, and one more for each
    that is drafted (gpu/warmup.py warmup_kernels). 0 where there is none."""
    if sampler is None or s.engine == "V0":
        return 0.0
    if not s.v2_runner:
        return sampler.bytes
    rows = max(1, min(rows, s.batched // (2 + s.draft_tokens)))
    return float(rows * padded_vocab(a.vocab, s.parallel.tp) * (s.element + V2_WARM_UP))


def _rejection(s: Settings, e: int) -> tuple[int, str]:
    """Bytes per (sequence x vocabulary) of the rejection sampler, and why. The profile draws two rows of logits a
    sequence, of a drafted and of a bonus token, and gathers the second apart: 3 e. Where a Triton kernel filters in
    place most is alive while a token is drawn for what is rejected: fp32 logits of both, a copy of the drafted ones,
    their probabilities, noise and its reciprocal. Where the logits are sorted it is while the bonus token is drawn,
    beside its raw logits (v1/worker/gpu_model_runner.py _dummy_sampler_run, v1/sample/rejection_sampler.py forward,
    sample_recovered_tokens)."""
    if s.does.triton_sampler:
        return 3 * e + 24, "rejection sampler: logits of two tokens, fp32 copies, probabilities, noise"
    return 3 * e + 40, "rejection sampler: logits of two tokens, a raw copy, and what the sampler sorts"


def _v0_states(a: Architecture, s: Settings) -> Term | None:
    """V0 keeps the recurrent states of every sequence of a batch beside its pool, and makes them in the profile's
    pass (models/mamba_cache.py MambaCacheManager); None where there are none."""
    if s.engine != "V0" or a.linear is None or not a.hybrid:
        return None
    count = sum(layer.kind in RECURRENT for layer in a.layers) // s.parallel.pp
    each = state_bytes(a, s, a.linear)
    return Term(
        "recurrent states",
        float(count * s.seqs * each),
        f"{count} layers × {s.seqs} sequences × {each} B",
        "model_executor/models/mamba_cache.py",
    )


def _sampler(a: Architecture, s: Settings, rows: int, multiprocessors: int) -> Term:
    """Logits of one row a sequence and what the sampler makes of them, over the hidden states of the pass."""
    e, vocab = s.element, padded_vocab(a.vocab, s.parallel.tp)
    per, why = sampler_bytes_per_logit(s.version, s.engine, s.v2_runner, e)
    there = s.does.flashinfer_where_installed and s.flashinfer_there and s.flashinfer_asked is not False
    if s.engine == "V1" and (s.flashinfer_asked or there) and not s.v2_runner:
        per, why = e + _FLASHINFER_EXTRA, "FlashInfer's sampler: logits, fp32 copy, probabilities and one more"
    if s.engine == "V1" and s.speculative and not s.v2_runner and s.does.profiles_rejection:
        per, why = _rejection(s, e)
    size = float(rows * vocab * per + e * s.batched * a.hidden + e * rows * a.hidden)
    formula = f"{rows} × {vocab} × {per} B ({why}) + {s.batched} × {a.hidden} × {e} B"
    if s.engine == "V1" and s.does.triton_sampler and not s.flashinfer_sampler and not s.v2_runner:
        return Term(
            "logits and sampler",
            size + 4.0 * multiprocessors * vocab,
            f"{formula} + {multiprocessors} × {vocab} × 4 B (Triton buffer)",
            "topk_topp_triton.py",
        )
    return Term("logits and sampler", size, formula, "v1/sample/sampler.py")
