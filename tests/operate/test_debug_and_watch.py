"""What debug turns on, for which release; what a drop-in's name says; what watch makes of two looks."""

import datetime
from pathlib import Path

import msgspec
import pytest

from tests.operate.guard.test_store import look
from vllm_doctor.cli.debug import What
from vllm_doctor.cli.span import seconds
from vllm_doctor.gather.processes import Ran
from vllm_doctor.operate import temporary
from vllm_doctor.operate.debug.switch import switches, text, unread
from vllm_doctor.operate.temporary import NotDone, Temporary, once_free
from vllm_doctor.operate.watch.current import figures
from vllm_doctor.records.sample import CardUse, Counters, Look
from vllm_doctor.records.temporary import purpose, until
from vllm_doctor.render.watch import page

NOW = datetime.datetime(2026, 11, 20, 3, 0, tzinfo=datetime.UTC)
GIB = 1 << 30


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    said: list[list[str]] = []

    def run(argv: list[str], **_: object) -> Ran:
        said.append(list(argv))
        return Ran(0, b"", "")

    monkeypatch.setattr(temporary, "run", run)
    return said


def test_each_word_is_a_switch_with_what_it_costs() -> None:
    assert {one.value for one in What} == set(switches())
    assert text([switches()["log"], switches()["cuda"]]).splitlines()[1:] == [
        "[Service]",
        "Environment=VLLM_LOGGING_LEVEL=DEBUG",
        "Environment=CUDA_LAUNCH_BLOCKING=1",
    ]


def test_a_variable_that_the_release_does_not_read_is_refused_and_others_are_not() -> None:
    log, cuda = switches()["log"], switches()["cuda"]
    assert unread(log, "0.33.0") is None
    assert unread(cuda, "0.2.0") is None  # CUDA reads it
    gone = msgspec.structs.replace(log, variable="VLLM_ATTENTION_BACKEND")
    assert unread(gone, "0.33.0") == "vLLM 0.33.0 does not read VLLM_ATTENTION_BACKEND"
    assert unread(gone, "0.10.2") is None


def test_its_end_is_armed_before_it_is_written_and_its_name_says_when(tmp_path: Path, systemd: list[list[str]]) -> None:
    drop_in = Temporary("vllm@main.service", "debug", restart=True, runtime=tmp_path)
    file = drop_in.put("[Service]\n", 900, NOW)
    assert file.name == "zzy-vllm-doctor-debug-until-20261120T031500Z.conf"
    assert (until(str(file)), purpose(str(file))) == (NOW + datetime.timedelta(minutes=15), "debug")
    armed = next(words for words in systemd if words[0] == "systemd-run")
    assert "--on-active=900" in armed
    assert armed[-4:] == ["--no-block", "try-restart", "--", "vllm@main.service"]
    assert f"--property=ExecStartPre=/bin/rm -f -- {file}" in armed
    assert systemd.index(armed) < systemd.index(["systemctl", "daemon-reload"])
    assert drop_in.put("[Service]\n", 60, NOW).name.endswith("T030100Z.conf")
    assert len(list(file.parent.iterdir())) == 1
    assert drop_in.take_away()
    assert not drop_in.take_away()
    assert not file.parent.exists()


def test_what_waits_for_the_lock_is_tried_twice_a_minute_and_ends_with_its_deed(systemd: list[list[str]]) -> None:
    once_free("vllm-doctor-resume-vllm@main", Path("/run/lock file"), ["/bin/systemctl", "start", "vllm@main.service"])
    (armed,) = (words for words in systemd if words[0] == "systemd-run")
    assert armed[1:3] == ["--on-calendar=*-*-* *:*:00/30", "--timer-property=AccuracySec=1s"]
    assert '--property=ExecCondition=/usr/bin/flock --nonblock "/run/lock file" /bin/true' in armed
    assert "--property=ExecStartPre=/bin/systemctl --no-block stop vllm-doctor-resume-vllm@main.timer" in armed
    assert armed[-4:] == ["--", "/bin/systemctl", "start", "vllm@main.service"]


def test_without_a_timer_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "run", lambda *_, **__: Ran(1, b"", "no bus"))
    with pytest.raises(NotDone, match="nothing was changed: no bus"):
        Temporary("vllm@main.service", "recover", restart=False, runtime=tmp_path).put("x", 60, NOW)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotDone, match="is not the name of a service"):
        Temporary("../evil.service", "recover", restart=False, runtime=tmp_path).put("x", 60, NOW)


@pytest.mark.parametrize(
    ("said", "value"), [("90s", 90), ("15m", 900), ("1.5h", 5400), ("7d", 604800), ("x", None), ("-1h", None)]
)
def test_a_span_is_a_number_and_a_unit(said: str, value: float | None) -> None:
    assert seconds(said) == value


def counters(generated: float, spent: tuple[float, float]) -> Counters:
    return Counters(
        running=4, waiting=2, kv=0.25, generated=generated, prompt=0, preemptions=3, first=spent, between=spent
    )


def seen(awake: float, **more: object) -> Look:
    return msgspec.structs.replace(look(**more), awake=awake)


def test_two_looks_make_rates_bars_and_means() -> None:
    card = CardUse("GPU-1", 70 * GIB, 2 * GIB, 80 * GIB, 7 * GIB)
    before = seen(0.0, counters=counters(1000, (1.0, 10)), cards=(card,))
    now = seen(2.0, counters=counters(1300, (2.0, 30)), cards=(card,))
    told = figures(before, now, {"weights": 14.0, "graphs": 1.0, "KV cache": 40.0}, "VD301: preempted")
    assert (told.output_rate, told.first_ms, told.preempted_rate) == (150, 50, 0)
    assert {p.name: p.gib for p in told.cards[0].parts} == {
        "weights": 14,
        "graphs": 1,
        "KV used": 10,
        "KV free": 30,
        "its other memory": 15,
        "other processes": 2,
        "driver": 1,
        "free": 7,
    }
    shown = page([told], "now", width=80, color=False)
    assert max(map(len, shown.splitlines())) <= 80
    for part in ("GPU-1, 80.00 GiB", "4 running, 2 waiting, 3 preempted", "150 out", "VD301", "25%"):
        assert part in shown


def test_a_new_run_and_a_counter_that_fell_have_no_rates() -> None:
    before = seen(0.0, counters=counters(1000, (1.0, 10)))
    assert figures(before, seen(2.0, counters=counters(500, (0.5, 5))), {}).output_rate is None
    assert figures(before, seen(2.0, invocation="b", counters=counters(1300, (2.0, 30))), {}).first_ms is None
