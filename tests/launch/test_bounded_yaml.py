"""YAML whose aliases stand for more than anybody can hold is refused before it is held."""

import pytest
import yaml

from vllm_doctor.launch.bounded_yaml import value, values

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize("text", [BOMB, "a: &a [*a]", "a: &a {b: *a}", f"{BOMB}services:\n  one: {{command: *a9}}\n"])
def test_a_bomb_is_no_yaml(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        value(text)
    with pytest.raises(yaml.YAMLError):
        values(f"{text}\n---\nb: 1\n")


def test_aliases_and_merges_of_people_stay() -> None:
    text = "base: &base {image: v, command: [serve]}\none: {<<: *base, ports: [1]}\ntwo: *base\n"
    assert value(text) == yaml.safe_load(text)
    assert values(f"{text}---\n2\n") == [yaml.safe_load(text), 2]


def test_an_empty_text_is_nothing() -> None:
    assert value("") is None
    assert values("") == []
