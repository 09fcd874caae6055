"""Parse, write, parse: each medium gives back the launch that was read, for the options of several releases."""

import json
import shlex
from collections.abc import Iterator
from functools import cache

import pytest
import yaml

from tests.launch.generate import lines
from tests.remedy.test_written_back import _Ansible
from tests.templates.units import render
from vllm_doctor.knowledge.versions import Version, as_version
from vllm_doctor.launch import table
from vllm_doctor.launch.command import parse_command, parse_line
from vllm_doctor.launch.parse import LaunchLine, parse_launch
from vllm_doctor.launch.unit_text import read_unit
from vllm_doctor.launch.write import items, serve_words
from vllm_doctor.launch.write_media import WRITERS
from vllm_doctor.records.host import Launch
from vllm_doctor.remedy import dropin, inventory

# Each option of the newest release is in a line; the older ones have fewer, and other parsers.
RELEASES = {"0.6.4": 120, "0.9.2": 120, "0.14.1": 120, "0.20.2": 120, "0.33.0": 470}
MEDIA = (*WRITERS, "drop-in", "inventory")


@cache
def launches(version: str) -> tuple[LaunchLine, ...]:
    """What is read of generated lines that the release takes."""
    read = (parse_launch(shlex.split(line), as_version(version)) for line in lines(version, RELEASES[version]))
    return tuple(line for line in read if not line.refusals)


def written_and_read(line: LaunchLine, medium: str, version: Version) -> Launch:
    if medium in WRITERS:
        return parse_line(WRITERS[medium](line), version)
    if medium == "drop-in":
        words = " ".join(dropin.quoted(word) for word in serve_words(line, version))
        return _of_unit(f"[Service]\nExecStart=\nExecStart={words}\n")
    rows = [inventory.assignment("vllm_extra_args", dict([one])) for one in _settings(line, version)]
    said = [yaml.load(row, Loader=_Ansible)["vllm_extra_args"] for row in rows]  # noqa: S506 - a SafeLoader
    arguments = {name: value for one in said for name, value in one.items()}
    return _of_unit(render("cpu", str(version), model=line.model, arguments=arguments))


def _settings(line: LaunchLine, version: Version) -> Iterator[tuple[str, object]]:
    """The options as an inventory has them: a list is one, and a JSON object a mapping."""
    for name, value in line.flags.items():
        if isinstance(value, str) and table.takes(name, version) == "+":
            yield name, list(items(value))
        elif isinstance(value, str) and isinstance(said := _value(value), dict) and said:
            yield name, said
        else:
            yield name, value


def _of_unit(text: str) -> Launch:
    return parse_command([word.replace("$$", "$") for word in read_unit(text).words])


def _as_meant(flags: dict[str, str | bool]) -> dict[str, object]:
    """JSON is the same whatever its blanks."""
    return {
        name: [_value(item) for item in items(value)] if isinstance(value, str) else value
        for name, value in flags.items()
    }


def _value(text: str) -> object:
    try:
        return json.loads(text) if text.startswith("{") else text
    except ValueError:
        return text


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("medium", MEDIA)
def test_what_is_read_is_written_and_read_again(medium: str, version: str) -> None:
    at = as_version(version)
    for line in launches(version):
        read = written_and_read(line, medium, at)
        assert (read.model, _as_meant(read.flags)) == (line.model, _as_meant(line.flags)), line


def test_the_launches_have_options_of_every_kind() -> None:
    kinds = {(table.takes(name, as_version("0.33.0")), type(value).__name__, str(value)[:1] == "{")
             for line in launches("0.33.0") for name, value in line.flags.items()}  # fmt: skip
    wanted = {(0, "bool", False), (1, "str", False), (1, "str", True), ("+", "str", False)}
    assert wanted <= kinds
    assert sum(len(launches(version)) for version in RELEASES) > 500


@pytest.mark.parametrize("medium", [*WRITERS, "drop-in"])
def test_each_middleware_is_kept(medium: str) -> None:
    at = as_version("0.33.0")
    line = parse_launch(shlex.split("vllm serve m --middleware mine.Key --port 8001 --middleware api_guard.Guard"), at)
    assert (line.flags["middleware"], line.notes, line.refusals) == ("mine.Key,api_guard.Guard", (), ())
    assert written_and_read(line, medium, at).flags["middleware"] == "mine.Key,api_guard.Guard"
