"""Several starts in one file: the last is judged, earlier ones are counted; processes of one start are one."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.log.read import runs
from vllm_doctor.log.read.assemble import cut, log_of_lines, parse_lines
from vllm_doctor.log.read.pieces import NotText, stream
from vllm_doctor.records.log import Log, LogLine
from vllm_doctor.records.verdict import Verdict

API = "(APIServer pid={pid}) INFO 05-21 10:11:12 [api_server.py:1] vLLM API server version 0.11.0"
ARGS = "(APIServer pid={pid}) INFO 05-21 10:11:12 [utils.py:1] non-default args: {{'model': 'm{pid}'}}"
CORE = (
    "({name} pid={pid}) INFO 05-21 10:11:13 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m'"
)


def start(pid: int, cores: int = 1) -> list[str]:
    names = ["EngineCore"] if cores == 1 else [f"EngineCore_DP{n}" for n in range(cores)]
    return [
        API.format(pid=pid),
        ARGS.format(pid=pid),
        *(CORE.format(name=n, pid=pid + 1 + i) for i, n in enumerate(names)),
        "INFO:     Application startup complete.",
    ]


def test_the_last_of_three_lives() -> None:
    log = log_of_lines([*start(100), *start(200), *start(300)], "x")
    assert log.earlier_runs == 2
    assert "pid=300" in log.last.lines[0].excerpt


def test_data_parallel_cores_are_one_life() -> None:
    assert log_of_lines(start(100, cores=4), "x").earlier_runs == 0


def test_an_engine_restarted_in_a_script_is_another_life() -> None:
    lines = [CORE.format(name="EngineCore", pid=10), "work", CORE.format(name="EngineCore", pid=20), "more"]
    log = log_of_lines(lines, "x")
    assert log.earlier_runs == 1
    assert log.last.lines[-1].text == "more"


def test_v0_without_process_tags() -> None:
    life = [
        "INFO 05-21 10:11:12 api_server.py:1] vLLM API server version 0.5.4",
        "INFO 05-21 10:11:12 api_server.py:2] args: Namespace(model='m')",
        "INFO 05-21 10:11:12 llm_engine.py:1] Initializing an LLM engine (v0.5.4) with config: model='m'",
    ]
    assert log_of_lines(life * 3, "x").earlier_runs == 2


def test_a_refused_command_line_in_a_restart_loop() -> None:
    refusal = ["usage: vllm serve [-h]", "vllm: error: unrecognized arguments: --nope"]
    assert log_of_lines([*start(100), *refusal, *refusal], "x").earlier_runs == 2


def test_systemd_announces_a_life() -> None:
    began = "May 21 10:11:12 gpu01 systemd[1]: Starting vllm@chat.service - vLLM..."
    log = log_of_lines([began, *start(100), began, *start(200)], "x")
    assert log.earlier_runs == 1
    assert log.last.lines[0].process == "systemd"


def test_what_a_process_prints_before_it_names_itself_belongs_to_its_life() -> None:
    detected = "INFO 05-21 10:11:11 [__init__.py:1] Automatically detected platform cuda."
    log = log_of_lines([*start(100), detected, *start(200)], "x")
    assert log.last.lines[0].text.startswith("Automatically")


def failed_start(model: str = "m") -> list[str]:
    return [
        "INFO 05-21 10:11:12 [api_server.py:1] vLLM API server version 0.11.0",
        f"INFO 05-21 10:11:12 [utils.py:1] non-default args: {{'model': '{model}'}}",
        "ERROR 05-21 10:11:20 [core.py:1] EngineCore failed to start.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]


def test_of_a_restart_loop_that_is_cut_in_a_start_the_failed_start_before_is_judged() -> None:
    log = log_of_lines([*failed_start(), *failed_start(), *failed_start()[:2]], "x")
    assert log.earlier_runs == 1
    assert "initialization failed" in log.last.lines[-1].text
    assert any(note.startswith("the doctor judged the start before") for note in log.notes)


def test_a_start_with_other_arguments_is_judged_itself() -> None:
    log = log_of_lines([*failed_start("m"), *failed_start("other")[:2]], "x")
    assert log.earlier_runs == 1
    assert "other" in log.last.lines[-1].text
    assert not log.notes


def test_a_last_start_that_was_ended_by_somebody_is_judged_itself() -> None:
    ended = [*failed_start()[:2], "KeyboardInterrupt"]
    assert log_of_lines([*failed_start(), *ended], "x").last.lines[-1].text == "KeyboardInterrupt"


def at_port(port: int | None, model: str, *said: str) -> list[str]:
    """A start of a server that signs no line; None: at the port that vLLM takes where the launch names none."""
    named = f", 'port': {port}" if port is not None else ""
    return [
        "INFO 05-21 10:11:12 [api_server.py:1] vLLM API server version 0.10.0",
        f"INFO 05-21 10:11:12 [utils.py:1] non-default args: {{'model': '{model}'{named}}}",
        *said,
    ]


def of_text(lines: list[str]) -> Log:
    read = stream(iter(["\n".join(lines).encode()]))
    assert not isinstance(read, NotText)
    return cut(parse_lines(read), "x")


def test_what_one_unit_wrote_is_one_server_whatever_it_was_told_to_serve() -> None:
    lines = [*at_port(None, "chat", "OSError: You are trying to access a gated repo."), *at_port(8001, "embed")]
    assert not log_of_lines(lines, "journal").others
    unit = "Mar 14 09:01:00 room systemd[1]: Started vllm.service - vLLM."
    assert not of_text([unit, *lines]).others


@pytest.mark.parametrize(
    ("second", "servers"),
    [
        (at_port(8001, "embed"), 2),
        (at_port(8001, "chat"), 1),  # the same model at another port is a second try
        (at_port(8000, "embed"), 1),  # another model at the same port takes the place of the first
        (at_port(None, "embed"), 1),
    ],
)
def test_servers_in_turn_are_several_where_model_and_port_are_others(second: list[str], servers: int) -> None:
    log = of_text([*at_port(None, "chat", "INFO:     Application startup complete."), *second])
    assert len(log.others) + 1 == servers
    assert log.earlier_runs == 2 - servers


def test_a_server_that_starts_again_after_another_has_its_earlier_start_in_its_own_log() -> None:
    log = of_text([*at_port(None, "chat"), *at_port(8001, "embed"), *at_port(None, "chat", "last")])
    assert (log.earlier_runs, log.last.lines[-1].text) == (1, "last")
    assert [one.earlier_runs for one in log.others] == [0]


def test_of_two_servers_in_turn_the_failed_one_is_told_and_the_other_by_its_port() -> None:
    failed = at_port(8001, "embed", "OSError: You are trying to access a gated repo.")
    told = judged_text("\n".join([*failed, *at_port(8002, "chat", "INFO:     Application startup complete.")]))
    assert (told.verdict, [one.verdict for one in told.others]) == (Verdict.FINDING, [Verdict.OK])
    assert [one.subject.place for one in told.others] == ["port 8002"]


REFUSED = "OSError: You are trying to access a gated repo."
SERVES = "INFO:     Application startup complete."


@pytest.mark.parametrize(
    ("second", "servers"),
    [
        (at_port(None, "embed", SERVES), 2),  # that another model serves mends nothing
        (at_port(None, "chat", SERVES), 1),
        (at_port(8001, "chat", SERVES), 1),
        ([*at_port(None, "embed", SERVES), *at_port(None, "chat", SERVES)], 2),
    ],
)
def test_a_start_that_failed_is_mended_by_a_start_of_its_own_model_alone(second: list[str], servers: int) -> None:
    log = of_text([*at_port(None, "chat", REFUSED), *second])
    assert len(log.others) + 1 == servers
    mended = judged_text("\n".join([*at_port(None, "chat", REFUSED), *second])).verdict is not Verdict.FINDING
    assert mended is any("'chat'" in line for line in second)


def test_what_a_container_of_one_name_wrote_is_one_server_whatever_it_was_told_to_serve() -> None:
    lines = [*at_port(None, "chat", REFUSED), *at_port(None, "embed", SERVES)]
    assert not of_text([f"vllm-1  | {line}" for line in lines]).others


def test_below_a_piece_that_failed_a_server_that_began_before_is_another() -> None:
    """`cat a b`: the second text begins before the last line of the first was written, which has no beginning."""
    failed = [
        "(EngineCore pid=88) ERROR 05-21 10:19:58 [core.py:710] EngineCore failed to start.",
        f"(EngineCore pid=88) ERROR 05-21 10:19:58 [core.py:710] {REFUSED}",
    ]
    later = [line.replace("10:11:12", "10:20:12") for line in at_port(None, "embed", SERVES)]
    assert len(of_text([*failed, *at_port(None, "embed", SERVES)]).others) == 1
    assert not of_text([*failed, *later]).others


@pytest.mark.parametrize(("again", "others"), [("chat", 0), ("embed", 1)])
def test_a_log_that_was_given_twice_is_told_once(again: str, others: int) -> None:
    failed = f"ERROR 05-21 10:19:58 [engine.py:1] {REFUSED}"
    told = judged_text("\n".join([*at_port(None, "chat", failed), *at_port(None, again, failed)]))
    assert told.verdict is Verdict.FINDING
    assert len(told.others) == others


TRIES = [
    "$ vllm serve acme/chat-70b --tensor-parallel-size 3",
    "ValueError: Total number of attention heads (64) must be divisible by tensor parallel size (3).",
    "$ vllm serve acme/chat-70b --tensor-parallel-size 2 --gpu 2",
    "vllm: error: unrecognized arguments: --gpu 2",
]


def test_of_launches_that_were_typed_one_after_another_the_last_that_failed_is_judged() -> None:
    assert [f.code for f in judged_text("\n".join(TRIES)).findings] == ["VD502"]
    assert [f.code for f in judged_text("\n".join(TRIES[:2])).findings] == ["VD503"]


def test_a_launch_that_is_only_typed_below_is_no_run() -> None:
    assert [f.code for f in judged_text("\n".join([*TRIES[:2], TRIES[2]])).findings] == ["VD503"]


def test_a_launch_that_is_typed_thousands_of_times_costs_no_more_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    fails = runs._fails

    def counted(line: LogLine) -> bool:
        nonlocal asked
        asked += 1
        return fails(line)

    monkeypatch.setattr(runs, "_fails", counted)
    lines = [*log_of_lines([*TRIES[:2], *[TRIES[0]] * 3000], "x").last.lines]
    asked = 0
    assert runs.starts(lines) == []
    assert asked <= 2 * len(lines)
