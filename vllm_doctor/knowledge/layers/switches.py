"""The variable or option that turns a component off, told by the component's own calls: switches.json.

A component is a part that has a substitute: another kernel, another way of loading, the older model runner. Whether a
release has the switch is asked of the release, so a row serves every release that has the component.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.answers import Answer, applies
from vllm_doctor.knowledge.pattern import compiled

# vLLM's innermost calls, with all that they called: those farther out only led to the component that failed.
_INNERMOST = 2
_OURS = "/vllm/"


class ComponentSwitch(Answer, frozen=True, forbid_unknown_fields=True):
    """One component: `calls` matches a file of its own, `said` (where it has one) what the failure says."""

    calls: str = ""


@cache
def switches() -> tuple[ComponentSwitch, ...]:
    """All of them, the smallest component first."""
    return msgspec.json.decode(Path(__file__).with_name("switches.json").read_bytes(), type=tuple[ComponentSwitch, ...])


def switches_of(files: Sequence[str], text: str) -> tuple[ComponentSwitch, ...]:
    """The switches of what the innermost calls belong to (`files`, outermost first), the smallest component first."""
    ours = [at for at, file in enumerate(files) if _OURS in file][-_INNERMOST:]
    inner = "\n".join(files[ours[0] if ours else 0 :])
    return tuple(one for one in switches() if compiled(one.calls).search(inner) and applies(one, text))
