"""The page of the whole fleet, and the playbook that gathers its answers."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from sample import HOSTILE, diagnosis, finding

from tests.playbook import play
from tests.scenarios.loading import names, snapshot
from vllm_doctor.cli.fleet import EXAMPLES
from vllm_doctor.cli.fleet_run import gathered as written
from vllm_doctor.gather.bundle import read_bundle, write_bundle
from vllm_doctor.records.finding import Change, Diagnosis, Subject
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction, Severity, Verdict
from vllm_doctor.render.fleet import Host, fleet, page
from vllm_doctor.render.machine import dumps
from vllm_doctor.rules.engine import diagnose

BIN = Path(sys.executable).parent
REPO = Path(__file__).parents[2]


def of(host: str, *, told: Diagnosis | None = None, version: str = "0.32.0", driver: str = "580.1") -> Host:
    told = told if told is not None else diagnosis(verdict=Verdict.OK)
    facts: dict[str, object] = {"vllm_version": version, "model": "m", "driver": driver}
    subject = Subject(host=host, unit="vllm@main.service")
    return Host(host, answer=msgspec.structs.replace(told, facts=facts, subject=subject))


FLEET = [
    of("gpu01"),
    of("gpu02", told=diagnosis(finding("VD301", severity=Severity.DEGRADED))),
    of("gpu03", told=diagnosis(finding())),
    of("gpu04", told=diagnosis(finding()), version="0.31.0"),
    Host("gpu05", "unreachable", said="Connection timed out"),
]


def test_the_worst_is_first_and_causes_stand_together() -> None:
    told = fleet(FLEET, "2026-01-01T00:00:00+00:00")
    assert [row.host for row in told.services] == ["gpu03", "gpu04", "gpu02", "gpu05", "gpu01"]
    assert [(g.code, len(g.services)) for g in told.groups] == [("VD131", 2), ("VD301", 1)]
    (line,) = told.groups[0].lines
    assert line.inventory == "vllm_max_model_len: 2048"
    assert line.services == ("gpu03 vllm@main.service", "gpu04 vllm@main.service")
    assert told.counts == {"finding": 3, "unreachable": 1, "ok": 1}
    assert [(d.what, d.values[1]) for d in told.drift] == [("vLLM", ("0.31.0", ("gpu04",)))]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("env", "NCCL_NVLS_ENABLE", "0", "set", "vllm_environment"), "vllm_environment: {NCCL_NVLS_ENABLE: '0'}"),
        (("flag", "quantization", None, "remove", "vllm_quantization"), "# remove the line: vllm_quantization"),
        (("flag", "max-model-len", None, "lower", "vllm_max_model_len"), ""),  # to what, nobody knows
        (("flag", "dtype", "float16", "set", "vllm_dtype"), "vllm_dtype: float16"),
    ],
)
def test_the_line_of_the_inventory_is_the_one_that_diagnose_shows(
    change: tuple[str, str, str | None, str, str], line: str
) -> None:
    kind, name, after, direction, variable = change
    made = Change(ChangeKind(kind), name, "x", after, Direction(direction), Applicability.MANUAL, variable, {}, "why")
    told = fleet([of("gpu01", told=diagnosis(finding(changes=(made,))))], "now")
    assert told.groups[0].lines[0].inventory == line


def test_what_a_host_says_stays_text() -> None:
    told = fleet([of("gpu01", told=diagnosis(finding(title=HOSTILE))), Host("x", "failed", said=HOSTILE)], "now")
    html = page(told)
    assert "<script" not in html
    assert "\x1b" not in html
    assert "{{ 7*7 }}" in html
    assert html.isascii()


def answers(folder: Path, count: int) -> Path:
    folder.mkdir()
    for at in range(count):
        told = FLEET[at % 4].answer
        assert told is not None
        answer = json.loads(dumps(told))
        (folder / f"gpu{at:03}.json").write_text(json.dumps({"host": f"gpu{at:03}", "answer": answer}))
    return folder


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / "vllm-doctor", "fleet", *words], capture_output=True, text=True, check=False)


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    told = doctor(str(answers(tmp_path / "answers", 4)), "-o", "-")
    assert told.stdout.startswith("<!doctype html>")
    assert not Path("-").exists()


def test_a_hundred_hosts_are_one_page_in_seconds(tmp_path: Path) -> None:
    folder, began = answers(tmp_path / "answers", 100), time.process_time()
    done = doctor(str(folder), "--output", str(tmp_path / "fleet.html"))
    assert (done.returncode, done.stderr) == (1, "")
    assert time.process_time() - began < 5
    assert len((tmp_path / "fleet.html").read_bytes()) < 200_000
    assert "gpu099" in (tmp_path / "fleet.html").read_text()


def test_a_hundred_replayed_bundles_are_one_page_in_seconds(tmp_path: Path) -> None:
    """What is said of real logs is longer than a sample; handed over as playbooks/diagnose.yml does it."""
    said = {}
    for at, name in enumerate(names()[::25][:20]):
        write_bundle([snapshot(name)], tmp_path / f"{at}.tar.gz")
        replayed = read_bundle(tmp_path / f"{at}.tar.gz")
        assert isinstance(replayed, tuple)
        answer = json.loads(dumps(diagnose(replayed[0])))
        said |= {host: json.dumps({"host": host, "answer": answer}) for host in (f"gpu{at}-{n}" for n in range(5))}
    began = time.process_time()
    written(said, str(tmp_path))
    assert time.process_time() - began < 5
    told = json.loads((tmp_path / "fleet.json").read_text())["services"]
    assert len(told) == 100
    assert len({row["code"] for row in told if row["code"]}) > 5


def test_an_answer_that_is_none_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 100_000)
    (tmp_path / "b.json").write_text('{"host": 7}')
    done = doctor(str(tmp_path), "--format", "json")
    assert done.returncode == 3
    assert [row["verdict"] for row in json.loads(done.stdout)["services"]] == ["unreadable", "unreadable"]


def gathered(folder: Path) -> Path:
    """The folder as playbooks/diagnose.yml leaves it: the page, its JSON, and the answers in a folder of their own."""
    answers(folder / "answers", 4)
    for form in ("html", "json"):
        made = doctor(str(folder / "answers"), "--format", form, "--output", str(folder / f"fleet.{form}"))
        assert made.returncode == 1, made.stderr
    return folder


def test_the_first_example_of_help_makes_the_page_of_what_the_playbook_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reports").mkdir()
    folder = tmp_path / "reports" / "fleet"
    folder.mkdir()
    gathered(folder)
    monkeypatch.chdir(tmp_path)
    example = next(line for line in EXAMPLES.splitlines() if line.startswith("  vllm-doctor fleet "))
    done = doctor(*example.partition("  what")[0].split()[2:])
    assert (done.returncode, done.stderr) == (1, "")
    assert "gpu003" in (tmp_path / "fleet.html").read_text()


def test_what_a_playbook_gathered_replaces_what_an_earlier_run_did_and_is_its_users_own(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "fleet"
    said = {name: json.dumps({"host": name, "state": "drained", "said": ""}) for name in ("gpu01", "rack/gpu02")}
    written({"gone": said["gpu01"]}, str(folder))
    written(said, str(folder))
    kept = sorted((folder / "answers").iterdir())
    assert [file.name for file in kept] == ["gpu01.json", "rack%2Fgpu02.json"]
    assert {file.stat().st_mode & 0o777 for file in kept} == {0o600}
    assert (folder / "answers").stat().st_mode & 0o777 == 0o700
    told = json.loads((folder / "fleet.json").read_text())
    assert sorted(row["host"] for row in told["services"]) == ["gpu01", "rack/gpu02"]
    assert "rack/gpu02" in (folder / "fleet.html").read_text()


def test_answers_that_are_a_link_are_written_into_a_folder_of_our_own(tmp_path: Path) -> None:
    (tmp_path / "anothers").mkdir()
    (tmp_path / "anothers" / "file.json").write_text("{}")
    (tmp_path / "answers").symlink_to("anothers")
    written({"gpu01": json.dumps({"host": "gpu01", "state": "drained", "said": ""})}, str(tmp_path))
    assert (tmp_path / "anothers" / "file.json").exists()
    assert not (tmp_path / "answers").is_symlink()


def test_its_own_page_is_no_answer_and_where_the_answers_are_is_said(tmp_path: Path) -> None:
    folder = gathered(tmp_path)
    done = doctor(str(folder))
    assert done.returncode == 2
    assert f"{folder / 'fleet.json'}: this is the page of fleet itself" in done.stderr
    assert f"name {folder / 'answers'}" in done.stderr
    (folder / "answers").rename(folder / "elsewhere")
    assert "name the answers that the page was made of" in doctor(str(folder / "fleet.json")).stderr


@pytest.mark.parametrize("words", [["/nowhere"], ["--format", "html"]])
def test_without_an_answer_it_is_a_usage_error(words: list[str]) -> None:
    done = doctor(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_playbook_goes_on_without_a_host_and_fails_at_its_end(tmp_path: Path) -> None:
    """Two hosts of this machine, each with a doctor that says what the test wants, and one that nobody reaches."""
    for name, told, code in (("well", FLEET[0], 0), ("ill", FLEET[2], 1)):
        assert told.answer is not None
        place = tmp_path / name
        place.mkdir()
        (place / "answer.json").write_text(dumps(told.answer))
        said = f'[ "$2" = --format ] && cat {place}/answer.json || echo FINDING for people\nexit {code}\n'
        (place / "vllm-doctor").write_text(f"#!/bin/sh\n{said}")
        (place / "vllm-doctor").chmod(0o755)
    hosts = "".join(
        f"    {name}:\n      ansible_connection: local\n      ansible_python_interpreter: {sys.executable}\n"
        f"      site_environment: {{PATH: '{tmp_path / name}:{os.environ['PATH']}'}}\n"
        for name in ("well", "ill")
    )
    gone = "    gone: {ansible_host: 127.0.0.1, ansible_port: 9, ansible_ssh_common_args: -o ConnectTimeout=2}\n"
    (tmp_path / "hosts.yml").write_text(f"vllm:\n  hosts:\n{hosts}{gone}")
    words = ["-i", str(tmp_path / "hosts.yml"), "playbooks/diagnose.yml", "-e", f"site_reports={tmp_path / 'reports'}"]
    done = play(words)
    output = done.stdout + done.stderr
    assert done.returncode != 0, output
    assert "FINDING for people" in output, output
    assert "gone does not answer" in output, output
    told = json.loads((tmp_path / "reports/fleet/fleet.json").read_text())
    assert [(row["host"], row["verdict"]) for row in told["services"]] == [
        ("ill", "finding"),
        ("gone", "unreachable"),
        ("well", "ok"),
    ]
    assert "vllm@main.service: ok" in output


def test_an_advice_is_shown_and_fails_nothing(tmp_path: Path) -> None:
    """The doctor itself judges by --fail-on; what it then says is in the run's output."""
    told = of("well", told=diagnosis(finding("VD910", severity=Severity.ADVICE, title="An advice"))).answer
    assert told is not None
    (tmp_path / "answer.json").write_text(dumps(told))
    asked = '[ "$4" = --fail-on=degraded ] || exit 9'
    (tmp_path / "vllm-doctor").write_text(f"#!/bin/sh\n{asked}\ncat {tmp_path}/answer.json\n")
    (tmp_path / "vllm-doctor").chmod(0o755)
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    path = {"site_environment": {"PATH": f"{tmp_path}:{os.environ['PATH']}"}}
    (tmp_path / "hosts.yml").write_text(json.dumps({"vllm": {"hosts": {"well": here | path}}}))
    words = ["-i", str(tmp_path / "hosts.yml"), "playbooks/diagnose.yml", "-e", f"site_reports={tmp_path / 'reports'}"]
    done = play(words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VD910 An advice" in done.stdout


def test_a_name_that_no_host_has_is_cut() -> None:
    told = fleet(
        [of("g" * 1_000_000, told=diagnosis(finding())), Host("h" * 1_000_000, "failed", said="x" * 9999)], "now"
    )
    assert len(msgspec.json.encode(told)) < 8_000


@pytest.mark.parametrize("writable", [True, False])
def test_an_ansible_without_a_doctor_of_its_own_makes_the_page_and_one_that_cannot_fails_nobody(
    tmp_path: Path, writable: bool
) -> None:
    env, told = tmp_path / "env", FLEET[0].answer
    assert told is not None
    (env / "bin").mkdir(parents=True)
    (env / "pyvenv.cfg").write_text((BIN.parent / "pyvenv.cfg").read_text())
    (env / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (env / "lib").symlink_to(BIN.parent / "lib")
    (tmp_path / "answer.json").write_text(dumps(told))
    (tmp_path / "vllm-doctor").write_text(f"#!/bin/sh\ncat {tmp_path}/answer.json\n")
    (tmp_path / "vllm-doctor").chmod(0o755)
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    path = {"site_environment": {"PATH": f"{tmp_path}:{os.environ['PATH']}"}}
    (tmp_path / "hosts.yml").write_text(json.dumps({"vllm": {"hosts": {"well": here | path}}}))
    reports = tmp_path / "reports"
    if not writable:
        reports.write_text("a file, no folder")
    words = ["-i", str(tmp_path / "hosts.yml"), "playbooks/diagnose.yml", "-e", f"site_reports={reports}"]
    asked = [env / "bin" / "python", "-m", "ansible", "playbook", *words]
    play = subprocess.run(asked, cwd=REPO, capture_output=True, text=True, check=False)
    assert play.returncode == 0, play.stdout + play.stderr
    if writable:
        assert "well" in (reports / "fleet" / "fleet.html").read_text()
    assert ("was not written, which fails nobody: " in play.stdout) is not writable, play.stdout
