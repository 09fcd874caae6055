"""The change that lasts: a line of the inventory, from which the next playbook run renders the unit."""

import yaml

from vllm_doctor.records.finding import Change, Scalar
from vllm_doctor.records.verdict import Direction

# Variables of the role that hold many settings by name: a line sets one of them.
# What makes a template of a text; a model's name may come from a log.
_TEMPLATE = ("{{", "{%", "{#")
MAPPINGS = frozenset({"vllm_extra_args", "vllm_environment"})


def line(change: Change) -> str | None:
    """`vllm_max_model_len: 2048`, or None where no variable of the inventory stands for the change."""
    if change.inventory_var is None:
        return None
    if change.direction is Direction.REMOVE or change.after is None:
        gone = f"{change.inventory_var}: {change.name}" if change.inventory_var in MAPPINGS else change.inventory_var
        return f"# remove the line: {gone}"
    if change.inventory_var in MAPPINGS:
        return assignment(change.inventory_var, {change.name: change.after})
    return assignment(change.inventory_var, change.after)


def assignment(variable: str, value: Scalar | dict[str, Scalar]) -> str:
    """One YAML line; the value is quoted where YAML 1.1, which Ansible reads, would take it for something else, and
    marked `!unsafe` where Ansible would run it as a template."""
    name, given = next(iter(value.items())) if isinstance(value, dict) else (None, value)
    if isinstance(given, str) and (written := _guarded(given)) is not None:
        return f"{variable}: {written}" if name is None else f"{variable}: {{{name}: {written}}}"
    flow = None if isinstance(value, dict) else False  # a plain value stays a plain line
    text: str = yaml.safe_dump({variable: value}, width=10_000, allow_unicode=True, default_flow_style=flow)
    return text.rstrip("\n")


def _guarded(text: str) -> str | None:
    """A text that would act on Ansible or on the line, in double quotes and escaped; None for any other."""
    template = any(mark in text for mark in _TEMPLATE)
    if not template and text.isprintable():
        return None
    kept = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'!unsafe "{kept}"' if template else f'"{kept}"'
