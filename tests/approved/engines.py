"""Which engine a launch gets in each release that has two, on each kind of card: what its V1 does not take, in words.

Each reason is asked for alone, and the caches, backends and cards of attention all together: each bound of a release
and of a compute capability lies between two neighbours of these lists.
"""

import json
from collections.abc import Iterator
from functools import cache
from itertools import product

from tests.approved.plans import FOLDER
from vllm_doctor.knowledge import gpus
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.which_engine import which_engine
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe

_RELEASES = (
    "0.7.3", "0.8.0", "0.8.1", "0.8.2", "0.8.3", "0.8.4", "0.8.5", "0.9.0", "0.9.1", "0.9.2", "0.10.0", "0.10.1",
    "0.10.2", "0.11.0",
)  # fmt: skip
# Compute capabilities 7.0, 7.5, 8.0, 8.9, 9.0, 10.0, 11.0, 12.0; and a card that is not named.
_CARDS = ("V100 32GB", "T4", "A100-SXM4-80GB", "L4", "H100", "B200", "NVIDIA Thor 64GB", "RTX 5090", None)
_CACHES = ("auto", "fp8", "fp8_e5m2", "bfloat16")
_BACKENDS = (
    "FLASH_ATTN", "FLASH_ATTN_VLLM_V1", "FLASHINFER", "TRITON_ATTN_VLLM_V1", "FLASHMLA", "CUTLASS_MLA",
    "XFORMERS", "FLEX_ATTENTION", "PALLAS",
)  # fmt: skip
# What else is asked for, one thing a launch.
_WORDS = (
    "--preemption-mode swap", "--disable-async-output-proc", "--logits-processor-pattern x",
    "--scheduling-policy priority",
    "--scheduling-policy fcfs", "--num-scheduler-steps 8", "--num-scheduler-steps 1", "--scheduler-delay-factor 0.5",
    "--guided-decoding-backend outlines", "--guided-decoding-backend xgrammar:no-fallback", "--enable-prompt-adapter",
    "--guided-decoding-backend guidance", "--enable-prompt-embeds", "--cpu-offload-gb 2",
    "--max-num-partial-prefills 2",
    "--max-long-partial-prefills 2", "--otlp-traces-endpoint http://t", "--collect-detailed-traces all",
    "--kv-transfer-config {}", "--enable-lora", "-pp 2", "-pp 2 --distributed-executor-backend ray",
    "-pp 2 --distributed-executor-backend mp", "-pp 2 --distributed-executor-backend external_launcher",
)  # fmt: skip
_METHODS = ("ngram", "[ngram]", "medusa", "eagle", "eagle3", "mtp", "mlp_speculator", "draft_model")
_STORED = ("bitsandbytes", "gguf", "fp8")
_ATTENTION = ("llama-8b", "deepseek-v3")  # dense, latent
_MODELS = (*_ATTENTION, "granite-4-small", "whisper-large-v3", "phi-3-mini")


@cache
def models() -> tuple[str, ...]:
    """The models that are asked about."""
    return _MODELS


def answers(model: str) -> str:
    """A line for each thing asked for: from which release which cards get V0, and why; "ends" where VLLM_USE_V1=1 ends
    the launch."""
    arch = describe(Section(json.loads((FOLDER / "models" / f"{model}.json").read_text(encoding="utf-8"))))
    if model not in _ATTENTION:
        return f"{_line('vllm serve m', arch, ('L4',))}\n"
    lines = [
        _line(
            f"{f'VLLM_ATTENTION_BACKEND={backend} ' if backend else ''}vllm serve m --kv-cache-dtype {kv}", arch, _CARDS
        )
        for kv, backend in product(_CACHES, _BACKENDS)
    ]
    if model == _ATTENTION[0]:
        lines += [_line(f"vllm serve m {words}", arch, ("L4",)) for words in _WORDS]
        others = (("method", _METHODS), ("stored", _STORED), ("dtype", ("float32", "float16")), ("pooling", ("yes",)))
        lines += [_line("vllm serve m", arch, ("L4",), **{name: one}) for name, values in others for one in values]
    return "\n".join(lines) + "\n"


def _line(words: str, arch: Architecture, cards: tuple[str | None, ...], **more: str) -> str:
    """Releases of one answer stand at the first of them."""
    told, last = [], ""
    for release in _RELEASES:
        by_answer: dict[str, list[str]] = {}
        for card, answer in zip(cards, _answers(words, arch, release, cards, **more), strict=True):
            by_answer.setdefault(answer, []).append(card or "no card")
        of = [f"{answer} ({', '.join(found)})" if len(by_answer) > 1 else answer for answer, found in by_answer.items()]
        if (now := "; ".join(of)) != last:
            told.append(f"  {release} {now}")
            last = now
    return "\n".join((" ".join((words, *(f"{name} {value}" for name, value in more.items()))), *told))


def _answers(
    words: str,
    arch: Architecture,
    release: str,
    cards: tuple[str | None, ...],
    *,
    method: str | None = None,
    stored: str | None = None,
    dtype: str = "bfloat16",
    pooling: str | None = None,
) -> Iterator[str]:
    version = as_version(release)
    lines = [parse_launch(f"{asked}{words}".split(), version) for asked in ("", "VLLM_USE_V1=1 ")]
    flags = [Flags(line) for line in lines]
    for card in cards:
        gpu = gpus.find(card) if card is not None else None
        alone, with_v1 = (
            which_engine(version, of, line.env, arch, gpu, dtype, stored, method, pooling=pooling is not None)
            for line, of in zip(lines, flags, strict=True)
        )
        because = f" for {alone.because}" if alone.because is not None else ""
        ends = with_v1.refusal.needed.partition("take ")[2] if with_v1.refusal is not None else None
        other = (
            ", with V1 asked for it ends" if ends == alone.because and ends else f", ends for {ends}" if ends else ""
        )
        yield f"{alone.engine}{because}{other}"
