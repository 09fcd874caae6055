"""A model type that Transformers must read, and the one beside the release may not know; with or without code of the
checkpoint's own (auto_map), which a launch may not trust.

A release reads the configuration of some model types with a class of its own (history/configurations.json), and has
Transformers read the others: one that knows the type takes its own class, one that does not ends the start
(transformers_utils/config.py get_config: "consider setting `trust_remote_code=True`").
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import out_on
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Dependence, Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.support.gguf import before, bounds

_OPTION = "trust-remote-code"
_ON = "the version of Transformers"
_ALWAYS = "4.33.0"  # the first that was read: what it has may be older


class _Types(msgspec.Struct, frozen=True):
    source: str
    model_types: dict[str, list[str]]  # by the first release of Transformers that has them
    days: dict[str, str]  # on which it came out


@cache
def _table() -> _Types:
    return msgspec.json.decode(Path(__file__).with_name("own_code.json").read_bytes(), type=_Types)


@cache
def _types() -> dict[str, str]:
    """Model type → the first release of Transformers that has it."""
    return {name: since for since, names in _table().model_types.items() for name in names}


def _asked(a: Architecture, s: Settings) -> bool:
    if (a.own_code and s.trusts) or s.gguf is not None or s.config_elsewhere:
        return False
    return history("configurations", "configurations").exists(a.whole_type, s.version) is not True


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """A model type that no Transformers of the release has, and whose own code is not trusted."""
    if not a.own_code or not _asked(a, s):
        return
    since, (_, below) = _types().get(a.whole_type), bounds(s.version)
    if since is None or (below is not None and not before(since, below)):
        needed = f"--{_OPTION} beside it: config.json names code that comes with it for model_type {a.whole_type}"
        yield Refusal(f"--{_OPTION}", "not given", needed, beside=_OPTION)


def depends(a: Architecture, s: Settings) -> Iterator[Dependence]:
    """Which Transformers is installed, where one has the type and one has not."""
    since, (least, below) = _types().get(a.whole_type), bounds(s.version)
    if since is None or least is None or not before(least, since) or not _asked(a, s):
        return
    taken = below is None or before(since, below)
    if a.own_code and taken:
        yield Dependence(
            _ON,
            f"{since} is the first that has model_type {a.whole_type}; with one before, which vLLM {s.version} takes "
            f"too, the start ends without --{_OPTION}. pip show transformers settles it",
        )
    elif not a.own_code and since != _ALWAYS and (not taken or (out_on(s.version) or "") < _table().days[since]):
        why = "newer than the release" if taken else f"which vLLM {s.version} does not ask for"
        yield Dependence(
            _ON,
            f"{since}, {why}, is the first that has model_type {a.whole_type}: with one before, as in the image of the "
            f"release, the start ends. pip show transformers settles it",
        )
