"""The trial's drop-in, the guard's command and the plan's bound: what is written and what is refused."""

import stat
from dataclasses import dataclass

import pytest

from vllm_doctor.gather.unit_line import UnitLine
from vllm_doctor.operate.tune import unit as tune_unit
from vllm_doctor.operate.tune.allowed import allowance
from vllm_doctor.operate.tune.decide import TrialSetting
from vllm_doctor.operate.tune.unit import TunedUnit, TuneNotDone, changes, flag_number, trial
from vllm_doctor.records.verdict import Direction

ARGV = ("/opt/vllm/current/bin/vllm", "serve", "/srv/m", "--max-num-seqs", "8", "--api-key", "sec$ret")


@pytest.fixture
def service(tmp_path):
    return TunedUnit(
        "vllm@main.service", ARGV, "http://127.0.0.1:8000", UnitLine(ARGV[0], (*ARGV[:-1], "sec$$ret"), ""), tmp_path
    )


@pytest.fixture
def systemd(monkeypatch):
    """Every systemctl and systemd-run, written down instead of run."""
    from vllm_doctor.gather.processes import Ran

    said = []

    def run(argv, **_):
        said.append(list(argv))
        return Ran(0, b"", "")

    monkeypatch.setattr(tune_unit, "run", run)
    return said


def test_the_trial_is_the_same_launch_with_other_numbers(service):
    text = trial(service, TrialSetting(16, 4096))
    assert "ExecStart=\n" in text
    last = text.splitlines()[-1]
    assert last == (
        "ExecStart=/opt/vllm/current/bin/vllm serve /srv/m --max-num-seqs 16 --api-key sec$$ret "
        "--max-num-batched-tokens 4096"
    )


def test_what_stays_is_no_change():
    assert changes(ARGV, TrialSetting(8), lambda _: None) == ()
    change = changes(ARGV, TrialSetting(16), {"max-num-seqs": "vllm_max_num_seqs"}.get)[0]
    assert (change.before, change.after, change.direction) == (8, 16, Direction.RAISE)
    assert change.inventory_var == "vllm_max_num_seqs"


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (("vllm", "--max-num-seqs", "8"), 8),
        (("vllm", "--max_num_seqs=16"), 16),
        (("vllm", "--max-num-seqs", "16", "--max-num-se", "2k"), 2000),
        (("vllm", "--max-num-seqs"), None),
        (("vllm", "--max-num-seqs", "many"), None),
        (("vllm", "serve"), None),
    ],
)
def test_a_number_is_read_in_every_spelling(argv, value):
    assert flag_number(argv, "max-num-seqs") == value


def test_a_trial_is_for_root_to_read_and_the_way_back_leaves_nothing(service, systemd):
    tune_unit.apply(service, TrialSetting(16))
    assert stat.S_IMODE(service.drop_in.stat().st_mode) == 0o600
    assert ["systemctl", "restart", "vllm@main.service"] in systemd
    assert tune_unit.restore(service)
    assert not service.drop_in.parent.exists()
    assert systemd[-1] == ["systemctl", "restart", "vllm@main.service"]
    assert not tune_unit.restore(service)


def test_another_drop_in_is_left_alone(service, systemd):
    tune_unit.apply(service, TrialSetting(16))
    other = service.drop_in.parent / "50-limits.conf"
    other.write_text("[Service]\n")
    tune_unit.restore(service)
    assert other.exists()


def test_the_guard_knows_what_to_take_away_without_a_shell_reading_names(service, systemd):
    tune_unit.guard(service, 900)
    command = systemd[-1]
    assert command[:2] == ["systemd-run", "--on-active=900"]
    assert command[-3:] == ["restart", "--", "vllm@main.service"]
    assert f"--property=ExecStartPre=/bin/rm -f -- {service.drop_in}" in command
    assert not any(character in word for word in command for character in ";$"), "systemd 252 cannot read them again"


def test_a_name_that_is_no_service_is_refused(service, systemd):
    with pytest.raises(TuneNotDone):
        tune_unit.apply(TunedUnit("x; reboot.service", ARGV, "", service.line, service.runtime), TrialSetting(16))
    assert systemd == []


@dataclass(frozen=True)
class Predicted:
    outcome: str
    margin_gib: tuple[float, float] | None
    available_kv_gib: float | None = 10.0
    needed_kv_gib: float = 2.0
    checked: None = None
    odds: None = None
    doubtful: None = None


def test_the_plans_low_end_bounds_the_ramp():
    def predict(flags):
        return Predicted("ok", (12.0 - int(flags["max-num-seqs"]) / 16, 14.0))

    allowed = allowance(predict, TrialSetting(8), pool_tokens=None, request_tokens=640, most_seqs=None)
    assert allowed(TrialSetting(64)) is None
    assert "leaves 1.00 GiB" in allowed(TrialSetting(176))
    assert "needs 2.00" in allowed(TrialSetting(176))


def test_a_foreseen_failure_is_named():
    allowed = allowance(
        lambda _: Predicted("oom-profile", None),
        TrialSetting(8, 2048),
        pool_tokens=None,
        request_tokens=1,
        most_seqs=None,
    )
    assert allowed(TrialSetting(8, 4096)) == "with 8 sequences and 4096 tokens a step the plan predicts oom-profile"


def test_without_a_plan_the_pool_alone_speaks():
    allowed = allowance(None, TrialSetting(8, 2048), pool_tokens=6400, request_tokens=640, most_seqs=None)
    assert allowed(TrialSetting(10, 2048)) is None
    assert "KV cache of 6400" in allowed(TrialSetting(11, 2048))
    assert "without a plan" in allowed(TrialSetting(8, 4096))


def test_what_was_not_asked_for_is_not_tried():
    allowed = allowance(None, TrialSetting(8), pool_tokens=None, request_tokens=640, most_seqs=16)
    assert allowed(TrialSetting(16)) is None
    assert "more than 16" in allowed(TrialSetting(17))
