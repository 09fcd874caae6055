"""Launch lines of every kind of option that a release has, right and wrong, in every spelling that people use.

.venv/bin/python -m tests.launch.generate 0.32.0 1000 > /tmp/lines
RELEASE/bin/python tools/vllm_lines.py MODEL < /tmp/lines | cut -f1,2 > tests/launch/generated_0.32.0.txt
"""

import json
import random
import shlex
import sys
from collections.abc import Iterator

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.parser import OptionWords
from vllm_doctor.knowledge.version import as_version

# They end the command, name a file that is read or a module that is loaded, or differ with the build (CPU, CUDA).
ASIDE = {"help", "config", "model", "model-tag", "tool-parser-plugin", "reasoning-parser-plugin", "middleware"}
ASIDE |= {"chat-template", "log-config-file", "mm-processor-device"}
NUMBERS = {
    "int": ("1", "4096", "0", "-1", "8k", "1_000", "2K", "auto", "x", "1.5", ""),
    "float": ("0.9", "1", "1e-3", ".5", "-1", "x", "50%"),
}
TEXTS = ("auto", "x", "8", "/srv/a b", "a.b", "None", '{"a": 1}', "[1]", "true", "-")


def lines(version: str, count: int, seed: int = 1) -> Iterator[str]:
    """Launch lines, each of one to three options; the same ones for the same seed."""
    choose = random.Random(f"{version} {seed}")
    options = {name: option for name, option in (parser.options(version) or {}).items() if name not in ASIDE}
    objects = _objects(version)
    names = sorted(options)
    for number in range(count):
        first = names[number % len(names)]  # each is met, whatever is drawn beside it
        drawn = [first, *choose.sample(names, choose.choice((0, 0, 1, 2)))]
        words = [word for name in drawn for word in _words(name, options[name], objects, choose)]
        yield shlex.join(["vllm", "serve", *_around(words, choose)])


def _around(words: list[str], choose: random.Random) -> list[str]:
    """The model before the options or behind them."""
    last = choose.random() < 0.1 and not any(
        "." in word for word in words
    )  # keys are put behind `--`, where none may be
    return [*words, "--", "acme/chat"] if last else ["acme/chat", *words]


def _objects(version: str) -> dict[str, list[str]]:
    """Options that take an object, with the keys of its class."""
    options, fields, at = history("options", "options"), history("fields", "fields"), as_version(version)
    found: dict[str, list[str]] = {}
    for name in options.names():
        of = str(options.value(name, at).get("config", "")) if options.exists(name, at) else ""
        if of:
            keys = [n.partition(".")[2] for n in fields.names() if n.startswith(f"{of}.") and fields.exists(n, at)]
            found[name] = keys or ["a"]
    return found


def _words(name: str, option: OptionWords, objects: dict[str, list[str]], choose: random.Random) -> list[str]:
    spelled = _spelled(name, choose)
    if name in objects and choose.random() < 0.7:
        key = choose.choice([*objects[name], "no_such_key"])
        value = choose.choice(("1", "true", "x", "null", "0.5", "-1"))
        if choose.random() < 0.5:
            return [f"{spelled}.{key}", value] if choose.random() < 0.5 else [f"{spelled}.{key}={value}"]
        return [spelled, json.dumps({key: parser.keys.value_of_key(value)})]
    if option.words == 0:
        return [f"{spelled}=true"] if choose.random() < 0.05 else [spelled]
    values = [_value(option, choose) for _ in range(choose.choice((1, 2, 3)) if option.words == "+" else 1)]
    if choose.random() < 0.05:
        return [spelled]
    if len(values) == 1 and (values[0].startswith("-") or choose.random() < 0.4):
        return [f"{spelled}={values[0]}"]
    return [spelled, *values]


def _spelled(name: str, choose: random.Random) -> str:
    """A long option as it is, with underscores, or shortened."""
    drawn = choose.random()
    if drawn < 0.2:
        return f"--{name.replace('-', '_')}"
    return f"--{name[: max(3, len(name) - choose.choice((1, 2, 4)))]}" if drawn < 0.3 else f"--{name}"


def _value(option: OptionWords, choose: random.Random) -> str:
    if option.choices:
        return choose.choice([*option.choices, *option.choices, "nonsense"])
    return choose.choice(NUMBERS.get(option.type, TEXTS))


def main() -> None:
    """Print them."""
    for line in lines(sys.argv[1], int(sys.argv[2])):
        print(line)


if __name__ == "__main__":
    main()
