"""An operator's mistakes, through site.yml itself: each host has one, refused once with the line to write."""

import json
from dataclasses import replace
from datetime import date

import pytest
import yaml

from tests.preflight.test_checks import HOST, INTENT, locks
from tests.preflight.test_site import GOOD, run
from vllm_doctor.knowledge.compat import table
from vllm_doctor.preflight import driver, release
from vllm_doctor.preflight.intent import contradictions
from vllm_doctor.preflight.judged import Checked, HostToJudge, Result

# host: (its variables, the check that refuses it, what is said)
MISTAKES: dict[str, tuple[dict[str, object], str, str]] = {
    "typo": ({"vllm_max_modle_len": 4096}, "variable name", "write vllm_max_model_len"),
    "site-typo": ({"site_seriall": 1}, "variable name", "write site_serial"),
    "site-state": ({"site_stat": "absent"}, "variable name", "write site_state"),
    "site-value": ({"site_state": "abesnt"}, "variable type", "write absent"),
    "no-release": ({"vllm_version": "0.99.0"}, "vLLM release", "set vllm_version: 0.32.0"),
    "no-lock": ({"vllm_version": "0.33.0"}, "vLLM release", "set vllm_version: 0.32.0; or make its lock"),
    "hub": ({"vllm_model": "org/llama"}, "launch", "vllm_revision: the first column of"),
    "branch": ({"vllm_model": "org/llama", "vllm_revision": "main"}, "launch", "git ls-remote"),
    "card": ({"preflight_gpus": ["NVIDIA H100 SXM 80GB"]}, "GPU name", "preflight_gpus: [NVIDIA H100 80GB HBM3]"),
    "template": ({"vllm_unit_template": "h100"}, "launch", "vllm_unit_template: auto"),
    "groups": ({}, "two groups", "host_vars/groups.yml"),
    "type": ({"vllm_max_model_len": "long"}, "variable type", "write it as a number, without quotes"),
    "program": ({}, "variable type", "in the inventory: write false without quotes"),
    "open": ({"vllm_host": "0.0.0.0"}, "launch", "set vllm_api_key"),  # noqa: S104
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, str]]]:
    """What the report of the run says of each host."""
    folder = tmp_path_factory.mktemp("inventory")
    for kind in ("host_vars", "group_vars"):
        (folder / kind).mkdir()
    for name, (values, _, _) in {**MISTAKES, "fine": ({}, "", "")}.items():
        good = {key: value for key, value in GOOD.items() if not (name == "groups" and key == "preflight_gpus")}
        (folder / "host_vars" / f"{name}.yml").write_text(
            yaml.safe_dump({**good, **values, "site_reports": f"{folder}/r"})
        )
    for card in ("NVIDIA L4", "NVIDIA A10"):
        values = {"preflight_gpus": [card], "vllm_unit_template": card.split()[1].lower()}
        (folder / "group_vars" / f"{card.split()[1].lower()}.yml").write_text(yaml.safe_dump(values))
    both = {"hosts": {"groups": None}}
    children = {"l4": both, "a10": both}
    hosts = {"vllm": {"hosts": dict.fromkeys([*MISTAKES, "fine"]), "children": children}}
    # An inventory that a program writes, and one in INI: there false is a word, and a word counts as true.
    by_program = {"vllm": {"hosts": ["program"]}, "_meta": {"hostvars": {"program": {"nvidia_driver_reboot": "false"}}}}
    (folder / "program.sh").write_text(f"#!/bin/sh\necho '{json.dumps(by_program)}'\n")
    (folder / "program.sh").chmod(0o755)
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts))
    said = run(folder)
    assert f"{len(MISTAKES)} of {len(MISTAKES) + 1} hosts refused" in said, said
    (report,) = (folder / "r").glob("*.json")
    rows = [row for row in json.loads(report.read_text())["refused"] if row["verdict"] == "fail"]
    return {host: [row for row in rows if row["host"] == host] for host in [*MISTAKES, "fine"]}


@pytest.mark.parametrize("host", MISTAKES)
def test_a_mistake_is_refused_once_with_what_to_write(refused: dict[str, list[dict[str, str]]], host: str) -> None:
    _, check, says = MISTAKES[host]
    assert [row["check"] for row in refused[host]] == [check], refused[host]
    assert says in refused[host][0]["action"], refused[host]


def test_a_good_host_beside_them_is_not(refused: dict[str, list[dict[str, str]]]) -> None:
    assert refused["fine"] == []


def judged(check: object, intent: object = INTENT, **host: object) -> Checked:
    return check(HostToJudge(intent, replace(HOST, **host), table(), date(2026, 11, 21)))  # type: ignore[arg-type,operator]


def test_cards_that_are_not_those_of_the_inventory() -> None:
    row = judged(driver.gpu_present, replace(INTENT, gpus=("NVIDIA H100 80GB HBM3",)), gpus=("2330", "2236"))
    assert row.verdict is Result.FAIL
    assert row.found == "1 x NVIDIA H100 80GB HBM3, 1 x NVIDIA A10"
    assert row.action.startswith("set preflight_gpus: [NVIDIA H100 80GB HBM3, NVIDIA A10] for this host, or move it")
    both = replace(INTENT, gpus=("NVIDIA H100 80GB HBM3", "NVIDIA A10"))
    assert judged(driver.gpu_present, both, gpus=("2330", "2236")).verdict is Result.OK


def test_a_card_that_has_fallen_off_the_bus() -> None:
    row = judged(driver.gpu_present, replace(INTENT, gpu_count=8))
    assert (row.verdict, row.found, row.needed) == (Result.FAIL, "2 GPUs", "8")
    assert "power cycle" in row.action


def test_a_lock_for_another_architecture() -> None:
    wanted = replace(INTENT, vllm_version="0.32.0", variant="cu130", locks=locks("0.32.0", "cu130"))
    row = judged(release.libc_and_python, wanted, machine="aarch64")
    assert row.verdict is Result.FAIL
    assert row.found == "a host of aarch64; 0.32.0+cu130 has a lock for x86_64"
    assert row.needed == "a lock for aarch64"


@pytest.mark.parametrize("names", [("NVIDIA H100 SXM 80GB",), ("NVIDIA L4", "NVIDIA H100 SXM 80GB")])
def test_the_line_that_is_advised_for_a_card_is_one_that_is_accepted(names: tuple[str, ...]) -> None:
    (row,) = contradictions({}, replace(INTENT, gpus=names), table())
    advised = yaml.safe_load(row.action)
    assert advised == {"preflight_gpus": [*names[:-1], "NVIDIA H100 80GB HBM3"]}
    assert not list(contradictions({}, replace(INTENT, gpus=tuple(advised["preflight_gpus"])), table()))
