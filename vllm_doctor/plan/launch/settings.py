"""What a launch resolves to, with nothing left open. resolve.py fills it in."""

from __future__ import annotations

from enum import Enum

import msgspec

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour, behaviour
from vllm_doctor.plan.launch.cache_types import Unpacked
from vllm_doctor.plan.launch.compiled import Timed
from vllm_doctor.plan.launch.exchange import Exchange
from vllm_doctor.plan.launch.host_memory import HostAsked
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import Architecture

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}


class Dependence(msgspec.Struct, frozen=True):
    """What decides whether a launch starts, and that no launch shows: in a few words, and what it decides and how."""

    on: str
    detail: str

    def __str__(self) -> str:
        return f"{self.on}: {self.detail}"


class Products(Enum):
    """The type of the products of latent attention's weights."""

    STORED = "as stored"  # 8-bit floats are quantized again
    WIDE = "the model's"


class Settings(msgspec.Struct, frozen=True):
    """A launch with nothing left open. Sizes in tokens, sequences and bytes; `auto_length` asks for the longest that
    fits."""

    version: Version
    engine: str
    v2_runner: bool
    parallel: Parallel
    utilization: float
    length: int
    auto_length: bool
    seqs: int
    batched: int
    chunked: bool
    prefix_caching: bool
    kv_dtype: str
    block: int | None
    eager: bool
    dtype: str
    element: int
    quantization: str | None
    on_a100: tuple[int, int] | None = None  # sequences and tokens of a step, where the unnamed card may be an A100
    unpacked: Unpacked = msgspec.field(default_factory=Unpacked)  # layers whose cache keeps the model's type
    full_graphs: bool = True  # graphs of whole decoding batches, where the release has them
    mixed_graphs: bool = False  # of whole batches of any kind (cudagraph_mode FULL)
    indexer_in_four_bits: bool = False  # --attention-config's cache of the indexer
    speculative: str | None = None
    draft_tokens: int = 0
    draft: Architecture | None = None  # of a drafter that is a separate model, where its config is known
    draft_kv_dtype: str | None = None  # of the drafter's own cache, where the launch says it
    host: HostAsked = msgspec.field(default_factory=HostAsked)
    kv_bytes: int | None = None
    blocks_override: int | None = None
    context_parallel: int = 1  # the ranks that share one context, of prefill and decoding together
    prefill_parallel: int = 1
    hybrid_manager: bool = True
    capture_sizes: int | None = None
    skip_encoder: bool = False
    language_only: bool = False
    image_limit: int | None = None
    video_limit: int | None = None
    image_pixels: int | None = None
    backend: str | None = None
    tower_backend: str | None = None  # of a vision tower, where one is asked for
    moe_backend: str | None = None  # kernels of experts, where some are asked for
    pooling: bool = False
    loras: int = 0
    lora_rank: int = 16
    lora_targets: frozenset[str] | None = None  # the modules that adapters may change; None: all
    lora_shared: bool = False  # ranks share what else each has whole of an adapter (--fully-sharded-loras)
    kv_stored: bool = False  # the cache's type is the checkpoint's, not the option's
    gguf: str | None = None
    ptxas_named: bool = False  # TRITON_PTXAS_PATH
    trusts: bool = False  # --trust-remote-code
    other_kernels: bool = False  # of linear layers than those that the release takes by itself
    config_elsewhere: bool = False  # --hf-config-path: the description is not the model's own
    custom_all_reduce: bool = True
    expandable: bool = False  # torch grows its segments, so blocks that steps leave behind join
    sparse_factor: int | None = None  # latents' space for what an indexer gathers, where the launch says
    latents: bool = True  # latent attention caches its latents, not its heads
    aligned_latents: bool = False  # on a multiple of 256 bytes
    timed: Timed = Timed.FIRST  # kernels that Inductor combines
    products: Products | None = None  # of latent attention's weights, kept beside them
    estimate_graphs: bool = False
    flashinfer_sampler: bool = False
    flashinfer_asked: bool | None = None
    flashinfer_there: bool = False  # vLLM's own image has it
    flashinfer_experts: bool = False  # asked for, for experts in NVFP4
    no_flashinfer_fp8: bool = False  # declined, for experts in fp8
    marlin_experts: bool = False  # asked for, for experts in MXFP4
    exchange: Exchange | None = None  # of tokens between ranks, where it keeps buffers of its own
    exchanges: frozenset[str] = frozenset()  # the all-to-all backends that the launch may mean
    balances: str | None = None  # by what experts are balanced: "nixl", "gathered", "either"; None: they are not
    async_scheduling: bool = True
    mamba_dtype: str = "auto"  # of recurrent states
    state_mode: str | None = None  # --mamba-cache-mode
    whole_items: bool = False  # --disable-chunked-mm-input
    window_dtype: str = "auto"  # of their convolutions' windows
    notes: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    doubts: tuple[str, ...] = ()
    depends: tuple[Dependence, ...] = ()
    defaulted: frozenset[str] = msgspec.field(default_factory=frozenset)

    @property
    def does(self) -> Behaviour:
        """What the release does where releases differ."""
        return behaviour(self.version)
