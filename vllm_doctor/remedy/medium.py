"""A change in the reader's medium: the corrected launch whole, or what to put into a file, ready to paste."""

import difflib
import json
from enum import StrEnum

from vllm_doctor.launch import container, quote
from vllm_doctor.launch.line import LaunchError
from vllm_doctor.launch.parse import LaunchLine, parse_launch
from vllm_doctor.launch.write_media import IMAGE, WRITERS, shell
from vllm_doctor.records.finding import Change, Diagnosis
from vllm_doctor.records.verdict import ChangeKind
from vllm_doctor.remedy import dropin, inventory
from vllm_doctor.remedy.argv import applied, exact, written


class Medium(StrEnum):
    """What starts a vLLM, and so where a change is written."""

    COMMAND = "command"
    UNIT = "unit"
    DOCKER = "docker"
    COMPOSE = "compose"
    POD = "pod"
    SLURM = "slurm"
    PYTHON = "python"
    INVENTORY = "inventory"


# How the names of a server's options begin that the engine has not.
_OF_THE_SERVER = (
    "host", "port", "uds", "uvicorn-", "api-key", "ssl-", "allowed-origins", "allowed-methods", "allowed-headers",
    "allow-credentials", "chat-template", "enable-auto-tool-choice", "tool-call-parser", "root-path", "middleware",
    "lora-modules", "disable-uvicorn", "enable-log-requests", "disable-log-requests", "disable-fastapi-docs",
)  # fmt: skip
_FILES = frozenset({Medium.COMPOSE, Medium.POD})


def corrected(diagnosis: Diagnosis, change: Change, medium: Medium) -> list[str]:
    """The launch with the change put in, as lines to paste: a file's as a diff where the launch stood in one.

    Of a launch that is not known only what changes; nothing for a change that no launch carries (a package, a card),
    or that is none to type.
    """
    if change.kind not in {ChangeKind.FLAG, ChangeKind.ENV} or not exact(change):
        return []
    if medium is Medium.INVENTORY:
        line = inventory.line(change)
        return [line] if line is not None else []
    if medium is Medium.UNIT:
        body = dropin.text("vllm-doctor", diagnosis.launch, (change,))
        return body.splitlines() if body is not None else []
    if diagnosis.launch:
        return _whole(diagnosis, change, medium)
    return _alone(change, medium)


def _whole(diagnosis: Diagnosis, change: Change, medium: Medium) -> list[str]:
    before = diagnosis.launch
    after = applied(before, (change,))
    if medium is Medium.DOCKER and container.split(before) is not None:
        return _with_variable(after, change).split("\n")
    if medium is Medium.DOCKER and (diagnosis.subject.place or "").startswith(("docker:", "podman:")):
        # How the container was made is not known: its volumes and ports would be lost in a line of our own.
        return _alone(change, medium) or [f"{quote.words(after)}   # what runs in the container; its own options stay"]
    try:
        was, now = (parse_launch(words, None) for words in (before, after))
    except LaunchError:
        return _alone(change, medium)
    if change.kind is ChangeKind.ENV:
        now = _assigned(now, change)
    if medium is Medium.PYTHON:
        was, now = (_of_the_engine(line) for line in (was, now))
    if (
        medium in _FILES
        and diagnosis.medium == medium.value
        and any("$" in word for word in (*before, *was.env.values()))
    ):
        # A `$` of the file may be a reference that its owner wrote, or a sign: its lines are not written anew.
        return _alone(change, medium)
    image = _image(diagnosis)
    writer = WRITERS[medium.value]
    text: str = writer(now, image=image)
    if medium in _FILES and diagnosis.medium == medium.value:
        old: str = writer(was, image=image)
        return [row for row in difflib.unified_diff(old.split("\n"), text.split("\n"), n=1, lineterm="") if _told(row)]
    return text.split("\n")


def _of_the_engine(line: LaunchLine) -> LaunchLine:
    """Without what only a server has: `LLM` has no port."""
    flags = {name: value for name, value in line.flags.items() if not name.startswith(_OF_THE_SERVER)}
    return LaunchLine(line.model, flags, line.env)


def _told(row: str) -> bool:
    return not row.startswith(("---", "+++", "@@"))


def _with_variable(words: tuple[str, ...], change: Change) -> str:
    """A container's own line; a variable is one of the runtime's options."""
    if change.kind is not ChangeKind.ENV or change.after is None:
        return shell(words)
    at = words.index("run") + 1
    return shell((*words[:at], "-e", f"{change.variable or change.name}={change.after}", *words[at:]))


def _assigned(line: LaunchLine, change: Change) -> LaunchLine:
    env = {name: value for name, value in line.env.items() if name != (change.variable or change.name)}
    if change.after is not None:
        env[change.variable or change.name] = str(change.after)
    return LaunchLine(line.model, line.flags, env)


def _image(diagnosis: Diagnosis) -> str:
    """vLLM's own image of the release; where a local build runs, the newest."""
    version = str(diagnosis.facts.get("vllm_version") or "")
    plain = version.replace(".", "").isdigit()
    return f"vllm/vllm-openai:v{version}" if plain else IMAGE


def _alone(change: Change, medium: Medium) -> list[str]:
    """What changes, as the medium writes it."""
    name = change.variable or change.name
    if change.kind is ChangeKind.ENV:
        if change.after is None:
            return [f"unset {name}"] if medium in {Medium.COMMAND, Medium.SLURM} else []
        setting = f"{name}={change.after}"
        return {
            Medium.DOCKER: [f"-e {quote.word(setting)}   # before the image"],
            Medium.COMPOSE: ["environment:", f"  - {json.dumps(quote.doubled(setting))}"],
            Medium.POD: ["env:", f"- name: {name}", f"  value: {json.dumps(quote.doubled(str(change.after)))}"],
            Medium.PYTHON: [f"os.environ[{name!r}] = {str(change.after)!r}   # before vllm is imported"],
        }.get(medium, [f"export {name}={quote.word(str(change.after))}"])
    if change.after is None:
        return []
    words = written(change)
    if medium is Medium.DOCKER:
        return [f"{quote.words(words)}   # after the image"]
    if medium in _FILES:
        key = "args" if medium is Medium.POD else "command"
        return [f"{key}:", *(f"- {json.dumps(word)}" for word in words)]
    if medium is Medium.PYTHON:
        call = WRITERS["python"](LaunchLine(None, {change.name: _text(change)}, {}))
        return [call.removeprefix("llm = ").replace("LLM(", "LLM(…, ")]
    return []


def _text(change: Change) -> str | bool:
    return change.after if isinstance(change.after, bool) else str(change.after)
