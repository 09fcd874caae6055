"""Models of a hub: how their names look, and in which folder of a host a commit lies."""

import re

from vllm_doctor.knowledge.pattern import Pattern

_NAME = Pattern(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
# As vLLM tells one (transformers_utils/gguf_utils.py is_remote_gguf), with the types that begin so.
_TYPED = Pattern(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*:(?:I?Q[1-8]|TQ[12]|F16|F32|BF16)[A-Za-z0-9_+-]{0,20}")
_PAGE = Pattern(r"https?://[^/\s]{1,200}/([\w.-]{1,100}/[\w.-]{1,100})(?:/.{0,300})?")
# owner/name@revision, and as the end of a page's address: owner/name/tree/revision.
_OF_REVISION = Pattern(r"([\w.-]{1,100}/[\w.-]{1,100})(?:@|/tree/|/blob/)([\w.-]{1,100}).{0,200}")
_COMMIT = Pattern(r"[0-9a-f]{40}")
# How the names of checkpoints say that their weights are quantized.
# Some are published in 8 bits or fewer and do not say it.
_QUANTIZED = Pattern(
    r"fp8|fp4|awq|gptq|gguf|int[48]|w[48]a(?:4|8|16)|[48]-?bit|bnb|mxfp|gpt-oss"
    r"|(?:deepseek-(?:v[34]|r1(?!-distill))|kimi-k[23]|minimax-m[23])(?!.{0,80}bf16)",
    re.IGNORECASE,
)

# 8B, 0.5b, 8x7B; A3B is what a step of a mixture of experts uses of it.
_SIZE = Pattern(r"(?<![A-Za-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)[Bb](?![A-Za-z0-9])")


# How names and options say how many bits a weight has, the fewest first.
_BITS = (
    (4, ("awq", "gptq", "4bit", "4-bit", "int4", "w4a16", "nvfp4", "mxfp4", "fp4", "bitsandbytes", "bnb")),
    (8, ("fp8", "int8", "w8a8", "w8a16", "8bit", "8-bit")),
)


# Of a dense model's parameters such a part stands in its MLP, which each expert has for itself; attention, embeddings
# and norms are there once. Mistral's 7B and 8x7B: 5.64 of 7.24, and 1.60 + 8 x 5.64 = 46.7; of 8x22B it makes 142.
_IN_MLP = 0.78


# Llama 4's 17B-16E has 109 billion: the first number is what a step uses, the second counts the experts.
_USED_OF_EXPERTS = Pattern(r"\d[Bb]-\d{1,3}E(?![A-Za-z0-9])")


def billions(model: str) -> float | None:
    """How many billion parameters a model's name says it has; None where it does not say."""
    name = model.rstrip("/").rsplit("/", 1)[-1]
    if _USED_OF_EXPERTS.search(name) is not None:
        return None
    return max((_of_experts(float(m[2]), int(m[1] or 1)) for m in _SIZE.finditer(name)), default=None)


def _of_experts(each: float, count: int) -> float:
    """Billions of all of them: a mixture named `8x7B` is smaller than eight models of 7B."""
    return each * (1 - _IN_MLP + _IN_MLP * count)


def names_quantization(model: str) -> bool:
    """Does a model's name say that its weights are quantized?"""
    return _QUANTIZED.search(model) is not None


def bits_of_words(told: str) -> int | None:
    """How many bits a weight has at the least, by a model's name or a quantization's; None where neither says so."""
    return next((bits for bits, words in _BITS if any(word in told.lower() for word in words)), None)


def family(model: str) -> str:
    """A model's own name, without its owner and without what says how its weights are quantized."""
    name = model.rsplit("/", 1)[-1]
    found = _QUANTIZED.search(name)
    return name if found is None else name[: found.start()].rstrip("-_.") or name


def is_name(model: str) -> bool:
    """Whether this is a name on a hub: everything else is a folder, or a place that vLLM streams from (s3://…)."""
    return bool(_NAME.fullmatch(model))


def is_gguf(model: str) -> bool:
    """Whether this is a GGUF file, or a model of a hub with the type of its weights behind it: owner/name:Q4_K_M."""
    return model.lower().endswith(".gguf") or _TYPED.fullmatch(model) is not None


def of_page(address: str) -> str | None:
    """The model whose page of a hub this address is; None where it is none."""
    page = _PAGE.fullmatch(address)
    return page[1] if page is not None else None


def with_revision(model: str) -> tuple[str, str] | None:
    """A model's name and the revision behind it, as a hub writes the two; None for a name alone."""
    found = _OF_REVISION.fullmatch(model)
    return (found[1], found[2]) if found is not None else None


def is_commit(revision: str) -> bool:
    """Whether this names one state of a model for ever, as a branch or a tag does not."""
    return bool(_COMMIT.fullmatch(revision))


def folder(store: str, name: str, revision: str) -> str:
    """Where a commit lies in a host's store, one folder for each."""
    return f"{store}/{name.replace('/', '--')}/{revision}"
