"""Numbers that no release of vLLM serves with, whatever its parser lets through: its configuration refuses them later.

Sources: vllm/config/cache.py (gpu_memory_utilization above 0 and up to 1), config/parallel.py (sizes of 1 and more),
config/scheduler.py (max_num_seqs and max_num_batched_tokens of 1 and more), config/model.py (max_model_len: -1 or
`auto` for the longest that fits); utils/torch_utils.py seeds numpy's older generator, which takes 32 bits. Where vLLM
names no upper limit, the one here is far above any machine.
"""

from math import isnan

import msgspec

from vllm_doctor.knowledge.human_int import scaled


class Range(msgspec.Struct, frozen=True):
    """Numbers from `low` to `high`; `above` where `low` itself is not one. `words` are taken in place of a number.

    `named` says that vLLM itself has the upper limit, `scaled` that suffixes count (8k, 1.5M): human_readable_int.
    """

    low: float
    high: float
    what: str
    above: bool = False
    words: tuple[str, ...] = ()
    scaled: bool = False
    whole: bool = True
    named: bool = False

    def needed(self, found: str) -> str:
        """The range in words, for one who wrote `found`; the upper limit where it is vLLM's, or what was broken."""
        high = f"{self.high:.12g}"
        low = f"above {self.low:g} and up to {high}" if self.above else f"from {self.low:g} to {high}"
        also = f", or {' or '.join(self.words)}" if self.words else ""
        told = self.named or (self._read(found) or 0) > self.high
        return f"{self.what} {low if told else f'of {self.low:g} or more'}{also}"

    def holds(self, text: str) -> bool:
        """Is this text a number of the range, as vLLM reads it?"""
        value = self._read(text)
        if value is None or text in self.words:
            return text in self.words
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def _read(self, text: str) -> float | None:
        """The number, or None for what is none; `nan` is none either."""
        human = scaled(text) if self.scaled else None
        try:
            value = human if human is not None else int(text) if self.whole else float(text)
        except ValueError:
            return None
        return None if isinstance(value, float) and isnan(value) else value


_RANKS = Range(1, 4096, "a whole number")
_TOKENS = "a whole number of tokens"
RANGES = {
    "max-model-len": Range(1, 10**9, _TOKENS, words=("-1", "auto"), scaled=True),
    "max-num-batched-tokens": Range(1, 10**9, _TOKENS, scaled=True),
    "max-num-seqs": Range(1, 10**7, "a whole number"),
    "gpu-memory-utilization": Range(0, 1, "a fraction", above=True, whole=False, named=True),
    "tensor-parallel-size": _RANKS,
    "pipeline-parallel-size": _RANKS,
    "data-parallel-size": _RANKS,
    "decode-context-parallel-size": _RANKS,
    "prefill-context-parallel-size": _RANKS,
    "block-size": Range(1, 65536, _TOKENS),
    "cpu-offload-gb": Range(0, 10**6, "a number of GiB", whole=False),
    "swap-space": Range(0, 10**6, "a number of GiB", whole=False),
    "max-loras": Range(1, 10_000, "a whole number"),
    "max-lora-rank": Range(1, 4096, "a whole number"),
    "seed": Range(0, 2**32 - 1, "a whole number", words=("None",), named=True),
    "port": Range(1, 65535, "a port", named=True),
}


# Options whose value vLLM reads as a JSON object.
JSON = frozenset(
    {"hf-overrides", "kv-transfer-config", "limit-mm-per-prompt", "mm-processor-kwargs", "speculative-config"}
)
