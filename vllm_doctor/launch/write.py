"""A launch as words again: what the parser read of them, in the long names, as any release's parser takes them."""

import json
from collections.abc import Iterator, Mapping

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch import table
from vllm_doctor.launch.parse import LaunchLine

# The first release whose wheel was read with a program `vllm` (scripts.py; 0.5.0.post1 has none). The module is in all.
_PROGRAM_SINCE = Version((0, 5, 4))


def serve_words(line: LaunchLine, version: Version | None = None) -> tuple[str, ...]:
    """`vllm serve MODEL --option value …`, or the server's module in a release that has no such program; the variables
    are not in it. The model stands once, where the program takes it, however the line named it."""
    flags = {name: value for name, value in line.flags.items() if name != "model"}
    named = line.model if line.model is not None else line.flags.get("model")
    model = (named,) if isinstance(named, str) else ()
    if version is not None and version < _PROGRAM_SINCE:
        start = ("python3", "-m", "vllm.entrypoints.openai.api_server", *(("--model",) if model else ()))
    else:
        start = ("vllm", "serve")
    return (*start, *model, *options(flags, version))


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
