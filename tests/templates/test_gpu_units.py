"""Every template at three releases: as reviewed (golden files), accepted by systemd, and nothing the release lacks.

UPDATE_GOLDEN=1 pytest tests/templates writes the golden files anew; the diff is what a reviewer reads.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.templates.units import BEHAVIOURS, NVIDIA, PLANNED, VERSIONS, arguments, command, environment, render
from vllm_doctor.knowledge import parser, templates, versions
from vllm_doctor.knowledge.gpus import find, names, template_for

GOLDEN = Path(__file__).with_name("golden")
UUIDS = tuple(f"GPU-{i:08x}-0000-0000-0000-000000000000" for i in range(8))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_unit_of_four_cards_is_as_reviewed(behaviour, version):
    file = GOLDEN / behaviour / f"{version}.service"
    text = render(behaviour, version, arguments={**PLANNED, "tensor-parallel-size": 4})
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), f"{file} differs: review it, then UPDATE_GOLDEN=1"


def test_a_list_is_written_as_vllm_takes_it():
    said = {"middleware": ["one.Of", "two.Of"], "cudagraph-capture-sizes": [1, 2]}
    words = command(render("generic", "0.33.0", arguments=said))
    assert " ".join(words).endswith("--middleware one.Of --middleware two.Of --cudagraph-capture-sizes 1 2")


def test_there_is_no_golden_file_of_a_template_or_release_that_is_gone():
    kept = {str(p.relative_to(GOLDEN)) for p in GOLDEN.rglob("*.service")}
    assert kept == {f"{behaviour}/{version}.service" for behaviour in BEHAVIOURS for version in VERSIONS}


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """A file system with what a unit refers to, so that verify judges the unit and not this machine: the executable
    (verify wants it there and executable; it is never run) and systemd's own units."""
    place = tmp_path_factory.mktemp("root")
    executable = place / "opt/vllm/current/bin/vllm"
    executable.parent.mkdir(parents=True)
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    for folder in ("usr/lib/systemd/system", "lib/systemd/system"):
        units = Path("/") / folder
        if units.is_dir() and not (place / "usr/lib/systemd/system").exists():
            shutil.copytree(units, place / "usr/lib/systemd/system", symlinks=True)
    (place / "etc/systemd/system").mkdir(parents=True)
    return place


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
@pytest.mark.parametrize("version", VERSIONS)
def test_systemd_accepts_every_unit(version, root):
    files = []
    for behaviour in BEHAVIOURS:
        for hosts, loopback in (("one", True), ("several", False)):
            # systemd reads a template unit's instance from the file's name, so each template is an instance.
            file = root / f"etc/systemd/system/vllm@{behaviour}-{hosts}.service"
            more = {"cuda_compat": "/usr/local/cuda-13.0/compat", "numa_nodes": [0, 0, 1, 1], "loopback": loopback}
            file.write_text(render(behaviour, version, UUIDS[:4], name=f"vllm@{behaviour}", **more))
            files.append(f"/etc/systemd/system/{file.name}")
    run = subprocess.run(
        ["systemd-analyze", "verify", f"--root={root}", "--man=no", "--recursive-errors=no", *files],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not [line for line in run.stderr.splitlines() if "vllm@" in line]
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_would_have_complained(root):
    (root / "etc/systemd/system/vllm@broken.service").write_text(
        render("h100-sxm", "0.33.0", executable="/nowhere/vllm").replace("NUMAPolicy", "NumaPolicy")
    )
    run = subprocess.run(
        ["systemd-analyze", "verify", f"--root={root}", "--man=no", "/etc/systemd/system/vllm@broken.service"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode != 0
    assert "/nowhere/vllm" in run.stderr


@pytest.mark.parametrize("gpus", [(), UUIDS[:1], UUIDS[:2], UUIDS])
@pytest.mark.parametrize("version", [*VERSIONS, "0.31.0", "0.32.0"])
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_release_knows_every_flag_and_variable(behaviour, version, gpus):
    text = render(behaviour, version, gpus, numa_nodes=[0] * len(gpus))
    for name, value in arguments(text).items():
        assert parser.complaint(name, value or True, version) is None, name
        fact = versions.flag(name, version)
        assert fact is None or fact.exists, name
    for name in environment(text):
        fact = versions.env(name, version)
        assert fact is None or not name.startswith("VLLM_") or fact.exists, name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_no_template_repeats_advice_that_does_harm(behaviour, version):
    text = render(behaviour, version, UUIDS[:2])
    # expandable_segments kills workers with tensor parallel and graphs (vllm#42609), and max_split_size_mb was
    # dropped by vLLM's own loader in some releases; NCCL_CUMEM_ENABLE was set by vLLM itself until 0.10.1; the
    # backend variable is ignored from 0.15.
    harmful = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "NCCL_CUMEM_ENABLE", "VLLM_ATTENTION_BACKEND"}
    harmful |= {"CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG", "VLLM_TRACE_FUNCTION", "VLLM_USE_V1"}
    assert not harmful & environment(text).keys()
    assert not {"enforce-eager", "swap-space", "calculate-kv-scales", "kv-cache-dtype"} & arguments(text).keys()


@pytest.mark.parametrize("behaviour", NVIDIA)
def test_the_inventory_wins_over_the_template(behaviour):
    text = render(
        behaviour,
        "0.19.1",
        UUIDS[:2],
        arguments={"dtype": "bfloat16", "attention-backend": "FLASH_ATTN", "gpu-memory-utilization": 0.5},
        environment={"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "NCCL_P2P_DISABLE": "0"},
    )
    found = arguments(text)
    assert (found["dtype"], found["attention-backend"]) == ("bfloat16", "FLASH_ATTN")
    assert found["gpu-memory-utilization"] == "0.5"
    assert environment(text)["NCCL_P2P_DISABLE"] == "0"
    assert "PCI_BUS_ID" not in text


def test_every_card_of_the_table_has_a_template_that_behaves_like_it_and_every_template_a_card():
    named = {found.template for name in names() if (found := find(name)) is not None}
    assert {*templates.cards()} < named
    assert {templates.behaviour(name) for name in named} | {"cpu"} == set(BEHAVIOURS)
    assert not {*templates.cards()} & set(BEHAVIOURS)


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100 80GB PCIe", "a100-80"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtxpro6000"),
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA A30", "pcie"),
        ("NVIDIA Z999", "generic"),
        (None, "generic"),
    ],
)
def test_the_name_that_nvml_tells_finds_the_template(name, template):
    assert template_for(name) == template


def test_turing_is_kept_from_flashinfer_only_where_a_release_would_take_it():
    assert arguments(render("t4", "0.19.1"))["attention-backend"] == "TRITON_ATTN"
    assert "attention-backend" not in arguments(render("t4", "0.33.0"))
    assert "attention-backend" not in arguments(render("t4", "0.11.0"))  # it has no such flag


@pytest.mark.parametrize("card", ["t4", "v100"])
def test_a_half_is_said_only_where_the_release_does_not_fall_back_by_itself(card):
    assert arguments(render(card, "0.8.5"))["dtype"] == "half"
    assert "dtype" not in arguments(render(card, "0.19.1"))


def test_what_is_compiled_at_start_is_compiled_by_the_toolkit_of_the_inventory():
    assert environment(render("h100-sxm", "0.33.0", cuda_home="/usr/local/cuda-13.0"))["CUDA_HOME"].endswith("13.0")
    assert "CUDA_HOME" not in environment(render("h100-sxm", "0.33.0"))


@pytest.mark.parametrize(
    ("gpus", "launch", "peers", "reduces"),
    [
        ((), {}, False, False),  # one card, however many the host has
        ((), {"tensor-parallel-size": 4}, True, True),  # nobody lists four cards to use four
        ((), {"pipeline-parallel-size": 2}, True, False),  # the two share no tensor
        ((), {"data-parallel-size": 2}, True, False),
        (UUIDS[:2], {}, True, True),
        (UUIDS[:1], {}, False, False),
    ],
)
def test_cards_without_peer_access_say_so_whoever_counts_them(gpus, launch, peers, reduces):
    text = render("rtx4090", "0.33.0", gpus, arguments=launch)
    assert ("NCCL_P2P_DISABLE" in environment(text)) == peers
    assert ("disable-custom-all-reduce" in arguments(text)) == reduces


@pytest.mark.parametrize("card", ["a10", "l4", "l40s", "h100-pcie", "h100-nvl", "rtx3090", "rtxpro6000"])
def test_more_than_two_cards_on_pcie_do_without_custom_all_reduce(card):
    four, two = ({"tensor-parallel-size": n} for n in (4, 2))
    assert "disable-custom-all-reduce" in arguments(render(card, "0.33.0", arguments=four))
    assert "disable-custom-all-reduce" not in arguments(render(card, "0.33.0", arguments=two))
    assert "disable-custom-all-reduce" not in arguments(render("h100-sxm", "0.33.0", arguments=four))


def test_workers_are_bound_to_the_node_of_their_card_where_the_release_can():
    assert command(render("h100-sxm", "0.32.0", numa_nodes=[0, 0, 1, 1]))[3:9] == (
        ["--numa-bind", "--numa-bind-nodes", "0", "0", "1", "1"]
    )
    assert "numa-bind" not in render("h100-sxm", "0.11.0", numa_nodes=[0, 1])
    assert "numa-bind" not in render("h100-sxm", "0.32.0")
    assert "numa-bind" not in arguments(render("h100-sxm", "0.32.0", numa_nodes=[0], arguments={"numa-bind": False}))
    assert "numa-bind-nodes 1" in render("h100-sxm", "0.32.0", numa_nodes=[0], arguments={"numa-bind-nodes": [1]})


def test_a_service_of_several_hosts_reads_the_network_cards_and_no_other_does():
    one, several = (render("h100-sxm", "0.33.0", loopback=loopback) for loopback in (True, False))
    for text, there in ((one, False), (several, True)):
        assert ("CAP_IPC_LOCK" in text) == ("infiniband" in text) == there
        assert text.count("CapabilityBoundingSet=") == 1


def test_no_device_but_the_driver_s_is_open():
    lines = [line for line in render("h100-sxm", "0.33.0").splitlines() if line.startswith("Device")]
    assert lines == ["DevicePolicy=closed", "DeviceAllow=char-nvidia* rw"]
    assert "DeviceAllow" not in render("tegra", "0.33.0")  # closed, its own would be missing
    assert "modprobe@nvidia_uvm.service" in render("h100-sxm", "0.33.0")  # its number is looked up at the start


def test_a_newer_cuda_on_an_old_driver_is_found_by_the_loader():
    compat = "/usr/local/cuda-13.0/compat"
    assert environment(render("h100-sxm", "0.33.0", cuda_compat=compat))["LD_LIBRARY_PATH"] == compat
    assert "LD_LIBRARY_PATH" not in environment(render("h100-sxm", "0.33.0"))


def test_unified_memory_leaves_the_host_a_share_when_nobody_planned():
    assert arguments(render("gb10", "0.33.0", arguments={}))["gpu-memory-utilization"] == "0.8"
    assert arguments(render("gb10", "0.33.0"))["gpu-memory-utilization"] == "0.9"
