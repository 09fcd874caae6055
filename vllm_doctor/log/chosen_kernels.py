"""The kernels that a run says it chose, under the names of its release."""

import re
from collections.abc import Iterable

import msgspec

from vllm_doctor.knowledge.pattern import Pattern

# Switches of pass_config that fuse nothing: they only take away what does nothing.
_HARMLESS = frozenset({"eliminate_noops", "enable_noop"})
_FUSIONS = Pattern(r"Enabled custom fusions: (?P<names>\w+(?:, \w+)*)")
_PASSES = Pattern(r"'pass_config': \{(?P<body>[^{}]*)\}")
_ON = Pattern(r"'(\w+)': True")


def enabled_passes(lines: Iterable[str]) -> tuple[str, ...]:
    """The switches of `pass_config` that this run said are on, under the names of its release.

    From 0.18.1 a line of their own names them without `fuse_`; the engine's printed configuration has them in all.
    """
    found: dict[str, None] = {}
    for line in lines:
        if fusions := _FUSIONS.search(line):
            found.update({f"fuse_{name}": None for name in fusions["names"].split(", ")})
        elif passes := _PASSES.search(line):
            found.update({on[1]: None for on in _ON.finditer(passes["body"]) if on[1] not in _HARMLESS})
    return tuple(found)


class Chosen(msgspec.Struct, frozen=True):
    """A kind of kernel that vLLM said it uses, and those that it said this card and model could use instead."""

    name: str
    others: tuple[str, ...] | None = None
    kind: str = ""


# 0.11.2 and later name all that pass the checks for card, model and launch; earlier ones only the choice.
_ATTENTION = Pattern(
    r"Using (?:AttentionBackendEnum\.)?(?P<name>[A-Z][A-Z0-9_]+)(?: attention)? backend"
    r"(?: out of potential backends: [\[(](?P<others>[^\])]*)[\])])?"
)
_ATTENTION_WORDS = Pattern(
    r"Using (?P<name>Flash ?Attention|FlashInfer|XFormers|Triton(?: Attention)?|Flex ?Attent?ion) backend"
)
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
_MOE = Pattern(r"Using '?(?P<name>[A-Z]\w+(?: [A-Z]+)?)'? (?P<kind>\w+) MoE backend")
_ALL_REDUCE = Pattern(r"Using \[(?P<names>[^\]]{0,1000})\] all-reduce backends \(in dispatch order\) for group 'tp:")
_LINEAR = Pattern(r"Using (?P<name>\w+LinearKernel) for ")


def attention(lines: Iterable[str]) -> Chosen | None:
    """The attention backend that this run said it uses; the last word counts."""
    chosen = None
    for line in lines:
        if " backend" not in line:
            continue
        if found := _ATTENTION.search(line):
            listed = found["others"]
            chosen = Chosen(found["name"], tuple(re.findall(r"\w+", listed)) if listed is not None else None)
        elif spelt := _ATTENTION_WORDS.search(line):
            chosen = Chosen(_WORDS[spelt["name"].lower().split()[0]])
    return chosen


def moe(lines: Iterable[str]) -> Chosen | None:
    """The kernels of the experts; `kind` is what their weights are (Unquantized, Fp8, NvFp4, WNA16 …)."""
    found = next((m for line in lines if " MoE backend" in line and (m := _MOE.search(line))), None)
    return Chosen(found["name"].replace(" ", "_").upper(), kind=found["kind"]) if found is not None else None


def all_reduce(lines: Iterable[str]) -> tuple[str, ...]:
    """The ways of an all-reduce between the GPUs of one model, in the order in which they are tried; () if not said."""
    found = next((m for line in lines if "all-reduce backends" in line and (m := _ALL_REDUCE.search(line))), None)
    return tuple(re.findall(r"\w+", found["names"])) if found is not None else ()


def linear(lines: Iterable[str]) -> str | None:
    """The class of the kernel that multiplies quantised weights, as VLLM_DISABLED_KERNELS takes it."""
    found = next((m for line in lines if "LinearKernel" in line and (m := _LINEAR.search(line))), None)
    return found["name"] if found is not None else None
