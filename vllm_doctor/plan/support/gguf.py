"""Does the Transformers that a release asks for read this kind of GGUF file?

vLLM asks Transformers for a file's configuration (transformers_utils/config.py get_config, with gguf_file), which ends
the start for an architecture that it does not read (modeling_gguf_pytorch_utils.py load_gguf_checkpoint: "GGUF model
with architecture … is not supported yet"). With --hf-config-path the description is another's, and is not asked for.
From 0.24 on a plugin reads the file (model.py says that).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Dependence, Settings
from vllm_doctor.plan.model.architecture import Architecture

_ON = "the version of Transformers"


class FileKind(msgspec.Struct, frozen=True):
    """The file's architecture, as llama.cpp calls that of a model type, and the first Transformers that reads it."""

    architecture: str
    since: str | None = None


@cache
def kinds() -> dict[str, FileKind]:
    """By model type."""
    told = json.loads(Path(__file__).with_name("gguf.json").read_text(encoding="utf-8"))
    return msgspec.convert(told["model_types"], dict[str, FileKind])


def _reader(a: Architecture) -> FileKind | None:
    """By the model's type, else that of the text model within."""
    found = kinds().get(a.model_type)
    return found if found is not None else kinds().get(a.model_type.removesuffix("_text"))


def _asked(s: Settings) -> bool:
    return s.gguf is not None and s.gguf.lower().endswith(".gguf") and not s.does.gguf_by_plugin


def bounds(version: Version) -> tuple[str | None, str | None]:
    """The least Transformers that the release asks for, and the first that it does not take."""
    asked = history("packages", "packages").text("transformers", version) or ""
    least = below = None
    for part in asked.split(","):
        if part.startswith(">="):
            least = part[2:]
        elif part.startswith("<") and not part.startswith("<="):
            below = part[1:]
    return least, below


def before(one: str, other: str | None) -> bool:
    """Is this version before the other one, where there is one?"""
    return other is not None and _number(one) < _number(other)


def _number(text: str) -> Version:
    return as_version(text if "." in text else f"{text}.0")


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """A file that no Transformers of the release reads; another method in the configuration that stands for the
    file's (config/model.py _verify_quantization)."""
    if not _asked(s):
        return
    if history("models", "quantizations").exists("gguf", s.version) is False:
        needed = f"a folder with a config.json: vLLM {s.version} reads no such file, 0.5.5 is the first that does"
        yield Refusal("model", "a GGUF file", needed)
        return
    yield from _tensors(a, s)
    if s.config_elsewhere:
        stored = a.quantization.text("quant_method") if a.quantization is not None else ""
        if stored and stored != "gguf":
            yield Refusal("--hf-config-path", f"a config.json of {stored}", "one without quantization_config")
        return
    reader = _reader(a)
    if reader is None:
        return
    _, below = bounds(s.version)
    if reader.since is None or (below is not None and not before(reader.since, below)):
        which = f"no Transformers before {below}, which {s.version} asks for," if reader.since else "no Transformers"
        found = f"a GGUF file of architecture {reader.architecture}"
        yield Refusal("model", found, f"a safetensors checkpoint: {which} reads such a file")


# Model types whose checkpoints store gate and up, and queries, keys and values, as one matrix each.
_JOINED = frozenset({"phi3"})
# What a vocabulary is filled up to (vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE).
_FILLED = 64


def _tensors(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """Files whose tensors the loader cannot give to the model's."""
    if a.moe is not None and s.does.names_each_expert_of_gguf:
        needed = f"a safetensors checkpoint, or 0.13.0: {s.version} looks for each expert in a file that joins them"
        yield Refusal("model", "a GGUF file of a model with experts", needed)
    if a.model_type in _JOINED and s.does.loads_gguf_in_parts:
        needed = f"a safetensors checkpoint, or 0.7.0: {s.version} takes no joined projections from such a file"
        yield Refusal("model", f"a GGUF file of {a.model_type}", needed)

    if s.does.gguf_words_unpadded and s.parallel.tp > 1 and a.vocab % _FILLED:
        needed = f"1, or 0.7.0: {s.version} splits no vocabulary of {a.vocab}, which is no multiple of {_FILLED}"
        yield Refusal("--tensor-parallel-size", str(s.parallel.tp), needed)


def depends(a: Architecture, s: Settings) -> Iterator[Dependence]:
    """Which Transformers is installed, where the release takes one that reads the file and one that does not."""
    reader = _reader(a) if _asked(s) and not s.config_elsewhere else None
    if reader is None or reader.since is None:
        return
    least, below = bounds(s.version)
    if least is not None and before(least, reader.since) and (below is None or before(reader.since, below)):
        yield Dependence(
            _ON,
            f"{reader.since} is the first that reads a GGUF file of architecture {reader.architecture}; vLLM "
            f"{s.version} takes {least} too. pip show transformers settles it",
        )
