"""The kernels that a run says it chose, under the names of its release."""

from collections.abc import Iterable

import msgspec

from vllm_doctor.log.match import each, first, read

# Switches of pass_config that fuse nothing: they only take away what does nothing.
_HARMLESS = frozenset({"eliminate_noops", "enable_noop"})


def enabled_passes(lines: Iterable[str]) -> tuple[str, ...]:
    """The switches of `pass_config` that this run said are on, under the names of its release.

    From 0.18.1 a line of their own names them without `fuse_`; the engine's printed configuration has them in all.
    """
    found: dict[str, None] = {}
    for line in lines:
        if fusions := read("fusions-enabled", line):
            found.update({f"fuse_{name}": None for name in fusions["names"].split(", ")})
        elif passes := read("passes-configured", line):
            found.update({on["name"]: None for on in each("pass-on", passes["body"]) if on["name"] not in _HARMLESS})
    return tuple(found)


class Chosen(msgspec.Struct, frozen=True):
    """A kind of kernel that vLLM said it uses, and those that it said this card and model could use instead."""

    name: str
    others: tuple[str, ...] | None = None
    kind: str = ""


_WORDS = {
    "flash": "FLASH_ATTN",
    "flashattention": "FLASH_ATTN",
    "flashinfer": "FLASHINFER",
    "xformers": "XFORMERS",
    "triton": "TRITON_ATTN",
    "flex": "FLEX_ATTENTION",
    "flexattention": "FLEX_ATTENTION",
    "flexattenion": "FLEX_ATTENTION",  # as 0.9 spelt it
}


def _listed(names: str) -> tuple[str, ...]:
    return tuple(found["name"] for found in each("listed-name", names))


def attention(lines: Iterable[str]) -> Chosen | None:
    """The attention backend that this run said it uses; the last word counts."""
    chosen = None
    for line in lines:
        # 0.11.2 and later name all that pass the checks for card, model and launch; earlier ones only the choice.
        if found := read("attention-backend", line):
            chosen = Chosen(found["name"], _listed(found["others"]) if "others" in found else None)
        elif spelt := read("attention-words", line):
            chosen = Chosen(_WORDS[spelt["name"].lower().split()[0]])
    return chosen


def moe(lines: Iterable[str]) -> Chosen | None:
    """The kernels of the experts; `kind` is what their weights are (Unquantized, Fp8, NvFp4, WNA16 …)."""
    found = first(lines, "experts-backend")
    return Chosen(found["name"].replace(" ", "_").upper(), kind=found["kind"]) if found is not None else None


def all_reduce(lines: Iterable[str]) -> tuple[str, ...]:
    """The ways of an all-reduce between the GPUs of one model, in the order in which they are tried; () if not said."""
    found = first(lines, "all-reduce-backends")
    return _listed(found["names"]) if found is not None else ()


def linear(lines: Iterable[str]) -> str | None:
    """The class of the kernel that multiplies quantized weights, as VLLM_DISABLED_KERNELS takes it."""
    found = first(lines, "linear-kernel")
    return found["name"] if found is not None else None
