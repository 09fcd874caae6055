"""A checkpoint whose config.json names code of its own (auto_map), in a launch that does not trust it.

A release reads the configuration of some model types with a class of its own (history/configurations.json), and has
Transformers read the others: one that knows the type takes its own class, one that does not ends the start
(transformers_utils/config.py get_config: "consider setting `trust_remote_code=True`").
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from vllm_doctor.knowledge.history import history
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Dependence, Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.support.gguf import before, bounds

_OPTION = "trust-remote-code"
_ON = "the version of Transformers"


@cache
def _types() -> dict[str, str]:
    """Model type → the first release of Transformers that has it."""
    told = json.loads(Path(__file__).with_name("own_code.json").read_text(encoding="utf-8"))
    return {str(name): str(since) for since, names in told["model_types"].items() for name in names}


def _asked(a: Architecture, s: Settings) -> bool:
    if not a.own_code or s.trusts or s.gguf is not None or s.config_elsewhere:
        return False
    return history("configurations", "configurations").exists(a.whole_type, s.version) is not True


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """A model type that no Transformers of the release has."""
    if not _asked(a, s):
        return
    since, (_, below) = _types().get(a.whole_type), bounds(s.version)
    if since is None or (below is not None and not before(since, below)):
        needed = f"--{_OPTION} beside it: config.json names code that comes with it for model_type {a.whole_type}"
        yield Refusal(f"--{_OPTION}", "not given", needed, beside=_OPTION)


def depends(a: Architecture, s: Settings) -> Iterator[Dependence]:
    """Which Transformers is installed, where the release takes one that has the type and one that has not."""
    since, (least, below) = _types().get(a.whole_type), bounds(s.version)
    if since is None or least is None or not _asked(a, s):
        return
    if before(least, since) and (below is None or before(since, below)):
        yield Dependence(
            _ON,
            f"{since} is the first that has model_type {a.whole_type}; with one before, which vLLM {s.version} takes "
            f"too, the start ends without --{_OPTION}. pip show transformers settles it",
        )
