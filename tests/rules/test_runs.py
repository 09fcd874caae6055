"""A failure is never hidden: whatever stands before, between or around a log's lines, what it says stays."""

import functools
import gzip
import itertools
import os
import random
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.rules import log_material as material
from tests.scenarios.loading import log_text, with_a_log
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.log.match import messages
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

Said = tuple[Verdict, str | None]

# Every log with every end, envelope and line: `make logs`. Here, a sample that the seed fixes.
WHOLE = os.environ.get("VLLM_DOCTOR_ALL_LOGS") == "1"
LOGS = sorted(with_a_log())
# Lines of a report, which speak of vLLM and were not written by it; a page that shows the newest entry first.
# Broken by a page or a terminal, where a line's place in it is all that tells what it belongs to.
BROKEN = re.compile("broken|in-the-frame-of|newest-first|nothing-freed|torn|message-before-traceback")
# What their findings stand on is how the log ends, that only a client or a script wrote it, what precedes the first
# line, a message that goes on below a line with a level, or the line right above the words of a chain that was cut.
NO_FOREIGN_LINES = re.compile(
    "vd503-quant-config|vd604-compiler|vd703-bf16|vd803-nccl-near|vd521|vd804|vd114-lora-run-time|vd702-libraries-in-the-log|vd60[23]|vd599-evaluation"
    "|vd201-step-chain-cut-off"
)
# Some of their lines have an envelope, systemd's, the kernel's or Compose's: a second one around it is nobody's. A wait
# that a page cut short, told by the clock alone, which an envelope here gives to all lines alike. What a client was
# answered, which no server's log holds.
ENVELOPED = re.compile(
    "restarted-by-systemd|vd601-killed-while-it-stopped|vd903-(?:killed|oom)|vd905-(?:engine-killed|oom)|vd804-cut-fires|as-the-server-answered-it"
    "|vd906-every-call-is-traced-fires"  # an envelope has a clock of its own, in which nothing was silent
    "|vd531-systemd-after-a-stop"
    "|vd531-another-subject-near-miss"  # an envelope names the service, which nothing else here does
)
FEW = 3


def said(lines: Sequence[str]) -> Said:
    return said_of(("\n".join(lines) + "\n").encode())


def said_of(*files: bytes) -> Said:
    found = judged(*files)
    return found.verdict, found.findings[0].code if found.findings else None


def judged(*files: bytes) -> Diagnosis:
    """The diagnosis of files, which go through the real reader."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.log") for number, _ in enumerate(files)]
        for path, content in zip(paths, files, strict=True):
            path.write_bytes(content)
        log = read_logs([str(path) for path in paths])
    return diagnose(Snapshot(taken_at="2026-01-03T00:00:00+00:00", log=log))


def text(name: str) -> list[str]:
    return log_text(name).rstrip("\n").split("\n")


@functools.cache
def alone(name: str) -> Said:
    return said(text(name))


def sample(count: int, seed: str) -> list[str]:
    return LOGS if WHOLE else sorted(random.Random(seed).sample(LOGS, count))


@pytest.mark.parametrize("release", material.STOPPED)
def test_an_orderly_stop_with_its_noise_is_no_failure(release: str) -> None:
    assert said(material.STOPPED[release]) == (Verdict.OK, None)


@pytest.mark.parametrize("tail", material.EARLY)
@pytest.mark.parametrize("release", material.STOPPED)
def test_a_start_that_fails_before_it_names_itself_is_judged_after_a_stop(release: str, tail: str) -> None:
    alone = said([tail])
    assert alone[0] is Verdict.FINDING
    assert said([*material.STOPPED[release], tail]) == alone


@pytest.mark.parametrize("tail", material.EARLY)
@pytest.mark.parametrize("release", material.RUNNING)
def test_what_fails_under_a_running_server_is_never_ok(release: str, tail: str) -> None:
    assert said([*material.RUNNING[release], tail])[0] is Verdict.FINDING


def interleaved(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Line by line, and the rest of the longer one at the end."""
    pairs = itertools.zip_longest(one, other)
    return [line for pair in pairs for line in pair if line is not None]


FAILING = [*material.run_signed("0.27.1")[:8], *material.engine_failed(noted=True)]


@pytest.mark.parametrize("healthy_first", [True, False])
@pytest.mark.parametrize("name", ["[pod/chat-{}/vllm] ", "chat-{}  | "])
def test_of_two_pods_the_one_that_failed_is_judged(*, name: str, healthy_first: bool) -> None:
    healthy = [name.format(0) + line for line in (*material.RUNNING["0.27"], *material.server_answers_on()[:1] * 30)]
    failed = [name.format(1) + line for line in FAILING]
    both = (healthy, failed) if healthy_first else (failed, healthy)
    assert said(interleaved(*both)) == said(FAILING) == (Verdict.FINDING, "VD599")


@pytest.mark.parametrize(
    "names", [("chat-0", "chat-1"), ("chat-7c9d8f6b5-x2x4z", "chat-7c9d8f6b5-bq9wd"), ("a_chat_1", "a_chat_2")]
)
@pytest.mark.parametrize("name", ["[pod/{}/vllm] ", "{}  | "])
@pytest.mark.parametrize("tail", material.EARLY)
def test_a_replica_that_fails_before_it_names_itself_is_not_hidden_by_one_that_serves(
    name: str, names: tuple[str, str], tail: str
) -> None:
    healthy = [name.format(names[0]) + line for line in material.RUNNING["0.27"]]
    assert said([*healthy[:5], name.format(names[1]) + tail, *healthy[5:]]) == said([tail])


@pytest.mark.parametrize("beside", ["proxy-1", "client", "chat"])
def test_what_stands_beside_a_server_and_is_no_replica_of_it_is_no_server(beside: str) -> None:
    healthy = [f"chat-0  | {line}" for line in material.RUNNING["0.27"]]
    lines = [
        f"{beside}  | connect() failed (111: Connection refused)",
        f"{beside}  | bash: line 1: nvcc: command not found",
    ]
    assert said([*healthy[:5], *lines, *healthy[5:]]) == (Verdict.OK, None)


@pytest.mark.parametrize("healthy_first", [True, False])
def test_of_two_servers_on_one_host_the_one_that_failed_is_judged(*, healthy_first: bool) -> None:
    healthy = [*material.RUNNING["0.27"], *material.server_answers_on()[:1] * 30]
    failed = [line.replace("pid=70", "pid=80") for line in FAILING]
    both = (healthy, failed) if healthy_first else (failed, healthy)
    assert said(interleaved(*both)) == (Verdict.FINDING, "VD599")
    other = [line.replace("pid=70", "pid=80") for line in healthy]
    assert said(interleaved(healthy, other)) == (Verdict.OK, None)


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_what_ends_the_engine_is_no_less_fatal_because_the_server_answers_on(*, signed: bool, noted: bool) -> None:
    run = material.RUNNING["0.27" if signed else "0.9"]
    failed = [line if signed else line.split(") ", 1)[1] for line in material.engine_failed(noted=noted)]
    answers = [line if signed else line.split(") ", 1)[1] for line in material.server_answers_on()]
    assert said([*run, *failed, *answers]) == (Verdict.FINDING, "VD599")


@functools.cache
def shows_a_run(name: str) -> bool:
    """Does it show a failure, a step of a start or an end? A symptom alone, and what another program writes, may be of
    the run before."""
    run = AnalysedRun(log_of_lines(text(name), "log"))
    own = {message.id for message in messages() if message.phase or message.kind == "cause"}
    return bool(run.faults or run.deaths) or any(hit.id in own for hit in run.hits)


@pytest.mark.parametrize("release", material.STOPPED)
@pytest.mark.parametrize("name", sample(24, "stopped"))
def test_a_run_that_was_stopped_before_changes_nothing(release: str, name: str) -> None:
    if "newest-first" in name:
        pytest.skip("its order and the one of what stands above it are not the same")
    after = said([*material.STOPPED[release], *text(name)])
    assert after == alone(name) or (not shows_a_run(name) and after[0] in {Verdict.OK, Verdict.UNKNOWN})


@pytest.mark.parametrize("release", material.STOPPED)
def test_an_error_of_a_process_that_the_stopped_run_did_not_know_is_another_runs(release: str) -> None:
    failed = text("vd528-kv-peer-fires")
    assert said([*material.STOPPED[release], *failed]) == said(failed) == (Verdict.FINDING, "VD528")


def test_an_error_that_is_cut_at_the_edge_of_a_page_is_not_ok_as_last_line() -> None:
    cut = "(APIServer pid=70811) ERROR 01-02 10:30:05 [core_client.py:564] Engine core proc EngineCore_DP0 died une"
    assert said([*material.RUNNING["0.27"], cut])[0] is Verdict.UNKNOWN
    assert said([*material.RUNNING["0.27"], cut, *material.server_answers_on()])[0] is not Verdict.FINDING


@pytest.mark.parametrize("joint", ["\\n", "\x00", "\\\\n", '"],["1763634605","', '"}},{"_source":{"message":"', " "])
def test_lines_that_a_store_wrote_into_one_are_not_ok(joint: str) -> None:
    one = joint.join(
        [*material.RUNNING["0.27"], "Fatal Python error: Segmentation fault", "", "Thread 0x7f1 (most recent"]
    )
    assert said([one])[0] is not Verdict.OK


@pytest.mark.parametrize("kept", [2, 3, 4])
@pytest.mark.parametrize("letters", [0, 3, 9])
def test_a_log_that_ends_inside_a_traceback_is_not_ok(kept: int, letters: int) -> None:
    sign = "(EngineCore_DP0 pid=70812) "
    told = ["Process EngineCore_DP0:", "Traceback (most recent call last):"]
    told += ['  File "/opt/v/vllm/v1/engine/core.py", line 701, in run_engine_core', "    engine_core.run_busy_loop()"]
    cut = [sign + line for line in told[:kept]]
    cut[-1] = cut[-1][: len(cut[-1]) - letters]
    assert said([*material.RUNNING["0.27"], *cut])[0] is not Verdict.OK
    assert said([*material.RUNNING["0.27"], sign + told[1], sign + told[2][:12]])[0] is not Verdict.OK


def seams(lines: Sequence[str]) -> list[int]:
    """Where a line of another writer may stand: above what begins with a name or a level, and at the start.

    Within a traceback that no process signed, another line breaks what it says; writers do not do that.
    """
    return [0, *(i for i, line in enumerate(lines) if i and re.match(r"\(|INFO|WARNING|ERROR", line))]


@pytest.mark.parametrize("name", sample(60, "benign"))
def test_lines_that_mean_nothing_change_nothing(name: str) -> None:
    lines, chance = text(name), random.Random(name)
    if len(lines) < FEW or BROKEN.search(name) or NO_FOREIGN_LINES.search(name):
        pytest.skip("of few lines, none can be told from the others' end")
    for line in material.BENIGN if WHOLE else chance.sample(material.BENIGN, 4):
        at = chance.choice(seams(lines))
        if '" 400 ' in line and any('" 400 ' in own for own in lines):
            continue  # one more request that was refused, where a log's are counted
        assert said([*lines[:at], line, *lines[at:]]) == alone(name), (line, at)


def test_a_program_that_a_shell_did_not_find_ends_nothing_by_itself() -> None:
    assert said([*material.RUNNING["0.27"], "sh: 1: nvcc: not found"]) == (Verdict.OK, None)


@pytest.mark.parametrize("envelope", material.ENVELOPES)
@pytest.mark.parametrize("name", sample(16, "envelopes"))
def test_an_envelope_changes_nothing(envelope: str, name: str) -> None:
    if BROKEN.search(name) or ENVELOPED.search(name):
        pytest.skip("it has an envelope of its own, or was broken by a page")
    assert said([material.ENVELOPES[envelope](line) for line in text(name)]) == alone(name)


@pytest.mark.parametrize("name", sample(30, "files"))
def test_how_a_file_is_written_or_split_changes_nothing(name: str) -> None:
    lines = text(name)
    whole = ("\n".join(lines) + "\n").encode()
    assert said_of(whole.replace(b"\n", b"\r\n")) == alone(name), "CRLF"
    assert said_of(whole.decode().encode("utf-16")) == alone(name), "UTF-16"
    assert said_of(gzip.compress(whole, 1)) == alone(name), "gzip"
    if BROKEN.search(name) or NO_FOREIGN_LINES.search(name):
        return
    middle = len(lines) // 2
    halves = ["\n".join(part).encode() + b"\n" for part in (lines[:middle], lines[middle:]) if part]
    assert said_of(*halves) == alone(name), "two files"


@pytest.mark.parametrize("name", sample(40, "dropped"))
def test_no_line_that_is_lost_turns_a_failure_into_ok(name: str) -> None:
    lines, chance = text(name), random.Random(name)
    whole = judged(("\n".join(lines) + "\n").encode())
    if whole.verdict is not Verdict.FINDING:
        pytest.skip("nothing failed in it")
    shown = {e.locator for e in whole.findings[0].evidence}
    kept = [line for number, line in enumerate(lines, 1) if f"line {number}" in shown or chance.random() > 0.03]
    assert said(kept)[0] is not Verdict.OK


@pytest.mark.parametrize(
    "line",
    [
        "logout",
        "[1]+  Done                    vllm serve m",
        "[1]  + 1201 exit 1     vllm serve m",
        'pod "vllm-0" deleted',
        "reboot: Restarting system",
        "-- Boot 0123456789abcdef0123456789abcdef --",
        "Powering off.",
        "Connection reset by peer",
        "Process VLLM::EngineCore:",
        "of a wrapper that nobody has heard of: it is gone",
    ],
)
def test_a_log_whose_last_line_is_a_strangers_is_not_ok(line: str) -> None:
    assert said([*material.RUNNING["0.27"], line]) == (Verdict.UNKNOWN, None)
    goes_on = [*material.RUNNING["0.27"], line, *material.server_answers_on()]
    assert said(goes_on)[0] is not Verdict.FINDING


def test_a_script_prints_its_answers_last_and_a_neighbour_in_the_log_is_another_program() -> None:
    script = [
        "INFO 03-14 09:00:01 [utils.py:233] non-default args: {'model': 'example/model-8b'}",
        "(EngineCore_DP0 pid=42) INFO 03-14 09:00:15 [kv_cache_utils.py:1087] GPU KV cache size: 300,000 tokens",
        "(EngineCore_DP0 pid=42) INFO 03-14 09:00:20 [core.py:218] init engine (profile, create kv cache) took 12 s",
        "Processed prompts: 100%|██████████| 4/4 [00:01<00:00,  3.00it/s, est. speed input: 20.00 toks/s]",
    ]
    assert said([*script, "Prompt: 'a', generated text: 'b'"]) == (Verdict.OK, None)
    beside = [*(f"vllm-1  | {line}" for line in material.RUNNING["0.27"]), "proxy-1  | one that nobody knows"]
    assert said(beside) == (Verdict.OK, None)


@pytest.mark.parametrize("line", [s.line for m in messages() if m.id == "library-chat" for s in m.samples])
def test_what_many_programs_print_is_no_stranger_s_word(line: str) -> None:
    assert said([*material.RUNNING["0.27"], line]) == (Verdict.OK, None)


@pytest.mark.parametrize("line", material.BENIGN)
def test_what_libraries_print_is_no_strangers_word(line: str) -> None:
    assert said([*material.RUNNING["0.27"], line]) == (Verdict.OK, None)
