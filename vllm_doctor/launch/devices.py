"""The cards that CUDA shows a process: the entries of CUDA_VISIBLE_DEVICES before the first that is none.

CUDA C++ Programming Guide, "CUDA Environment Variables": indices and UUIDs between commas; what stands behind an
invalid one is not seen.
"""

import re
from collections.abc import Iterator, Mapping

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.records import excerpt

NAME = "CUDA_VISIBLE_DEVICES"
_ENTRY = re.compile(r"\s*(?:\d{1,4}|(?:GPU|MIG)-[0-9A-Za-z/-]+)\s*")
# config/parallel.py of these releases was read: with too few cards they end, where older ones went on with Ray.
_COUNTED_FROM = Version((0, 30))


def missing(
    env: Mapping[str, str], flags: Mapping[str, str | bool], version: Version
) -> Iterator[tuple[str, str, str]]:
    """(name, found, needed) where a launch on GPUs sees no card, or fewer than it has ranks on one host."""
    text = env.get(NAME, "")
    if not text.strip() or "$" in text or "[hidden]" in text or "+cpu" in version.text:
        return
    seen = _seen(text)
    ranks = _whole(flags, "tensor-parallel-size") * _whole(flags, "pipeline-parallel-size")
    elsewhere = _whole(flags, "nnodes") > 1 or flags.get("distributed-executor-backend") not in {None, "mp"}
    if seen == 0:
        yield NAME, excerpt.value(text), "the numbers or UUIDs of the GPUs that vLLM may use"
    elif seen < ranks and not elsewhere and version >= _COUNTED_FROM:
        needed = f"{ranks} GPUs, --tensor-parallel-size times --pipeline-parallel-size"
        yield NAME, excerpt.value(text), needed


def _seen(text: str) -> int:
    seen = 0
    for entry in text.split(","):
        if not _ENTRY.fullmatch(entry):
            break
        seen += 1
    return seen


def _whole(flags: Mapping[str, str | bool], name: str) -> int:
    value = flags.get(name)
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 6 else 1
