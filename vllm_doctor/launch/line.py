"""Where in a command line the launch begins: variables, whatever starts the program, and vLLM's own arguments."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_doctor.launch import container, shell
from vllm_doctor.records import excerpt

NEEDED = "[VAR=VALUE …] vllm serve MODEL [flags]"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SERVER = re.compile(r"vllm\.entrypoints\.(?:openai\.)?api_server|vllm\.entrypoints\.cli\.main")


class LaunchError(Exception):
    """A line that is no vLLM launch; the text says what was found and what is needed."""


@dataclass(frozen=True)
class Begun:
    """`env` are the assignments before the program, `words` what vLLM's parser gets; `serve` is false for
    `python -m …api_server`, which takes its model as an option alone; `image` is what the line makes a container of,
    and `forgets` whether what vLLM compiles ends with it."""

    env: dict[str, str]
    words: tuple[str, ...]
    serve: bool
    image: str = ""
    forgets: bool = False


def begin(words: Sequence[str]) -> Begun:
    """Split a command. Raises LaunchError where it starts no vLLM server.

    What starts the program (`env`, `numactl …`, `srun …`) is skipped: only vLLM's own words are read. After the image
    of a `docker run` stand the words for its entry point.
    """
    contained = container.split(words)
    if contained is not None:
        try:
            begun = begin(contained.words)
        except LaunchError:
            if not contained.serves or not contained.words:
                raise
            begun = Begun({}, contained.words, serve=True)
        env = {**contained.env, **begun.env}
        return Begun(env, begun.words, begun.serve, contained.image, container.forgets(contained))
    env = {}
    at = 1 if list(words[:1]) == ["env"] else 0
    while at < len(words) and _ASSIGNMENT.match(words[at]):
        name, _, value = words[at].partition("=")
        env[name] = value
        at += 1
    if at >= len(words):
        raise LaunchError(f"no command in it; needed: {NEEDED}")
    for index in range(at, len(words)):
        program, after = words[index].rsplit("/", 1)[-1], words[index + 1 : index + 2]
        if program == "vllm" and list(after) == ["serve"]:
            return Begun(env, tuple(words[index + 2 :]), serve=True)
        if (_SERVER.fullmatch(words[index]) and words[index - 1] == "-m") or words[index].endswith("/api_server.py"):
            serves = list(after) == ["serve"]
            return Begun(env, tuple(words[index + (2 if serves else 1) :]), serve=serves)
    found = words[at]
    if found.rsplit("/", 1)[-1] == "vllm":
        found = " ".join(words[at : at + 2])
    raise LaunchError(
        f"found {excerpt.value(found)}; needed: vllm serve MODEL [flags], or python -m vllm.entrypoints.openai."
        "api_server --model MODEL"
    )


def serving(script: str) -> tuple[str, ...]:
    """The command of a shell's script that starts the server; empty where none does."""
    for command in shell.commands(script):
        try:
            words = tuple(shlex.split(command))
            begin(words)
        except (LaunchError, ValueError):
            continue
        return words
    return ()
