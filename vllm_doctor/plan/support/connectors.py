"""KV connectors that a release has for the other engine alone: V0's and V1's to 0.10.0 (kv_connector/factory.py,
history/connectors.json)."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.history import history
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings

_ENGINES = {"first engine": "V0", "second engine": "V1"}


def refusals(s: Settings) -> Iterator[Refusal]:
    """One refusal at most."""
    table = history("connectors", "connectors")
    for name in dict.fromkeys(one.name for one in s.host.connectors):
        known = table.exists(name, s.version) if name in table else None
        engine = _ENGINES.get(table.text(name, s.version) or "") if known else None
        if engine is not None and engine != s.engine:
            needed = f"a connector of {s.engine}: {s.version} has this one for {engine}"
            yield Refusal("--kv-transfer-config", name, needed)
            return
