"""The judge composes the variables of each host once, whatever number of variables it looks at."""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from tests.preflight.test_settled import PLUGINS, loaded

JUDGE = loaded(PLUGINS / "action" / "preflight_judge.py").ActionModule
NAMES = {f"vllm_{number}" for number in range(100)}
# By Ansible's precedence: a role's default, the inventory, what the play or -e says for all.
INVENTORY = {
    "a": {"vllm_1": "of a", "vllm_2": "of a", "vllm_3": "of a"},
    "b": {"vllm_2": "of b", "vllm_3": "{{ none }}"},
}
PLAY = {"vllm_1": "of a", "vllm_2": "of a", "vllm_3": "of a", "vllm_4": "of -e", "vllm_5": "{{ none }}"}


class Hostvars(Mapping[str, Any]):
    """Counts how often it composes what a host has."""

    def __init__(self) -> None:
        self.composed: Counter[str] = Counter()

    def __getitem__(self, host: str) -> Mapping[str, Any]:
        self.composed[host] += 1
        return INVENTORY[host]

    def __iter__(self) -> Iterator[str]:
        return iter(INVENTORY)

    def __len__(self) -> int:
        return len(INVENTORY)


def template(value: str) -> str:
    if "none" in value:
        raise ValueError("'none' is undefined")
    return value


def judge() -> Any:
    """The action as `run` leaves it before it looks at a host; the current host is a."""
    made = JUDGE.__new__(JUDGE)
    made._templar, made._display = SimpleNamespace(template=template), SimpleNamespace(vvv=lambda _: None)
    made._names, made._defaults = NAMES, {"vllm_9": "default"}
    made._asked, made._said_by_play = {}, None
    return made


def test_each_host_is_composed_once() -> None:
    made, hostvars = judge(), Hostvars()
    task_vars = {**PLAY, "hostvars": hostvars, "inventory_hostname": "a"}
    for host in ("a", "b", "a", "b"):
        made._values(host, task_vars)
    assert hostvars.composed == {"a": 1, "b": 1}


def test_what_the_play_says_holds_for_every_host_and_nothing_of_one_for_another() -> None:
    made, task_vars = judge(), {**PLAY, "hostvars": Hostvars(), "inventory_hostname": "a"}
    of_a, undefined_of_a = made._values("a", task_vars), set(made._undefined)
    of_b, undefined_of_b = made._values("b", task_vars), set(made._undefined)
    assert of_a == {"vllm_1": "of a", "vllm_2": "of a", "vllm_3": "of a", "vllm_4": "of -e", "vllm_9": "default"}
    assert of_b == {"vllm_2": "of b", "vllm_4": "of -e", "vllm_9": "default"}
    assert undefined_of_a == {"vllm_5"}
    assert undefined_of_b == {"vllm_3", "vllm_5"}
