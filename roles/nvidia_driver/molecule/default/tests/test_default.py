import json
import re

import pytest

VERSION = "580.105.08"


def installed(host):
    """{package: version} of everything that came from the stub repository at a driver's version."""
    told = host.check_output("dpkg-query -W -f '${Package} ${Version}\\n'")
    rows = dict(line.split(" ", 1) for line in told.splitlines())
    return {name: version for name, version in rows.items() if re.match(r"[56]\d\d\.\d", version)}


def test_one_version_although_the_repository_has_newer_ones(host):
    versions = installed(host)
    assert {"libcuda1", "libnvidia-ml1", "nvidia-kernel-open-dkms", "nvidia-fabricmanager"} <= set(versions)
    assert set(versions.values()) == {f"{VERSION}-1"}


def test_a_repository_that_was_there_already_is_the_only_one(host):
    told = host.check_output("grep -rl srv/nvidia /etc/apt/sources.list.d").split()
    name = "cuda-debian13-x86_64.list" if host.check_output("hostname") == "trixie" else "nvidia-driver.sources"
    assert told == [f"/etc/apt/sources.list.d/{name}"]


def test_every_package_of_the_stack_is_held(host):
    held = set(host.check_output("apt-mark showhold").split())
    assert set(installed(host)) - held == set()


def test_an_upgrade_of_everything_leaves_the_driver_alone(host):
    proposed = host.check_output("apt-get -s -o Debug::NoLocking=1 dist-upgrade")
    assert not re.search(r"^(Inst|Remv) .*(nvidia|cuda)", proposed, re.MULTILINE)


def test_even_without_the_holds_the_pins_keep_it(host):
    policy = host.check_output("apt-cache policy nvidia-driver-cuda libcuda1 nvidia-fabricmanager nvidia-open")
    assert set(re.findall(r"Candidate: (\S+)", policy)) == {f"{VERSION}-1"}


@pytest.fixture
def unlocked(host):
    """The host without holds; yields a runner of unattended-upgrade that sees no pins either. Nothing is upgraded."""
    held = host.check_output("apt-mark showhold").replace("\n", " ")
    host.check_output("apt-mark unhold " + held)
    host.check_output("rm -rf /tmp/apt.conf.d && cp -r /etc/apt/apt.conf.d /tmp/")

    def run():
        parts = 'Dir::Etc::PreferencesParts "/none"; Dir::Etc::Preferences "/none"; Dir::Etc::Parts "/tmp/apt.conf.d";'
        host.check_output(f"echo '{parts}' > /tmp/apt.conf")
        return host.run("APT_CONFIG=/tmp/apt.conf unattended-upgrade --dry-run --verbose 2>&1").stdout

    yield run
    host.check_output("apt-mark hold " + held)


def upgraded(said: str) -> list[str]:
    """The packages that a dry run would upgrade; the distribution may have published some since the image was made."""
    nothing, some = "No packages found that can be upgraded unattended", "Packages that will be upgraded: "
    assert nothing in said or some in said, said
    return said.partition(some)[2].partition("\n")[0].split()


def test_unattended_upgrades_leave_the_driver_alone_without_holds_and_pins(unlocked):
    assert not [name for name in upgraded(unlocked()) if "nvidia" in name or "cuda" in name]


def test_it_is_our_list_that_keeps_them_off(host, unlocked):
    """Without it they would take the newest branch: that is what lets the test above fail."""
    host.check_output("rm /tmp/apt.conf.d/52nvidia-driver")
    assert any(name.startswith("nvidia-") for name in upgraded(unlocked()))


def test_loaded_on_disk_and_library_are_one_version(host):
    assert VERSION in host.file("/proc/driver/nvidia/version").content_string
    assert "Open Kernel Module" in host.file("/proc/driver/nvidia/version").content_string
    assert host.check_output("modinfo -F version nvidia") == VERSION
    assert host.file(f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{VERSION}").exists


def test_the_module_is_built_for_every_kernel(host):
    kernels = host.check_output("ls /boot | sed -n 's/^vmlinuz-//p'").split()
    assert len(kernels) == 2
    for kernel in kernels:
        assert host.package(f"linux-headers-{kernel}").is_installed
        assert VERSION in host.file(f"/lib/modules/{kernel}/updates/dkms/nvidia.ko").content_string


def test_nouveau_is_gone_and_out_of_every_initramfs(host):
    assert not host.file("/sys/module/nouveau").exists
    for image in host.check_output("ls /boot/initrd.img-*").split():
        assert "blacklist nouveau" in host.check_output(f"tar -xOf {image}")


def test_daemons_run_and_belong_to_the_driver(host):
    for name in ("nvidia-persistenced", "nvidia-fabricmanager"):
        assert host.service(name).is_running
        assert host.service(name).is_enabled
        told = host.check_output(f"systemctl show {name} -p ConditionResult -p After")
        assert "systemd-modules-load.service" in told


def test_the_persistence_daemon_keeps_the_driver_initialised(host):
    packaged = host.file("/usr/lib/systemd/system/nvidia-persistenced.service").content_string
    assert "--no-persistence-mode" in packaged
    started = host.check_output("systemctl show -P ExecStart nvidia-persistenced")
    assert started.count("--user nvidia-persistenced") == 1
    assert "--no-persistence-mode" not in started


def test_unified_memory_is_loaded_at_boot_and_its_nodes_are_made(host):
    host.check_output("stub-machine boot")
    assert host.file("/sys/module/nvidia_uvm").exists
    number = host.check_output("sed -n 's/ nvidia-uvm//p' /proc/devices")
    assert host.check_output("stat -c '%F %Hr %Lr %a' /dev/nvidia-uvm /dev/nvidia-uvm-tools").splitlines() == [
        f"character special file {number} 0 666",
        f"character special file {number} 1 666",
    ]


def test_the_host_tells_its_facts_itself(host):
    facts = json.loads(host.check_output("/etc/ansible/facts.d/gpu.fact"))
    assert facts["gpus"] == ["2330", "2330"]
    assert facts["driver"]["loaded"] == VERSION


def test_they_have_what_nvml_says(host):
    nvml = json.loads(host.check_output("/etc/ansible/facts.d/gpu.fact"))["nvml"]
    assert (nvml["driver"], nvml["cuda"]) == (VERSION, 13000)
    first, second = nvml["gpus"]
    assert first["uuid"] == "GPU-11111111-2222-3333-4444-555555555555"
    assert (first["name"], first["address"], first["mig"]) == ("NVIDIA H100 80GB HBM3", "0000:1b:00.0", False)
    assert first["memory_bytes"] == 85520809984
    assert [part["uuid"] for part in second["slices"]] == ["MIG-377e0049-554c-540b-93c6-d0976f8426cb"]
