"""What a host says of itself: the role's own units and what answered, not other people's; its releases and its user."""

from pathlib import Path

import pytest

from tests.roles.vllm.plugins import load

module = load("plugins/modules/vllm_host.py")
RENDERED = "# Rendered by role vllm for vllm@x: change the inventory\n[Unit]\n"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    units = tmp_path / "units"
    (units / "vllm@.service.d").mkdir(parents=True)
    (units / "vllm@chat.service").write_text(RENDERED)
    (units / "vllm@by-hand.service").write_text("[Unit]\n")
    (units / "vllm@.service").write_text(RENDERED)
    now = tmp_path / "served" / "gone" / "now"
    now.mkdir(parents=True)
    (now / "digest").write_text("d\n")
    (now / "url").write_text("http://127.0.0.1:8002\n")
    (tmp_path / "served" / "never").mkdir()
    return tmp_path


def test_services_are_known_by_their_unit_or_by_what_answered(host: Path) -> None:
    assert module.instances(host, host / "units") == ["chat", "gone"]


def test_a_host_where_nothing_is_installed_serves_nothing(tmp_path: Path) -> None:
    assert module.instances(tmp_path / "opt", tmp_path / "units") == []


def test_what_was_kept_by_an_earlier_version_of_the_role_has_no_run(host: Path) -> None:
    told = module.service("gone", host, host / "units", host / "secrets", {})
    assert told["now"] == {"release": "", "digest": "d", "url": "http://127.0.0.1:8002", "run": ""}
    assert (told["before"], told["url"], told["active"]) == (None, "http://127.0.0.1:8002", False)


def test_its_files_are_its_own(host: Path) -> None:
    secrets = host / "secrets"
    secrets.mkdir()
    for name in ("chat", "chat.two"):
        (secrets / f"{name}.secrets").touch()
    told = module.service("chat", host, host / "units", secrets, {"ActiveState": "active", "UnitFileState": "enabled"})
    assert told["files"] == [str(host / "units" / "vllm@chat.service"), str(secrets / "chat.secrets")]
    assert (told["active"], told["enabled"]) == (True, True)


def test_a_unit_is_told_as_it_lies_there(host: Path) -> None:
    for name, text in (("chat", RENDERED), ("gone", "")):
        assert module.service(name, host, host / "units", host / "secrets", {})["unit"] == text


def test_blocks_of_systemctl_are_told_apart() -> None:
    shown = "Id=vllm@a.service\nActiveState=active\n\nActiveState=failed\nId=vllm@b.service\n"
    assert {name: state["ActiveState"] for name, state in module.states(shown).items()} == {
        "vllm@a.service": "active",
        "vllm@b.service": "failed",
    }


def test_the_user_is_told_with_the_name_of_its_group() -> None:
    assert module.account("root") == {"group": "root", "home": "/root", "shell": "/bin/bash"}
    assert module.account("nobody-of-this-name") == {}


def test_a_credential_is_named_once_and_a_services_secrets_are_none(tmp_path: Path) -> None:
    for name in ("hub-token.encrypted", "plain", "main.secrets"):
        (tmp_path / name).touch()
    assert module.credentials(tmp_path) == ["hub-token", "plain"]


def test_cards_come_in_the_order_of_the_bus_with_their_node(tmp_path: Path) -> None:
    bus, nodes = tmp_path / "sys/bus/pci/devices", tmp_path / "sys/devices/system/node"
    for address, vendor, kind, node in (
        ("0000:b1:00.0", "0x10de", "0x030200", "1"),
        ("0000:17:00.0", "0x10de", "0x030200", "0"),
        ("0000:05:00.0", "0x10de", "0x068000", "0"),  # a switch
        ("0000:03:00.0", "0x1a03", "0x030000", "0"),  # the board's own graphics
    ):
        (bus / address).mkdir(parents=True)
        for name, text in (("vendor", vendor), ("class", kind), ("numa_node", node)):
            (bus / address / name).write_text(f"{text}\n")
    for name, cpus in (("node0", "0-31"), ("node1", "32-63"), ("node2", "")):  # a card's memory, without processors
        (nodes / name).mkdir(parents=True)
        (nodes / name / "cpulist").write_text(f"{cpus}\n")
    uuid = "GPU-00000000-2222-3333-4444-555555555555"
    said = tmp_path / "proc/driver/nvidia/gpus/0000:17:00.0/information"
    said.parent.mkdir(parents=True)
    said.write_text(f"Model: \t\t NVIDIA L40S\nGPU UUID: \t {uuid}\n")
    assert module.nodes(tmp_path / "sys") == 2
    assert module.cards(tmp_path / "sys", tmp_path / "proc") == [{"node": 0, "uuid": uuid}, {"node": 1, "uuid": ""}]
    assert module.cards(tmp_path / "none", tmp_path / "none") == []


def test_a_folder_of_secrets_that_others_may_look_into_is_not_private(tmp_path: Path) -> None:
    assert module.private(tmp_path / "none") is False
    tmp_path.chmod(0o700)
    assert module.private(tmp_path) is True
    tmp_path.chmod(0o750)
    assert module.private(tmp_path) is False
