"""One question instead of a role's own ones: settled says yes only where nothing that the role sees to differs."""

import importlib.util
import re
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
ROLES, PLUGINS = REPOSITORY / "roles", REPOSITORY / "plugins"


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tested_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULE = loaded(PLUGINS / "modules" / "settled.py")
ACTION = loaded(PLUGINS / "action" / "settled.py")


class Host:
    """A role's files in a folder, and what the module answers about them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.record = folder, folder / "records" / "example.json"
        (folder / "etc").mkdir()
        self.one, self.gone = folder / "etc" / "one.conf", folder / "etc" / "gone.conf"
        self.one.write_text("a = 1\n")
        self.image = folder / "image"
        self.image.write_text("")

    def ask(self, *, wanted: str = "1", check: bool = False, keep: bool = False) -> list[str]:
        asked = {
            "record": str(self.record),
            "wanted": {"version": wanted},
            "files": [f"{self.folder}/etc/one*", str(self.gone)],
            "stamps": [str(self.image)],
            "units": [],
            "packages": None,
            "keep": keep,
        }
        answer: list[str] = MODULE.answer(asked, check_mode=check)
        return answer


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(tmp_path)
    assert host.ask() == ["never"]
    host.ask(keep=True)
    assert host.ask() == []
    return host


def test_the_record_is_root_s_alone_and_holds_no_contents(host: Host) -> None:
    assert oct(host.record.stat().st_mode & 0o777) == "0o600"
    assert oct(host.record.parent.stat().st_mode & 0o777) == "0o700"
    assert "a = 1" not in host.record.read_text()


def test_what_drifted_is_named(host: Host) -> None:
    host.one.write_text("a = 2\n")
    assert host.ask() == [str(host.one)]
    host.ask(keep=True)
    host.one.chmod(0o600)
    host.gone.write_text("")
    host.image.write_text("anew")
    assert host.ask() == sorted([str(host.one), str(host.gone), f"{host.image} (age)"])


def test_a_file_more_and_a_file_less_differ(host: Host) -> None:
    more = host.folder / "etc" / "one.more"
    more.write_text("")
    assert host.ask() == [str(more)]
    more.unlink()
    host.one.unlink()
    assert host.ask() == [f"{host.folder}/etc/one*", str(host.one)]


def test_what_is_wanted_otherwise_is_named(host: Host) -> None:
    assert host.ask(wanted="2") == ["version"]


def test_check_mode_keeps_nothing(host: Host) -> None:
    before = host.record.read_bytes()
    host.ask(wanted="2", keep=True, check=True)
    assert host.record.read_bytes() == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"wanted": 1, "is": {}}', '{"wanted": {}}'])
def test_a_record_that_is_not_one_is_none(host: Host, text: str) -> None:
    host.record.write_text(text)
    assert host.ask() == ["never"]


def test_a_link_in_the_way_is_not_followed(host: Host) -> None:
    victim = host.folder / "victim"
    victim.write_text("mine")
    Path(f"{host.record}.new").symlink_to(victim)
    host.ask(wanted="2", keep=True)
    assert victim.read_text() == "mine"
    assert host.ask(wanted="2") == []


def test_versions_and_holds_of_packages_count_and_unfinished_ones_of_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "one:all\t1 hold ok installed\ntwo:all\t2 install ok half-configured\nthree:all\t3 install ok installed\n"
    MODULE.installed.cache_clear()
    monkeypatch.setattr(MODULE, "DPKG", Path(__file__))
    monkeypatch.setattr(MODULE, "RPM", ())
    monkeypatch.setattr(MODULE, "told", lambda _: rows)
    assert MODULE.packages("^one$") == {
        "unfinished work of dpkg": "0",
        "one:all": "1 hold ok installed",
        "two:all": "2 install ok half-configured",
    }


# What rpm 4.18 printed of a database with these packages; a kernel is installed beside the one before.
TOLD = {
    "dpkg-query": "bash:amd64\t5.2 install ok installed\n",
    "rpm": "kernel-core:x86_64\t5.14.0-503.el9 installed\nnvidia-driver:x86_64\t3:580.65.06-1.el9 installed\n"
    "gpg-pubkey:(none)\t8483c65d-5ccc5b19 installed\nkernel-core:x86_64\t5.14.0-570.el9 installed\n",
}


@pytest.mark.parametrize("has", [{"rpm"}, {"rpm", "dpkg-query"}, {"dpkg-query"}])
def test_rpm_is_asked_where_it_has_a_database_also_beside_dpkg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: set[str]
) -> None:
    """dpkg is a package of EPEL: a driver that was exchanged by dnf must be seen there too."""
    bin_folder, argv = tmp_path / "bin", tmp_path / "argv"
    bin_folder.mkdir()
    for program, rows in TOLD.items():
        (tmp_path / program).write_text(rows)
        script = f"#!/bin/sh\necho {program} >> {argv}\ncat {tmp_path / program}\n"
        (bin_folder / program).write_text(script)
        (bin_folder / program).chmod(0o755)
    monkeypatch.setattr(MODULE, "PATH", f"{bin_folder}:/usr/bin:/bin")
    monkeypatch.setattr(MODULE, "DPKG", tmp_path / ("dpkg-query" if "dpkg-query" in has else "none"))
    monkeypatch.setattr(MODULE, "RPM", (tmp_path / "none", tmp_path / ("rpm" if "rpm" in has else "none")))
    MODULE.installed.cache_clear()
    seen = MODULE.packages("^(nvidia|kernel)")
    seen.pop("unfinished work of dpkg")
    assert seen == (
        {
            "kernel-core:x86_64": "5.14.0-503.el9 installed, 5.14.0-570.el9 installed",
            "nvidia-driver:x86_64": "3:580.65.06-1.el9 installed",
        }
        if "rpm" in has
        else {}
    )
    assert set(argv.read_text().split()) == has


def test_another_file_of_a_role_is_another_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All plugins stand beside the roles, and any role may ask any of them."""
    monkeypatch.setattr(ACTION, "ROLES", tmp_path / "roles")
    seen = {ACTION.code("example")}
    of_roles = ("roles/preflight/tasks/ask.yml", "roles/example/tasks/main.yml", "roles/example/files/one.py")
    for number, name in enumerate((*of_roles, "plugins/modules/one.py", "plugins/filter/one.py"), start=2):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
        seen.add(ACTION.code("example"))
        assert len(seen) == number, name


# Folders that others write into too, notes of a run, and what is only looked at.
NOT_LEFT = re.compile(
    r"/(facts[.]d|libexec|[^/]*[.]service[.]d|versions[.]json)$"
    r"|^/run/|^/dev/shm$|^\{\{[^}]*\}\}$|^\{\{ nvidia_driver_state_dir|\{\{ item \}\}$"
)


@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit", "host_settings"])
def test_every_file_that_a_role_lays_down_is_among_those_that_are_compared(role: str) -> None:
    variables = yaml.safe_load((ROLES / role / "vars" / "main.yml").read_text())
    left = variables[f"{role}_left"]
    patterns = [re.sub(r"\{\{.*?\}\}", "*", pattern) for pattern in left["files"] + left.get("stamps", [])]
    laid: set[str] = set()
    for path in (ROLES / role / "tasks").glob("*.yml"):
        if path.name != "absent.yml":
            laid |= set(re.findall(r"^\s+(?:dest|path): \"?(.*?)\"?$", path.read_text(), re.MULTILINE))
    files = [name for name in laid if not NOT_LEFT.search(name)]
    assert files
    named = {name: name.replace("{{ item }}", "nvidia-x").replace("{{ item.key }}", "x") for name in files}
    assert [name for name, path in named.items() if not any(fnmatch(path, pattern) for pattern in patterns)] == []
