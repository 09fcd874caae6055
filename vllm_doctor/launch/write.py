"""A launch as words again: what the parser read of them, in the long names, as any release's parser takes them."""

import json
from collections.abc import Iterator, Mapping

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch import table
from vllm_doctor.launch.parse import LaunchLine


def serve_words(line: LaunchLine, version: Version | None = None) -> tuple[str, ...]:
    """`vllm serve MODEL --option value …`; the variables are not in it."""
    return ("vllm", "serve", *arguments(line, version))


def arguments(line: LaunchLine, version: Version | None = None) -> tuple[str, ...]:
    """What stands after `vllm serve`: the model, unless an option names it, and the options in their order."""
    model = (line.model,) if line.model is not None and "model" not in line.flags else ()
    return (*model, *options(line.flags, version))


def options(flags: Mapping[str, str | bool], version: Version | None = None) -> tuple[str, ...]:
    """Options by their long names, as words."""
    return tuple(word for name, value in flags.items() for word in option(name, value, version))


def option(name: str, value: str | bool, version: Version | None = None) -> tuple[str, ...]:
    """One option as words: a switch alone, a list with each item a word, any other with its value; what may be given
    several times, once for each item."""
    if value is True:
        return (f"--{name}",)
    if value is False:
        return (f"--no-{name}",)
    if parser.is_repeated(name):
        return tuple(word for item in items(value) for word in (f"--{name}", item))
    if table.takes(name, version) == "+":
        several = tuple(items(value))
        if len(several) > 1 and not any(item.startswith("-") for item in several):
            return (f"--{name}", *several)
    if value.startswith("-") or not value:
        return (f"--{name}={value}",)
    return (f"--{name}", value)


def items(text: str) -> Iterator[str]:
    """The items of a list that the parser joined with commas; a JSON object is one item, commas and all."""
    at = 0
    decoder = json.JSONDecoder()
    while at <= len(text):
        if text[at : at + 1] in {"{", "["}:
            try:
                _, end = decoder.raw_decode(text, at)
            except ValueError:
                end = len(text)
        else:
            end = text.find(",", at)
            end = len(text) if end < 0 else end
        yield text[at:end]
        at = end + 1
