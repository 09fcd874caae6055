"""Where a unit's settings stand: the lines of its file, its drop-ins, its environment files and vLLM's own --config."""

import re
from collections.abc import Iterator

from vllm_doctor.gather.bounded import whole_file
from vllm_doctor.gather.environment_file import paths
from vllm_doctor.launch import unit_text
from vllm_doctor.launch.positions import option_text
from vllm_doctor.records.host import OF_CONFIG_FILE, Setting, Unit
from vllm_doctor.records.reading import Known
from vllm_doctor.redact.launch import scrub_argv, scrub_env
from vllm_doctor.redact.names import is_secret_name
from vllm_doctor.redact.text import scrub

_MOST_BYTES = 1 << 18
_MOST_LINES = 4000
_OUTPUT = "StandardOutput"
_OPTION = re.compile(r"([A-Za-z][\w-]{0,100})\s*:\s+(\S.{0,400}?)\s*(?:\s#.*)?")
# The first line of templates/unit.service.j2.
_RENDERED = re.compile(r"# Rendered by role vllm\b")


def settings(unit: Unit) -> tuple[Setting, ...]:
    """The lines that set the command line and the environment; none of a file that may not be read. Secrets are out."""
    files = ((unit.fragment,) if unit.fragment else ()) + unit.drop_ins
    found = [one for path in files for one in _of_unit_file(path)]
    for path in paths(unit.properties.get("EnvironmentFiles", "")):
        found += _of_environment_file(path)
    return (*found, *_of_config(_config(found), unit.properties.get("User")))


def output_path(unit: Unit) -> str:
    """The path of StandardOutput=append:PATH (file:, truncate:) as it is written, the last one; "" for none."""
    files = ((unit.fragment,) if unit.fragment else ()) + unit.drop_ins
    said = [one.text for path in files for one in unit_text.pieces(_lines(path)) if one.directive == _OUTPUT]
    return said[-1].partition(":")[2] if said else ""


def is_rendered(unit: Unit) -> bool:
    """Does the unit's own file say that role vllm renders it?"""
    return any(_RENDERED.match(line) for line in (_lines(unit.fragment)[:20] if unit.fragment else ()))


def _config(found: list[Setting]) -> str:
    """The file that --config names, where it is a whole path; the last one counts."""
    words = " ".join(one.text for one in found if one.directive == unit_text.COMMAND).split()
    named = option_text([word.replace('"', "").replace("'", "") for word in words], "config") or ""
    return named if named.startswith("/") else ""


def _of_config(path: str, user: str | None) -> Iterator[Setting]:
    """vLLM's options in YAML, one a line: `max-model-len: 4096`. What is nested is left out."""
    for number, line in enumerate(_lines(path, user) if path else (), 1):
        found = _OPTION.fullmatch(line)
        if found is not None:
            value = "[hidden]" if is_secret_name(found[1]) else scrub(found[2])
            yield Setting(path, number, OF_CONFIG_FILE, f"{found[1]}: {value}")


def _lines(path: str, reader: str | None = None) -> list[str]:
    """`reader` may make the file a link: what he may not read is not told."""
    read = whole_file(path, _MOST_BYTES, reader=reader)
    return read.value.decode(errors="replace").splitlines()[:_MOST_LINES] if isinstance(read, Known) else []


def _of_unit_file(path: str) -> Iterator[Setting]:
    """A line that ends with a backslash goes on in the next one, which is a setting's line of its own here."""
    for piece in unit_text.pieces(_lines(path)):
        if piece.directive in {unit_text.COMMAND, unit_text.ENVIRONMENT}:
            yield Setting(path, piece.number, piece.directive, _shown(piece.text))


def _shown(text: str) -> str:
    """The text as it stands, unless a secret is in it."""
    words = tuple(text.split())
    kept = scrub_argv(words)
    return text if kept == words else " ".join(kept)


def _of_environment_file(path: str) -> Iterator[Setting]:
    for number, line in enumerate(_lines(path), 1):
        name, equals, value = line.strip().partition("=")
        if equals and name.isidentifier():
            shown = scrub_env({name: value})[name]
            yield Setting(path, number, "EnvironmentFile", f"{name}={shown}")
