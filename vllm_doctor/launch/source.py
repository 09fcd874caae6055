"""A launch wherever it was written: a command, a container's run, a compose or pod file, a unit, Python; and where."""

import ast
import json
import shlex
from collections.abc import Iterator, Mapping

import msgspec

from vllm_doctor.knowledge.launchline import PLAIN_QUOTES
from vllm_doctor.launch import container, quote
from vllm_doctor.launch.line import LaunchError, serving
from vllm_doctor.launch.unit_text import read_unit

_CALLS = frozenset({"LLM", "AsyncEngineArgs", "EngineArgs"})
_STARTS = ("ExecStart=", "ExecStart =")
_MOST_NODES = 20_000


class Source(msgspec.Struct, frozen=True):
    """`words` as a shell would pass them on, `env` what is assigned beside them, `medium` what it was written for,
    `place` where in it the launch stands and `image` what a container is made of."""

    words: tuple[str, ...]
    env: dict[str, str] = {}
    medium: str = "command"
    place: str = ""
    image: str = ""


def read_source(text: str) -> Source:
    """The launch in a text. Raises ValueError on an unclosed quote, LaunchError where a file holds no vLLM."""
    told = text.strip()
    if (called := _called(told)) is not None:
        return called
    if "\n" in told and (found := _of_yaml(told)) is not None:
        return found
    if (found := _of_unit(told)) is not None:
        return found
    lines = [line for line in told.splitlines() if not line.lstrip().startswith("#")]
    slurm = any(line.lstrip().startswith("#SBATCH") for line in told.splitlines()) or told.startswith("srun ")
    words = shlex.split("\n".join(lines).replace("\\\n", " ").translate(PLAIN_QUOTES))
    exported = {}
    while words[:1] == ["export"] and "=" in "".join(words[1:2]):
        name, _, value = words[1].partition("=")
        exported[name] = value
        words = words[2:]
    contained = container.split(words)
    medium = "docker" if contained is not None else "slurm" if slurm else "command"
    return Source(tuple(words), exported, medium, image=contained.image if contained is not None else "")


def _of_unit(text: str) -> Source | None:
    """The command of a unit or a drop-in, as `systemctl cat` shows them; a reference (`$NAME`) stays one."""
    if not any(line.lstrip().startswith(_STARTS) for line in text.splitlines()):
        return None
    unit = read_unit(text)
    return Source(tuple(map(quote.undoubled, unit.words)), unit.env) if unit.words else None


def _called(text: str) -> Source | None:
    """`LLM(model=…, …)` in Python."""
    if not any(f"{name}(" in text for name in _CALLS):
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in _CALLS:
            return Source(_keywords(text, node), _environ(tree), "python", f"line {node.lineno}")
    return None


def _environ(tree: ast.AST) -> dict[str, str]:
    """What `os.environ["NAME"] = "value"` assigns."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                owner = target.value
                if _name(owner) == "environ" and isinstance(target.slice.value, str):
                    found[target.slice.value] = str(node.value.value)
    return found


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _keywords(text: str, call: ast.Call) -> tuple[str, ...]:
    """The call's keywords as options; one whose value is no literal cannot be read."""
    words = ["vllm", "serve"]
    if call.args and (model := _literal(text, call.args[0])) is not None:
        words.append(str(model))
    for keyword in call.keywords:
        if keyword.arg is None:
            raise LaunchError(f"line {keyword.value.lineno}: found **…; needed: the keywords themselves")
        value = _literal(text, keyword.value)
        if value is None and not _is_none(keyword.value):
            raise LaunchError(f"line {keyword.value.lineno}: {keyword.arg} is not a literal; needed: its value")
        if keyword.arg == "model":
            words.insert(2, str(value))
        elif value is not None:
            words += _words(keyword.arg.replace("_", "-"), value)
    return tuple(words)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _literal(text: str, node: ast.expr) -> object:
    """The value, numbers as they were written; None for what is no literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return ast.get_source_segment(text, node)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        segment = ast.get_source_segment(text, node) or ""
        return segment if isinstance(node, ast.UnaryOp) and segment.lstrip("-").replace(".", "").isdigit() else None


def _words(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, bool):
        return (f"--{name}",) if value else (f"--no-{name}",)
    if isinstance(value, list | tuple):
        return (f"--{name}={','.join(map(_text, value))}",)
    return (f"--{name}={_text(value)}",)


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _of_yaml(text: str) -> Source | None:
    """The first container of vLLM's in a compose file, a pod, a deployment; None for a text that is no such file."""
    import yaml

    from vllm_doctor.launch.bounded_yaml import values

    try:
        documents = values(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    for document in documents:
        for place, spec in _containers(document):
            if (found := _of_container(place, spec)) is not None:
                return found
    return None


def _containers(document: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Everything that has an image or a command, with where it stands."""
    waiting: list[tuple[str, object]] = [("", document)]
    seen = 0
    while waiting and seen < _MOST_NODES:
        place, node = waiting.pop()
        seen += 1
        if isinstance(node, Mapping):
            if node.keys() & {"image", "command", "args"}:
                yield place, node
            waiting += [(f"{place}.{name}".strip("."), value) for name, value in node.items()]
        elif isinstance(node, list):
            waiting += [(f"{place}[{at}]", value) for at, value in enumerate(node)]


def _of_container(place: str, spec: Mapping[str, object]) -> Source | None:
    pod = "args" in spec or "containers" in place
    entry = _listed(spec.get("command" if pod else "entrypoint"))
    after = _listed(spec.get("args" if pod else "command"))
    words = tuple(map(quote.undoubled, (*entry, *after)))
    if len(words) >= 2 and words[-2] in {"-c", "-lc"}:
        words = serving(words[-1]) or tuple(shlex.split(words[-1]))
    image = str(spec.get("image", ""))
    starts = any("vllm" in word for word in words[:4])
    if not starts and ("vllm" not in image.lower() or not words or entry):
        return None
    if not starts:
        words = ("vllm", "serve", *words)
    given = _assigned(spec.get("env" if pod else "environment"))
    env = {name: quote.undoubled(value) for name, value in given.items()}
    return Source(words, env, "pod" if pod else "compose", place, image)


def _listed(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(shlex.split(value))
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _assigned(value: object) -> dict[str, str]:
    """A mapping, a list of NAME=value, or a pod's list of {name, value}."""
    if isinstance(value, Mapping):
        return {str(name): str(of) for name, of in value.items() if of is not None}
    found: dict[str, str] = {}
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping) and "value" in item:
            found[str(item.get("name"))] = str(item["value"])
        elif isinstance(item, str) and "=" in item:
            name, _, of = item.partition("=")
            found[name] = of
    return found
