"""The command line of a running or configured vLLM: is it one, and what may be told of it."""

import re
from collections.abc import Mapping, Sequence

from vllm_doctor.launch.command import parse_command
from vllm_doctor.records.host import Launch
from vllm_doctor.redact.launch import scrub_argv, scrub_env

_MODULES = re.compile(r"vllm\.entrypoints\.(openai\.)?api_server|vllm\.entrypoints\.cli\.main")


def is_vllm(argv: Sequence[str]) -> bool:
    """Is this the command line of a vLLM server: `vllm serve`, or a module of vLLM's entry points?"""
    for at, word in enumerate(argv):
        if word.rsplit("/", 1)[-1] == "vllm" and [*argv[at + 1 : at + 2]] == ["serve"]:
            return True
        if _MODULES.fullmatch(word) or word.endswith("/api_server.py"):
            return True
    return False


def serves(argv: Sequence[str]) -> bool:
    """Is the process itself such a server, and not one that was given its command line (sudo, docker, an editor)?"""
    program = argv[0].rsplit("/", 1)[-1] if argv else ""
    if program == "vllm":
        return [*argv[1:2]] == ["serve"]
    if not program.startswith("python"):
        return False
    script = next((at for at, word in enumerate(argv[1:6], 1) if not word.startswith("-")), None)
    if script is None:
        return False
    own = argv[script].rsplit("/", 1)[-1] in {"vllm", "api_server.py"} or _MODULES.fullmatch(argv[script]) is not None
    return own and is_vllm(argv[script:])


def parse_argv(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Launch:
    """The launch behind `argv` and its environment; the values of secrets are not in it."""
    launch = parse_command(list(scrub_argv(argv)))
    return Launch(launch.argv, launch.model, launch.flags, {**scrub_env(env or {}), **scrub_env(launch.env)})
