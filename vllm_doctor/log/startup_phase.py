"""Where in the run of a server something happened: by the functions of a traceback, or by what the log said last.

The functions are vLLM's own (engine/, executor/, worker/, v1/): they have kept their names from 0.2 to 0.33 or were
added to, so both are listed. The outermost function that names a stage decides; inner ones refine it.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from vllm_doctor.log.match import says
from vllm_doctor.records.verdict import Phase


class StartupPhase(StrEnum):
    """The steps of a start, in order, then serving."""

    CONFIG = "config"
    DEVICE = "device"
    WEIGHTS = "weights"
    PROFILE = "profile"
    PROFILE_ENCODER = "profile-encoder"
    KV = "kv-cache"
    GRAPHS = "cudagraph"
    WARMUP = "warm-up"
    SAMPLER = "sampler-warm-up"
    READY = "ready"
    SERVING = "serving"


# The steps that only a start takes.
OF_A_START = frozenset(
    {
        StartupPhase.DEVICE,
        StartupPhase.WEIGHTS,
        StartupPhase.PROFILE,
        StartupPhase.PROFILE_ENCODER,
        StartupPhase.KV,
        StartupPhase.GRAPHS,
    }
)
PHASE = {
    StartupPhase.CONFIG: Phase.FLAG_ERROR,
    StartupPhase.DEVICE: Phase.STARTUP_WEIGHTS,
    StartupPhase.WEIGHTS: Phase.STARTUP_WEIGHTS,
    StartupPhase.PROFILE: Phase.STARTUP_PROFILE,
    StartupPhase.PROFILE_ENCODER: Phase.MULTIMODAL_ENCODER,
    StartupPhase.KV: Phase.STARTUP_KV_CACHE,
    StartupPhase.GRAPHS: Phase.STARTUP_CUDAGRAPH,
    StartupPhase.WARMUP: Phase.STARTUP_SAMPLER_WARMUP,
    StartupPhase.SAMPLER: Phase.STARTUP_SAMPLER_WARMUP,
    StartupPhase.READY: Phase.RUNTIME_PREFILL_BURST,
    StartupPhase.SERVING: Phase.RUNTIME_PREFILL_BURST,
}

# Outermost first. Each names the worker's own step; what is called inside it belongs to it.
_STEPS: tuple[tuple[StartupPhase, frozenset[str]], ...] = (
    (
        StartupPhase.PROFILE,
        frozenset(
            {
                "determine_available_memory",
                "determine_num_available_blocks",
                "profile_num_available_blocks",
                "profile_run",
            }
        ),
    ),
    (
        StartupPhase.KV,
        frozenset(
            {
                "initialize_cache",
                "initialize_from_config",
                "initialize_kv_cache",
                "init_cache_engine",
                "_init_cache_engine",
                "_allocate_kv_cache",
                "allocate_kv_cache",
                "_allocate_kv_cache_tensors",
                "_reshape_kv_cache_tensors",
                "get_kv_cache_configs",
                "check_enough_kv_cache_memory",
                "_check_enough_kv_cache_memory",
                "raise_if_cache_size_invalid",
                "initialize_kv_cache_tensors",
            }
        ),
    ),
    (
        StartupPhase.WARMUP,
        frozenset(
            {
                "compile_or_warm_up_model",
                "warm_up_model",
                "_warm_up_model",
                "kernel_warmup",
                "warmup_model",
                "warmup_graphs",
            }
        ),
    ),
    (
        StartupPhase.WEIGHTS,
        frozenset(
            {
                "load_model",
                "get_model",
                "initialize_model",
                "_initialize_model",
                "make_layers",
                "load_weights",
                "process_weights_after_loading",
                "create_weights",
                "reload_weights",
                # Adapters' slots are made for every module as the model is loaded (lora/models.py).
                "create_lora_manager",
                "_create_lora_modules",
                "create_lora_weights",
            }
        ),
    ),
    (
        StartupPhase.DEVICE,
        # What is free is asked as the device is opened; where another step asks it, its call stands further out.
        frozenset(
            {"init_device", "set_device_index", "set_device", "init_worker_distributed_environment", "mem_get_info"}
            | {"cudaMemGetInfo", "MemorySnapshot"}
        ),
    ),
    (
        StartupPhase.SERVING,
        frozenset(
            {
                "run_busy_loop",
                "_process_engine_step",
                "step_with_batch_queue",
                "run_engine_loop",
                "engine_step",
                "step_async",
                "worker_busy_loop",
                "execute_model",
                "sample_tokens",
                "_get_prompt_logprobs_dict",
                "run_background_loop",
                "step",
                "propose",
                "propose_draft_token_ids",
                "start_load_kv",
                "wait_for_save",
            }
        ),
    ),
)
# Without one of these a model that takes weights was made before: what loads them is an update of a running engine.
_MAKES_A_MODEL = frozenset({"load_model", "get_model", "initialize_model", "_initialize_model", "make_layers"})
_GRAPHS = frozenset(
    {
        "capture_model",
        "capture_end",
        "capture_begin",
        "_capture_cudagraphs",
        "capture_graphs",
        "profile_cudagraph_memory",
        # Gaudi's runner captures HPU Graphs for its buckets there (hpu_model_runner.py).
        "warmup_graphs",
    }
)
SAMPLER_BATCHES = frozenset({"_dummy_sampler_run", "_dummy_pooler_run", "_dummy_pooler_run_task"})
_ENCODER = frozenset(
    {
        "embed_multimodal",
        "get_multimodal_embeddings",
        "_execute_mm_encoder",
        "_process_image_input",
        "_process_video_input",
        "_process_audio_input",
        "profile_mm_encoder",
        "get_vision_embeddings",
        "_dummy_mm_encoder_run",
        "_embed_multimodal",
        "split_qkv",
        "all_gather_interleave",
        "rot_pos_emb",
        "fast_pos_embed_interpolate",
        "call_hf_processor",
        "_call_hf_processor",
    }
)
# Steps in which an encoder works; where its modules are built, it is weights.
_ENCODES = frozenset({StartupPhase.CONFIG, StartupPhase.PROFILE, StartupPhase.READY, StartupPhase.SERVING})
_NAMES = frozenset().union(*(step for _, step in _STEPS), _GRAPHS, SAMPLER_BATCHES, _ENCODER)


def names_a_step(function: str) -> bool:
    """Is it the name of a function that one step alone has?"""
    return function in _NAMES


def names_encoder(files: Iterable[str], codes: Iterable[str], functions: Iterable[str]) -> bool:
    """Does a call name the encoder: by its file, by what its own line calls, or by its function?"""
    return (
        any(says(f, "call-encoder-attention") or says(f, "call-encoder-model") for f in files)
        or any(says(code, "code-of-encoder") for code in codes)
        or not _ENCODER.isdisjoint(functions)
    )


def encodes(stage: StartupPhase, files: Sequence[str], codes: Iterable[str], functions: Sequence[str]) -> bool:
    """Was it in the encoder of images, video or audio, by the files of the calls or by what a call's own line names?"""
    built = any(f == "__init__" and says(p, "call-of-module") for p, f in zip(files, functions, strict=False))
    if stage not in _ENCODES or built or any(says(f, "function-of-weights") for f in functions):
        return False
    told = [*codes]
    if names_encoder(files, told, ()):
        return True
    # The file of a multimodal model has its encoder; its language model is another one's file, which it calls.
    modules = [p for p in files if says(p, "call-of-module") and "/models/" in p]
    inside = bool(modules) and says(modules[-1], "call-multimodal") and not says(modules[-1], "call-whole-model")
    return inside and not any("language_model" in code for code in told)


def phase_at(files: Sequence[str], functions: Sequence[str]) -> StartupPhase | None:
    """The stage by where the innermost calls stand, where no call names it: a cut traceback keeps these alone.

    A module of the model that is made, or whose weights are read or rearranged, is never made again at run time.
    """
    for file, function in zip(files, functions, strict=False):
        if says(file, "call-of-loader") or says(function, "function-of-weights"):
            return StartupPhase.WEIGHTS
        if function == "__init__" and says(file, "call-of-module"):
            return StartupPhase.WEIGHTS
        if function == "__init__" and (says(file, "call-of-communicator") or says(file, "call-of-runner")):
            return StartupPhase.DEVICE
        if says(file, "call-of-kv-transfer"):
            if not _MAKES_A_CONNECTOR.isdisjoint(functions):
                return StartupPhase.DEVICE
            return StartupPhase.KV if says(function, "function-of-registration") else StartupPhase.SERVING
        for row, stage in _PLACES:
            if says(file, row):
                return stage
    return None


# distributed/kv_transfer/kv_connector/factory.py, kv_transfer_state.py: once, as the worker opens its device.
_MAKES_A_CONNECTOR = frozenset({"create_connector", "create_connector_v0", "create_connector_v1"}) | {
    "ensure_kv_transfer_initialized"
}
_PLACES = (
    ("call-of-capture", StartupPhase.GRAPHS),
    ("call-of-warm-up", StartupPhase.WARMUP),
    ("call-of-cache", StartupPhase.KV),
    ("call-of-weights-update", StartupPhase.SERVING),
)


def startup_phase_of(functions: Iterable[str]) -> StartupPhase | None:
    """The stage in which a traceback with these functions happened, or None where they do not tell."""
    names = list(functions)
    present = frozenset(names)
    if any(says(name, "function-of-new-weights") for name in names) and present.isdisjoint(_MAKES_A_MODEL):
        return StartupPhase.SERVING
    steps = [(stage, min(names.index(n) for n in step & present)) for stage, step in _STEPS if step & present]
    if not steps:
        if present & _GRAPHS:
            return StartupPhase.GRAPHS
        if present & _ENCODER:
            return StartupPhase.PROFILE_ENCODER
        return StartupPhase.SAMPLER if present & SAMPLER_BATCHES else None
    outer = min(steps, key=lambda s: s[1])[0]
    if outer is StartupPhase.SERVING:
        # A worker's busy loop also carries out the steps of the start; what it was doing stands further in.
        inner = [s for s in steps if s[0] is not StartupPhase.SERVING]
        if present.isdisjoint(_MAKES_A_MODEL):
            inner = [s for s in inner if s[0] is not StartupPhase.WEIGHTS]
        outer = min(inner, key=lambda s: s[1])[0] if inner else outer
    if present & _GRAPHS and outer in {StartupPhase.PROFILE, StartupPhase.WARMUP, StartupPhase.KV}:
        return StartupPhase.GRAPHS
    if present & SAMPLER_BATCHES and outer is StartupPhase.WARMUP:
        return StartupPhase.SAMPLER
    if present & _ENCODER and outer in {StartupPhase.PROFILE, StartupPhase.SERVING}:
        return StartupPhase.PROFILE_ENCODER
    return outer
