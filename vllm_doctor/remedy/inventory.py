"""The change that lasts: a line of the inventory, from which the next playbook run renders the unit."""

import yaml

from vllm_doctor.records.finding import Change, Scalar
from vllm_doctor.records.verdict import Direction

# Variables of the role that hold many settings by name: a line sets one of them.
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
    """One YAML line; the value is quoted where YAML 1.1, which Ansible reads, would take it for something else."""
    flow = None if isinstance(value, dict) else False  # a plain value stays a plain line
    text: str = yaml.safe_dump({variable: value}, width=10_000, allow_unicode=True, default_flow_style=flow)
    return text.rstrip("\n")
