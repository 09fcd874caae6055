"""The path through the flowchart: "no" only from a source that was read, and never against the finding."""

import pytest

from tests.cli.test_diagnose import HEALTHY, TOO_SMALL
from tests.scenarios.loading import diagnosis, names, snapshot
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.host import Gpu, Kernel, Metrics, Sample, Scrape
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Signal, Snapshot
from vllm_doctor.render.human import text
from vllm_doctor.rules.chart import NODES
from vllm_doctor.rules.engine import diagnose


def of(log: str, **fields: object) -> Diagnosis:
    return diagnose(Snapshot(taken_at="2026-01-01", log=Known(log_of_lines(log.splitlines(), "log"), "log"), **fields))  # type: ignore[arg-type]


def answers(diagnosis: Diagnosis) -> dict[str, str]:
    return {step.node: step.answer for step in diagnosis.path}


GPUS = Known((Gpu(0, "NVIDIA H100 80GB HBM3"),), "nvidia-smi")
KERNEL = Known(Kernel(()), "dmesg")
METRICS = Known(Metrics("m", (Scrape(1.0, (Sample("vllm:num_requests_running", {}, 0.0),)),)), "m")


def test_a_log_alone_does_not_tell_of_the_host_its_cards_and_its_kernel() -> None:
    said = answers(of(HEALTHY))
    assert {n for n, a in said.items() if a == "unknown"} == {"platform", "tenant", "host", "pressure", "prefix"}
    assert said["startup"] == said["refused"] == said["burst"] == "no"


@pytest.mark.parametrize(
    ("fields", "node"),
    [
        ({"gpus": GPUS}, "tenant"),
        ({"kernel": KERNEL}, "host"),
        ({"kernel": KERNEL, "gpus": GPUS}, "platform"),
        ({"metrics": METRICS}, "pressure"),
    ],
)
def test_with_its_source_a_question_is_answered(fields: dict[str, object], node: str) -> None:
    assert answers(of(HEALTHY))[node] == "unknown"
    assert answers(of(HEALTHY, **fields))[node] == "no"


def test_of_another_program_s_log_nothing_is_said() -> None:
    said = answers(of("hello\nworld\n"))
    assert set(said.values()) == {"unknown"}


def test_a_log_of_a_file_is_no_word_of_systemd() -> None:
    assert "systemd" not in " ".join(step.because for step in of(HEALTHY, kernel=KERNEL).path)


def test_a_person_reads_not_seen_and_why() -> None:
    assert "Did the host run out of memory, or kill a process? not seen - not read: kernel" in " ".join(
        text(of(TOO_SMALL), width=200, path=True).split("\n  ")
    )


def test_what_the_log_says_itself_need_not_be_given() -> None:
    lacking = {missing.signal for missing in of(HEALTHY).unknown}
    assert "version" not in lacking
    assert "launch" in lacking
    told = HEALTHY + "(APIServer pid=1) INFO 05-21 10:11:12 [utils.py:1] non-default args: {'model': 'm'}\n"
    assert "launch" not in {missing.signal for missing in of(told).unknown}


@pytest.mark.parametrize("name", names())
def test_no_box_contradicts_a_finding_or_answers_from_what_was_not_read(name: str) -> None:
    shot = snapshot(name)
    told = diagnosis(name)
    said = answers(told)
    for node in NODES:
        if said.get(node.id) != "no":
            continue
        assert not [f.code for f in told.findings if f.cause in node.causes or f.phase in node.phases], node.id
        unread = {s for s in Signal if isinstance(getattr(shot, s.value), Unknown)}
        assert any(not need & unread for need in node.sources), (node.id, unread)
