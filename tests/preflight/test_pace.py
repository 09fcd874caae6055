"""How many hosts change at once, and what becomes of those that do not answer: by the inventory or the command line."""

from pathlib import Path

import pytest
import yaml

from tests.preflight.test_site import run

REPOSITORY = Path(__file__).parents[2]
SETTLE = {"ansible.builtin.import_role": {"name": "vllm_doctor.hosts.preflight", "tasks_from": "pace"}}
KEYWORDS = {"name", "hosts", "serial", "any_errors_fatal", "gather_facts"}


def site(folder: Path, *, hosts: dict[str, dict[str, object]], words: dict[str, object] | None = None) -> Path:
    """An inventory of hosts that are this machine, and a playbook: the play of site.yml that serves, with tasks that
    ask each host, say who is played with whom and, as there, look whether one was lost."""
    plays = {play.get("name"): play for play in yaml.safe_load((REPOSITORY / "site.yml").read_text())}
    served = plays["Serve, some hosts at a time"]
    playbook = [
        {"hosts": "vllm", "gather_facts": False, "any_errors_fatal": True, "tasks": [SETTLE]},
        {
            **_keywords(served),
            "tasks": [
                {"ansible.builtin.ping": None, "when": "preflight_host is not defined"},
                {"ansible.builtin.debug": {"msg": "batch of {{ ansible_play_batch | join('') }}"}, "run_once": True},
                served["tasks"][-1],
            ],
        },
    ]
    for play in playbook:
        play["vars"] = words or {}
    (folder / "play.yml").write_text(yaml.safe_dump(playbook))
    common = {"ansible_connection": "local", "site_reports": ""}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"vllm": {"vars": common, "hosts": hosts}}))
    return folder / "hosts.yml"


DOWN: dict[str, object] = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}


def _keywords(play: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in play.items() if name in KEYWORDS}


def batches(said: str) -> list[str]:
    return [line.split("batch of ")[1].strip("'\" ") for line in said.splitlines() if "msg: batch of " in line]


FOUR = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("inventory", "words", "more", "expected"),
    [
        ({}, {}, (), ["a", "b", "c", "d"]),  # a quarter
        ({"site_serial": 2}, {}, (), ["ab", "cd"]),
        ({"site_serial": 2}, {"site_serial": 1}, (), ["a", "b", "c", "d"]),  # as upgrade.yml says
        ({"site_serial": 2}, {"site_serial": 1}, ("-e", "site_serial=50%"), ["ab", "cd"]),
    ],
)
def test_as_many_change_at_once_as_is_said(
    tmp_path: Path, inventory: dict[str, object], words: dict[str, object], more: tuple[str, ...], expected: list[str]
) -> None:
    hosts = site(tmp_path, hosts={name: dict(inventory) for name in FOUR}, words=words)
    assert batches(run(hosts, *more, playbook=tmp_path / "play.yml")) == expected


def test_what_is_no_number_of_hosts_is_refused(tmp_path: Path) -> None:
    tasks = [
        {
            "block": [{**SETTLE, "vars": {"site_serial": value}}],
            "rescue": [{"ansible.builtin.meta": "clear_host_errors"}],
        }
        for value in ("abc", 0, -1, "0%", "200%")
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "a", "gather_facts": False, "tasks": tasks}]))
    here = {"ansible_connection": "local", "site_reports": ""}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"a": here}}}))
    said = " ".join(run(tmp_path / "hosts.yml", playbook=tmp_path / "play.yml").split())
    for value in ("abc", "0", "-1", "0%", "200%"):
        assert f"site_serial: {value}; needed" in said


def test_two_numbers_of_hosts_are_refused_before_the_first(tmp_path: Path) -> None:
    hosts = site(tmp_path, hosts={"a": {"site_serial": 1}, "b": {"site_serial": "25%"}})
    said = " ".join(run(hosts, playbook=tmp_path / "play.yml").split())
    assert (
        "site_serial: 1, 25%; needed: how many hosts change at once, such as 1 or 25%, the same for all hosts" in said
    )
    assert "batch of" not in said


def test_a_host_that_is_lost_while_it_is_changed_ends_the_change_before_the_next(tmp_path: Path) -> None:
    hosts = site(tmp_path, hosts={name: {"site_serial": 2} for name in FOUR} | {"b": {"site_serial": 2, **DOWN}})
    said = run(hosts, playbook=tmp_path / "play.yml")
    assert batches(said) == ["a"]
    assert "b no longer answers since the change began there: no further host is changed." in " ".join(said.split())


def test_a_host_that_was_left_out_is_not_lost(tmp_path: Path) -> None:
    left_out = {"site_serial": 2, "preflight_host": {"unreachable": True}}
    hosts = site(tmp_path, hosts={name: {"site_serial": 2} for name in FOUR} | {"b": left_out})
    assert batches(run(hosts, playbook=tmp_path / "play.yml")) == ["ab", "cd"]


def test_two_words_about_the_unreachable_are_refused(tmp_path: Path) -> None:
    hosts = site(tmp_path, hosts={"a": {"site_unreachable": "skip"}, "b": {}})
    said = " ".join(run(hosts, playbook=tmp_path / "play.yml").split())
    assert "site_unreachable: fail, skip; needed: fail or skip, the same for all hosts" in said


def test_a_role_that_asks_for_itself_does_not_go_on_without_an_answer(tmp_path: Path) -> None:
    ask = {"ansible.builtin.include_role": {"name": "vllm_doctor.hosts.preflight", "tasks_from": "ask"}}
    tasks = [ask, {"ansible.builtin.debug": {"msg": "went on"}}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "a", "gather_facts": False, "tasks": tasks}]))
    down = {"ansible_host": "127.0.0.1", "ansible_port": 1, "site_reports": ""}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"a": down}}}))
    said = " ".join(run(tmp_path / "hosts.yml", playbook=tmp_path / "play.yml").split())
    assert "a does not tell what it is: " in said
    assert "went on" not in said
