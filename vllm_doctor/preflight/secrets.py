"""Secrets that everybody can read in an inventory: by a role's word (no_log), by their name, by their own shape."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import yaml

from vllm_doctor.preflight.sources import Definition
from vllm_doctor.redact.shapes import has_secret_shape

# A number of tokens is none: max_tokens, num_batched_tokens.
_NAME = re.compile(
    r"(?:^|[_-])(?:token|(?:passwd|password|passphrase|secret|credential|api[_-]?key|(?:access|private)[_-]key)s?)$",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"\{\{.{0,1000}?\}\}|\{%.{0,1000}?%\}", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NOTHING = {"", "null", "~", "true", "false", "yes", "no", "on", "off", "none"}


@dataclass(frozen=True)
class WrittenScalar:
    """One value of an inventory file, under the nearest name that stands before it."""

    name: str
    line: int
    node: yaml.ScalarNode

    @property
    def encrypted(self) -> bool:
        """Whether ansible-vault has it."""
        return self.node.tag == "!vault"


def is_secret(name: str, text: str, *, told: bool = False) -> bool:
    """Whether `text` under `name` is a secret that can be read; `told`: its role says so. A reference is none."""
    plain = _TEMPLATE.sub("", text).strip()
    if has_secret_shape(plain):
        return True
    return (told or bool(_NAME.search(name))) and "{{" not in text and plain.casefold() not in _NOTHING


def holds_secret(name: str, value: object, *, told: bool = False) -> bool:
    """Whether a value, or anything inside it, is one."""
    if isinstance(value, Mapping):
        return any(holds_secret(str(key), item, told=told) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(holds_secret(name, item, told=told) for item in value)
    return is_secret(name, "" if value is None else str(value), told=told)


def in_plain_text(definitions: Sequence[Definition], told: Collection[str]) -> Iterator[Definition]:
    """The secrets that stand in files, each as the line to change. `told` are the variables whose role says so.

    What such a variable refers to is one too, in whatever variable it stands.
    """
    told = {*told, *_referred(definitions, told)}
    for item in definitions:
        for scalar in scalars(item):
            if not scalar.encrypted and is_secret(scalar.name, scalar.node.value, told=item.variable in told):
                yield replace(item, variable=scalar.name, line=scalar.line)


def _referred(definitions: Sequence[Definition], told: Collection[str]) -> set[str]:
    """Variables with a plain text, from which one of `told` takes its value."""
    texts = {item.variable: item.node.value for item in definitions if isinstance(item.node, yaml.ScalarNode)}
    found: set[str] = set()
    waiting = [scalar.node.value for item in definitions if item.variable in told for scalar in scalars(item)]
    while waiting:
        for template in _TEMPLATE.findall(waiting.pop()):
            names = {*re.findall(r"[A-Za-z_]\w*", _QUOTED.sub("", template))} & texts.keys() - found
            found |= names
            waiting += [texts[name] for name in names]
    return found


def scalars(item: Definition) -> Iterator[WrittenScalar]:
    """All plain values of a definition."""
    return _scalars(item.variable, item.node, item.line)


def _scalars(name: str, node: yaml.Node, line: int) -> Iterator[WrittenScalar]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield from _scalars(key.value, value, key.start_mark.line + 1)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _scalars(name, value, value.start_mark.line + 1)
    elif isinstance(node, yaml.ScalarNode):
        yield WrittenScalar(name, line, node)
