"""For which cards a release's wheel has compiled code."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from vllm_doctor.knowledge import compat
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import Version, as_version


def has_code(capability: float, at: Version) -> bool | None:
    """Does the wheel of this release have code that runs on a card of this compute capability: machine code of its
    major number and at most its minor one, or PTX of at most its own? None where no wheel near the release was read."""
    table = history("build", "build")
    answers = [table.exists(name, at) for name in table.names() if _runs(table.text(name, at), name, capability)]
    if any(answers):
        return True
    unread = all(table.exists(name, at) is None for name in table.names())
    if not unread and None not in answers:
        return False
    floor = _floor(at)
    return False if floor is not None and capability < float(floor) else None


def oldest(at: Version) -> str | None:
    """The least compute capability that the wheel has code for."""
    return min(_named(at), key=float, default=_floor(at))


def newest(at: Version) -> str | None:
    """The highest compute capability that the wheel has machine code for; None where it was not read."""
    return max(_named(at), key=float, default=None)


def _named(at: Version) -> list[str]:
    table = history("build", "build")
    return [name for name in table.names() if table.exists(name, at)]


def _floor(at: Version) -> str | None:
    """What the release's CUDA still compiles for, which preflight refuses by: also known where no wheel was read."""
    wheel = compat.table().wheel(str(at))
    return None if wheel is None else wheel.compute_floor


@cache
def nearest_with(capability: float, at: Version) -> str | None:
    """The release nearest to this one, of those whose wheels were read, that has code which runs on such a card: the
    first after it for a card that is too new for it, the last before it for one that is too old."""
    releases = history("build", "build").texts
    with_code = [text for text in releases if has_code(capability, as_version(text))]
    after = [text for text in with_code if as_version(text) > at]
    before = [text for text in with_code if as_version(text) < at]
    least = oldest(at)
    too_old = least is not None and capability < float(least)
    return next(iter(before[::-1] if too_old else after), None)


class TorchBuilds(NamedTuple):
    """The torch of a release, the CUDA of its build on the Python index, and the CUDA of the build that runs a card
    which that one does not; None where no published build does."""

    torch: str
    cuda: str
    other: str | None


def torch_without(capability: float, at: Version) -> TorchBuilds | None:
    """A release whose torch, as published, has no code for such a card in one build or in all: which one is installed
    no launch shows. None where all have it, and where the torch is not known."""
    wheel = compat.table().wheel(str(at))
    code = {} if wheel is None else compat.table().torch_code(wheel.torch)
    runs = {
        name: float(least) <= capability and int(capability) <= int(float(newest))
        for name, (least, newest) in code.items()
    }
    if wheel is None or all(runs.values()):
        return None
    with_code = next((wheel.cuda if name == "index" else name for name, has in runs.items() if has), None)
    return TorchBuilds(wheel.torch, wheel.cuda, with_code)


def _runs(kinds: str | None, name: str, capability: float) -> bool:
    if float(name) > capability:
        return False
    return int(float(name)) == int(capability) or (kinds is not None and "ptx" in kinds)
