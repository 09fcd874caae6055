"""Whoever started the server says how it ended: after that it is never ok, neither behind service nor behind a stop."""

import json
import re
from pathlib import Path

import pytest

from tests.hostile.texts import SERVED, STOPPED
from tests.rules import log_material as material
from vllm_doctor.log import match
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

ROWS = json.loads(Path(match.FOLDER, "ends.json").read_text(encoding="utf-8"))
ENDS = [sample["line"] for row in ROWS if row["kind"] != "benign" for sample in row["samples"]]
NONE = [sample["line"] for row in ROWS if row["kind"] == "benign" for sample in row["samples"]]
IN_ORDER = [sample["line"] for row in ROWS if row["id"] == "ended-in-order" for sample in row["samples"]]
for row in ROWS:
    (ENDS if row["kind"] == "benign" else NONE).extend(row.get("near_misses", ()))
# No message that is known, but a last word like any other.
UNSURE = {
    "[1] Killed",
    "it ends in a Floating point exception on other cards",
    "srun: error: gpu7: task 0: Terminated",
}
# How a stop is carried out: behind one it is in order, and without one it is the end.
CARRIED_OUT = [line for line in ENDS if match.says(line, "stop-carried-out", "pod-taken-down")]
# What runtimes, wrappers, supervisors and schedulers were seen to write last, none of which has a row of its own.
OTHERS = Path(__file__).with_name("logs").joinpath("last-words.txt").read_text(encoding="utf-8").splitlines()


def diagnosed(text: str) -> Diagnosis:
    log = log_of_lines(text.splitlines(), "log")
    return diagnose(Snapshot(taken_at="2026-01-01", log=Known(log, "log")))


def verdict(text: str) -> Verdict:
    return diagnosed(text).verdict


def front_end(release: str, *, busy: bool) -> list[str]:
    """What the server's own process goes on to say, whether its engine lives or not."""
    idle = re.sub(r"\d+\.\d tokens", "0.0 tokens", material.STATS)
    idle = (
        idle.replace("Running: 1", "Running: 3").replace("Waiting: 0", "Waiting: 9")
        if busy
        else idle.replace("Running: 1", "Running: 0")
    )
    api = "(APIServer pid=70811) " if release == "0.27" else ""
    return [
        f'{api}INFO:     127.0.0.1:40000 - "GET /health HTTP/1.1" 200 OK',
        f'{api}INFO:     127.0.0.1:40000 - "GET /metrics HTTP/1.1" 200 OK',
        f"{api}INFO 01-02 10:07:00 [loggers.py:236] {idle}",
    ]


@pytest.mark.parametrize("line", ENDS)
def test_an_end_that_is_told_is_never_ok(line: str) -> None:
    assert verdict(f"{SERVED}{line}\n") is not Verdict.OK
    assert (verdict(f"{STOPPED}{line}\n") is Verdict.OK) is (line in CARRIED_OUT)


def test_the_manager_s_own_stop_stays_what_it_is() -> None:
    for line in ("Stopping vllm.service - vLLM...", "vllm.service: Deactivated successfully."):
        assert verdict(f"{SERVED}{line}\n") is Verdict.OK
    stopping = f"{SERVED}systemd[1]: Stopping vllm.service - vLLM...\n"
    assert verdict(f"{stopping}vllm.service: State 'stop-sigterm' timed out. Killing.\n") is not Verdict.FINDING


def test_a_filter_of_system_calls_that_only_writes_ends_nothing() -> None:
    audit = 'audit: type=1326 audit(1767348300.100:42): pid=902 comm="vllm" {} syscall=62'
    went_on = f"(APIServer pid=1) INFO 01-02 10:07:00 [loggers.py:236] {material.STATS}\n" * 2
    assert verdict(f"{SERVED}{audit.format('sig=31')}\n") is not Verdict.OK
    assert verdict(f"{SERVED}{audit.format('sig=0')}\n{went_on}") is Verdict.OK


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("line", OTHERS)
@pytest.mark.parametrize("release", material.RUNNING)
def test_a_front_end_that_goes_on_takes_no_end_back(release: str, line: str, *, busy: bool) -> None:
    running = material.RUNNING[release]
    assert verdict("\n".join([*running, line, *front_end(release, busy=busy)])) is not Verdict.OK


def test_an_answer_may_begin_before_a_token_is_made() -> None:
    running = material.RUNNING["0.27"]
    end = "VLLM::EngineCor[902]: segfault at 0 ip 0 sp 0 error 4 in libtorch.so"
    answer = '(APIServer pid=70811) INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    assert verdict("\n".join([*running, end, answer, *front_end("0.27", busy=False)])) is Verdict.OK
    assert verdict("\n".join([*running, end, answer, *front_end("0.27", busy=True)])) is not Verdict.OK


@pytest.mark.parametrize("line", OTHERS[:3])
def test_an_engine_that_makes_tokens_again_lives(line: str) -> None:
    stats = f"(APIServer pid=70811) INFO 01-02 10:05:00 [loggers.py:236] {material.STATS}"
    running = material.RUNNING["0.27"]
    assert verdict("\n".join([*running, line, stats])) is not Verdict.OK  # it tells of the time before, too
    assert verdict("\n".join([*running, line, stats, stats])) is Verdict.OK


@pytest.mark.parametrize("line", material.BENIGN)
def test_a_line_that_means_nothing_means_nothing_above_a_front_end_that_waits(line: str) -> None:
    for release, running in material.RUNNING.items():
        for busy in (True, False):
            assert verdict("\n".join([*running, line, *front_end(release, busy=busy)])) is Verdict.OK


@pytest.mark.parametrize("ready", [True, False])
def test_a_card_that_fails_under_a_server_is_no_start_that_fails(*, ready: bool) -> None:
    """The headline says which of the two it was."""
    running = material.RUNNING["0.27"]
    fault = (
        "(EngineCore pid=70902) ERROR 01-02 10:05:00 [core.py:1108] RuntimeError: CUDA error: uncorrectable ECC error"
    )
    found = diagnosed("\n".join([*(running if ready else running[:4]), fault]))
    assert found.findings[0].code == "VD704"
    assert found.facts.get("failed_while_serving", False) is ready


@pytest.mark.parametrize("reason", ["TIME LIMIT", "PREEMPTION", "NODE FAILURE"])
def test_a_limit_of_the_scheduler_is_nobody_s_wish(reason: str) -> None:
    cancelled = "slurmstepd: error: *** JOB 811 ON gpu7 CANCELLED AT 2026-01-02T10:05:00"
    assert verdict(f"{SERVED}{cancelled} ***\n") is Verdict.OK
    assert verdict(f"{SERVED}{cancelled} DUE TO {reason} ***\n") is not Verdict.OK
    assert verdict(f"{STOPPED}{cancelled} DUE TO {reason} ***\n") is not Verdict.OK


@pytest.mark.parametrize("line", OTHERS)
@pytest.mark.parametrize("release", material.STOPPED)
def test_whoever_has_the_last_word_of_an_end_it_is_never_ok(release: str, line: str) -> None:
    stopped = "\n".join(material.STOPPED[release])
    assert verdict(f"{stopped}\n{line}\n") is not Verdict.OK


@pytest.mark.parametrize("line", OTHERS)
@pytest.mark.parametrize("release", material.RUNNING)
def test_nor_under_a_server_that_serves_unless_it_goes_on(release: str, line: str) -> None:
    running = "\n".join(material.RUNNING[release])
    assert verdict(f"{running}\n{line}\n") is not Verdict.OK


def test_a_stop_from_outside_is_carried_out_by_a_kill() -> None:
    cancelled = "slurmstepd: error: *** STEP 811.1 ON gpu7 CANCELLED AT 2026-01-02T10:05:00 ***"
    killed = "srun: Job step aborted: Waiting up to 32 seconds.\nsrun: error: gpu7: task 0: Killed"
    assert verdict(f"{SERVED}{cancelled}\n{killed}\n") is Verdict.OK
    assert verdict(f"{SERVED}{killed}\n") is not Verdict.OK


@pytest.mark.parametrize("line", material.BENIGN)
def test_a_line_that_means_nothing_means_nothing_at_the_end(line: str) -> None:
    for healthy in (*material.RUNNING.values(), *material.STOPPED.values()):
        assert verdict("\n".join([*healthy, line])) is Verdict.OK


@pytest.mark.parametrize("line", sorted({*NONE} - UNSURE))
def test_what_ends_nothing_leaves_it_ok_where_the_server_goes_on_and_is_never_a_finding(line: str) -> None:
    """The very last line of a log is another matter: there nobody knows what a stranger's word means."""
    went_on = [f"(APIServer pid=70811) INFO 01-02 10:0{n}:00 [loggers.py:236] {material.STATS}" for n in (6, 7)]
    assert verdict("\n".join([*material.RUNNING["0.27"], line, *went_on])) is Verdict.OK
    assert verdict(f"{SERVED}{line}\n") in {Verdict.OK, Verdict.UNKNOWN}


HEADING = " Captured stderr setup ".center(80, "-")


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [
        ([" test session starts ".center(80, "=")], [" 1 passed in 61.02s ".center(80, "=")], Verdict.OK),
        ([" Captured stdout setup ".center(80, "-")], [HEADING], Verdict.OK),
        ([], [HEADING], Verdict.UNKNOWN),
        ([], [HEADING, "something of its own", " 1 passed in 61.02s ".center(80, "=")], Verdict.OK),
        ([], [HEADING, "something of its own", " 1 failed in 61.02s ".center(80, "=")], Verdict.UNKNOWN),
        (["vllm out 1:", "vllm out 2:", "vllm out 3:"], ["vllm out 4:"], Verdict.OK),
        (["vllm out 1:"], ["vllm out 4:"], Verdict.UNKNOWN),
        ([], ["    ]", "}"], Verdict.OK),
    ],
)
def test_what_frames_a_log_tells_of_no_end(above: list[str], below: list[str], expected: Verdict) -> None:
    """Headings of a harness stand above the server's lines, too; a store's own lines stand between them."""
    log = log_of_lines([*above, *SERVED.splitlines(), *below], "log")
    assert diagnose(Snapshot(taken_at="2026-01-01", log=Known(log, "log"))).verdict is expected


@pytest.mark.parametrize("line", IN_ORDER)
def test_an_end_in_order_is_ok(line: str) -> None:
    assert verdict(f"{SERVED}{line}\n") is Verdict.OK


@pytest.mark.parametrize("line", ENDS)
def test_a_server_that_was_started_again_and_serves_is_ok(line: str) -> None:
    again = SERVED.replace("pid=1", "pid=11").replace("pid=2", "pid=12")
    assert verdict(f"{SERVED}{line}\n{again}") is Verdict.OK


# The words of bash and glibc in other languages, from their own translations (bash.mo, libc.mo of Debian 12).
LOCALISED = (
    "Getötet",
    "Speicherzugriffsfehler (Speicherabzug geschrieben)",
    "Processus arrêté",
    "Erreur de segmentation (core dumped)",
    "強制終了",
    "已杀死",
    "Убито",
    "Terminado (killed)",
    "[1]+  Getötet                 vllm serve acme/chat-8b",
    "./run.sh: Zeile 3:   902 Getötet                 vllm serve acme/chat-8b",
    "./run.sh : ligne 3 :   902 Processus arrêté      vllm serve acme/chat-8b",
    "./run.sh: 3 行:   902 強制終了            vllm serve acme/chat-8b",
    "./run.sh: 第 3 行：   902 段错误               （核心已转储） vllm serve acme/chat-8b",  # noqa: RUF001 - bash's own
    "bash: vllm : commande introuvable",
)
OF_A_SHELL = tuple(line for line in LOCALISED if line.startswith("./run.sh"))


@pytest.mark.parametrize("prompt", ["", "(venv) root@gpu7:~/models# \n", "a word of goodbye\n"])
@pytest.mark.parametrize("line", LOCALISED)
@pytest.mark.parametrize(
    "text", [SERVED, STOPPED, STOPPED[: STOPPED.rindex("(APIServer pid=1) INFO:     Application shutdown")]]
)
def test_an_end_is_told_in_every_language(text: str, line: str, prompt: str) -> None:
    assert verdict(f"{text}{line}\n{prompt}") is not Verdict.OK


@pytest.mark.parametrize("line", OF_A_SHELL)
def test_a_shell_tells_of_a_child_by_form_and_not_by_word(line: str) -> None:
    script = (
        "INFO 03-14 09:00:01 [utils.py:233] non-default args: {'model': 'example/model-8b'}\n"
        "(EngineCore_DP0 pid=42) INFO 03-14 09:00:15 [kv_cache_utils.py:1087] GPU KV cache size: 300,000 tokens\n"
        "(EngineCore_DP0 pid=42) INFO 03-14 09:00:20 [core.py:218] init engine (profile, create kv cache) took 12 s\n"
        "Processed prompts: 100%|██████████| 4/4 [00:01<00:00,  3.00it/s, est. speed input: 20.00 toks/s]\n"
        "Prompt: 'a', generated text: 'b'"
    )
    assert verdict(script) is Verdict.OK
    assert verdict(f"{script}\n{line}\n") is not Verdict.OK
    for release, running in material.RUNNING.items():
        assert verdict("\n".join([*running, line, *front_end(release, busy=False)])) is not Verdict.OK


def test_a_prompt_below_a_stop_tells_of_no_end() -> None:
    assert verdict(f"{STOPPED}(venv) root@gpu7:~/models# \n") is Verdict.OK
    assert verdict(f"{STOPPED}root@gpu7:~# vllm serve acme/chat-8b\n") is Verdict.UNKNOWN


def test_an_engine_of_v0_that_is_gone_is_no_failure_that_has_no_name() -> None:
    told = diagnosed("ERROR 12-01 13:05:02 client.py:282] RuntimeError('Engine process (pid 4242) died.')\n")
    assert [f.code for f in told.findings] == ["VD601"]


def test_nor_is_one_that_the_client_tells_of() -> None:
    told = diagnosed(
        '  File "/opt/v/site-packages/vllm/engine/multiprocessing/client.py", line 671, in _process_request\n'
        "    raise request_output\n"
        "vllm.engine.multiprocessing.MQEngineDeadError: Engine loop is not running. Inspect the stacktrace to find the "
        "original error: RuntimeError('Engine process (pid 4242) died.').\n"
    )
    assert [f.code for f in told.findings] == ["VD601"]


def test_of_a_dead_engine_the_exception_is_shown_and_not_the_code_that_raises_it() -> None:
    told = diagnosed(
        '  File "/opt/v/site-packages/vllm/engine/async_llm_engine.py", line 724, in start_background_loop\n'
        "    raise AsyncEngineDeadError(\n"
        "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already.\n"
    )
    assert told.findings[0].code == "VD601"
    assert told.findings[0].evidence[0].excerpt.endswith("Background loop has errored already.")


def test_no_heartbeat_of_the_engine_is_the_server_s_watch_on_it() -> None:
    told = diagnosed("ERROR 12-01 13:05:02 client.py:244] TimeoutError('No heartbeat received from MQLLMEngine')\n")
    assert told.findings[0].title == "A step took longer than the server's watch on its engine allows"


BEGUN = "(APIServer pid=7) INFO 03-14 09:01:00 [api_server.py:1839] vLLM API server version 0.19.1"
SHUT = "(APIServer pid=7) INFO:     Waiting for application shutdown."


@pytest.mark.parametrize(
    ("lines", "because"),
    [
        ([BEGUN, "^C"], "a person ended the start before it was complete, and nothing had failed by then; if it stood"),
        ([BEGUN, "^C", SHUT], "the server had begun to serve, and was stopped from outside"),
    ],
)
def test_a_start_that_a_person_ended_may_have_stood_still(lines: list[str], because: str) -> None:
    """uvicorn ends only what it had begun to serve."""
    assert diagnosed("\n".join(lines)).path[-1].because.startswith(because)


def test_a_traceback_whose_lines_a_page_joined_stands_against_ok() -> None:
    served = (
        "INFO 03-14 09:02:00 api_server.py:500] vLLM API server version 0.6.3\nINFO:     Application startup complete."
    )
    torn = '    main(args)   File "/srv/run.py", line 41, in main\n    self.step() TypeError: argument is no room'
    answered = 'INFO:     10.0.0.2:40000 - "POST /v1/completions HTTP/1.1" 200 OK'
    assert verdict(served) is Verdict.OK
    assert verdict(f"{served}\n{torn}") is Verdict.UNKNOWN
    assert verdict(f"{served}\n{torn}\n{answered}") is Verdict.OK
