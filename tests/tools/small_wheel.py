"""A wheel with one thing of each kind that tools/release.py reads, small enough to see at a glance."""

import zipfile
from pathlib import Path

ARG_UTILS = '''
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig
def get_kwargs(cls):
    if name in {"max_num_batched_tokens"}:
        kind = human_readable_int
    elif name == "max_model_len":
        kind = human_readable_int_or_auto
class EngineArgs:
    model: str = "x"
    max_num_seqs: int | None = None
    cache_dtype: CacheDType = CacheConfig.cache_dtype
    enforce_eager: bool = False
    @staticmethod
    def add_cli_args(parser):
        cache_kwargs = get_kwargs(CacheConfig)
        model_kwargs = get_kwargs(ModelConfig)
        scheduler_kwargs = get_kwargs(SchedulerConfig)
        cache_kwargs["cache_dtype"]["choices"].remove("hidden")
        cache_group.add_argument("--kv-cache-dtype", **cache_kwargs["cache_dtype"])
        group.add_argument("--max-num-seqs", **{**scheduler_kwargs["max_num_seqs"], "default": None})
        group.add_argument("--max-num-batched-tokens", **scheduler_kwargs["max_num_batched_tokens"])
        group.add_argument("--max-model-len", **model_kwargs["max_model_len"])
        group.add_argument("--enforce-eager", **model_kwargs["enforce_eager"])
        group.add_argument("--middleware", **model_kwargs["middleware"])
        parser.add_argument("--port", "-p", type=int, default=8000, choices=[8000, 8001])
        parser.add_argument("--old", action="store_true", help="[DEPRECATED] gone soon")
        backend_kwargs = model_kwargs["backend"]
        backend_kwargs["type"] = lambda s: s.lower()
        parser.add_argument("--backend", **backend_kwargs)
    def get_batch_defaults(self):
        """What a person reads."""
        logger.info("not what it does")
        return {LIMIT}
'''
CONFIG = """
CacheDType = Literal["auto", "fp8", "hidden"]
class CacheConfig:
    cache_dtype: CacheDType = "auto"
class SchedulerConfig:
    max_num_seqs: int = 128
    max_num_batched_tokens: int | None = None
class ModelConfig:
    enforce_eager: bool = False
    max_model_len: int | None = None
    middleware: list[str] = field(default_factory=list)
    backend: Literal["triton", "cutlass"] | None = None
    def verify(self):
        if self.max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1, "
                             f"found {self.max_num_seqs}")
"""
FILES = {
    "vllm/engine/arg_utils.py": ARG_UTILS,
    "vllm/config/cache.py": CONFIG,
    "vllm/envs.py": """
if TYPE_CHECKING:
    VLLM_THING: int = 3
environment_variables = {"VLLM_THING": lambda: 3, "VLLM_WAY": env_with_choices("VLLM_WAY", None, ["a", "b"])}
""",
    "vllm/v1/attention/backends/registry.py": """
class AttentionBackendEnum(Enum):
    FLASH_ATTN = "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"
    NONE_SUCH = ""
""",
    "vllm/v1/attention/backends/flash_attn.py": """
class FlashAttentionBackend:
    @classmethod
    def supports_compute_capability(cls, capability):
        return capability >= DeviceCapability(8, 0)
""",
    "vllm/v1/metrics/loggers.py": """
labelnames = ["model_name", "engine"]
gauge = self._gauge_cls(name="vllm:kv_cache_usage_perc", documentation="x", labelnames=labelnames)
counter = self._counter_cls(name="vllm:refused", documentation="x", labelnames=labelnames + ["reason"])
""",
    "vllm/model_executor/models/registry.py": """
_TEXT_GENERATION_MODELS = {"LlamaForCausalLM": ("llama", "LlamaForCausalLM")}
_MULTIMODAL_MODELS = {"LlavaForConditionalGeneration": ("llava", "Llava")}
_PREVIOUSLY_SUPPORTED_MODELS = {"GoneForCausalLM": "0.10.0"}
""",
    "vllm/model_executor/layers/quantization/__init__.py": """
QuantizationMethods = Literal["awq", "fp8"]
method_to_config = {"awq": AWQConfig, "fp8": Fp8Config}
""",
    "vllm/model_executor/layers/quantization/awq.py": """
class AWQConfig(QuantizationConfig):
    @classmethod
    def get_min_capability(cls): return 75
    @classmethod
    def get_supported_act_dtypes(cls): return [torch.half, torch.bfloat16]
""",
    "vllm/v1/worker/utils.py": """
def request_memory(snapshot):
    if snapshot.free < wanted:
        raise ValueError(
            f"Free memory on device {snapshot.device} ({snapshot.free}/{snapshot.total} GiB) "
            f"on startup is less than desired GPU memory "
            f"utilization ({share}, {wanted} GiB). ADVICE")
""",
}
METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Requires-Python: <3.15,>=3.11
Requires-Dist: torch==2.14.0
Requires-Dist: transformers<5.21.0,>=5.16.1
Requires-Dist: torchvision==1; extra == "video"
Requires-Dist: triton==3; platform_machine == "s390x"
"""


def wheel(
    folder: Path,
    version: str = "0.99.0",
    *,
    name: str = "vllm",
    limit: int = 8192,
    advice: str = "Decrease it.",
    more: dict[str, str] | None = None,
) -> Path:
    """Write it. `limit` is what a cited function returns, `advice` the end of a message's template."""
    file = folder / f"vllm-{version}-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(file, "w") as made:
        for path, text in (FILES | (more or {})).items():
            made.writestr(path, text.replace("{LIMIT}", str(limit)).replace("ADVICE", advice))
        made.writestr(f"vllm-{version}.dist-info/METADATA", METADATA.format(name=name, version=version))
        made.writestr(f"vllm-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp38-abi3-manylinux_2_28_x86_64\n")
    return file
