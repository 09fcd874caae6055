"""Values of a launch of which nothing tells what they are: a word too many, the value of an option that no release has,
and what a JSON option holds under names of somebody's own. One that no person would take for a word is hidden."""

import json
import re
from collections.abc import Iterator, Sequence

from vllm_doctor.redact.values import opaque

# Letters and digits in turn: `Qwen3ForCausalLM` changes twice, `fp8` and `v0` are short, a path has a slash.
_SEGMENT = re.compile(r"[A-Za-z0-9]{8,}")
_RUN = re.compile(r"[A-Za-z]+|[0-9]+")
_OF_A_WORD, _OF_JSON = 3, 4
# What these name is told by letters and digits, too, and is no secret.
_OPEN = frozenset({"revision", "code_revision", "tokenizer_revision", "_commit_hash", "architectures"})
_SERVER = "vllm.entrypoints"


def secrets_unnamed(argv: Sequence[str]) -> frozenset[str]:
    """Those values in a command line of vLLM's."""
    if not any(_in_turn(word, _OF_A_WORD) for word in argv):  # of most launches: no table of options is read
        return frozenset()
    begins = next((at for at, word in enumerate(argv) if word == "serve" or word.startswith(_SERVER)), None)
    return frozenset() if begins is None else frozenset(_found(argv[begins], argv[begins + 1 :]))


def _found(begins: str, words: Sequence[str]) -> Iterator[str]:
    option, model = "", begins != "serve"
    for word in words:
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            if equals:
                yield from _of(option, value)
                option = ""
        elif option and _takes_values(option):
            yield from _of(option, word)
        elif model and _mixed(word, _OF_A_WORD):
            yield word
        else:
            model, option = True, ""


def _of(option: str, value: str) -> Iterator[str]:
    """What of an option's value is unnamed."""
    from vllm_doctor.knowledge import versions

    name, dot, key = option.partition(".")
    known = versions.flag(name, versions.newest_known()) is not None
    if value[:1] in {"{", "["}:
        try:
            yield from _leaves("", json.loads(value))
        except (ValueError, RecursionError):
            return
    elif known and (not dot or key.rsplit(".", 1)[-1] in _OPEN):
        return
    elif _mixed(value, _OF_JSON if known else _OF_A_WORD):
        yield value


def _takes_values(option: str) -> bool:
    """Not a switch, behind which a word stands for itself."""
    from vllm_doctor.knowledge import versions

    known = versions.flag(option.partition(".")[0], versions.newest_known())
    return known is None or not isinstance(known.default, bool)


def _leaves(name: str, value: object) -> Iterator[str]:
    match value:
        case str() if name not in _OPEN and _mixed(value, _OF_JSON):
            yield value
        case dict():
            for key, item in value.items():
                yield from _leaves(str(key), item)
        case list():
            for item in value:
                yield from _leaves(name, item)


def _mixed(value: str, least: int) -> bool:
    """Is it one value in which letters and digits take turns so often?"""
    return "/" not in value and opaque(value) and _in_turn(value, least)


def _in_turn(text: str, least: int) -> bool:
    return any(len(_RUN.findall(part)) >= least for part in _SEGMENT.findall(text[:4000]))
