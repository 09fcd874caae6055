"""What a release refuses of a model's rope_scaling: its own tests of that object's keys (history/ropes.json, read from
each wheel by tools/releases/ropes.py).

Up to 0.6.3 a release reads `type`, or the one of both that is there; since then it gives each object a `rope_type`
first (transformers_utils/config.py patch_rope_scaling_dict).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.support.checkpoint_keys import KeyTest

# Keys whose absence is another form of the object; without another one the description is short.
_FORM = frozenset({"type", "rope_type", "factor"})
_OF_ALL = "length"  # what is asked of each model; the rest of those whose class hands the object on
# A release whose post release, which counts as the same one here, takes what it does not (0.5.3.post1: Llama 3.1).
_MENDED = as_version("0.5.3")
# Of an older name the newer one.
_NEWER = {"su": "longrope", "mrope": "default"}


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, where one of the release's tests holds."""
    if a.rope is None or s.gguf is not None or s.config_elsewhere or not _refused(a, s.version):
        return
    table, kind = history("ropes", "ropes"), _kind(a.rope.values)
    if kind and not any(repr(kind) in test for test in table.names()):
        yield Refusal("rope_scaling", f"type {kind}", "a type that a release of vLLM has, which of this one none has")
        return
    if s.version == _MENDED:
        return
    later = (release for release in table.releases if release > s.version)
    first = next((release for release in later if not _refused(a, release)), None)
    if first is None:
        return  # what no release takes, a description has wrong or left out
    yield Refusal("rope_scaling", f"type {kind}" if kind else "no type", f"vLLM {first}, the first that takes this one")


def _kind(rope: Mapping[str, object]) -> str:
    return str(rope.get("rope_type") or rope.get("type") or "")


def _refused(a: Architecture, version: Version) -> bool:
    tests = _tests(version)
    scaled = history("ropes", "scaled").exists(a.name, version) is True
    rope = a.rope.values if a.rope is not None else {}
    if not any("'type' in config" in test for test, _ in tests):
        kind = _kind(rope)
        rope = {"rope_theta": 10_000.0, **rope, **({"rope_type": _NEWER.get(kind, kind)} if kind else {})}
    ask = KeyTest(rope)
    return any(ask.value(_tree(test)) is True for test, of_all in tests if of_all or scaled)


@lru_cache(maxsize=64)
def _tests(version: Version) -> tuple[tuple[str, bool], ...]:
    """A release's tests, each with whether it is asked of all models; those of one that was not read stand only where
    the releases around it agree."""
    table = history("ropes", "ropes")
    here = (name.partition(": ") for name in table.names() if table.exists(name, version))
    return tuple((test, of == _OF_ALL) for of, _, test in here if _absent(test) <= _FORM)


def _absent(test: str) -> set[object]:
    """The keys that must not be there for a test to hold."""
    found: set[object] = set()
    for node in ast.walk(_tree(test)):
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=ast.Constant(value=key), ops=[ast.In()])):
                found.add(key)
            case _:
                pass
    return found


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
