"""Everything that is written down of one wheel."""

from __future__ import annotations

from collections.abc import Iterable

from releases import (
    checks,
    cited,
    environment,
    joint,
    kernels,
    messages,
    metrics,
    models,
    options,
    packages,
    refusals,
    registered,
    traits,
)
from releases.fields import Fields
from releases.messages import Sought
from releases.store import Release
from releases.wheel import Wheel


def release(wheel: Wheel, catalogue: Iterable[Sought]) -> Release:
    """All sections of a release. Raises WheelError where a source does not parse."""
    fields = Fields(wheel)
    taken = options.read(wheel, fields)
    keys = fields.section(taken)
    return {
        "version": wheel.version,
        "source": f"wheel {wheel.name}",
        "packages": packages.read(wheel),
        **({"build": dict(wheel.code)} if wheel.code else {}),
        "options": taken,
        "fields": keys,
        "checks": checks.read(wheel, taken, keys),
        "joint": joint.read(wheel, taken),
        "environment": environment.read(wheel),
        **kernels.read(wheel),
        "quantizations": models.quantizations(wheel),
        **registered.read(wheel),
        "architectures": models.architectures(wheel),
        "traits": traits.read(wheel),
        "metrics": metrics.read(wheel),
        "messages": messages.read(wheel, catalogue),
        "refusals": refusals.read(wheel, frozenset(taken)),
        "cited": cited.read(wheel),
    }
