"""The daemons that the fabric needs: at the driver's version, on the hardware that needs them and nowhere else."""

import re

import pytest

VERSION = "580.105.08-1"
# host: its fabric's daemon and program, packages beside it, packages that it must not have, files and what they say
KINDS = {
    "board": {
        "daemon": ("nvidia-fabricmanager", "/usr/bin/nv-fabricmanager"),
        "beside": {"nvlsm": "2025.06.11-1"},
        "not": ("nvidia-imex",),
        "files": {"/etc/modules-load.d/nvidia-driver-fabric.conf": "ib_umad\n"},
    },
    "rack": {
        "daemon": ("nvidia-imex", "/usr/bin/nvidia-imex"),
        "beside": {},
        "not": ("nvidia-fabricmanager", "nvlsm"),
        "files": {"/etc/nvidia-imex/nodes_config.cfg": "192.0.2.11\n192.0.2.12\n"},
    },
}


@pytest.fixture
def kind(host):
    return KINDS[host.check_output("hostname")]


def test_the_daemon_has_the_driver_version_and_runs(host, kind):
    name, _ = kind["daemon"]
    assert host.package(name).version == VERSION
    assert host.service(name).is_running
    assert host.service(name).is_enabled


def test_what_has_a_version_of_its_own_is_there_and_held(host, kind):
    held = set(host.check_output("apt-mark showhold").split())
    for name, version in kind["beside"].items():
        assert host.package(name).version == version
        assert name in held


def test_the_fabric_manager_has_started_the_subnet_manager(host, kind):
    assert bool(host.process.filter(comm="nvlsm")) == ("nvlsm" in kind["beside"])


def test_what_other_hardware_needs_is_not_there(host, kind):
    for name in kind["not"]:
        assert not host.package(name).is_installed


def test_devices_and_nodes_are_configured(host, kind):
    for path, text in kind["files"].items():
        assert host.file(path).content_string.endswith(text)


def test_every_package_of_the_stack_is_held_and_of_one_version(host):
    told = host.check_output("dpkg-query -W -f '${Package} ${Version}\\n'")
    versions = dict(line.split(" ", 1) for line in told.splitlines())
    stack = {name: version for name, version in versions.items() if re.match(r"[56]\d\d\.\d", version)}
    assert set(stack.values()) == {VERSION}
    assert set(stack) <= set(host.check_output("apt-mark showhold").split())


def test_blackwell_has_the_open_modules(host):
    assert "Open Kernel Module" in host.file("/proc/driver/nvidia/version").content_string


def test_a_daemon_of_another_version_would_not_start(host, kind):
    """That the stub's daemon looks at the driver is what lets the tests above fail."""
    _, program = kind["daemon"]
    other = host.run(f"sed 's/580[.]105[.]08/595.71.05/g' {program} > /tmp/other && sh /tmp/other")
    assert other.rc == 1
    assert "mismatch" in other.stderr


def test_after_a_restart_of_the_host_all_of_it_comes_up_by_itself(host, kind):
    name, _ = kind["daemon"]
    host.check_output("stub-machine boot")
    host.check_output("systemctl is-active --wait nvidia-persistenced " + name + " || systemctl start " + name)
    assert host.service(name).is_running
