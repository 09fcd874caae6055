"""How each medium writes the changes of each rule: a line, a unit, a container, a pod, a job, a program, the inventory.

The launch is one of every kind of word; a line that many writings of a medium have stands once, at the head, and they
have its mark, which follows from the line alone.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256

import msgspec

from tests.scenarios.loading import diagnosis, names
from vllm_doctor.records.container import Made
from vllm_doctor.records.finding import Change
from vllm_doctor.remedy.medium import Medium, corrected

_LAUNCH = (
    "vllm", "serve", "acme/chat", "--port", "8001", "--max-model-len=131072", "--enforce-eager", "-tp", "2",
    "--kv-transfer-config", '{"kv_connector": "x"}', "--served-model-name", "a", "b", "--no-enable-prefix-caching",
)  # fmt: skip
_MADE = Made(
    words=("docker", "run", "-d", "--name", "chat", "--gpus", "all", "-e", "VLLM_USE_V1=1", "vllm/vllm-openai")
)
# A line that so many writings have says nothing of one change.
_COMMON = 6


@cache
def kinds() -> tuple[str, ...]:
    """The media."""
    return tuple(str(medium) for medium in Medium)


def answers(kind: str) -> str:
    """Each set of changes once, by its rule."""
    written = [(head, _written(name, changes, Medium(kind))) for head, name, changes in _asked()]
    count = Counter(line for _, lines in written for line in dict.fromkeys(lines))
    common = {line: f"({sha256(line.encode()).hexdigest()[:5]})" for line in sorted(count) if count[line] >= _COMMON}
    told = [f"{mark} {line}" for line, mark in common.items()]
    for head, lines in written:
        told.append(f"{head}:{'' if lines else ' nothing'}")
        told += [f"  {common.get(line, line)}" for line in lines]
    return "\n".join(told) + "\n"


def _asked() -> Iterator[tuple[str, str, tuple[Change, ...]]]:
    """All changes of a finding, and each alone: what a reader may take."""
    seen: set[tuple[object, ...]] = set()
    for name in names():
        for found in diagnosis(name).findings[:1]:
            for changes in (found.changes, *((change,) for change in found.changes)):
                key = (found.code, *((c.kind, c.name, c.direction, c.after is None) for c in changes))
                if changes and key not in seen:
                    seen.add(key)
                    yield f"{found.code} {', '.join(f'{c.direction} {c.name}' for c in changes)}", name, changes


def _written(name: str, changes: Sequence[Change], medium: Medium) -> list[str]:
    told = msgspec.structs.replace(
        diagnosis(name),
        launch=_LAUNCH,
        made=_MADE if medium is Medium.DOCKER else None,
        medium=str(medium),
    )
    return corrected(told, changes, medium)
