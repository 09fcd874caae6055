"""A launch as each medium writes it: what `launch.source` reads, and reads back as the same launch."""

import json
import re
from collections.abc import Callable, Sequence

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.versions import default_port
from vllm_doctor.launch import quote, table
from vllm_doctor.launch.parse import LaunchLine
from vllm_doctor.launch.write import arguments, items

_COLUMNS = 78
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
IMAGE = "vllm/vllm-openai:latest"


def command(line: LaunchLine, *, image: str = IMAGE) -> str:  # noqa: ARG001 - every writer is called alike
    """A shell's line, continued where it is long."""
    return shell(("vllm", "serve", *arguments(line)), line.env)


def docker(line: LaunchLine, *, image: str = IMAGE) -> str:
    """`docker run`, with what vLLM's image wants of the runtime. The entry point is named, as that of vLLM's image is
    not the same in every release."""
    env = [word for name, value in line.env.items() for word in ("-e", f"{name}={value}")]
    port = line.flags.get("port")
    port = port if isinstance(port, str) else str(default_port())
    words = ("docker", "run", "--rm", "--gpus", "all", "--ipc=host", "-p", f"{port}:{port}", *env)
    return shell((*words, "--entrypoint", "vllm", image, "serve", *arguments(line)))


def slurm(line: LaunchLine, *, image: str = IMAGE) -> str:  # noqa: ARG001 - every writer is called alike
    """A batch script's lines."""
    exported = [f"export {name}={quote.word(value)}" for name, value in line.env.items()]
    return "\n".join([*exported, shell(("srun", "vllm", "serve", *arguments(line)))])


def compose(line: LaunchLine, *, image: str = IMAGE) -> str:
    """A service of a compose file."""
    service: dict[str, object] = {"image": image, "ipc": "host"}
    if line.env:
        service["environment"] = {name: quote.doubled(value) for name, value in line.env.items()}
    service["entrypoint"] = ["vllm", "serve"]
    service["command"] = list(map(quote.doubled, arguments(line)))
    return quote.yaml({"services": {"vllm": service}})


def pod(line: LaunchLine, *, image: str = IMAGE) -> str:
    """The container of a pod's spec."""
    vllm: dict[str, object] = {
        "name": "vllm",
        "image": image,
        "command": ["vllm", "serve"],
        "args": list(map(quote.doubled, arguments(line))),
    }
    if line.env:
        vllm["env"] = [{"name": name, "value": quote.doubled(value)} for name, value in line.env.items()]
    return quote.yaml({"containers": [vllm]})


def python(line: LaunchLine, *, image: str = IMAGE) -> str:  # noqa: ARG001 - every writer is called alike
    """`LLM(…)`; variables have to be set before vllm is imported."""
    env = [f"os.environ[{name!r}] = {value!r}" for name, value in line.env.items()]
    named = {"model": line.model, **line.flags} if line.model is not None else dict(line.flags)
    keywords = [f"{name.replace('-', '_')}={_keyword(name, value)}" for name, value in named.items()]
    call = f"llm = LLM({', '.join(keywords)})"
    if len(call) > _COLUMNS:
        call = "llm = LLM(\n" + "".join(f"    {keyword},\n" for keyword in keywords) + ")"
    return "\n".join([*(["import os", *env] if env else []), call])


WRITERS: dict[str, Callable[..., str]] = {
    "command": command,
    "docker": docker,
    "compose": compose,
    "pod": pod,
    "slurm": slurm,
    "python": python,
}


def shell(words: Sequence[str], env: dict[str, str] | None = None, *, typed: bool = False) -> str:
    """Words as a shell reads them; an option and its value stay on one line. `typed` ones stood in a shell's text."""
    written = quote.for_a_shell if typed else quote.word
    quoted = [f"{name}={written(value)}" for name, value in (env or {}).items()]
    quoted += [written(word) for word in words]
    groups: list[str] = []
    for word in quoted:
        joined = bool(groups) and not word.startswith("-") and (groups[-1].startswith("-") or len(groups) == 1)
        if joined and (" " not in groups[-1] or not groups[-1].startswith("-")):
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    lines = [""]
    for group in groups:
        if lines[-1] and len(lines[-1]) + len(group) > _COLUMNS:
            lines.append("  ")
        lines[-1] += f" {group}" if lines[-1].strip() else group
    return " \\\n".join(lines)


def _keyword(name: str, value: str | bool) -> str:
    several = parser.is_repeated(name) or table.takes(name, None) == "+"
    if isinstance(value, str) and name != "model" and several:
        return f"[{', '.join(map(_literal, items(value)))}]"
    return repr(value) if name == "model" else _literal(value)


def _literal(value: str | bool) -> str:
    """A value in Python: numbers and JSON as themselves, all else a string."""
    if isinstance(value, bool):
        return str(value)
    if _NUMBER.fullmatch(value):
        return value
    if value.startswith("{"):
        try:
            return repr(json.loads(value))
        except ValueError:
            return repr(value)
    return repr(value)
