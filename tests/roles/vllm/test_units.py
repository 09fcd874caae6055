"""What the role makes of an inventory, and what it refuses before any host is asked."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.roles.vllm.plugins import ROLE, load, said
from vllm_doctor.knowledge import templates

plugin = load("plugins/filter/vllm_units.py")
refusals = load("plugins/filter/vllm_refusals.py")
ARGUMENTS = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__vllm_arguments"]
DEFAULTS = {
    name.removeprefix("vllm_"): value
    for name, value in yaml.safe_load((ROLE / "defaults/main.yml").read_text()).items()
}
LOCKS = ["0.31.0+cpu-x86_64", "0.32.0+cpu-x86_64"]
TEMPLATES = ["cpu", "generic", "h100-sxm"]


def judged(**inventory: Any) -> tuple[list[dict[str, Any]], str]:
    """The units of an inventory, and its problems as text."""
    variables = {
        **DEFAULTS,
        "model": "/srv/models/tiny",
        "arguments": ARGUMENTS,
        "release": "0.32.0+cpu-0123abcd",
        "cuda_home": "",
        "cuda_compat": "",
        **inventory,
    }
    settings = {name: variables[name] for name in ARGUMENTS}
    units = plugin.units(variables, settings)
    rows = refusals.problems(units, variables, LOCKS, TEMPLATES)
    return units, said(rows)


def test_the_defaults_make_one_service_without_a_complaint() -> None:
    (unit,), complaints = judged()
    assert complaints == ""
    assert unit["name"] == "vllm@main"
    assert unit["arguments"] == {"host": "127.0.0.1", "port": 8000, "shutdown-timeout": 30}
    assert unit["timeout_stop_sec"] > unit["arguments"]["shutdown-timeout"]
    assert unit["start_limit_interval"] > unit["start_limit_burst"] * DEFAULTS["ready_timeout"]


def test_an_instance_goes_before_the_inventory_and_that_before_the_plan() -> None:
    plan = {"launch": {"max-model-len": 1, "max-num-seqs": 2, "block-size": 16}, "env": {"A": "plan", "B": "plan"}}
    instances = [{"name": "chat", "max_model_len": 100}]
    (unit,), _ = judged(
        plan=plan, max_model_len=10, max_num_seqs=20, instances=instances, environment={"A": "inventory"}
    )
    assert {name: unit["arguments"][name] for name in ("max-model-len", "max-num-seqs", "block-size")} == {
        "max-model-len": 100,
        "max-num-seqs": 20,
        "block-size": 16,
    }
    assert unit["environment"] == {"A": "inventory", "B": "plan"}


def test_a_release_without_the_flag_for_draining_is_not_given_it() -> None:
    (unit,), _ = judged(version="0.17.1")
    assert "shutdown-timeout" not in unit["arguments"]


@pytest.mark.parametrize(
    ("inventory", "words"),
    [
        ({"extra_args": {"disable-log-requests": True}}, ["--disable-log-requests", "0.32.0 knows", "to 0.16.0"]),
        ({"extra_args": {"max-num-batched-token": 5}}, ["max-num-batched-tokens"]),
        ({"extra_args": {"port": 9}}, ["vllm_extra_args: take port out, and set vllm_port: 9"]),
        ({"extra_args": {"-tp": 2}}, ["take -tp out, and set vllm_tensor_parallel_size: 2"]),
        ({"extra_args": {"spec-model": "org/x"}}, ["vllm_speculative_config, which says the same"]),
        ({"extra_args": {"config": "/etc/vllm.yml"}}, ["neither planned nor judged"]),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, ["vllm_gpus, which says the same"]),
        ({"port": 80000}, ["--port 80000", "1 to 65535", "(vllm_port)"]),
        ({"gpu_memory_utilization": 95}, ["above 0 and up to 1"]),
        ({"max_num_seqs": 0}, ["1 or more"]),
        ({"instances": [{"name": "a", "enforce_eager": "yes"}]}, ["(vllm_instances: enforce_eager of a)"]),
        ({"instances": [{"name": "a", "vllm_port": 1}]}, ["vllm_instances: write port"]),
        ({"instances": [{"port": 1}]}, ["an instance named ''", "vllm_instances: {name: …}"]),
        ({"extra_args": {"no-enforce-eager": True}}, ["vllm_enforce_eager"]),
        ({"extra_args": {"--uvicorn-log-level": "info"}}, ["write uvicorn-log-level"]),
        ({"extra_args": {"api-key": "x"}}, ["no secret on a command line", "vllm_api_key"]),
        ({"kv_cache_dtype": "int3"}, ["fp8_e4m3", "vllm_kv_cache_dtype"]),
        ({"swap_space": 4.0}, ["0.2.0 to 0.17.1"]),
        ({"version": "latest"}, ["an exact release"]),
        ({"version": "0.30.0"}, ["vLLM 0.30.0+auto", "0.31.0+cpu-x86_64, 0.32", 'vllm_version: "0.31.0", or make']),
        ({"version": "0.32.0", "variant": "cu130"}, ["vLLM 0.32.0+cu130", "vllm_variant: cpu, or make"]),
        ({"unit_template": "h100"}, ["vllm_unit_template: h100-sxm"]),
        ({"instances": [{"name": "main", "max_model_length": 1}]}, ["write max_model_len"]),
        ({"instances": [{"name": "../etc"}]}, ["'../etc'"]),
        ({"host": "10.1.2.3"}, ["open to everyone on 10.1.2.3", "vllm_allow_open"]),
    ],
)
def test_what_the_host_would_refuse_is_refused_here(inventory: dict[str, Any], words: list[str]) -> None:
    complaints = judged(**inventory)[1]
    assert all(word in complaints for word in words), complaints


@pytest.mark.parametrize(
    ("said", "meant"),
    [("h100", "auto"), ("l40z", "l40s"), ("rtx-4090", "auto"), ("v100-32", "v100"), ("t4x", "t4"), ("zzz", "auto")],
)
def test_the_template_that_is_advised_is_the_only_one_that_may_be_meant(said: str, meant: str) -> None:
    have = sorted({"generic", "pcie", *templates.cards()})
    assert refusals._template(said, have) == meant  # h100 is no v100, and three templates of it exist


UUIDS = [f"GPU-{n}0000000-2222-3333-4444-555555555555" for n in range(4)]
TWO = {"nodes": 2, "cards": [{"node": n // 2, "uuid": uuid} for n, uuid in enumerate(UUIDS)]}


@pytest.mark.parametrize(
    ("host", "gpus", "nodes"),
    [
        (TWO, [], [0, 0, 1, 1]),
        (TWO, [UUIDS[3], UUIDS[0]], [1, 0]),  # in the order in which vLLM sees them
        (TWO, ["2"], [1]),
        (TWO, ["MIG-0"], []),
        ({**TWO, "nodes": 1}, [], []),
        ({"nodes": 2, "cards": [{"node": -1, "uuid": ""}]}, [], []),
        ({"nodes": 2, "cards": []}, [], []),
    ],
)
def test_cards_are_placed_only_where_every_node_is_known(
    host: dict[str, Any], gpus: list[str], nodes: list[int]
) -> None:
    units, _ = judged(gpus=gpus)
    assert [unit["numa_nodes"] for unit in plugin.placed(units, host, {})] == [nodes]
    assert [unit["numa_nodes"] for unit in plugin.placed(units, host, {"main": 0})] == [[]]  # bound by host_settings


def test_secrets_survive_the_quoting_of_systemd() -> None:
    assert plugin.secrets({"KEY": 'a"b$c\\d'}) == 'KEY="a\\"b\\$c\\\\d"\n'
    with pytest.raises(plugin.AnsibleFilterError, match="one line"):
        plugin.secrets({"KEY": "a\nEVIL=1"})


def test_every_argument_has_a_variable_and_the_doctor_knows_it() -> None:
    specs = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    doctor = json.loads((Path(__file__).parents[3] / "vllm_doctor/knowledge/inventory_vars.json").read_text())
    assert {f"vllm_{name}" for name in [*ARGUMENTS, "model"]} <= set(specs)
    for flag, variable in doctor.items():
        assert variable == f"vllm_{flag.replace('-', '_')}"
        assert variable in specs
    assert {name.replace("_", "-") for name in [*ARGUMENTS, "model"]} <= set(doctor)


def test_what_many_hosts_share_is_said_once() -> None:
    row = {"found": "a", "needed": "b", "do": "c"}
    text = plugin.table([{"host": "gpu01", **row}, {"host": "gpu02", **row}, {"host": "gpu02", **row, "found": "x"}])
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["gpu01,", "gpu02", "launch", "a", "b", "c"],
        ["gpu02", "launch", "x", "b", "c"],
    ]


def test_the_processes_of_a_service_talk_to_each_other_on_this_host_alone() -> None:
    (unit,), complaints = judged()
    assert (unit["loopback"], complaints) == (True, "")


@pytest.mark.parametrize(
    "arguments",
    [{"nnodes": 2}, {"headless": True}, {"data-parallel-address": "10.0.0.5"}, {"data-parallel-backend": "ray"}],
)
def test_a_service_of_several_hosts_has_to_be_called_one(arguments: dict[str, object]) -> None:
    _, complaints = judged(extra_args=arguments)
    assert "on a loopback address" in complaints
    assert "vllm_spans_hosts: true" in complaints
    (unit,), complaints = judged(extra_args=arguments, spans_hosts=True)
    assert (unit["loopback"], complaints) == (False, "")


def test_only_the_inventory_tells_where_a_shared_kv_cache_lies() -> None:
    shared = {"kv-transfer-config": {"kv_connector": "NixlConnector", "kv_role": "kv_both"}}
    _, complaints = judged(extra_args=shared)
    assert "vllm_spans_hosts: true, or false where all of it is on this host" in complaints
    for spans, loopback in ((True, False), (False, True)):
        (unit,), complaints = judged(extra_args=shared, spans_hosts=spans)
        assert (unit["loopback"], complaints) == (loopback, "")


def test_one_service_of_several_may_span_hosts() -> None:
    units, complaints = judged(
        instances=[{"name": "chat"}, {"name": "wide", "port": 8001, "spans_hosts": True, "extra_args": {"nnodes": 2}}]
    )
    assert complaints == ""
    assert [unit["loopback"] for unit in units] == [True, False]


def test_an_instance_with_a_version_of_its_own_is_started_from_that_release() -> None:
    units, complaints = judged(
        instances=[{"name": "chat"}, {"name": "canary", "port": 8001, "version": "0.31.0"}],
        releases={"0.32.0": "0.32.0+cpu-0123abcd", "0.31.0": "0.31.0+cpu-4567cdef"},
    )
    assert complaints == ""
    assert [unit["executable"] for unit in units] == [
        "/opt/vllm/current/bin/vllm",
        "/opt/vllm/releases/0.31.0+cpu-4567cdef/bin/vllm",
    ]
    assert [unit["version"] for unit in units] == ["0.32.0", "0.31.0"]
    assert [unit["home"] for unit in units] == ["", "/opt/vllm/releases/0.31.0+cpu-4567cdef"]


def test_an_instance_whose_own_version_is_the_hosts_is_started_from_the_hosts_release() -> None:
    """The canary was good, and the host follows it: both lines say the same release, and there is one to name."""
    (unit,), complaints = judged(instances=[{"name": "canary", "version": DEFAULTS["version"]}])
    assert complaints == ""
    assert unit["executable"] == "/opt/vllm/releases/0.32.0+cpu-0123abcd/bin/vllm"
    assert unit["release"] == "0.32.0+cpu-0123abcd"


@pytest.mark.parametrize(
    ("instance", "line"),
    [
        ("canary", {"variable": "vllm_instances", "says": "version: 0.32.0 of canary in vllm_instances"}),
        ("main", {"variable": "vllm_version", "says": "vllm_version: 0.31.0"}),
    ],
)
def test_who_goes_back_is_told_the_line_of_the_service_that_went_back(instance: str, line: dict[str, str]) -> None:
    listed = [{"name": "main"}, {"name": "canary", "version": "0.32.0"}]
    assert plugin.release_line(instance, listed, "0.31.0") == line


def test_a_version_of_an_instance_without_a_lock_is_refused_where_it_stands() -> None:
    complaints = judged(instances=[{"name": "canary", "version": "0.30.0"}])[1]
    assert 'do:     vllm_instances: version of canary: vllm_version: "0.31.0", or make the lock' in complaints


def test_a_run_touches_what_is_not_as_it_answered_and_starts_anew_what_is_not_as_wanted() -> None:
    made = [{"instance": name, "home": ""} for name in ("same", "new", "down", "edited")]
    rendered = {unit["instance"]: unit["instance"] for unit in made}
    fine = {"active": True, "enabled": True, "drifted": False}
    services = [
        {**fine, "instance": name, "now": {"digest": plugin.digest("/r", name, {})}}
        for name in ("same", "down", "edited")
    ]
    services[1]["active"] = False
    services[2]["drifted"] = True
    found = plugin.work(made, rendered, "/r", {}, services)
    assert found == {"anew": ["new", "down"], "touched": ["new", "down", "edited"]}
