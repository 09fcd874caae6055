"""Memory outside torch's weights and activations: context and NCCL, persistent buffers of the runner, CUDA graphs.

Unlike the other terms these are not the size of a tensor that the code names: drivers and libraries allocate them.
What lies outside torch is fitted to published starts (room calibration); the other constants say what was measured.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.generations import AMPERE, BLACKWELL, HOPPER, RTX_BLACKWELL, THOR
from vllm_doctor.knowledge.gpus import Card, links_of
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.calibration import Cell, Fit, cells, split_starts
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.families import BOTH_WAYS
from vllm_doctor.plan.terms.exchanged import exchanged
from vllm_doctor.plan.terms.matrices import padded_vocab

GIB = 1 << 30


class Estimate(msgspec.Struct, frozen=True):
    """A figure in GiB, how far below and above it the truth may lie, and the fact that would tell, where one would."""

    gib: float
    below: float
    above: float
    fact: str | None = None


# The first release that counts what is not torch's apart (behaviours.json counts_used_memory).
COUNTS_APART = Version((0, 6, 4))
_NOTHING = Fit(middle=0.0, each=0.0, below=0.0, above=0.0, hosts=0, starts=0, error=None)
# What comes on top in releases that measure what stays in one figure: tensors that the profile keeps, unnamed.
_KEPT_BELOW, _KEPT_ABOVE = 0.1, 0.15
# GB10 and Jetson: what is free is what the host calls available (utils/mem_utils.py MemorySnapshot, psutil), so the
# process' own host memory counts too, and while graphs are captured as well. Beside the table of token ids, which
# follows from the launch: twelve logs of GB10 and Thor, 1.0 to 4.0 GiB, one of 5.3; graphs of five, 1.3 to 1.7 times
# those of other cards. Before 0.18, as on other cards, it is less: 0.7 to 0.9 in three logs of 0.11 and 0.13.
_UNIFIED, _UNIFIED_GRAPHS = Estimate(2.5, 1.6, 1.9), 1.4
_UNIFIED_EARLY, _UNIFIED_GROWS = Estimate(1.0, 0.5, 0.8), Version((0, 18))


# What a process of vLLM's ROCm build takes outside torch: HIP's code objects, hipBLASLt's workspaces, and what grows
# while weights are loaded, which it counts twice (platforms/rocm.py get_current_memory_usage: all that the device has
# lent, 0.9 to 0.27). MI300X: one card 2.1 GiB (0.6.3), 1.6 (0.11), 1.1 (0.17.1) and 0.6 (0.22); with RCCL's buffers two
# ranks 1.9 (0.9.2) and eight 5.4 (0.6.3); so many for each rank beyond the first.
_HIP, _HIP_LATER, _LATER = Estimate(1.65, 0.8, 0.8), Estimate(0.85, 0.6, 0.8), Version((0, 17))
_RCCL = Estimate(0.4, 0.4, 0.7)


# A process' context, where all that the card has lent is counted (behaviours.json counts_contexts): an RTX 4090 D of
# 0.8.5, a card of 24 GB and a pair of them of 0.8.4 have 0.3 to 0.5 GiB less than later releases would leave them.
_CONTEXT = Estimate(0.4, 0.2, 0.2)
# How far DeepEP's buffers may be larger: the symmetric heap in which they lie is rounded, and has its own book.
_HEAP = 0.05


def non_torch(
    a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None = None, *, last_stage: bool = True
) -> Estimate:
    """Growth of non-torch memory between the first snapshot and the end of the profile run, in GiB. `total_gib` is the
    card's memory."""
    grown = _growth(a, s, gpu, total_gib, last_stage=last_stage)
    if s.engine == "V0" or not s.does.counts_contexts:
        return grown
    return Estimate(grown.gib + _CONTEXT.gib, grown.below + _CONTEXT.below, grown.above + _CONTEXT.above)


def _growth(a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None, *, last_stage: bool) -> Estimate:
    """Without what there was before the first snapshot."""
    grown, more = _grown(a, s, gpu, total_gib, last_stage=last_stage), exchanged(a, s, gpu)
    return replace(grown, gib=grown.gib + more, above=grown.above + _HEAP * more)


def _grown(a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None, *, last_stage: bool) -> Estimate:
    """As published starts of its kind show it (calibration/outside_torch.json)."""
    kept = persistent(a, s) if s.does.measures_consumed and last_stage else 0.0
    if gpu is not None and gpu.unified:
        host = _UNIFIED if s.version >= _UNIFIED_GROWS else _UNIFIED_EARLY
        return replace(host, gib=host.gib + kept + _token_table(s))
    if gpu is not None and gpu.backend != "CUDA":
        more = s.parallel.tp - 1
        one = _HIP if s.version < _LATER else _HIP_LATER
        below, above = one.below + more * _RCCL.below, one.above + more * _RCCL.above
        return Estimate(one.gib + kept + more * _RCCL.gib, below, above)
    ranks = _joined(a, s)
    cell = _cell(s, gpu, total_gib, ranks)
    fit, unit = cell.fit or _NOTHING, 1.0
    if cell.unit != "GiB":
        unit = total_gib or (gpu.total_gib if gpu is not None else 0.0)
    middle = unit * (fit.middle + fit.each * (ranks - 2))
    below, above = unit * fit.below, unit * fit.above
    if ranks > s.parallel.tp:
        # No start of such ranks is in the fits, so it may be what one card takes.
        below = max(below, middle)
    if s.does.measures_consumed:
        return Estimate(middle + kept, below + _KEPT_BELOW, above + _KEPT_ABOVE)
    return Estimate(middle, below, above)


def not_of_torch(
    a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None = None, *, last_stage: bool = True
) -> float:
    """GiB that stay taken when torch runs short. V0 before 0.6.4 takes the growth of all used memory for what is
    needed, blocks included that torch keeps and gives back then (worker/worker.py determine_num_available_blocks);
    what a later release logs of such ranks is the rest."""
    alone = replace(s, version=COUNTS_APART) if s.does.counts_used_memory else s
    return _growth(a, alone, gpu, total_gib, last_stage=last_stage).gib


def _token_table(s: Settings) -> float:
    """GiB of the host that hold every request's token ids, 4 bytes each, as long as a request may be; the first runner
    marks each of them in a byte more (v1/worker/gpu_input_batch.py, gpu/states.py all_token_ids)."""
    if s.engine == "V0":
        return 0.0
    marks = not s.v2_runner and s.does.marks_token_ids
    return s.seqs * s.length * (5 if marks else 4) / GIB


def _joined(a: Architecture, s: Settings) -> int:
    """Ranks of this host that NCCL joins with each other. Data-parallel ranks that hand each other tokens have as many
    groups as tensor-parallel ones, with a communicator each (distributed/parallel_state.py initialize_model_parallel:
    dp and ep for tp and ep)."""
    return s.parallel.tp * (s.parallel.local if a.moe is not None and s.parallel.dp > 1 else 1)


def _links(gpu: Card | None, total_gib: float | None) -> set[str]:
    if gpu is not None:
        return {gpu.link}
    return links_of(total_gib) if total_gib is not None else set()


def _cell(s: Settings, gpu: Card | None, total_gib: float | None, joined: int) -> Cell:
    """This kind of start. A bridge joins cards as PCIe does; an unnamed card is joined as all cards of
    about its memory are, where they are alike. Ranks that each have a host of their own are joined by its network,
    whatever the card has: no start of them is in a fit, two H20 of 0.8.5 logged 0.74 GiB."""
    apart = joined > 1 and s.parallel.cards == 1
    links = _links(gpu, total_gib) if not apart else set()
    ways = {"nvlink" if link == "nvlink" else "pcie" for link in links}
    link = ways.pop() if len(ways) == 1 else None
    capability = gpu.capability if gpu is not None else None
    runner = "V2" if s.v2_runner else "V1" if s.engine == "V1" else None
    ranks = split_starts(joined, s.parallel.pp)
    # Eager ranks over NVLink have no fused all-reduce, and no workspace of it (compilation/passes, allreduce_rms); nor
    # have those that add up nothing.
    asked = (s.version, s.engine, runner, ranks, link, capability)
    return next(c for c in cells() if c.fit and c.of(*asked, eager=s.eager or s.parallel.tp == 1))


def persistent(a: Architecture, s: Settings) -> float:
    """GiB that the runner keeps for its whole life: with the V2 runner 4 bytes of output counts and one bit of
    prompt mask per (sequence x vocabulary) (v1/worker/gpu/sample/penalties.py). The sampler is the last stage's, and
    pooling models have none (v1/worker/gpu/model_runner.py)."""
    if not s.v2_runner or s.pooling:
        return 0.0
    return s.seqs * padded_vocab(a.vocab, 1) * 4.125 / GIB


def capture_sizes(largest: int, version: Version) -> int:
    """How many batch sizes are captured: 1, 2, 4, then steps of 8 to 256, then of 16 (config/vllm.py); by 8 throughout
    to 0.10."""
    if largest <= 4:
        return len([n for n in (1, 2, 4) if n <= largest])
    if not behaviour(version).captures_by_sixteen:
        return 3 + largest // 8
    return 3 + min(largest, 255) // 8 + (max(0, (largest - 256) // 16 + 1) if largest >= 256 else 0)


# How much less graphs may take, as a share of what is no workspace: of ten starts of 0.18 to 0.27 that log what the
# release estimates eight are within a tenth of a GiB of the plan (hybrids 1.11, 1.19 and 1.32 GiB, planned 1.18, 1.18
# and 1.26).
_LESS = 0.3


def graphs(a: Architecture, s: Settings, gpu: Card | None = None, stage: int = 0) -> Estimate:
    """CUDA graph memory: outputs of the largest captured size, and driver memory per captured graph piece.

    Fitted to the H100 runs of 0.19 with 51 + 51 captures (19 logs, 0.5-1.85 GiB, residual 0.08): 0.2 + 0.063 per
    1000 of hidden size at 512 tokens, 0.122 MiB per layer and graph, and 0.35 of experts, which the two logs of 0.20
    and later with experts do not show.
    """
    if s.eager:
        return Estimate(0.0, 0.02, 0.02)
    layers = s.parallel.stages(len(a.layers))[stage]
    if s.draft is not None and stage == s.parallel.pp - 1:
        layers += len(s.draft.layers)
    if s.engine == "V0":
        # decode graphs of the whole model, 35 sizes up to 256
        most = V0_PACKED * layers if _packed(a) else 0.0
        return Estimate(0.08 + 35 * layers * 0.00004 + 0.02 * a.hidden / 1000, 0.1, 0.1 + most)
    largest = s.capture_sizes or min(512, s.batched)
    count = capture_sizes(largest, s.version)
    flashinfer = takes_flashinfer(a, s, gpu)
    whole, scores = 0, 0.0
    full = s.does.full_decode_graphs and not (flashinfer and s.speculative) and not s.pooling
    if full:
        # Decode graphs end at the largest decode batch (cudagraph_dispatcher.py; logs: "FULL=35 (largest=256)"); a
        # model with an encoder and a decoder has no others, one that pools none of them (config/vllm.py).
        count = 0 if a.encoder_decoder else count
        decoded = min(largest, s.seqs * (1 + s.draft_tokens))
        whole = capture_sizes(decoded, s.version)
        count += whole
        scores = _scores(a, s, decoded)
    shared = (0.2 + 0.063 * a.hidden / 1000) * largest / 512
    if gpu is not None and not HOPPER <= (gpu.capability or HOPPER) < RTX_BLACKWELL and (s.v2_runner or not a.hybrid):
        shared *= _SMALL_WORKSPACE
    if s.parallel.tp > 1:
        shared = max(shared, _LEAST_OF_RANKS)
    moe = 0.35 * largest / 512 if a.moe is not None and s.version < Version((0, 20)) else 0.0
    workspace = FLASHINFER_WORKSPACE if flashinfer and full else 0.0
    workspace += scores
    size = shared + moe + count * layers * 0.122 / 1024 + workspace
    if gpu is not None and gpu.unified:
        size *= _UNIFIED_GRAPHS
    below, above = 0.1 + _LESS * (size - workspace), 0.1 + 0.25 * size
    above += _passing(a, s, gpu, whole)
    plans = count * layers * COLLECTIVES * CAPTURED
    joined = _joins_by_nccl(s, gpu)
    most = count * layers * COLLECTIVES * _captured_most(s, gpu)
    if joined:
        return Estimate(size + plans, below + 0.25 * plans, above + most - plans)
    if joined is None and most:
        return Estimate(size, below, above + most, PEERS)
    return Estimate(size, below, above)


def _scores(a: Architecture, s: Settings, decoded: int) -> float:
    """GiB of an indexer's scores in the largest graph of whole batches: 4 bytes for each token that a request may have,
    of each row (layers/sparse_attn_indexer.py fp8_paged_mqa_logits; DeepGEMM makes the tensor in the graph's pool)."""
    if a.mla is None or not a.mla.indexer_top:
        return 0.0
    return decoded * s.length * 4 / GIB


# What the estimate may charge for each graph of whole batches of gated delta nets but the first, in GiB: 0.14 and 0.17
# on an RTX PRO 6000 (a build of 0.27: 556 and 939 blocks), 0.15 on a pair of RTX 5090. Starts of 0.27 and 0.28 on H100,
# GB10 and an RTX 5000 Ada show none of it, so it is claimed where it was seen.
_PASSING = 0.17


def _passing(a: Architecture, s: Settings, gpu: Card | None, whole: int) -> float:
    seen = gpu is not None and not gpu.unified and (gpu.capability or HOPPER) >= RTX_BLACKWELL
    delta_nets = a.linear is not None and a.linear.kind == "gdn"
    return _PASSING * max(0, whole - 1) if seen and delta_nets and s.does.charges_passing_memory else 0.0


# Which of the two kernels adds up the ranks' results, where only the driver knows it.
PEERS = "whether each card reads the other's memory (nvidia-smi topo -p2p r); --disable-custom-all-reduce settles it"


# How much of what graphs share there is where cuBLAS keeps a quarter of the workspace for the stream that captures, or
# three eighths: before Hopper, and on cards of 12.0 (cuBLAS, cublasSetWorkspace: 32 MiB for 9.0 and 10.x, 12 for 12.x,
# 4 otherwise). Nine logs of 0.19 to 0.30 (RTX 4090 twice, two cards of 23.5 and 47 GiB, A100, L4, RTX 5090 three
# times); on the first runner hybrids of 0.19 and 0.22 show the whole of it.
_SMALL_WORKSPACE = 0.5
# The least that graphs of several ranks share, in GiB, however small the largest batch is. Five hosts with 16 captured
# tokens log 0.13 to 0.2 of graphs in all, where one card's are as large as the rest says (0.21 to 0.27; pairs of RTX
# 3090 and 5090 with and without peer access, four H100).
_LEAST_OF_RANKS = 0.07

# What a layer of packed integers may add to V0's graphs, in GiB, for a reason that its code does not show: a GPTQ model
# of 80 layers logged 3.34 GiB (0.8.3, L40S) where one in 16 bits takes 0.4.
V0_PACKED = 2.9 / 80


def _packed(a: Architecture) -> bool:
    return a.quantization is not None and a.quantization.text("quant_method") in {"awq", "gptq"}


# An all-reduce ends attention, and one ends the MLP. NCCL keeps the plan of each that a graph captured, 80 KiB in GiB.
# Fitted to two hosts of four PCIe cards: 1.08 GiB beyond the rest in 13,760 of them (0.19), 0.71 in 9,792 (0.11).
COLLECTIVES, CAPTURED = 2, 80 / (1 << 20)
# The most that one of them is seen to take, in GiB: NCCL 2.21, which comes with torch up to vLLM 0.9 (four A10 of 0.8.5
# had 6.2 GiB outside torch when they ran out of memory in some 6,400 of them; four RTX 4090 started), and between two
# hosts (two GB10 of 0.29: vLLM's own estimate of its graphs was 5.1 GiB with 10,700 of them).
_EARLY_MOST, _ACROSS_MOST = 0.9 / 1024, 0.4 / 1024


def _captured_most(s: Settings, gpu: Card | None) -> float:
    if s.version < Version((0, 9)):
        return _EARLY_MOST
    return _ACROSS_MOST if gpu is not None and gpu.unified else 1.25 * CAPTURED


def _joins_by_nccl(s: Settings, gpu: Card | None) -> bool | None:
    """Are the ranks' results added up by NCCL, and not by vLLM's own kernel, which needs NVLink between more than two
    cards, and between two that each reads the other's memory (distributed/device_communicators/custom_all_reduce.py)?
    None where only the driver knows that."""
    if s.parallel.tp == 1 or s.engine != "V1":
        return False
    if not s.custom_all_reduce or (gpu is not None and gpu.unified):
        return True  # a GB10 is the only card of its host
    if gpu is None or gpu.bridged:
        return False
    return True if s.parallel.tp > 2 else None


# VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE, taken when the first full graph plans its attention (v1/attention/backends/
# flashinfer.py _get_workspace_buffer).
FLASHINFER_WORKSPACE = 394 / 1024


def uses_flashinfer(s: Settings, gpu: Card | None) -> bool:
    """Is FlashInfer the attention backend: asked for, preferred (compute capability 10), or the first one that takes an
    fp8 cache (FlashAttention does so on Hopper alone; platforms/cuda.py _get_backend_priorities)."""
    if s.engine != "V1":
        return False
    if s.backend is not None:
        return "FLASHINFER" in s.backend.upper()
    capability = gpu.capability if gpu is not None and gpu.capability is not None else 0.0
    if BLACKWELL <= capability < THOR:
        return True
    return s.kv_dtype.startswith("fp8") and capability >= AMPERE and not HOPPER <= capability < BLACKWELL


def takes_flashinfer(a: Architecture, s: Settings, gpu: Card | None) -> bool:
    """Is it the backend of this model? Unasked not where images are seen both ways, of which it knows nothing."""
    both_ways = s.does.asks_backends_for_both_ways and (a.whole_item > 0 or a.name in BOTH_WAYS)
    return uses_flashinfer(s, gpu) and (s.backend is not None or not both_ways)
