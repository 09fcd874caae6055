"""What the launch, the release, the model and the card decide together: engine, ranks, types and sizes of a step."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.hub import is_gguf
from vllm_doctor.knowledge.versions import Engine, Version, batch_defaults, default_utilization
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour, behaviour
from vllm_doctor.plan.launch.all_stages import on_each_stage
from vllm_doctor.plan.launch.balanced import spare_experts
from vllm_doctor.plan.launch.drafter import drafting_asked
from vllm_doctor.plan.launch.dtype import dtype_of
from vllm_doctor.plan.launch.exchange import BATCHED_STEP, batches_of_one_size
from vllm_doctor.plan.launch.flags import Flags, SettingError
from vllm_doctor.plan.launch.of_launch import LaunchGiven, LaunchSaid
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.runner import answers_pooled, on_v2
from vllm_doctor.plan.launch.shared_experts import shared_experts
from vllm_doctor.plan.launch.spread import (
    check_parallel,
    hosts_of_a_copy,
    local_ranks,
    of_the_cluster,
    over_ray,
    partition,
)
from vllm_doctor.plan.launch.step import batched_tokens
from vllm_doctor.plan.launch.towers import whole_tower
from vllm_doctor.plan.launch.unasked_chunks import chunks_unasked
from vllm_doctor.plan.launch.which_engine import which_engine
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import gguf_bits

_BEYOND_A100 = 82.0  # GiB that no A100 has


class Batch(msgspec.Struct, frozen=True):
    """Sequences and tokens of a step."""

    seqs: int
    tokens: int


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in tokens and sequences; `auto_length` asks for the longest context that fits."""

    engine: Engine
    v2: bool  # the second model runner
    parallel: Parallel
    dtype: str
    quantization: str | None  # of the launch
    stored: str | None  # of the checkpoint
    gguf: str | None
    method: str | None  # of drafting
    draft_tokens: int
    pooling: bool
    length: int
    auto_length: bool
    chunked: bool
    batch: Batch
    on_a100: Batch  # where the unnamed card may be an A100; else the same
    utilization: float

    @property
    def v1(self) -> bool:
        """Does the V1 engine run it?"""
        return self.engine == "V1"


def decide_launch(given: LaunchGiven, said: LaunchSaid) -> Decided:
    """Raises SettingError for a value that is not of its kind; what no release takes is told in `said`."""
    flags, env, arch, version, gpu = given.flags, given.env, given.arch, given.version, given.gpu
    pooling, quantization = answers_pooled(flags, arch), flags.text("quantization")
    stored = arch.quantization.text("quant_method") if arch.quantization is not None else None
    gguf, dtype = _gguf(given.line.model or "", given.does), dtype_of(given, said)
    method, draft_tokens = drafting_asked(flags, arch, given.draft_model)
    kind = "gguf" if gguf else quantization or stored
    choice = which_engine(version, flags, env, arch, gpu, dtype, kind, method, pooling=pooling)
    v1 = choice.engine == "V1"
    if choice.because is not None:
        said.notes.append(f"vLLM {version} runs this on its V0 engine: its V1 does not take {choice.because}")
    said.refusals.extend([choice.refusal] if choice.refusal is not None else [])
    parallel = over_ray(_parallel(flags, env, arch, version), flags, given.gpus, given.does)
    said.notes.extend(of_the_cluster(parallel, flags))
    check_parallel(parallel, arch, given.gpus, said.refusals, adapters=flags.on("enable-lora", default=False))
    length, auto = _length(given, said.refusals)
    unasked = chunks_unasked(flags, arch, given.does, gpu, length, drafts=method is not None, pooling=pooling)
    chunked = flags.on("enable-chunked-prefill", default=v1 or unasked)

    def batch(card: str) -> Batch:
        """Of a step, where the card has this name."""
        defaults = batch_defaults(version, given.total_gib, card, use_v1=v1)
        # Asked for throughput, both defaults are doubled (engine/arg_utils.py, since 0.17).
        times = 2 if flags.text("performance-mode") == "throughput" else 1
        seqs = flags.int("max-num-seqs", defaults.seqs * times, 1, 10**7)
        tokens = None if defaults.tokens is None else _step(defaults.tokens, flags, env, parallel, version) * times
        batched = batched_tokens(flags, version, choice.engine, arch, length, seqs, chunked, tokens)
        return Batch(seqs if "max-num-seqs" in flags.values else min(seqs, batched), batched)

    usual = batch(gpu.name if gpu else "")
    return Decided(
        engine=choice.engine,
        v2=v1 and on_v2(version, env, arch, arch.quantization is not None or quantization is not None),
        parallel=parallel,
        dtype=dtype,
        quantization=quantization,
        stored=stored,
        gguf=gguf,
        method=method,
        draft_tokens=draft_tokens,
        pooling=pooling,
        length=length,
        auto_length=auto,
        chunked=chunked,
        batch=usual,
        on_a100=batch("A100") if gpu is None and (given.total_gib or 0.0) < _BEYOND_A100 else usual,
        utilization=_utilization(flags, version),
    )


def _utilization(flags: Flags, version: Version) -> float:
    asked = flags.number(
        "gpu-memory-utilization", default_utilization(version), 0.0, 1.0, "a fraction of the card's memory"
    )
    if asked == 0.0:
        raise SettingError("--gpu-memory-utilization: found 0; needed: a fraction above 0 and up to 1")
    return asked


def _length(given: LaunchGiven, refusals: list[Refusal]) -> tuple[int, bool]:
    flags, arch, env = given.flags, given.arch, given.env
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


def _step(usual: int, flags: Flags, env: dict[str, str], par: Parallel, version: Version) -> int:
    small = behaviour(version).batches_of_one_size and batches_of_one_size(flags, env, par, version)
    return BATCHED_STEP if small else usual


def _gguf(model: str, does: Behaviour) -> str | None:
    """The GGUF file that is served, or the type of its weights, owner/name:Q4_K_M, where the release knows it."""
    if not is_gguf(model):
        return None
    if model.lower().endswith(".gguf"):
        return model
    kind = model.rpartition(":")[2]
    return kind if does.names_gguf_types and gguf_bits(kind) is not None else None
