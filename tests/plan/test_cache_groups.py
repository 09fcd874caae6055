"""A cache for each kind of layers beside connectors and events of the cache: what is refused, each beside a launch or a
release that is taken, and which layers share a cache where it is off."""

import pytest

from tests.plan.models import GEMMA3_LIKE, HYBRID_LIKE, LLAMA_8B
from tests.plan.test_refused import settings

OFF, ON = "--disable-hybrid-kv-cache-manager", "--no-disable-hybrid-kv-cache-manager"
EVENTS = '--kv-events-config {"enable_kv_cache_events":true}'
SIZE = "--kv-offloading-size 64"


def by(*names):
    """A launch with these connectors."""
    if len(names) == 1:
        return f'--kv-transfer-config {{"kv_connector":"{names[0]}","kv_role":"kv_both"}}'
    inner = ",".join(f'{{"kv_connector":"{name}","kv_role":"kv_both"}}' for name in names)
    outer = (
        f'"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{{"connectors":[{inner}]}}'
    )
    return f"--kv-transfer-config {{{outer}}}"


LMCACHE, NIXL, MOONCAKE = (by(name) for name in ("LMCacheConnectorV1", "NixlConnector", "MooncakeConnector"))


def told(config, flags, version):
    _, s, _ = settings(config, flags, version)
    return [(r.flag, r.found) for r in s.refusals]


@pytest.mark.parametrize(
    ("config", "flags", "version", "flag", "found"),
    [
        # Recurrent layers beside attention have no one cache.
        (HYBRID_LIKE, OFF, "0.33.0", OFF, "set"),
        (HYBRID_LIKE, MOONCAKE, "0.18.0", "--kv-transfer-config", "MooncakeConnector"),
        (HYBRID_LIKE, MOONCAKE, "0.21.0", "--kv-transfer-config", "MooncakeConnector"),
        (HYBRID_LIKE, LMCACHE, "0.33.0", "--kv-transfer-config", "LMCacheConnectorV1"),
        (
            HYBRID_LIKE,
            by("NixlConnector", "LMCacheConnectorV1"),
            "0.33.0",
            "--kv-transfer-config",
            "NixlConnector, LMCacheConnectorV1",
        ),
        (HYBRID_LIKE, EVENTS, "0.19.1", "--kv-events-config", "set"),
        (HYBRID_LIKE, SIZE, "0.20.2", "--kv-offloading-size", "OffloadingConnector"),
        # A connector that has no code for it ends the start of any model that has it.
        (LLAMA_8B, SIZE, "0.20.2", "--kv-offloading-size", "OffloadingConnector"),
        (LLAMA_8B, f"{LMCACHE} {ON}", "0.33.0", "--kv-transfer-config", "LMCacheConnectorV1"),
        (LLAMA_8B, f"{EVENTS} {ON}", "0.19.1", ON, "set"),
    ],
)
def test_this_is_refused(config, flags, version, flag, found):
    assert told(config, flags, version) == [(flag, found)]


@pytest.mark.parametrize(
    ("config", "flags", "version"),
    [
        (HYBRID_LIKE, "", "0.33.0"),
        (LLAMA_8B, OFF, "0.33.0"),
        (HYBRID_LIKE, MOONCAKE, "0.22.0"),  # the first that asks the connector
        (HYBRID_LIKE, f"{MOONCAKE} {ON}", "0.21.0"),
        (HYBRID_LIKE, by("NixlConnector", "MooncakeConnector"), "0.33.0"),
        (HYBRID_LIKE, by("ConnectorOfAPlugin"), "0.33.0"),  # nobody knows what it can
        (HYBRID_LIKE, EVENTS, "0.20.0"),
        (LLAMA_8B, SIZE, "0.21.0"),  # the first whose own connector has the code
        (LLAMA_8B, f"{SIZE} {OFF}", "0.20.2"),
        (LLAMA_8B, LMCACHE, "0.33.0"),
        (LLAMA_8B, EVENTS, "0.19.1"),
    ],
)
def test_this_is_taken(config, flags, version):
    assert told(config, flags, version) == []


@pytest.mark.parametrize(
    ("flags", "version", "apart"),
    [
        ("", "0.21.0", True),
        (NIXL, "0.21.0", False),
        (f"{NIXL} {ON}", "0.21.0", True),
        (f"{NIXL} {ON}", "0.11.2", False),  # does not listen yet
        (NIXL, "0.22.0", True),
        (LMCACHE, "0.22.0", False),
        (EVENTS, "0.19.1", False),
        (EVENTS, "0.20.0", True),
    ],
)
def test_layers_with_a_window_share_a_cache_with_the_others_where_it_is_off(flags, version, apart):
    _, s, _ = settings(GEMMA3_LIKE, flags, version)
    assert s.hybrid_manager is apart


def test_what_to_do_instead_is_what_the_release_takes():
    _, s, _ = settings(HYBRID_LIKE, MOONCAKE, "0.18.0")
    why = "0.18.0 has no one cache for recurrent layers and attention"
    assert s.refusals[0].needed == f"no connector, or NixlConnector with {ON}: {why}"
    _, s, _ = settings(HYBRID_LIKE, f"{NIXL} {ON}", "0.18.0")
    assert s.refusals == ()
    _, s, _ = settings(LLAMA_8B, SIZE, "0.20.2")
    assert s.refusals[0].beside == OFF.removeprefix("--")
