"""What a start logs about memory: of the cards that NVML shows, the checkpoint's size and the sums that vLLM makes.

The terms that a real start measures (activations, graphs, what the driver holds) are constants here; the sums are real,
so a launch that does not fit is refused as vLLM refuses it.
"""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
ACTIVATION, NON_TORCH, GRAPHS = 1.25 * GIB, 0.45 * GIB, 0.55 * GIB
BYTES = {"float32": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


class CannotStartError(Exception):
    """Why the engine does not start: `kind` is the exception's name as vLLM's traceback ends with it."""

    def __init__(self, kind: str, text: str, place: str) -> None:
        super().__init__(text)
        self.kind, self.text, self.place = kind, text, place


@dataclass(frozen=True)
class Card:
    """One visible card; bytes."""

    index: int
    total: int
    free: int


@dataclass(frozen=True)
class Cache:
    """The KV cache of one rank; bytes, and tokens of the whole server."""

    weights: int
    available: int
    blocks: int
    block_size: int
    tokens: int
    longest: int


def cards() -> list[Card]:
    """The cards that NVML and CUDA_VISIBLE_DEVICES leave. Raises CannotStartError where the driver does not answer."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        code = library.nvmlInit_v2()
    except OSError:
        code = 12
    if code:
        text = (
            "Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` "
            "to turn on verbose logging to help debug the issue."
        )
        raise CannotStartError("RuntimeError", text, "device.py")
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    found = {}
    for index in range(count.value):
        handle, memory, uuid = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)(), ctypes.create_string_buffer(96)
        library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        library.nvmlDeviceGetUUID(handle, uuid, 96)
        if library.nvmlDeviceGetMemoryInfo(handle, memory) == 0:
            found[index] = (uuid.value.decode(), Card(index, memory[0], memory[1]))
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return [card for _, card in found.values()]
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    return [card for name in names for index, (uuid, card) in found.items() if name in {str(index), uuid}]


def config_of(model: str) -> dict[str, object]:
    """The model's config.json. Raises CannotStartError where there is none."""
    path = Path(model, "config.json")
    if not path.is_file():
        text = f"Invalid repository ID or local directory specified: '{model}'."
        raise CannotStartError("ValueError", text, "config.py")
    found = json.loads(path.read_text())
    return found.get("text_config") or found


def weight_bytes(model: str) -> int:
    """What the checkpoint's tensors take: by its index, else by its files."""
    index = Path(model, "model.safetensors.index.json")
    if index.is_file():
        return int(json.loads(index.read_text())["metadata"]["total_size"])
    return sum(file.stat().st_size for file in Path(model).glob("*.safetensors"))


def plan(model: str, options: dict[str, object], visible: list[Card]) -> Cache:
    """The sums of a start. Raises CannotStartError with vLLM's words where they do not come out."""
    config = config_of(model)
    tp, pp = int(options.get("tensor_parallel_size") or 1), int(options.get("pipeline_parallel_size") or 1)
    if tp * pp > len(visible):
        text = f"World size ({tp * pp}) is larger than the number of available GPUs ({len(visible)}) in this node."
        raise CannotStartError("ValueError", text, "parallel.py")
    derived = int(config.get("max_position_embeddings") or 2048)
    longest = int(options.get("max_model_len") or derived)
    if longest > derived:
        text = (
            f"User-specified max_model_len ({longest}) is greater than the derived max_model_len "
            f"(max_position_embeddings={derived} or model_max_length=None in model's config.json)."
        )
        raise CannotStartError("ValueError", text, "model.py")
    share = float(options.get("gpu_memory_utilization") or 0.92)
    card = min(visible, key=lambda one: one.free)
    requested = card.total * share
    if card.free < requested:
        text = (
            f"Free memory on device cuda:{card.index} ({gib(card.free)}/{gib(card.total)} GiB) on startup is "
            "less than "
            f"desired GPU memory utilization ({share}, {gib(requested)} GiB). Decrease GPU memory utilization or "
            "reduce GPU memory used by other processes."
        )
        raise CannotStartError("ValueError", text, "utils.py")
    weights = weight_bytes(model) // (tp * pp)
    graphs = 0 if options.get("enforce_eager") else GRAPHS
    fixed = options.get("kv_cache_memory_bytes")
    available = int(fixed) if fixed else int(requested - weights - ACTIVATION - NON_TORCH - graphs)
    return cache(config, options, weights=weights, available=available, longest=longest, ranks=(tp, pp))


def cache(config, options, *, weights, available, longest, ranks) -> Cache:
    """Blocks and tokens of what is left."""
    tp, pp = ranks
    heads = int(config.get("num_attention_heads") or 8)
    kv_heads = max(1, int(config.get("num_key_value_heads") or heads) // tp)
    size = int(config.get("head_dim") or int(config.get("hidden_size") or 512) // heads)
    element = BYTES.get(str(options.get("kv_cache_dtype") or config.get("dtype") or config.get("torch_dtype")), 2)
    layers = -(-int(config.get("num_hidden_layers") or 1) // pp)
    a_token = 2 * kv_heads * size * element * layers
    block = int(options.get("block_size") or 16)
    needed = -(-longest // block) * block * a_token
    if available < needed:
        fits = max(0, available // (a_token * block) * block)
        text = (
            f"To serve at least one request with the model's max seq len ({longest}), ({gib(needed)} GiB KV cache is "
            f"needed, which is larger than the available KV cache memory ({gib(available)} GiB). Based on the "
            f"available memory, the estimated maximum model length is {fits}. Try increasing "
            "`gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing "
            "`max_model_len` when initializing the engine. See "
            "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
        )
        if available <= 0:
            text = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
        raise CannotStartError("ValueError", text, "kv_cache_utils.py")
    blocks = int(options.get("num_gpu_blocks_override") or available // (a_token * block))
    return Cache(weights, available, blocks, block, blocks * block, longest)


def gib(value: float) -> str:
    """GiB as vLLM writes them."""
    return f"{value / GIB:.2f}"
