"""What a plan says where one more option is set: each that the planner asks for and that the launch leaves out, with
each value that it may have (a switch; each choice; 1, 2 and 3). A line where it matters.

`plan_sweeps` moves what a launch says; here is what no launch of the examples says.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

from tests.approved.plan_sweeps import figures, line, question
from tests.approved.plans import FOLDER
from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.versions import parse_version
from vllm_doctor.launch.table import takes
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.terms.host import GIB

# By model (dense, of states, of latent attention, with an encoder, of experts in 4 bits): one launch each, of V1 with
# its first and second runner and of V0.
_ASKED = {
    "llama-8b": (
        "--gpu H100 --gpus 4 --vllm-version 0.33.0 -- vllm serve m --max-model-len 8192 -tp 4",
        "--gpu L4 --gpus 2 --vllm-version 0.6.6 -- vllm serve m --max-model-len 8192 -tp 2",
        "--gpu H100 --vllm-version 0.8.5 -- vllm serve m --max-model-len 8192",
        "--gpu H100 --gpus 4 --vllm-version 0.14.1 -- vllm serve m --max-model-len 8192 -tp 2 -pp 2",
    ),
    "deepseek-v3": ("--gpu H200 --gpus 8 --vllm-version 0.33.0 -- vllm serve m --max-model-len 8192 -tp 8",),
    "qwen3.5-27b": ("--gpu B200 --vllm-version 0.33.0 -- vllm serve m --max-model-len 8192",),
    "qwen2.5-vl-7b": ("--gpu L4 --vllm-version 0.32.0 -- vllm serve m --max-model-len 8192",),
    "gpt-oss-20b": ("--gpu B200 --gpus 2 --vllm-version 0.33.0 -- vllm serve m --max-model-len 8192",),
}
_NUMBERS = ("1", "2", "3")
_BOTH, _OFFLOADED = {"kv_role": "kv_both"}, {"cpu_bytes_to_use": 9_000_000_000}
# What else than a number an option takes.
_VALUES = {
    "gpu-memory-utilization": ("0.5", "0.98"),
    "hf-overrides": ('{"max_position_embeddings": 4096}', '{"num_hidden_layers": 8}'),
    "quantization": ("fp8", "bitsandbytes", "awq", "modelopt", "mxfp8"),
    "speculative-config": (
        '{"method": "ngram", "num_speculative_tokens": 3}',
        '{"method": "mtp", "num_speculative_tokens": 1}',
        '{"method": "eagle3", "model": "d", "num_speculative_tokens": 2}',
    ),
    "kv-transfer-config": (
        json.dumps({**_BOTH, "kv_connector": "OffloadingConnector", "kv_connector_extra_config": _OFFLOADED}),
        json.dumps({**_BOTH, "kv_connector": "LMCacheConnectorV1"}),
    ),
    "compilation-config": ('{"cudagraph_mode": "FULL"}', '{"cudagraph_capture_sizes": [1, 2, 4, 64]}', '{"mode": 0}'),
}
# The variables that the planner reads, before the command.
_VARIABLES = (
    "VLLM_USE_V1=0",
    "VLLM_USE_V1=1",
    "VLLM_USE_V2_MODEL_RUNNER=0",
    "VLLM_USE_V2_MODEL_RUNNER=1",
    "VLLM_ATTENTION_BACKEND=FLASHINFER",
    "VLLM_ATTENTION_BACKEND=FLASH_ATTN_VLLM_V1",
    "VLLM_ATTENTION_BACKEND=TRITON_ATTN_VLLM_V1",
    "VLLM_MLA_DISABLE=1",
    "VLLM_USE_FLASHINFER_SAMPLER=1",
    "VLLM_USE_FLASHINFER_SAMPLER=0",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)
# All that is other is shown.
_ALL = 40


@cache
def models() -> tuple[str, ...]:
    """The models that are asked about."""
    return tuple(_ASKED)


def answers(model: str) -> str:
    """Each launch, and what each option does to it."""
    return "\n".join(_told(model)) + "\n"


def _told(model: str) -> Iterator[str]:
    config = json.loads((FOLDER / "models" / f"{model}.json").read_text(encoding="utf-8"))
    for words in _ASKED[model]:
        asked = question(words)
        before = figures(config, asked, of_terms)
        yield f"$ {words}"
        yield from (f"  {name} = {value}" for name, value in before.items())
        for option in _not_set(config, asked):
            for more in _values(option, asked["version"]):
                after = figures(config, {**asked, "launch": (*asked["launch"], *more)}, of_terms)
                yield from line(" ".join(more), before, after, _ALL)
        for variable in _VARIABLES:
            after = figures(config, {**asked, "launch": (variable, *asked["launch"])}, of_terms)
            yield from line(variable, before, after, _ALL)


def of_terms(told: Prediction) -> dict[str, object]:
    """The terms, and what of the host is used."""
    return {
        **{f"of {term.name}": term.bytes / GIB for term in told.terms},
        "host": round(told.host.total_gib, 2),
        "shared memory": round(told.host.shared_gib, 2),
        "odds": None if told.odds is None else round(told.odds, 3),
    }


def _values(option: str, version: str) -> Iterator[tuple[str, ...]]:
    if takes(option, parse_version(version)) == 0:
        yield (f"--{option}",)
        return
    read = (parser.options(version) or {}).get(option)
    choices = read.choices if read is not None and read.choices else _NUMBERS
    for value in _VALUES.get(option, choices):
        yield (f"--{option}", str(value))


def _not_set(config: Any, asked: dict[str, Any]) -> list[str]:
    """The options that the planner asks for and the launch has not."""
    found: dict[str, None] = {}
    own: dict[str, Callable[..., Any]] = {kind: getattr(Flags, kind) for kind in ("int", "number", "text", "on")}

    def noted(kind: str) -> Callable[..., Any]:
        def ask(self: Flags, name: str, *more: Any, **named: Any) -> Any:
            if self.values.get(name) is None:
                found.setdefault(name)
            return own[kind](self, name, *more, **named)

        return ask

    with patch.multiple(Flags, **{kind: noted(kind) for kind in own}):
        figures(config, asked)
    return list(found)
