"""What the roles start on a host as root starts isolated: Ansible's session stands in the home of whoever logged in."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).parents[2] / "roles"
MODULES = ROLES.parent / "plugins" / "modules"
TASKS = sorted([*ROLES.glob("*/tasks/*.yml"), *ROLES.glob("*/handlers/*.yml")])
_PYTHON = re.compile(r"(bin/python3?|_python( \}\})?)$")


def lines(told: object) -> Iterator[list[str]]:
    """The argument lists in tasks, their variables too; of one that a template makes, the words that it quotes."""
    if isinstance(told, dict):
        for value in told.values():
            yield from lines(value)
    elif isinstance(told, list) and told and all(isinstance(word, str) for word in told):
        yield told
    elif isinstance(told, list):
        for value in told:
            yield from lines(value)
    elif isinstance(told, str):
        yield re.findall(r"'([^']*)'", told)


def after_python(text: str) -> list[str]:
    """The word that follows each interpreter that is started; after --python one is the value of uv's option."""
    return [
        after
        for words in lines(yaml.safe_load(text))
        for before, word, after in zip(["", *words], words, words[1:], strict=False)
        if _PYTHON.search(word) and not word.startswith("-") and before != "--python"
    ]


@pytest.mark.parametrize("path", TASKS, ids=lambda path: str(path.relative_to(ROLES)))
def test_python_is_started_isolated(path: Path) -> None:
    assert set(after_python(path.read_text())) <= {"-I"}


def test_each_way_to_write_it_is_seen() -> None:
    assert after_python('argv: ["{{ vllm_python }}", -m, venv, x]') == ["-m"]
    assert after_python("argv: \"{{ [release ~ '/bin/python', '-c', 'pass'] }}\"") == ["-c"]
    assert after_python('argv:\n  - "{{ x }}/bin/python"\n  - -m\n') == ["-m"]
    assert sum(len(after_python(path.read_text())) for path in TASKS) >= 6


def test_programs_that_the_host_itself_starts_are_isolated() -> None:
    """The local fact, which every `setup` runs as root, and what the boot runs."""
    assert (ROLES / "host_settings/files/host-settings").read_text().startswith("#!/usr/bin/python3 -I\n")
    assert "'#!/usr/bin/python3 -I'" in (ROLES / "nvidia_driver/tasks/verify.yml").read_text()


@pytest.mark.parametrize("path", sorted(MODULES.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_names_a_program_and_no_words_for_it(path: Path) -> None:
    """Ansible looks for a program with the name of the whole line."""
    assert len(path.read_text().splitlines()[0].split()) == 1
