"""Two runs at once on one host: the second is refused before it changes anything; the first lets go however it ends."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.preflight.test_by_facts import GH200, judged
from tests.preflight.test_settled import loaded
from tests.preflight.test_site import REPOSITORY, run

LOCK: ModuleType = loaded(REPOSITORY / "plugins" / "module_utils" / "run_lock.py")
ANNA, BERT = ({"run": name, "playbook": "site.yml", "who": f"{name}@deploy01"} for name in ("anna", "bert"))


def take(folder: Path, who: dict[str, str], now: float, *, only_look: bool = False) -> tuple[str | None, bool]:
    """(the run that has the host, whether it was taken)."""
    told = LOCK.take(who, folder=folder, now=now, only_look=only_look)
    return told["other"] and told["other"]["run"], told["taken"]


def test_a_host_is_one_runs_at_a_time(tmp_path: Path) -> None:
    host = tmp_path / "not" / "yet"
    assert take(host, ANNA, 1000) == (None, True)
    assert take(host, BERT, 1001) == ("anna", False)
    assert take(host, ANNA, 1002) == (None, False)  # another of its plays
    assert (host.stat().st_mode & 0o777, (host / "run.json").stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_lock_that_nobody_renews_ends_by_itself(tmp_path: Path) -> None:
    take(tmp_path, ANNA, 1000)
    assert LOCK.take(BERT, folder=tmp_path, now=1600, only_look=True)["other"]["ends_in"] == 300
    assert take(tmp_path, BERT, 1000 + LOCK.LEASE_S) == (None, True)
    assert take(tmp_path, ANNA, 1000 + LOCK.LEASE_S) == ("bert", False)


@pytest.mark.parametrize("now", [999, 1000 + 900 + 1])
def test_a_clock_that_was_set_makes_no_lock_that_lasts(tmp_path: Path, now: float) -> None:
    take(tmp_path, ANNA, 1000)
    assert take(tmp_path, BERT, now) == (None, True)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"who": "x"}'])
def test_what_is_no_lock_locks_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    now = (tmp_path / "run.json").stat().st_mtime
    assert take(tmp_path, BERT, now) == (None, True)


def test_looking_takes_nothing(tmp_path: Path) -> None:
    host = tmp_path / "bare"
    assert take(host, ANNA, 1000, only_look=True) == (None, False)
    assert not host.exists()
    take(host, BERT, 1000)
    assert take(host, ANNA, 1000, only_look=True) == ("bert", False)


def test_the_lease_is_the_same_on_both_sides() -> None:
    from vllm_doctor.preflight import running

    assert (running.FOLDER, running.LEASE_S) == (LOCK.FOLDER, LOCK.LEASE_S)
    assert running.LEASE_S > 5 * running.RENEW_S  # a restart of the host, and more than one that is lost


# A run that takes a host, which is a folder, and ends. Its keeper tells each script that it has run into a named pipe.
PROGRAM = """
import os, signal, subprocess, sys
from vllm_doctor.preflight import running
folder, told, end = sys.argv[1:]
def shell(script):
    code = subprocess.run(["sh", "-c", script]).returncode
    with open(told, "w") as out:
        out.write("released" if "rm -f" in script else "renewed")
    return code
running.begin("site.yml")
open(folder + "/run.json", "w").write(running.current().run)
os.utime(folder + "/run.json", (1, 1))
running.keep(shell, folder, every=0 if end == "renew" else 1000)
if end == "renew":
    sys.stdin.read()
elif end == "raise":
    raise SystemExit(2)
elif end.isdigit():
    os.kill(os.getpid(), int(end))
"""


class Keeper:
    """What a keeper tells through a named pipe."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / "told")
        self.pipe = os.open(folder / "told", os.O_RDWR | os.O_NONBLOCK)

    def told(self, word: str) -> bool:
        """Whether it has told this word; not waited for in vain."""
        text = ""
        while word not in text and select.select([self.pipe], [], [], 120)[0]:
            text += os.read(self.pipe, 4096).decode()
        return word in text


@pytest.mark.parametrize("end", ["return", "raise", str(int(signal.SIGINT)), str(int(signal.SIGKILL))])
@pytest.mark.parametrize("mine", [True, False])
def test_a_run_lets_go_of_what_is_its_own_however_it_ends(tmp_path: Path, end: str, mine: bool) -> None:
    keeper, host = Keeper(tmp_path), tmp_path / "host"
    host.mkdir()
    program = PROGRAM if mine else PROGRAM.replace("write(running.current().run)", "write('another run')")
    command = [sys.executable, "-c", program, host, tmp_path / "told", end]
    subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
    assert keeper.told("released")
    assert host.exists() is not mine


def test_a_run_renews_what_it_has(tmp_path: Path) -> None:
    keeper, host = Keeper(tmp_path), tmp_path / "host"
    host.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, host, tmp_path / "told", "renew"], stdin=subprocess.PIPE
    ) as child:
        assert keeper.told("renewed")
        assert (host / "run.json").stat().st_mtime > 1
        child.communicate()
    assert keeper.told("released")


def playbook(folder: Path, *tasks: dict[str, object]) -> Path:
    """A playbook that takes a folder in place of the host's."""
    first = {"vllm_doctor.hosts.run_lock": {"folder": str(folder / "host" / "locks")}}
    play = {
        "hosts": "{{ 'all' | vllm_doctor.hosts.preflight_in_order }}",
        "gather_facts": False,
        "tasks": [first, *tasks],
    }
    path = folder / f"with_{len(tasks)}.yml"
    path.write_text(yaml.safe_dump([play]))
    (folder / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"hosts": {"a": {"ansible_connection": "local", "site_reports": ""}}}})
    )
    return path


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Play a run that plays two others on its host, one of them with --check, and then fails: (folder, both)."""
    folder = tmp_path_factory.mktemp("beside")
    program = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(folder / "hosts.yml")]
    second = str(playbook(folder))
    tasks: list[dict[str, object]] = [
        {
            "ansible.builtin.shell": {"cmd": f"{' '.join([*program, second, *words])} > {folder}/{name} 2>&1"},
            "ignore_errors": True,
        }
        for name, words in (("real", []), ("check", ["--check"]))
    ]
    run(folder / "hosts.yml", playbook=playbook(folder, *tasks, {"ansible.builtin.fail": {}}))
    return folder, *(" ".join((folder / name).read_text().split()) for name in ("real", "check"))


def test_a_second_run_is_refused_and_says_whose_the_first_is(beside: tuple[Path, str, str]) -> None:
    _, real, _ = beside
    assert "failed=1" in real
    assert "Another run has this host: with_3.yml of " in real
    assert "if that process is gone, its lock ends in 15 min, or now with `rm " in real


def test_a_rehearsal_is_not_refused_but_told(beside: tuple[Path, str, str]) -> None:
    _, _, check = beside
    assert "failed=0" in check
    assert "[WARNING]: a: Another run has this host: with_3.yml of " in check


def test_a_run_that_fails_leaves_nothing_behind(beside: tuple[Path, str, str]) -> None:
    folder, _, _ = beside
    assert [path.name for path in (folder / "host").iterdir()] == []


OTHER = {
    "playbook": "site.yml",
    "who": "anna@deploy01",
    "process": 4711,
    "since": "2026-11-26 20:03:11 UTC",
    "ends_in": 841,
}


@pytest.mark.parametrize(("words", "says"), [((), "1 of 1 hosts refused"), (("--check",), "none refused")])
def test_the_judge_of_site_yml_refuses_it_in_its_table(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    said = " ".join(judged(tmp_path, GH200, run={"other": OTHER}, words=words).split())
    assert says in said
    for part in ("another run", "site.yml of anna@deploy01,", "its lock ends in 15 min"):
        assert part in said


def plays(path: Path) -> list[dict[str, object]]:
    """The plays of a playbook, with those of the ones that it imports."""
    found: list[dict[str, object]] = []
    for play in yaml.safe_load(path.read_text()):
        imported = play.get("ansible.builtin.import_playbook")
        found += plays(path.parent / imported) if imported else [play]
    return found


READS = {"diagnose.yml", "export_monitoring.yml"}


@pytest.mark.parametrize("path", sorted((REPOSITORY / "playbooks").glob("*.yml")), ids=lambda path: path.name)
def test_every_playbook_that_changes_a_host_takes_it(path: Path) -> None:
    text = json.dumps(plays(path))
    assert ("vllm_doctor.hosts.run_lock" in text or '"__preflight_locks": true' in text) is (path.name not in READS)
