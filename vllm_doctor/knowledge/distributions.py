"""Which distribution holds a module that could not be imported.

A log is written by others: a name in it becomes a command to install something only where vLLM itself requires that
distribution, or a person has read the name (distributions.json).
"""

from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.history import history

# What a release's metadata names beside packages of Python.
_NO_DISTRIBUTION = frozenset({"glibc", "python"})


class Distributions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """distributions.json: modules whose distribution has another name, distributions that vLLM can do without, the
    machines for which one is built alone, and from which release on vLLM's wheel has its own copy of a module
    (vllm/third_party)."""

    modules: dict[str, str]
    optional: tuple[str, ...]
    machines: dict[str, tuple[str, ...]] = {}
    brought: dict[str, str] = {}


@cache
def table() -> Distributions:
    """The table, as data."""
    return msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=Distributions)


@cache
def known() -> frozenset[str]:
    """Every distribution that may be named in a command, as the index writes it."""
    return frozenset({*required(), *table().optional, *table().modules.values()})


@cache
def required() -> frozenset[str]:
    """Distributions that some release of vLLM requires."""
    return frozenset(history("packages", "packages").names()) - _NO_DISTRIBUTION


def brought_since(module: str) -> str | None:
    """From which release on vLLM brings this module itself; None of one that it does not bring."""
    return table().brought.get(module.partition(".")[0])


def built_for(name: str, machine: str | None) -> bool:
    """Is the distribution built for this machine (`uname -m`)? Yes where nobody says which machine it is."""
    only = table().machines.get(name.lower().replace("_", "-"))
    return only is None or machine is None or machine in only


def distribution(module: str) -> str | None:
    """The distribution of a module (`a.b.c`); None where nobody has read which one it is."""
    parts = module.split(".")
    for length in (2, 1):
        named = table().modules.get(".".join(parts[:length]))
        if named is not None:
            return named
    return listed(parts[0])


def listed(name: str) -> str | None:
    """The name as the index writes it, of a distribution that is known; None for any other."""
    written = name.lower().replace("_", "-").partition("[")[0]
    return written if written in known() or written == "vllm" else None
