"""The change that lasts: a line of the inventory, from which the next playbook run renders the unit."""

import json
import re

import yaml

from vllm_doctor.launch import quote
from vllm_doctor.records.finding import Change, Scalar
from vllm_doctor.records.verdict import ChangeKind
from vllm_doctor.remedy.argv import takes_many

# What makes a template of a text; a model's name may come from a log.
_TEMPLATE = ("{{", "{%", "{#")
# Variables of the role that hold many settings by name: a line sets one of them.
MAPPINGS = frozenset({"vllm_extra_args", "vllm_environment"})


def line(change: Change) -> str | None:
    """`vllm_max_model_len: 2048`, or None where no variable of the inventory stands for the change."""
    if change.inventory_var is None:
        return None
    name = change.variable or change.name
    if change.after is None:
        gone = f"{change.inventory_var}: {name}" if change.inventory_var in MAPPINGS else change.inventory_var
        return f"# remove the line: {gone}"
    return setting(change.inventory_var, name, change.after, option=change.kind is ChangeKind.FLAG)


def setting(variable: str, name: str, value: Scalar, *, option: bool) -> str:
    """The line that sets `variable` for vLLM's `name`; an option's mapping or list is one in the inventory too."""
    plain = _plain(name, value) if option else value
    return assignment(variable, {name: plain} if variable in MAPPINGS else plain)


def _plain(name: str, value: Scalar) -> object:
    """A list's words and a JSON object as what they are; any other value as it stands."""
    if takes_many(name) and not isinstance(value, bool):
        return [int(word) if re.fullmatch("[0-9]{1,18}", word) else word for word in str(value).split()]
    if not isinstance(value, str) or not value.startswith("{") or any(mark in value for mark in _TEMPLATE):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def assignment(variable: str, value: object) -> str:
    """One YAML line; the value is quoted where YAML 1.1, which Ansible reads, would take it for something else, and
    marked `!unsafe` where Ansible would run it as a template."""
    name, given = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else (None, value)
    if isinstance(given, str) and (written := _guarded(given)) is not None:
        return f"{variable}: {written}" if name is None else f"{variable}: {{{name}: {written}}}"
    if isinstance(value, dict | list):
        return f"{variable}: {quote.yaml(value, flow=True)}"
    text: str = yaml.safe_dump({variable: value}, width=10_000, allow_unicode=True, default_flow_style=False)
    return text.rstrip("\n")


def _guarded(text: str) -> str | None:
    """A text that would act on Ansible or on the line, in double quotes and escaped; None for any other."""
    template = any(mark in text for mark in _TEMPLATE)
    if not template and text.isprintable():
        return None
    kept = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'!unsafe "{kept}"' if template else f'"{kept}"'
