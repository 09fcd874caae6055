"""A change in the reader's medium: the corrected launch whole, or what to put into a file, ready to paste."""

import difflib
import json
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from vllm_doctor.launch import container, quote
from vllm_doctor.launch.line import LaunchError
from vllm_doctor.launch.parse import LaunchLine, parse_launch
from vllm_doctor.launch.write import arguments
from vllm_doctor.launch.write_media import IMAGE, WRITERS, shell
from vllm_doctor.records.container import Made
from vllm_doctor.records.finding import Change, Diagnosis
from vllm_doctor.records.verdict import ChangeKind
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.remedy import dropin, inventory, release
from vllm_doctor.remedy.argv import applied, at_once, written


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


def corrected(diagnosis: Diagnosis, changes: Sequence[Change], medium: Medium) -> list[str]:
    """The launch with what is changed at once put in, as lines to paste: a file's as a diff where the launch stood in
    one.

    Of a launch that is not known only what changes; nothing for a change that no launch carries (a package, a card),
    or that is none to type.
    """
    if (wanted := release.wanted(changes)) is not None:
        return _of_release(diagnosis, changes[0], wanted, medium)
    if medium is Medium.DOCKER and diagnosis.made is not None and (kept := _of_runtime(diagnosis.made, changes)):
        return _made_again(msgspec.structs.replace(diagnosis.made, words=kept), diagnosis.launch[1:], ())
    made = at_once(changes)
    if not made:
        return []
    if medium is Medium.INVENTORY:
        return [line for change in made if (line := inventory.line(change)) is not None]
    if medium is Medium.UNIT:
        return _drop_in(diagnosis.launch, made)
    if diagnosis.launch:
        return _whole(diagnosis, made, medium)
    return _each(made, medium)


# What a unit starts; a log shows the name alone, and systemd wants its path.
_PROGRAMS = frozenset({"vllm", "python", "python3"})


def _drop_in(argv: tuple[str, ...], changes: tuple[Change, ...]) -> list[str]:
    """The unit's drop-in; where the launch was read of a log, with what stands for the program's path."""
    told = []
    if argv and argv[0] in _PROGRAMS:
        argv = (f"/PATH/TO/{argv[0]}", *argv[1:])
        told = [f"# {argv[0]} stands for the program that ExecStart= of `systemctl cat UNIT` names."]
    body = dropin.text("vllm-doctor", argv, changes)
    return [*told, *body.splitlines()] if body is not None else []


# What the runtime's options of a change stand in the place of, by the change's name.
_OF_RUNTIME = {
    "container-devices": ("--gpus", "--device"),
    "container-shm": ("--ipc", "--shm-size"),
}


def _of_runtime(made: Made, changes: Sequence[Change]) -> tuple[str, ...]:
    """How the container is made with the first change, where that is an option of its runtime; () where it is none."""
    first = changes[0] if changes else None
    if first is None or first.name not in _OF_RUNTIME or not str(first.after or "").startswith("-"):
        return ()
    return container.given(made.words, str(first.after).split(), _OF_RUNTIME[first.name])


def _of_release(diagnosis: Diagnosis, change: Change, wanted: str, medium: Medium) -> list[str]:
    """Another release: what runs it stays as it is."""
    if medium is Medium.INVENTORY:
        told = inventory.line(change)
        return [told] if told is not None else []
    if medium is Medium.UNIT:
        return []  # its environment is the playbook's, or whoever made it
    if medium in _FILES:
        return [f"image: {release.image(wanted)}"]
    if medium is not Medium.DOCKER:
        return [release.package(wanted, diagnosis.launch)]
    made = diagnosis.made
    if made is not None and (kept := release.moved(made.words, wanted)) is not None:
        return _made_again(msgspec.structs.replace(made, words=kept), diagnosis.launch[1:], ())
    whole = release.of_container(diagnosis.launch, wanted)
    return shell(whole).split("\n") if whole is not None else [f"{release.image(wanted)}   # the image"]


def _each(changes: Sequence[Change], medium: Medium) -> list[str]:
    return [line for change in changes for line in _alone(change, medium)]


def _whole(diagnosis: Diagnosis, changes: tuple[Change, ...], medium: Medium) -> list[str]:
    before = diagnosis.launch
    after = applied(before, changes)
    if medium is Medium.DOCKER and diagnosis.made is not None:
        return _made_again(diagnosis.made, after[1:], changes)
    if medium is Medium.DOCKER and container.split(before) is not None:
        return _with_variables(after, changes).split("\n")
    if medium is Medium.DOCKER and (diagnosis.subject.place or "").startswith(("docker:", "podman:")):
        # How the container was made is not known: its volumes and ports would be lost in a line of our own.
        return _each(changes, medium) or [f"{quote.words(after)}   # what runs in the container; its own options stay"]
    try:
        was, now = (parse_launch(words, None) for words in (before, after))
    except LaunchError:
        return _each(changes, medium)
    for change in changes:
        now = _assigned(now, change) if change.kind is ChangeKind.ENV else now
    if medium is Medium.PYTHON:
        was, now = (_of_the_engine(line) for line in (was, now))
    if (
        medium in _FILES
        and diagnosis.medium == medium.value
        and any("$" in word for word in (*before, *was.env.values()))
    ):
        # A `$` of the file may be a reference that its owner wrote, or a sign: its lines are not written anew.
        return _each(changes, medium)
    image = _image(diagnosis)
    writer = WRITERS[medium.value]
    if medium is Medium.COMMAND and diagnosis.subject.unit is None and diagnosis.subject.place is None:
        words = ("vllm", "serve", *arguments(now))
        # What its script sets for the line to refer to is set before the line, not on it.
        env = {
            name: has
            for name, has in now.env.items()
            if not any(f"${name}" in word or f"${{{name}}}" in word for word in words)
        }
        return shell(words, env, typed=True).split("\n")
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


def _with_variables(words: tuple[str, ...], changes: Sequence[Change]) -> str:
    """A container's own line; a variable is one of the runtime's options."""
    told = container.split(words)
    whole = words if told is None else (*_set(told.kept, changes), *words[len(told.kept) :])
    return shell(whole, typed=True)


def _set(kept: tuple[str, ...], changes: Sequence[Change]) -> tuple[str, ...]:
    """The words up to and with the image, with the variables that change."""
    for change in changes:
        if change.kind is ChangeKind.ENV:
            after = None if change.after is None else str(change.after)
            kept = container.assigned(kept, change.variable or change.name, after)
    return kept


def _made_again(made: Made, arguments: tuple[str, ...], changes: Sequence[Change]) -> list[str]:
    """The container aside, and one like it with the changed arguments: what the line cannot say stands above it."""
    kept = _set(made.words, changes)
    told = list(container.options(kept))
    runtime = kept[0].rsplit("/", 1)[-1]
    name = next((value for option, value, _ in told if option == "--name"), "")
    lines = []
    if name:
        aside = [f"{runtime} update --restart=no {name}"] if made.always else []
        aside += [f"{runtime} stop {name}", f"{runtime} rename {name} {name}-before"]
        lines.append(" && ".join(aside))
    if by_name := [value for option, value, _ in told if option in {"-e", "--env"} and "=" not in value]:
        of = "their values are" if len(by_name) > 1 else "its value is"
        where = f"{runtime} inspect {name}-before" if name else f"{runtime} inspect"
        lines.append(f"# {', '.join(by_name)}: {of} not shown; export first what {where} has")
    if any(HIDDEN in word for word in arguments):
        lines.append(f"# put your own in place of {HIDDEN}")
    if made.left:
        lines.append(f"# not in this line, as {runtime} inspect names it: {', '.join(made.left)}")
    return [*lines, *shell((*kept, *arguments)).split("\n")]


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
