"""From a parsed launch to its settings: every default of the version filled in, every contradiction found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from vllm_doctor.knowledge.generations import AMPERE
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.hub import is_gguf
from vllm_doctor.knowledge.images import is_for_cuda, release_of
from vllm_doctor.knowledge.versions import Version, batch_defaults, default_utilization, env_names
from vllm_doctor.launch.parse import LaunchLine, Refusal
from vllm_doctor.launch.together import of_a_step
from vllm_doctor.plan.behaviour import Behaviour, behaviour
from vllm_doctor.plan.launch import (
    ahead,
    cache_groups,
    chunks,
    drafted,
    drafting,
    encoder_decoder,
    exclusive,
    joint,
    keyed,
    traits,
)
from vllm_doctor.plan.launch.all_stages import on_each_stage
from vllm_doctor.plan.launch.balanced import balances, spare_experts
from vllm_doctor.plan.launch.cache_types import cache_type, layers_cache_type, unpacked_layers
from vllm_doctor.plan.launch.compiled import captures_nothing, times_kernels
from vllm_doctor.plan.launch.drafter import SEPARATE, drafting_asked
from vllm_doctor.plan.launch.exchange import BATCHED_STEP, batches_of_one_size, exchange
from vllm_doctor.plan.launch.flags import Flags, SettingError
from vllm_doctor.plan.launch.host_memory import SWAPPED_GIB, allocator_settings, host_asked, weights_kept
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.refused import NOT_IN_FLOAT16, refusals_of_launch
from vllm_doctor.plan.launch.runner import answers_pooled, caches_prefixes, on_v2
from vllm_doctor.plan.launch.settings import DTYPE_BYTES, Products, Settings
from vllm_doctor.plan.launch.shared_experts import all2all_backends, shared_experts
from vllm_doctor.plan.launch.spread import (
    check_parallel,
    hosts_of_a_copy,
    local_ranks,
    of_the_cluster,
    over_ray,
    partition,
)
from vllm_doctor.plan.launch.step import batched_tokens, largest_capture
from vllm_doctor.plan.launch.towers import whole_tower
from vllm_doctor.plan.launch.unasked_chunks import chunks_unasked
from vllm_doctor.plan.launch.which_engine import which_engine
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.largest_image import most_pixels
from vllm_doctor.plan.model.quantization import gguf_bits

_BEYOND_A100 = 82.0  # GiB that no A100 has


def _length(flags: Flags, arch: Architecture, env: dict[str, str], refusals: list[Refusal]) -> tuple[int, bool]:
    text = flags.text("max-model-len")
    if text is None:
        return arch.context, False
    if text in {"auto", "-1"}:
        return arch.context, True
    length = flags.int("max-model-len", arch.context, 1, 10**9)
    if (
        length > arch.context
        and env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1"
        and "hf-overrides" not in flags.values
        and "rope-scaling" not in flags.values
    ):
        refusals.append(
            Refusal(
                "--max-model-len",
                str(length),
                f"at most {arch.context}, the model's own length (VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 overrides)",
            )
        )
    return length, False


def _dtype(  # noqa: PLR0917
    flags: Flags, version: Version, arch: Architecture, gpu: Card | None, refusals: list[Refusal], notes: list[str]
) -> str:
    asked = flags.text("dtype") or "auto"
    asked = {"half": "float16", "float": "float32"}.get(asked, asked)
    old = gpu is not None and gpu.capability is not None and gpu.capability < AMPERE
    overflows = arch.model_type in NOT_IN_FLOAT16 and behaviour(version).keeps_gemma_from_float16
    if asked == "auto":
        asked = "bfloat16" if arch.dtype in {None, "float32", "bfloat16"} or overflows else arch.dtype
        if gpu is not None and arch.dtype == "bfloat16" and old and behaviour(version).takes_stored_dtype:
            instead = "float32" if overflows else "float16"
            what = f"auto, which is the checkpoint's bfloat16 in {version}"
            refusals.append(Refusal("--dtype", what, f"{instead} on {gpu.name}, compute capability {gpu.capability}"))
            asked = instead
        elif asked == "bfloat16" and old and overflows:
            notes.append(f"dtype: {arch.model_type} is not run in float16, and bfloat16 needs 8.0: float32 is planned")
            asked = "float32"
        elif asked == "bfloat16" and old:
            notes.append(
                f"dtype: bfloat16 needs compute capability 8.0; {gpu.name if gpu else ''} has "
                f"{gpu.capability if gpu else ''}, so float16 is planned"
            )
            asked = "float16"
    elif asked == "bfloat16" and old and gpu is not None:
        refusals.append(
            Refusal(
                "--dtype",
                "bfloat16",
                f"float16 on {gpu.name} (compute capability {gpu.capability}); bfloat16 needs 8.0",
            )
        )
    elif asked == "float16" and overflows:
        refusals.append(Refusal("--dtype", asked, f"bfloat16 or float32: {arch.model_type} overflows in float16"))
    if asked not in DTYPE_BYTES:
        notes.append(f"dtype {asked} is not a plain type; planned as 2 bytes a value")
        return "bfloat16"
    return asked


def _read(environment: Mapping[str, str], version: Version) -> dict[str, str]:
    """The variables without those of vLLM that this release does not read: there they change nothing."""
    names = env_names(version)
    return {name: value for name, value in environment.items() if not name.startswith("VLLM_") or name in names}


def resolve(  # noqa: PLR0917
    line: LaunchLine,
    version: Version,
    arch: Architecture,
    gpu: Card | None,
    total_gib: float | None,
    gpus: int,
    draft_model: Architecture | None = None,
) -> Settings:
    """All settings of a launch; `draft_model` is the drafter's architecture, where it is a separate model. Raises
    SettingError for values that are not of their kind; what vLLM would refuse is in `refusals`."""
    flags, env = Flags(line), _read(line.env, version)
    refusals, notes, does = _told(line, arch, behaviour(version)), list(line.notes), behaviour(version)
    pooling, quant = answers_pooled(flags, arch), flags.text("quantization")
    gguf, dtype = _gguf(line.model or "", does), _dtype(flags, version, arch, gpu, refusals, notes)
    method, draft = drafting_asked(flags, arch, draft_model)
    stored = arch.quantization.text("quant_method") if arch.quantization is not None else None
    choice = which_engine(
        version, flags, env, arch, gpu, dtype, "gguf" if gguf else quant or stored, method, pooling=pooling
    )
    which, v1 = choice.engine, choice.engine == "V1"
    if choice.because is not None:
        notes.append(f"vLLM {version} runs this on its V0 engine: its V1 does not take {choice.because}")
    refusals += [choice.refusal] if choice.refusal is not None else []
    par = over_ray(_parallel(flags, env, arch, version), flags, gpus, does)
    notes += of_the_cluster(par, flags)
    check_parallel(par, arch, gpus, refusals, adapters=flags.on("enable-lora", default=False))
    refusals += traits.refused(flags, arch, par, version, does, method=method, quantization=quant or stored)
    if gpu is not None and gpu.slice and par.tp * par.pp > 1:
        refusals.append(
            Refusal(
                "--tensor-parallel-size" if par.tp > 1 else "--pipeline-parallel-size",
                str(max(par.tp, par.pp)),
                f"1: NCCL does not join MIG slices ({gpu.name}); a larger slice, or whole cards",
            )
        )
    length, auto = _length(flags, arch, env, refusals)
    chunked = flags.on(
        "enable-chunked-prefill",
        default=v1 or chunks_unasked(flags, arch, does, gpu, length, drafts=method is not None, pooling=pooling),
    )
    # Asked for throughput, both defaults are doubled (engine/arg_utils.py, since 0.17).
    times = 2 if flags.text("performance-mode") == "throughput" else 1
    # Not what the release's own checks have told, which its wheel shows since 0.30.
    refusals += _untold(refusals_of_launch(flags, arch, par, length, does), refusals)

    def batch(card: str) -> tuple[int, int]:
        """Sequences and tokens of a step, where the card has this name."""
        defaults = batch_defaults(version, total_gib, card, use_v1=v1)
        seqs = flags.int("max-num-seqs", defaults.seqs * times, 1, 10**7)
        tokens = None if defaults.tokens is None else _step(defaults.tokens, flags, env, par, version) * times
        batched = batched_tokens(flags, version, which, arch, length, seqs, chunked, tokens)
        return seqs if "max-num-seqs" in flags.values else min(seqs, batched), batched

    seqs, batched = batch(gpu.name if gpu else "")
    on_a100 = batch("A100") if gpu is None and (total_gib or 0.0) < _BEYOND_A100 else (seqs, batched)
    whole_prompts = not chunked and "max-num-batched-tokens" in flags.values and not auto
    small = of_a_step(batched, seqs=seqs, length=length if whole_prompts else None)
    refusals += (one for one in small if one not in refusals)  # the launch alone may have said it
    utilization = flags.number(
        "gpu-memory-utilization", default_utilization(version), 0.0, 1.0, "a fraction of the card's memory"
    )
    if utilization == 0.0:
        raise SettingError("--gpu-memory-utilization: found 0; needed: a fraction above 0 and up to 1")
    level = flags.text("compilation-config") or ""
    modes = {} if level.isdigit() else flags.object("compilation-config")
    # At level 1 graphs are of pieces alone (config/vllm.py OPTIMIZATION_LEVEL_01).
    piecewise = flags.text("optimization-level") == "1" or str(modes.get("cudagraph_mode")).upper() == "PIECEWISE"
    mm = flags.object("limit-mm-per-prompt")
    quantized = arch.quantization is not None or quant is not None
    v2 = v1 and on_v2(version, env, arch, quantized)
    refusals += drafting.refused(
        flags,
        arch,
        method,
        draft,
        batched,
        version,
        does,
        engine=which,
        stages=par.pp,
        ranks=par.tp,
        v2=v2,
        seqs=seqs,
        drafter=draft_model,
    )
    refusals += [
        *encoder_decoder.refused(flags, arch, par, method, does, engine=which, already={r.flag for r in refusals}),
        *(
            one
            for each in (
                exclusive.refusals(flags, env, arch, par, does),
                ahead.refusals(flags, env, method, par.pp, does),
                drafted.refusals(flags, arch, method, version, does),
                chunks.refusals(flags, arch, which, does, chunked=chunked, pooling=pooling),
                keyed.refusals(flags, env, line.model or "", arch, length, does),
            )
            for one in each
            if one.flag not in {r.flag for r in refusals}
        ),
    ]
    refusals += joint.refusals(
        flags.values,
        version,
        {
            "parallel.tensor_parallel_size": par.tp,
            "parallel.pipeline_parallel_size": par.pp,
            "parallel.data_parallel_size": par.dp,
            "parallel.world_size": par.tp * par.pp * par.prefill,
            "scheduler.max_num_seqs": seqs,
            "scheduler.max_num_batched_tokens": batched,
            "scheduler.async_scheduling": flags.on("async-scheduling", default=False),
            "cache.cache_dtype": cache_type(flags, arch, does),
            "speculative.method": method,
            "model.dtype": dtype,
            **({} if arch.encoder_decoder else {"model.enforce_eager": flags.on("enforce-eager", default=False)}),
            "model.max_model_len": length,
            "model.runner_type": "pooling" if pooling else "generate",
            "envs.VLLM_USE_V1": v1,
            **joint.of_model(arch, quant),
            **joint.of_environment(env),
        },
        env=env,
        gpu=gpu,
        told={one.flag for one in refusals},
    )
    sampler = env.get("VLLM_USE_FLASHINFER_SAMPLER")
    host = host_asked(flags, env, does, refusals, None if v1 else SWAPPED_GIB)
    host, kept = weights_kept(host, version, v1=v1, v2=v2)
    notes += kept
    refusals += _untold(cache_groups.refusals(flags, arch, host.connectors, version, does) if v1 else (), refusals)
    return Settings(
        version=version,
        engine=which,
        v2_runner=v2,
        parallel=par,
        utilization=utilization,
        length=length,
        auto_length=auto,
        seqs=seqs,
        batched=batched,
        on_a100=on_a100 if on_a100 != (seqs, batched) else None,
        chunked=chunked,
        prefix_caching=flags.on("enable-prefix-caching", default=v1 and not pooling and caches_prefixes(version, arch)),
        kv_dtype=layers_cache_type(flags, arch, does),
        unpacked=unpacked_layers(flags, arch, layers_cache_type(flags, arch, does)),
        block=flags.int("block-size", 0, 1, 65536) or None,
        eager=captures_nothing(flags, env, version),
        timed=times_kernels(flags, env, arch.name, version, forgets=line.forgets and bool(release_of(line.image))),
        full_graphs=not piecewise,
        mixed_graphs=str(modes.get("cudagraph_mode")).upper() == "FULL",
        indexer_in_four_bits=_indexer_in_four_bits(flags),
        dtype=dtype,
        element=DTYPE_BYTES[dtype],
        quantization=quant,
        speculative=method,
        draft_tokens=draft,
        draft=_drafter(draft_model, method, does),
        draft_kv_dtype=_own_cache(flags),
        host=host,
        kv_bytes=flags.int("kv-cache-memory-bytes", 0) or None,
        blocks_override=flags.int("num-gpu-blocks-override", 0) or None,
        context_parallel=flags.int("decode-context-parallel-size", 1, 1, 4096)
        * flags.int("prefill-context-parallel-size", 1, 1, 4096),
        prefill_parallel=flags.int("prefill-context-parallel-size", 1, 1, 4096),
        hybrid_manager=cache_groups.keeps_groups(flags, host.connectors, version, does),
        capture_sizes=largest_capture(flags, seqs, batched, draft, version, arch, gpu),
        skip_encoder=flags.on("skip-mm-profiling", default=False),
        language_only=flags.on("language-model-only", default=False),
        image_limit=_limit(mm.get("image")),
        video_limit=_limit(mm.get("video")),
        image_pixels=most_pixels(flags.object("mm-processor-kwargs")),
        backend=flags.text("attention-backend") or env.get("VLLM_ATTENTION_BACKEND"),
        moe_backend=_kernels_of_experts(flags),
        pooling=pooling,
        loras=flags.int("max-loras", 1, 1, 10_000) if flags.on("enable-lora", default=False) else 0,
        lora_rank=flags.int("max-lora-rank", 16, 1, 4096),
        lora_targets=_targets(flags),
        lora_shared=flags.on("fully-sharded-loras", default=False),
        kv_stored=layers_cache_type(flags, arch, does) != (flags.text("kv-cache-dtype") or "auto"),
        gguf=gguf,
        ptxas_named=bool(env.get("TRITON_PTXAS_PATH")),
        trusts=flags.on("trust-remote-code", default=False),
        other_kernels="VLLM_DISABLED_KERNELS" in env or flags.text("linear-backend") not in {None, "auto", "cutlass"},
        config_elsewhere=bool(flags.text("hf-config-path")),
        custom_all_reduce=not flags.on("disable-custom-all-reduce", default=False),
        expandable=_expandable(env),
        sparse_factor=_sparse_factor(flags),
        latents=does.caches_latents and env.get("VLLM_MLA_DISABLE", "0") != "1",
        aligned_latents=which == "V0" and does.aligns_latents and env.get("VLLM_CUDA_MEM_ALIGN_KV_CACHE") != "0",
        products=_products(env) if which == "V0" and does.multiplies_latent_weights else None,
        estimate_graphs=_charges_graphs(env, does),
        flashinfer_asked=None if sampler is None else sampler == "1",
        flashinfer_there=is_for_cuda(line.image) and gpu is not None and not _beside_arm(gpu),
        flashinfer_sampler=(sampler != "0") if does.flashinfer_sampler else sampler == "1",
        flashinfer_experts=env.get("VLLM_USE_FLASHINFER_MOE_FP4") == "1",
        no_flashinfer_fp8=env.get("VLLM_USE_FLASHINFER_MOE_FP8") == "0",
        marlin_experts=env.get("VLLM_MXFP4_USE_MARLIN") == "1",
        exchange=exchange(flags, env, arch, par, version, batched),
        exchanges=frozenset(all2all_backends(flags, env, version)) if par.expert else frozenset(),
        balances=balances(flags, arch, par, does),
        async_scheduling=flags.on("async-scheduling", default=does.schedules_ahead),
        mamba_dtype=flags.text("mamba-ssm-cache-dtype") or "auto",
        state_mode=flags.text("mamba-cache-mode"),
        whole_items=flags.on("disable-chunked-mm-input", default=False),
        window_dtype=flags.text("mamba-cache-dtype") or "auto",
        notes=tuple(notes),
        refusals=tuple(refusals),
        defaulted=frozenset(
            n
            for n in ("max-model-len", "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization")
            if n not in flags.values
        ),
    )


def _beside_arm(gpu: Card) -> bool:
    """Is the host an Arm one: its memory is the card's, or the processor is on one board with it?"""
    return gpu.unified or any(board in gpu.name for board in ("GH200", "GB200", "GB300"))


def _charges_graphs(env: Mapping[str, str], does: Behaviour) -> bool:
    """Is what graphs are estimated to take kept free for them?"""
    asked = env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
    return asked != "0" if does.estimates_graphs else asked == "1" and does.can_estimate_graphs


def _untold(found: Iterable[Refusal], told: Iterable[Refusal]) -> list[Refusal]:
    """Of what was found, what concerns no flag that was told of."""
    flags = {one.flag for one in told}
    return [one for one in found if one.flag not in flags]


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


def _step(usual: int, flags: Flags, env: dict[str, str], par: Parallel, version: Version) -> int:
    small = behaviour(version).batches_of_one_size and batches_of_one_size(flags, env, par, version)
    return BATCHED_STEP if small else usual


def _parallel(flags: Flags, env: dict[str, str], arch: Architecture, version: Version) -> Parallel:
    par = Parallel(
        flags.int("tensor-parallel-size", 1, 1, 4096),
        flags.int("pipeline-parallel-size", 1, 1, 4096),
        flags.int("data-parallel-size", 1, 1, 4096),
        flags.on("enable-expert-parallel", default=False),
        local_ranks(flags),
        partition(env),
        behaviour(version).rest_to_last_stage,
        prefill=flags.int("prefill-context-parallel-size", 1, 1, 4096),
        hosts=hosts_of_a_copy(flags),
    )
    return replace(
        par,
        shared=shared_experts(flags, env, arch, par, version),
        spare=spare_experts(flags, arch, par),
        on_each=on_each_stage(arch.model_type, version),
        whole_tower=whole_tower(flags, arch, version),
    )


def _told(line: LaunchLine, arch: Architecture, does: Behaviour) -> list[Refusal]:
    """What is refused of the line alone, but for a name of --quantization that the checkpoint's own method replaces,
    whichever it is."""
    stored = arch.quantization.text("quant_method") if arch.quantization is not None else ""
    replaced = stored == "auto-round" and does.auto_round_as_inc
    return [one for one in line.refusals if not (replaced and one.flag == "--quantization")]


def _gguf(model: str, does: Behaviour) -> str | None:
    """The GGUF file that is served, or the type of its weights, owner/name:Q4_K_M, where the release knows it."""
    if not is_gguf(model):
        return None
    if model.lower().endswith(".gguf"):
        return model
    kind = model.rpartition(":")[2]
    return kind if does.names_gguf_types and gguf_bits(kind) is not None else None


def _targets(flags: Flags) -> frozenset[str] | None:
    """The last names of --lora-target-modules (lora/utils.py is_in_target_modules)."""
    text = flags.text("lora-target-modules")
    return None if text is None else frozenset(name.rpartition(".")[2] for name in text.split(","))


def _limit(value: object) -> int | None:
    """Items a prompt may hold: a number, or {"count": …, …} (config/multimodal.py)."""
    if isinstance(value, dict):
        value = value.get("count")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


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


def _kernels_of_experts(flags: Flags) -> str | None:
    """--moe-backend as vLLM reads it (config/kernel.py: small letters, and no hyphens); None where it chooses."""
    try:
        held = flags.object("kernel-config")
    except SettingError:
        held = {}  # it is refused for its form
    asked = flags.text("moe-backend") or held.get("moe_backend")
    name = asked.lower().replace("-", "_") if isinstance(asked, str) else "auto"
    return None if name == "auto" else name
