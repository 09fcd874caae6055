"""Two hundred canaries, by every source and in every format: none comes through. canaries.yaml says what they are."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.gather.test_live import host, lines
from vllm_doctor.cli import streams
from vllm_doctor.cli.main import run
from vllm_doctor.gather import live, processes
from vllm_doctor.gather.bundle import read_bundle, write_bundle
from vllm_doctor.records.finding import Arithmetic, Change, Diagnosis, Evidence, Finding, Missing, Step, Subject
from vllm_doctor.records.host import Kernel, KernelEvent, Launch, Metrics, Sample, Scrape
from vllm_doctor.records.log import Log, LogLine, RunLines
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import (
    Applicability,
    Cause,
    ChangeKind,
    Confidence,
    Direction,
    Phase,
    Severity,
    Verdict,
)
from vllm_doctor.redact.lines import Lines
from vllm_doctor.redact.text import HIDDEN, without_secrets
from vllm_doctor.rules import engine

SPECIES = yaml.safe_load(Path(__file__).with_name("canaries.yaml").read_text(encoding="utf-8"))
FORMATS = ("human", "json", "html", "prometheus")
# Pieces of the canaries that are what they are by their shape.
MARKS = ("cAnArY", "anary", "CANARY", "c0ffee", "Q2Fu")


def sung(species: str) -> list[str]:
    """The lines of a species, each with a canary of its own."""
    told = []
    for number, line in enumerate(SPECIES[species]):
        canary = f"cAnArY{number}xQ7"
        # An address ends in the `@` that follows the canary.
        address = line.replace("@@@", f"@{canary}\0").replace("@@", f"{canary}\0") if "://" in line else line
        told.append(address.replace("@", canary).replace("\0", "@") if "\0" in address else line.replace("@", canary))
    return told


ALL = [*sung("named"), *sung("asked"), *(f"cannot load {shape} from hub" for shape in SPECIES["shapes"])]


def heard(text: str) -> list[str]:
    """The canaries that can still be heard, a line each."""
    return [line for line in text.splitlines() if any(mark in line for mark in MARKS)]


def test_there_are_as_many_as_were_promised() -> None:
    assert sum(len(lines) for lines in SPECIES.values()) >= 181


@pytest.mark.parametrize("line", ALL)
def test_none_is_heard_in_its_line(line: str) -> None:
    assert heard(Lines().scrub(f"INFO 01-01 00:00:00 [a.py:1] {line}")) == []


@pytest.mark.parametrize("line", [*sung("named"), *SPECIES["shapes"]])
def test_the_last_net_holds_what_a_renderer_forgot(line: str) -> None:
    assert heard(without_secrets(f"{line}\n")) == []


def poisoned() -> Diagnosis:
    """An answer in which every text is a canary's."""
    evidence = tuple(Evidence("log", f"log line {text}", text, None) for text in ALL)
    arithmetic = tuple(Arithmetic(text, 1.0, "GiB", text, text) for text in ALL[::5])
    change = Change(ChangeKind.FLAG, "api-key", "cAnArYold7", "cAnArYnew7", Direction.CHANGE, Applicability.MANUAL)
    deeds = tuple(
        msgspec.structs.replace(change, name="max-model-len", before=text, after=text, why=text, command=text)
        for text in ALL[::5]
    )
    found = Finding(
        code="VD121",
        cause=Cause.OTHER,
        phase=Phase.NOT_MEMORY,
        title=ALL[0],
        severity=Severity.BLOCKS_START,
        confidence=Confidence.CONFIRMED,
        evidence=evidence,
        refute=ALL[1],
        arithmetic=arithmetic,
        changes=(change, *deeds),
    )
    others = [msgspec.structs.replace(found, title=text, evidence=(), changes=(), arithmetic=()) for text in ALL[::9]]
    return Diagnosis(
        verdict=Verdict.FINDING,
        phase=Phase.NOT_MEMORY,
        findings=(found, *others),
        path=tuple(Step("verdict", text, text, text) for text in ALL),
        unknown=tuple(Missing("log", text, text) for text in ALL),
        subject=Subject(unit="vllm.service"),
        facts={f"log_note_{n}": f"judged {text}" for n, text in enumerate(ALL)} | {"hf_token": "cAnArYfact"},
    )


@pytest.mark.parametrize("output", FORMATS)
def test_none_leaves_in_an_answer(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "judged", lambda _snapshot, **_asked: poisoned())
    (tmp_path / "log").write_text("INFO x\n")
    code = run(["diagnose", "--log", str(tmp_path / "log"), "--format", output])
    told = capsys.readouterr()
    assert (code, heard(told.out), heard(told.err)) == (1, [], [])
    if output == "json":
        changes = json.loads(told.out)["findings"][0]["changes"]
        assert (changes[0]["from"], changes[0]["to"]) == (HIDDEN, HIDDEN)
        assert "put your own" in changes[0]["why"], "it says that something was hidden"
    run(["diagnose", "--log", str(tmp_path / "log"), "--format", output, "-o", str(tmp_path / "out")])
    assert heard((tmp_path / "out").read_text()) == []


TRACE = """\
INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.10.0
INFO 01-01 00:00:00 [api_server.py:1] non-default args: {'model': 'm', 'api_key': ['cAnArYk1', 'cAnArYk2']}
Traceback (most recent call last):
  File "/x/vllm/a.py", line 1, in f
ValueError: cannot load hf_CanaryCanaryCanaryCanary42, DB_PASS=cAnArYpass and cAnArYk2 from hub
"""
PAGE = 'vllm:num_requests_running{engine="0",secret="cAnArYlabel",api_key="cAnArYkey"} 1.0\n'
KERNEL = "[ 1.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=x --api-key cAnArYkernel\n"
SMI = "GPU 00000000:3B:00.0\n    Product Name : hf_CanaryCanaryCanaryCanary42\n"
CONFIG = '{"model_type": "llama", "auth_token": "cAnArYconfig", "hidden_size": "hf_CanaryCanaryCanaryCanary42"}'
LAUNCH = "HF_TOKEN=cAnArYtoken vllm serve m --api-key cAnArYk1 cAnArYk2 --no-such-option sk-CanaryCanary42CanaryCanary"
FILES = {"log": TRACE, "page": PAGE, "kernel": KERNEL, "smi": SMI, "config.json": CONFIG}
HERE = [
    *(
        ["diagnose", *given, "--format", output]
        for output in FORMATS
        for given in (
            ["--log", "log", "--kernel-log", "kernel", "--metrics", "page", "--nvidia-smi", "smi"],
            ["--launch", LAUNCH, "--vllm-version", "0.32.0", "--model-config", "config.json", "--gpu", "NVIDIA L4"],
        )
    ),
    ["diagnose", "--log", "none/hf_CanaryCanaryCanaryCanary42"],
    ["diagnose", "--launch", "vllm serve 'm --api-key cAnArYk1"],
    ["diagnose", "--no-such-option=hf_CanaryCanaryCanaryCanary42"],
    ["diagnose", "hf_CanaryCanaryCanaryCanary42"],
    ["diagnose", "--from", "hf_CanaryCanaryCanaryCanary42"],
    ["explain", "hf_CanaryCanaryCanaryCanary42"],
    ["explain", "VD121", "--vllm-version", "api_key=cAnArYversion"],
    ["fragmentation", "--metrics", "page"],
    ["fragmentation", "--metrics", "page", "--format", "json"],
    *(
        ["plan", "--gpu", "L4", "--vllm-version=0.32.0", "--model-config=config.json", *more, "--", *LAUNCH.split()]
        for more in ([], ["--format", "json"], ["--explain"], ["--learn", "log"])
    ),
    ["plan", "--gpu", "hf_CanaryCanaryCanaryCanary42", "--vllm-version", "0.32.0", "--", "vllm", "serve", "m"],
    ["tune", "--unit", "hf_CanaryCanaryCanaryCanary42", "--dry-run"],
    ["bundle", "-o", "none/hf_CanaryCanaryCanaryCanary42"],
    ["recover", "--unit", "hf_CanaryCanaryCanaryCanary42", "--dry-run"],
    ["debug", "on", "--unit", "hf_CanaryCanaryCanaryCanary42", "--dry-run"],
    ["debug", "on", "--unit", "vllm@main", "--for", "hf_CanaryCanaryCanaryCanary42"],
    ["history", "--unit", "hf_CanaryCanaryCanaryCanary42"],
    ["history", "--since", "hf_CanaryCanaryCanaryCanary42"],
    ["watch", "--once", "--unit", "hf_CanaryCanaryCanaryCanary42"],
    ["watch", "--once", "--url", "http://me:hf_CanaryCanaryCanaryCanary42@127.0.0.1:9"],
    ["guard", "--once", "--policy", "hf_CanaryCanaryCanaryCanary42"],
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text("#!/bin/sh\nexit 0\n")
    systemctl.chmod(0o755)
    monkeypatch.setattr(processes, "PATH", f"{systemctl.parent}:{processes.PATH}")
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", HERE, ids=lambda words: " ".join(words)[:60])
@pytest.mark.usefixtures("here")
def test_none_leaves_by_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(words)
    told = capsys.readouterr()
    assert told.out + told.err
    assert heard(told.out + told.err) == []


def test_a_key_that_the_launch_names_is_not_heard_where_it_stands_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["diagnose", "--log", str(here / "log")])
    said = capsys.readouterr().out
    assert f"DB_PASS={HIDDEN} and {HIDDEN} from hub" in " ".join(said.split())


def files(path: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            yield member.name, (tar.extractfile(member) or io.BytesIO()).read().decode()


def test_none_leaves_in_a_bundle(tmp_path: Path) -> None:
    texts = [*ALL, *(text for text, _ in SPECIES["identities"])]
    log = Log("journal", RunLines(tuple(LogLine(n, text, excerpt=f"vllm: {text}") for n, text in enumerate(texts))))
    labels = {"secret": "cAnArYlabel", "route": "token=cAnArYroute", "user": "alice"}
    shot = Snapshot(
        taken_at="2026-01-01T00:00:00+00:00",
        subject=Subject(host="gpu-node-7.rack4.canary.example", unit="vllm.service"),
        log=Known(log, "journal"),
        kernel=Known(Kernel(tuple(KernelEvent(text) for text in texts)), "journalctl"),
        launch=Known(Launch(("vllm", "serve"), "m", {"api-key": "cAnArYflag"}, {"DB_PASS": "cAnArYenv"}), "/proc"),
        metrics=Known(Metrics("http://127.0.0.1:8000", (Scrape(1.0, (Sample("vllm:x", labels, 1.0),)),)), "m"),
        model_config=Known({"auth_token": "cAnArYconfig", "nested": [{"api_keys": ["cAnArYa", "cAnArYb"]}]}, "c"),
    )
    path = tmp_path / "b"
    diagnosis = engine.diagnose(shot)
    ledger = write_bundle([shot], path, [diagnosis])
    for name, told in files(path):
        assert heard(told) == [], name
        low = told.lower()
        assert [text for text, what in SPECIES["identities"] if what.lower() in low and what != "fedcba98"] == [], name
    assert sum(entry.count for entry in ledger) > 2 * len(ALL)
    read = read_bundle(path)
    assert not isinstance(read, Unknown)
    assert engine.diagnose(read[0]).verdict is diagnosis.verdict


def test_none_leaves_a_host_by_its_unit_s_environment(
    tmp_path: Path, on_path: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Names in the unit and in its file; the journal says their values where no name stands beside them."""
    (tmp_path / "secrets").write_text("MYSQL_PWD=cAnArYfile7\nODD_THING='cAnArY odd 7'\n")
    host(on_path, journal=lines(tmp_path, "vllm: cAnArYunit7 and cAnArY odd 7", "ValueError: cannot open cAnArYfile7"))
    given = "Environment=DB_PASS=cAnArYunit7 VLLM_X_PWD=cAnArYpwd7 VLLM_S3_KEY=cAnArYs3"
    from_file = f"EnvironmentFiles={tmp_path / 'secrets'} (ignore_errors=no)"
    on_path("dmesg", "echo '[    1.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=cAnArYfile7, Ch 00000008'")
    journalctl = tmp_path / "bin" / "journalctl"
    journalctl.write_text(journalctl.read_text().replace('case "$*"', 'case "$*" in *-k*) exit 1;; esac; case "$*"'))
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.write_text(systemctl.read_text().replace("MainPID=0", f"MainPID=0\n{given}\n{from_file}"))
    for words in (["diagnose"], ["diagnose", "--format", "json"], ["bundle", "-o", str(tmp_path / "b")]):
        run(words)
        told = capsys.readouterr()
        assert heard(told.out + told.err) == []
    snapshot = dict(files(tmp_path / "b"))["snapshots.json"]
    assert "cannot open [hidden]" in snapshot
    assert "name=[hidden], Ch 00000008" in snapshot
    assert heard(gzip.decompress((tmp_path / "b").read_bytes()).decode()) == []


def test_whatever_is_written_passes_the_guard(capsys: pytest.CaptureFixture[str]) -> None:
    with streams.guarded():
        print("api_key=cAnArY", end="")
        print("7 and the rest")
        streams.say("hf_CanaryCanaryCanaryCanary42 without a line's end")
    assert capsys.readouterr().out == f"api_key={HIDDEN} and the rest\n{HIDDEN} without a line's end"


def test_nothing_is_written_beside_the_guarded_streams() -> None:
    """The child that asks the driver speaks to its parent alone; the extractor is a tool of ours."""
    package = Path(live.__file__).parents[1]
    own = {"cli/streams.py", "gather/nvml_child.py", "knowledge/extract.py"}
    beside = ("sys.__stdout", "sys.__stderr", "stdout.buffer", "stderr.buffer", "os.write(1", "os.write(2")
    for path in package.rglob("*.py"):
        if str(path.relative_to(package)) not in own:
            text = path.read_text(encoding="utf-8")
            assert [way for way in beside if way in text] == [], path
