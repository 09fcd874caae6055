"""The facts module, on file trees as hosts have them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from vllm_doctor.preflight.intent import host
from vllm_doctor.preflight.judged import Headers

MODULE = Path(__file__).resolve().parents[2] / "plugins/modules/preflight_facts.py"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build  (dvs@host)\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Wed Jul  2 00:00:00 UTC 2025\n"


@pytest.fixture(scope="module")
def facts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("preflight_facts", MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plant(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def device(slot: int, vendor: str, number: str, kind: str) -> dict[str, str]:
    base = f"sys/bus/pci/devices/0000:{slot:02x}:00.0"
    return {f"{base}/vendor": f"{vendor}\n", f"{base}/device": f"{number}\n", f"{base}/class": f"{kind}\n"}


def test_gpus_and_switches_are_told_apart_before_any_driver(facts: ModuleType, tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            **device(1, "0x10de", "0x2330", "0x030200"),
            **device(2, "0x10de", "0x22a3", "0x068000"),
            **device(3, "0x10de", "0x22ba", "0x040300"),  # the sound function of a card
            **device(4, "0x8086", "0x2330", "0x030000"),
        },
    )
    answer = facts.collect(root)
    assert (answer["gpus"], answer["switches"]) == (["2330"], ["22a3"])


def test_a_host_without_a_bus_says_so(facts: ModuleType, tmp_path: Path) -> None:
    assert facts.collect(str(tmp_path))["gpus"] is None


@pytest.mark.parametrize(
    ("text", "version", "flavour"), [(OPEN, "580.105.08", "open"), (CLOSED, "535.261.03", "proprietary")]
)
def test_loaded_driver(facts: ModuleType, tmp_path: Path, text: str, version: str, flavour: str) -> None:
    root = plant(tmp_path, {"proc/driver/nvidia/version": text})
    answer = facts.collect(root)["driver"]
    assert (answer["loaded"], answer["flavour"]) == (version, flavour)


def test_kernels_and_headers(facts: ModuleType, tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "proc/sys/kernel/osrelease": "6.1.0-9-amd64\n",
            "boot/vmlinuz-6.1.0-9-amd64": "",
            "boot/vmlinuz-6.1.0-40-amd64": "",
            "boot/vmlinuz-0-rescue-abc": "",
            "lib/modules/6.1.0-9-amd64/build/Makefile": "",
        },
    )
    kernel = facts.collect(root)["kernel"]
    assert kernel["default"] == "6.1.0-40-amd64"  # by number, not by letter
    assert kernel["headers"] == {"6.1.0-9-amd64": "installed", "6.1.0-40-amd64": "unknown"}


@pytest.mark.parametrize(("byte", "on"), [("\x01", True), ("\x00", False)])
def test_secure_boot(facts: ModuleType, tmp_path: Path, byte: str, on: bool) -> None:
    name = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    assert facts.collect(plant(tmp_path, {name: "\x06\0\0\0" + byte}))["secure_boot"]["enabled"] is on


def test_legacy_boot_has_no_secure_boot(facts: ModuleType, tmp_path: Path) -> None:
    assert facts.collect(plant(tmp_path, {"sys/firmware/acpi/x": ""}))["secure_boot"]["enabled"] is False


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("nvidia.sources", "Types: deb\nURIs: https://developer.download.nvidia.com/a\nSuites: /\n", 1),
        ("nvidia.sources", "Enabled: no\nTypes: deb\nURIs: https://developer.download.nvidia.com/a\n", 0),
        ("cuda.list", "deb [signed-by=/k] https://developer.download.nvidia.com/a /\n", 1),
        ("cuda.list", "# deb https://developer.download.nvidia.com/a /\n", 0),
        ("mirror.list", "deb https://mirror.example/nvidia /\n", 1),
    ],
)
def test_apt_sources(facts: ModuleType, tmp_path: Path, name: str, text: str, count: int) -> None:
    root = plant(tmp_path, {f"etc/apt/sources.list.d/{name}": text})
    rows = facts.collect(root, repository_uris=["https://mirror.example/nvidia"])["repositories"]
    assert [row["owner"] for row in rows] == ["nvidia"] * count


def test_yum_repositories(facts: ModuleType, tmp_path: Path) -> None:
    text = "[base]\nbaseurl=https://mirror.rockylinux.org/x\n[cuda]\nbaseurl=https://developer.download.nvidia.com/y\n"
    (row,) = facts.collect(plant(tmp_path, {"etc/yum.repos.d/cuda.repo": text}))["repositories"]
    assert row == {
        "owner": "nvidia",
        "file": "/etc/yum.repos.d/cuda.repo",
        "uri": "https://developer.download.nvidia.com/y",
    }


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "debian-12"),
        ('ID=ubuntu\nVERSION_ID="22.04"\nID_LIKE=debian\n', "ubuntu-22.04"),
        ('ID="rocky"\nVERSION_ID="9.5"\nID_LIKE="rhel centos fedora"\n', "rhel-9"),
    ],
)
def test_platform(facts: ModuleType, tmp_path: Path, text: str, name: str) -> None:
    assert facts.collect(plant(tmp_path, {"etc/os-release": text}))["platform"] == name


def test_listener_of_a_port(facts: ModuleType, tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "proc/net/tcp": "head\n 0: 00000000:1F40 00000000:0000 0A 0:0 0:0 0 0 0 4242 1\n",
            "proc/77/cgroup": "0::/system.slice/nginx.service\n",
            "proc/77/comm": "nginx\n",
            "proc/77/fd/x": "",
        },
    )
    (tmp_path / "proc/77/fd/3").symlink_to("socket:[4242]")
    (tmp_path / "proc/77/fd/x").unlink()
    assert facts.collect(root, ports=[8000, 9000])["listening"] == [{"port": 8000, "name": "nginx.service"}]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("nvidia-open-580", True),
        ("libnvidia-ml1", True),
        ("libcuda1", True),
        ("cuda-drivers", True),
        ("linux-modules-nvidia-580-open-generic", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("cuda-toolkit-13-0", False),
    ],
)
def test_what_belongs_to_the_driver_stack(facts: ModuleType, name: str, ours: bool) -> None:
    assert bool(facts.STACK.match(name) and not facts.NOT_STACK.match(name)) is ours


def test_the_answer_becomes_a_record(facts: ModuleType, tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            **device(1, "0x10de", "0x2330", "0x030200"),
            "proc/sys/kernel/osrelease": "6.1.0-9-amd64\n",
            "proc/meminfo": "MemTotal:       16777216 kB\n",
        },
    )
    record = host(facts.collect(root, paths=["/opt"]))
    assert record.gpus == ("2330",)
    assert record.headers == (("6.1.0-9-amd64", Headers.UNKNOWN),)
    assert record.memory_gib == 16.0
    assert [disk.path for disk in record.disk] == ["/opt"]


def test_an_empty_answer_is_all_unknown() -> None:
    record = host({})
    assert (record.gpus, record.secure_boot, record.repositories, record.listening) == (None, None, None, None)


def test_configs_of_models_are_read_and_what_is_none_is_left_out(facts: ModuleType, tmp_path: Path) -> None:
    for name, text in (("good", "{}"), ("huge", " " * (1 << 20))):
        (tmp_path / "srv" / name).mkdir(parents=True)
        (tmp_path / "srv" / name / "config.json").write_text(text)
    answer = facts.collect(str(tmp_path), models=["/srv/good", "/srv/huge", "/srv/absent"])
    assert answer["models"] == {"/srv/good": "{}"}
    assert answer["models_absent"] == ["/srv/absent"]


def test_a_mirror_in_the_file_that_our_own_role_wrote_is_nobody_elses(facts: ModuleType, tmp_path: Path) -> None:
    mirror = "Types: deb\nURIs: https://mirror.example/cuda/\nSuites: ./\n"
    root = plant(tmp_path, {"etc/apt/sources.list.d/nvidia-driver.sources": mirror})
    told = facts.collect(root)["repositories"]
    assert [(row["owner"], row["uri"]) for row in told] == [("nvidia", "https://mirror.example/cuda")]


def test_the_same_in_the_file_of_somebody_else_is_not_ours(facts: ModuleType, tmp_path: Path) -> None:
    root = plant(tmp_path, {"etc/yum.repos.d/x.repo": "[x]\nbaseurl = https://mirror.example/cuda\n"})
    assert facts.collect(root)["repositories"] == []
    root = plant(tmp_path, {"etc/yum.repos.d/nvidia-driver.repo": "[x]\nbaseurl = https://mirror.example/cuda\n"})
    assert [row["owner"] for row in facts.collect(root)["repositories"]] == ["nvidia", "nvidia"]


def test_what_computes_is_named_by_its_unit_and_monitoring_does_not_count(facts: ModuleType, tmp_path: Path) -> None:
    held = {"41": "/dev/nvidia-uvm", "42": "/dev/nvidia-uvm", "43": "/dev/nvidiactl"}
    cgroups = {"41": "0::/system.slice/docker-1f2e.scope\n", "42": "0::/\n", "43": "0::/system.slice/dcgm.service\n"}
    for pid, path in held.items():
        plant(tmp_path, {f"proc/{pid}/cgroup": cgroups[pid], f"proc/{pid}/comm": "python\n"})
        (tmp_path / "proc" / pid / "fd").mkdir()
        (tmp_path / "proc" / pid / "fd" / "7").symlink_to(path)
    assert facts.collect(str(tmp_path))["computing"] == ["docker-1f2e.scope", "python (process 42)"]


def test_a_boot_is_that_of_a_machine_and_a_container(facts: ModuleType, tmp_path: Path) -> None:
    told = ("etc/machine-id", "proc/sys/kernel/random/boot_id", "proc/sys/kernel/hostname")
    first = facts.boot(plant(tmp_path / "a", dict.fromkeys(told, "one\n")))
    assert first == facts.boot(plant(tmp_path / "b", dict.fromkeys(told, "one\n")))
    others = {facts.boot(plant(tmp_path / name, dict.fromkeys(told, "one\n") | {name: "two\n"})) for name in told}
    assert len(others - {first, None}) == 3
    assert "one" not in first
    assert facts.boot(plant(tmp_path / "c", dict.fromkeys(told[1:], "one\n"))) is None
