"""Everything that is written down of one wheel."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from releases import (
    adapted,
    breakable,
    checkpoints,
    checks,
    cited,
    configurations,
    connectors,
    drafted,
    environment,
    guards,
    joint,
    kernels,
    messages,
    metrics,
    model_tests,
    models,
    mtp,
    options,
    packages,
    refusals,
    registered,
    replicated,
    ropes,
    schemes,
    store,
    traits,
)
from releases.fields import Fields
from releases.messages import Sought
from releases.store import Release
from releases.wheel import Wheel


def release(wheel: Wheel, catalogue: Iterable[Sought], only: Container[str] = store.SECTIONS) -> Release:
    """The sections of a release, all of them or some. Raises WheelError where a source does not parse."""
    fields = Fields(wheel)
    taken = options.read(wheel, fields)
    keys = fields.section(taken)
    readers: tuple[tuple[tuple[str, ...], Callable[[], Mapping[str, Mapping[str, object]]]], ...] = (
        (("packages",), lambda: {"packages": packages.read(wheel)}),
        (("build",), lambda: {"build": dict(wheel.code)} if wheel.code else {}),
        (("options",), lambda: {"options": taken}),
        (("fields",), lambda: {"fields": keys}),
        (("checks",), lambda: {"checks": checks.read(wheel, taken, keys)}),
        (("joint",), lambda: {"joint": joint.read(wheel, taken)}),
        (("environment",), lambda: {"environment": environment.read(wheel)}),
        (kernels.TABLES, lambda: kernels.read(wheel)),
        (("quantizations",), lambda: {"quantizations": models.quantizations(wheel)}),
        (("schemes",), lambda: {"schemes": schemes.read(wheel)}),
        (("checkpoints",), lambda: {"checkpoints": checkpoints.read(wheel)}),
        (("configurations",), lambda: {"configurations": configurations.read(wheel)}),
        (ropes.TABLES, lambda: ropes.read(wheel)),
        (tuple(registered.TABLES), lambda: registered.read(wheel)),
        (("architectures",), lambda: {"architectures": models.architectures(wheel)}),
        (("breakable",), lambda: {"breakable": breakable.read(wheel)}),
        (("model_tests",), lambda: {"model_tests": model_tests.read(wheel)}),
        (("traits",), lambda: {"traits": traits.read(wheel)}),
        (replicated.TABLES, lambda: replicated.read(wheel)),
        (("adapted",), lambda: {"adapted": adapted.read(wheel)}),
        (("drafted",), lambda: {"drafted": drafted.read(wheel)}),
        (("mtp",), lambda: {"mtp": mtp.read(wheel)}),
        (("connectors",), lambda: {"connectors": connectors.read(wheel)}),
        (("metrics",), lambda: {"metrics": metrics.read(wheel)}),
        (("messages",), lambda: {"messages": messages.read(wheel, catalogue)}),
        (("refusals",), lambda: {"refusals": refusals.read(wheel, frozenset(taken))}),
        (("guards",), lambda: {"guards": guards.read(wheel, taken)}),
        (("cited",), lambda: {"cited": cited.read(wheel)}),
    )
    made: dict[str, Mapping[str, object] | str] = {"version": wheel.version, "source": f"wheel {wheel.name}"}
    for names, reader in readers:
        if any(name in only for name in names):
            made |= {name: section for name, section in reader().items() if name in only}
    return made
