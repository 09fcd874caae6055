"""Does the engine keep a cache of its own for each kind of layers (vLLM's hybrid KV cache manager), and what a release
refuses where it does not, or where a KV connector has no code for it (config/vllm.py, kv_connector/factory.py).

Without it all layers share one kind of cache: layers with a window keep whole prompts, and recurrent layers beside
attention have no cache that both could share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.host_memory import Connector
from vllm_doctor.plan.model.architecture import Architecture

_OPTION, _CONNECTOR, _EVENTS = "disable-hybrid-kv-cache-manager", "kv-transfer-config", "kv-events-config"
_SIZE = "kv-offloading-size"
# Of those that a release has, the ones that serve is what a user may change to; others are for tests or one model.
_SERVING = ("NixlConnector", "MooncakeConnector", "OffloadingConnector")

# What is said of a connector in a release none of whose classes keeps kinds of layers apart.
_BEFORE = frozenset({"first engine", "second engine"})


def _keeps_apart(name: str, version: Version) -> bool | None:
    """Does the release's class of this connector keep kinds of layers apart (SupportsHMA)? None where it is a plugin's,
    where its class cannot be followed, and between two releases that disagree."""
    table = history("connectors", "connectors")
    if name not in table:
        return None
    told = {"together" if one in _BEFORE else one for one in table.around(name, version) or ("together",)}
    return told.pop() == "apart" if told in ({"apart"}, {"together"}) else None


def _apart(connectors: Sequence[Connector], version: Version) -> bool | None:
    """Do all of them keep kinds of layers apart? None where that is not known."""
    told = [_keeps_apart(one.name, version) for one in connectors]
    return False if False in told else None if None in told else True


def keeps_groups(flags: Flags, connectors: Sequence[Connector], version: Version, does: Behaviour) -> bool:
    """Is there a cache for each kind of layers?"""
    return _ended_by(flags, connectors, version, does) is None


def _asked(flags: Flags, does: Behaviour) -> bool:
    """Are the groups asked for, in a release that listens?"""
    return _OPTION in flags.values and not flags.on(_OPTION, default=False) and does.groups_may_be_asked


def _ended_by(flags: Flags, connectors: Sequence[Connector], version: Version, does: Behaviour) -> str | None:
    """The option that ends them, if any does."""
    if flags.on(_OPTION, default=False):
        return _OPTION
    if _EVENTS in flags.values and does.events_end_groups:
        return _EVENTS
    given = _CONNECTOR in flags.values
    if _asked(flags, does):
        return None
    if does.connector_ends_groups:
        return _CONNECTOR if given else None
    option = _CONNECTOR if given else _SIZE
    return option if connectors and _apart(connectors, version) is False else None


def refusals(
    flags: Flags, a: Architecture, connectors: Sequence[Connector], version: Version, does: Behaviour
) -> Iterator[Refusal]:
    """One refusal at most: each way out of one of these may lead into another."""
    ended = _ended_by(flags, connectors, version, does)
    named = ", ".join(dict.fromkeys(one.name for one in connectors))
    knows = _apart(connectors, version) if connectors else None
    if ended == _EVENTS and _asked(flags, does):
        yield Refusal(f"--no-{_OPTION}", "set", f"no --no-{_OPTION}: events of the cache end it in {version}")
    elif ended is not None and a.hybrid:
        why = f"{version} has no one cache for recurrent layers and attention"
        if ended == _OPTION:
            yield Refusal(f"--{_OPTION}", "set", f"no --{_OPTION}: {why}")
        elif ended == _EVENTS:
            yield Refusal(f"--{_EVENTS}", "set", f"no --{_EVENTS}: it ends a cache for each kind of layers, and {why}")
        elif knows and does.groups_may_be_asked:
            yield Refusal(f"--{ended}", named, f"--no-{_OPTION} beside it, which {named} has code for: {why}")
        else:
            yield Refusal(f"--{ended}", named or "set", f"{_others(version, does)}: {why}")
    elif ended is None and knows is False and does.checks_connector_groups:
        option = _SIZE if _SIZE in flags.values else _CONNECTOR
        if a.hybrid:
            needed = f"{_others(version, does)}: {named} of {version} has no cache for each kind of layers"
            yield Refusal(f"--{option}", named, needed)
        else:
            needed = f"--{_OPTION} beside it: {named} of {version} has no cache for each kind of layers"
            yield Refusal(f"--{option}", named, needed, beside=_OPTION)


def _others(version: Version, does: Behaviour) -> str:
    """What to use instead: the connectors for serving that keep kinds of layers apart in the release."""
    found = [name for name in _SERVING if _keeps_apart(name, version)]
    if not found:
        return "no connector"
    option = f" with --no-{_OPTION}" if does.connector_ends_groups else ""
    return f"no connector, or {' or '.join(found)}{option}"
