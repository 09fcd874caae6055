"""Options within a sentence: `with --enable-lora --max-loras 4 it dies`, `gpu_memory_utilization=0.6`, `tp 2`.

A sentence is no command: an option that it gives two values, or that it only advises, is left out.
"""

from collections.abc import Iterable, Iterator
from re import Match

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.knowledge.versions import canonical
from vllm_doctor.launch import table
from vllm_doctor.launch.line import LaunchError
from vllm_doctor.launch.parse import parse_words

_LONGEST = 2000
# How people say that an option has its value.
_IS = (
    r"(?: is| was| at| of| ist| war| auf| bei| steht auf| est| \u00e0| es| est\u00e1 en| en| em| \u00e8|:)?"
    r"(?: set to)? "
    r"| ?(?:\u8bbe\u7f6e\u4e3a|\u8bbe\u4e3a|\u4e3a|\u662f|\u306f|\u3092) ?"
)
# An option as a command has it, or as Python and its configurations have it: that one needs its value.
_OPTION = Pattern(
    r"(?<![A-Za-z0-9_.-])(?:--(?P<dashed>[a-z][a-z0-9_-]{2,60})"
    r"(?:(?:=| {1,3})(?P<value>'[^'\n]{1,400}'|\"[^\"\n]{1,400}\"|[\w.][\w./:-]{0,120}))?"
    r"|(?P<scored>[a-z][a-z0-9]{1,30}_[a-z0-9_]{2,60}) ?= ?(?P<given>[\w.][\w./:-]{0,120})"
    rf"|(?P<spoken>[a-z][a-z0-9]{{1,30}}[_-][a-z0-9_-]{{2,60}})(?:{_IS})(?P<figure>\d[A-Za-z0-9_.]{{0,20}})"
    r"|(?P<short>TP|PP|DP|tp|pp|dp|[Uu]til)(?: ?= ?| is | of | )?(?P<number>\d{1,2}|0\.\d{1,4})(?![\w.]*\w| pid=))"
)
# How people shorten the options that they name most.
_SHORT = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "util": "gpu_memory_utilization",
}
_VARIABLE = Pattern(r"(?<![\w.-])(?P<name>(?:VLLM|LMCACHE)_[A-Z0-9_]{3,60})=(?P<content>[\w.][\w./:]{0,120})")
# What stands before an option that is advised: what a sentence of vLLM's own asks for, and what a person was told to do
# or means to try. Who did set it says so: `I set`, `we had set`.
_ADVISES = Pattern(
    r"(?i)(?:\b(?:try|tried|trying|consider|please|should|e\.g|example|could|would|must|recommend|recommended|suggest"
    r"|instead of|fix|without|requires?|unrecognized arguments|argument|only|needs?|via|variable|override|workaround)\b"
    r"|(?<!\bI )(?<!\bwe )(?<!\bhave )(?<!\bhad )(?<!\bwas )(?<!\bis )(?<![\w-])(?:un)?(?:set(?:ting)?|use|add(?:ing)?"
    r"|pass(?:ing)?|enabl(?:e|ing)|disabl(?:e|ing)|export|specify(?:ing)?|remov(?:e|ing)|switch|forced|relaunch"
    r"|(?:in|de)creas(?:e|ing)|lower(?:ing)?|rais(?:e|ing)|reduc(?:e|ing)|forcing|append)\b"
    r"|\u5efa\u8bae|\u53ef\u4ee5|\u5c1d\u8bd5)(?:\. )?(?:(?!\. )[^,;\u3002\uff0c]){0,60}$"
)


# A second share behind an option's own: which of several starts it was of, nobody can tell.
_SECOND = Pattern(r" ?(?:[,/\u3001\uff0c]|and|or|und|et|y|e|\u0438|\u548c|\u3068|\uc640) ?[01]?\.\d{1,4}(?![\w.]*\w)")


class ToldLaunch(msgspec.Struct, frozen=True):
    """What a text tells of a launch, without its command."""

    flags: dict[str, str | bool] = {}
    env: dict[str, str] = {}


def told_options(lines: Iterable[str]) -> ToldLaunch:
    """The options and variables that these lines name, each with its one value."""
    flags: dict[str, str | bool] = {}
    env: dict[str, str] = {}
    torn: set[str] = set()
    for line in lines:
        for name, value, last in _options(line[:_LONGEST]):
            if flags.setdefault(name, value) != value or _SECOND.match(line, last):
                torn.add(name)
        for found in _VARIABLE.finditer(line[:_LONGEST]):
            if _ADVISES.search(line[: found.start()]):
                continue
            if env.setdefault(found["name"], found["content"].rstrip(".")) != found["content"].rstrip("."):
                torn.add(found["name"])
    return ToldLaunch(
        {name: value for name, value in flags.items() if name not in torn},
        {name: value for name, value in env.items() if name not in torn},
    )


def _options(line: str) -> Iterator[tuple[str, str | bool, int]]:
    for found in _OPTION.finditer(line):
        if _ADVISES.search(line[: found.start()]):
            continue
        name, value = _named(found)
        name = canonical(f"--{name}")
        if not table.is_known(name):
            continue
        read = _read(name, value.strip("'\"").rstrip(".:-") if value is not None else None)
        if read is not None:
            yield name, read, found.end()


def _named(found: Match[str]) -> tuple[str, str | None]:
    if found["dashed"]:
        return found["dashed"], found["value"]
    if found["scored"]:
        return found["scored"], found["given"]
    if found["spoken"]:
        return found["spoken"], found["figure"]
    return _SHORT[found["short"].lower()], found["number"]


def _read(name: str, value: str | None) -> str | bool | None:
    """The option's value as vLLM's parser takes it; None where it takes none of this kind."""
    for words in ([f"--{name}={value}"] if value is not None else [], [f"--{name}"]):
        try:
            line = parse_words(words, None)
        except LaunchError:
            continue
        if words and not line.unknown and not line.refusals and name in line.flags:
            return line.flags[name]
    return None
