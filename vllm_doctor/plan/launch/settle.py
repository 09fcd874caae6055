"""The settings of a launch: what was decided, and each switch and number that its line alone settles."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.images import is_for_cuda, release_of
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch import cache_groups
from vllm_doctor.plan.launch.balanced import balances
from vllm_doctor.plan.launch.cache_types import layers_cache_type, unpacked_layers
from vllm_doctor.plan.launch.compiled import captures_nothing, times_kernels
from vllm_doctor.plan.launch.decisions import Decided
from vllm_doctor.plan.launch.drafter import SEPARATE
from vllm_doctor.plan.launch.exchange import exchange
from vllm_doctor.plan.launch.flags import Flags, SettingError
from vllm_doctor.plan.launch.host_memory import HostAsked, allocator_settings
from vllm_doctor.plan.launch.item_limits import item_limit
from vllm_doctor.plan.launch.of_launch import LaunchGiven, LaunchSaid
from vllm_doctor.plan.launch.runner import caches_prefixes
from vllm_doctor.plan.launch.settings import DTYPE_BYTES, Products, Settings
from vllm_doctor.plan.launch.shared_experts import all2all_backends
from vllm_doctor.plan.launch.step import largest_capture
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.largest_image import most_pixels


def settle_launch(given: LaunchGiven, d: Decided, host: HostAsked, said: LaunchSaid) -> Settings:
    """Raises SettingError for a value that is not of its kind."""
    flags, env, line, arch = given.flags, given.env, given.line, given.arch
    version, does, seqs, batched = given.version, given.does, d.batch.seqs, d.batch.tokens
    modes, mm = _compilation(flags), flags.object("limit-mm-per-prompt")
    sampler = env.get("VLLM_USE_FLASHINFER_SAMPLER")
    return Settings(
        version=given.version,
        engine=d.engine,
        v2_runner=d.v2,
        parallel=d.parallel,
        utilization=d.utilization,
        length=d.length,
        auto_length=d.auto_length,
        seqs=seqs,
        batched=batched,
        on_a100=(d.on_a100.seqs, d.on_a100.tokens) if d.on_a100 != d.batch else None,
        chunked=d.chunked,
        prefix_caching=flags.on(
            "enable-prefix-caching", default=d.v1 and not d.pooling and caches_prefixes(version, arch)
        ),
        kv_dtype=layers_cache_type(flags, arch, does),
        unpacked=unpacked_layers(flags, arch, layers_cache_type(flags, arch, does)),
        block=flags.int("block-size", 0, 1, 65536) or None,
        eager=captures_nothing(flags, env, version),
        timed=times_kernels(flags, env, arch.name, version, forgets=line.forgets and bool(release_of(line.image))),
        full_graphs=not _piecewise(flags, modes),
        mixed_graphs=str(modes.get("cudagraph_mode")).upper() == "FULL",
        indexer_in_four_bits=_indexer_in_four_bits(flags),
        dtype=d.dtype,
        element=DTYPE_BYTES[d.dtype],
        quantization=d.quantization,
        speculative=d.method,
        draft_tokens=d.draft_tokens,
        draft=_drafter(given.draft_model, d.method, does),
        draft_kv_dtype=_own_cache(flags),
        host=host,
        kv_bytes=flags.int("kv-cache-memory-bytes", 0) or None,
        blocks_override=flags.int("num-gpu-blocks-override", 0) or None,
        context_parallel=flags.int("decode-context-parallel-size", 1, 1, 4096)
        * flags.int("prefill-context-parallel-size", 1, 1, 4096),
        prefill_parallel=flags.int("prefill-context-parallel-size", 1, 1, 4096),
        hybrid_manager=cache_groups.keeps_groups(flags, host.connectors, version, does),
        capture_sizes=largest_capture(flags, seqs, batched, d.draft_tokens, version, arch, given.gpu),
        skip_encoder=flags.on("skip-mm-profiling", default=False),
        language_only=flags.on("language-model-only", default=False),
        image_limit=item_limit(mm.get("image")),
        video_limit=item_limit(mm.get("video")),
        image_pixels=most_pixels(flags.object("mm-processor-kwargs")),
        backend=flags.text("attention-backend") or env.get("VLLM_ATTENTION_BACKEND"),
        tower_backend=_tower_backend(flags, env, does),
        moe_backend=_kernels_of_experts(flags),
        pooling=d.pooling,
        loras=flags.int("max-loras", 1, 1, 10_000) if flags.on("enable-lora", default=False) else 0,
        lora_rank=flags.int("max-lora-rank", 16, 1, 4096),
        lora_targets=_targets(flags),
        lora_shared=flags.on("fully-sharded-loras", default=False),
        kv_stored=layers_cache_type(flags, arch, does) != (flags.text("kv-cache-dtype") or "auto"),
        gguf=d.gguf,
        ptxas_named=bool(env.get("TRITON_PTXAS_PATH")),
        trusts=flags.on("trust-remote-code", default=False),
        other_kernels="VLLM_DISABLED_KERNELS" in env or flags.text("linear-backend") not in {None, "auto", "cutlass"},
        config_elsewhere=bool(flags.text("hf-config-path")),
        custom_all_reduce=not flags.on("disable-custom-all-reduce", default=False),
        expandable=_expandable(env),
        sparse_factor=_sparse_factor(flags),
        latents=does.caches_latents and env.get("VLLM_MLA_DISABLE", "0") != "1",
        aligned_latents=not d.v1 and does.aligns_latents and env.get("VLLM_CUDA_MEM_ALIGN_KV_CACHE") != "0",
        products=_products(env) if not d.v1 and does.multiplies_latent_weights else None,
        estimate_graphs=_charges_graphs(env, does),
        flashinfer_asked=None if sampler is None else sampler == "1",
        flashinfer_there=is_for_cuda(line.image) and given.gpu is not None and not _beside_arm(given.gpu),
        flashinfer_sampler=(sampler != "0") if does.flashinfer_sampler else sampler == "1",
        flashinfer_experts=env.get("VLLM_USE_FLASHINFER_MOE_FP4") == "1",
        no_flashinfer_fp8=env.get("VLLM_USE_FLASHINFER_MOE_FP8") == "0",
        marlin_experts=env.get("VLLM_MXFP4_USE_MARLIN") == "1",
        exchange=exchange(flags, env, arch, d.parallel, version, batched),
        exchanges=frozenset(all2all_backends(flags, env, version)) if d.parallel.expert else frozenset(),
        balances=balances(flags, arch, d.parallel, does),
        async_scheduling=flags.on("async-scheduling", default=does.schedules_ahead),
        mamba_dtype=flags.text("mamba-ssm-cache-dtype") or "auto",
        state_mode=flags.text("mamba-cache-mode"),
        whole_items=flags.on("disable-chunked-mm-input", default=False),
        window_dtype=flags.text("mamba-cache-dtype") or "auto",
        notes=tuple(said.notes),
        refusals=tuple(said.refusals),
        defaulted=frozenset(
            n
            for n in ("max-model-len", "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization")
            if n not in flags.values
        ),
    )


def _compilation(flags: Flags) -> Mapping[str, object]:
    """--compilation-config, unless it is a level alone."""
    level = flags.text("compilation-config") or ""
    return {} if level.isdigit() else flags.object("compilation-config")


def _piecewise(flags: Flags, modes: Mapping[str, object]) -> bool:
    """At level 1 graphs are of pieces alone (config/vllm.py OPTIMIZATION_LEVEL_01)."""
    return flags.text("optimization-level") == "1" or str(modes.get("cudagraph_mode")).upper() == "PIECEWISE"


def _beside_arm(gpu: Card) -> bool:
    """Is the host an Arm one: its memory is the card's, or the processor is on one board with it?"""
    return gpu.unified or any(board in gpu.name for board in ("GH200", "GB200", "GB300"))


def _charges_graphs(env: Mapping[str, str], does: Behaviour) -> bool:
    """Is what graphs are estimated to take kept free for them?"""
    asked = env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
    return asked != "0" if does.estimates_graphs else asked == "1" and does.can_estimate_graphs


def _drafter(told: Architecture | None, method: str | None, does: Behaviour) -> Architecture | None:
    """The drafter as the release makes it: to 0.11.0 EAGLE 3 has one layer that joins three states, whatever its
    config says (llama_eagle3.py), and to 0.24 DFlash no layer with a window (qwen3_dflash.py)."""
    if told is None or method not in SEPARATE or (method == "mtp" and not told.mtp_layers):
        return None
    if method in {"dflash", "dspark"} and not does.dflash_has_windows:
        return replace(told, layers=tuple(replace(x, kind="full", window=None) if x.window else x for x in told.layers))
    if method != "eagle3":
        return told
    layers = told.layers if does.eagle3_has_layers else told.layers[:1]
    joined = told.joined if does.eagle3_names_its_layers else told.joined // max(1, told.joined_layers) * 3
    return replace(told, layers=layers, joined=joined)


def _sparse_factor(flags: Flags) -> int | None:
    """sparse_mla_prefill_workspace_factor of --attention-config."""
    try:
        told = flags.object("attention-config").get("sparse_mla_prefill_workspace_factor")
    except SettingError:
        return None  # it is refused for its form
    return told if isinstance(told, int) and not isinstance(told, bool) and 2 <= told <= 1000 else None


def _indexer_in_four_bits(flags: Flags) -> bool:
    """Asked for by its name or by the flag of the releases before (config/attention.py)."""
    try:
        told = flags.object("attention-config")
    except SettingError:
        return False  # it is refused for its form
    return told.get("use_fp4_indexer_cache") is True or told.get("indexer_kv_dtype") == "mxfp4"


def _targets(flags: Flags) -> frozenset[str] | None:
    """The last names of --lora-target-modules (lora/utils.py is_in_target_modules)."""
    text = flags.text("lora-target-modules")
    return None if text is None else frozenset(name.rpartition(".")[2] for name in text.split(","))


def _expandable(env: dict[str, str]) -> bool:
    """Does torch's allocator grow its segments?"""
    return "expandable_segments:true" in allocator_settings(env).lower().replace(" ", "")


def _products(env: dict[str, str]) -> Products | None:
    """What is kept of the products of latent attention's weights, by its variables."""
    if env.get("VLLM_MLA_PERFORM_MATRIX_ABSORPTION") == "0":
        return None
    return Products.WIDE if env.get("VLLM_MLA_DISABLE_REQUANTIZATION") == "1" else Products.STORED


def _own_cache(flags: Flags) -> str | None:
    """The type of a drafter's own cache, where the launch says it (from 0.26 on)."""
    said = flags.object("speculative-config").get("kv_cache_dtype")
    return said if isinstance(said, str) else None


def _tower_backend(flags: Flags, env: Mapping[str, str], does: Behaviour) -> str | None:
    """Which attention backend a vision tower is asked to run on; None where the release chooses."""
    asked = env.get("VLLM_ATTENTION_BACKEND") if does.towers_follow_variable else None
    name = flags.text("mm-encoder-attn-backend") or asked
    return name.upper() if name else None


def _kernels_of_experts(flags: Flags) -> str | None:
    """--moe-backend as vLLM reads it (config/kernel.py: small letters, and no hyphens); None where it chooses."""
    try:
        held = flags.object("kernel-config")
    except SettingError:
        held = {}  # it is refused for its form
    asked = flags.text("moe-backend") or held.get("moe_backend")
    name = asked.lower().replace("-", "_") if isinstance(asked, str) else "auto"
    return None if name == "auto" else name
