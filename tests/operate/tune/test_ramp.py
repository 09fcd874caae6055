"""The ramp around a service: the order of its deeds, the way back in every case, and going on after it was cut off."""

import msgspec
import pytest

from vllm_doctor.operate.tune import state as tune_state
from vllm_doctor.operate.tune.decide import Limits, TrialSetting
from vllm_doctor.operate.tune.load_generator import LoadResult, LoadStream
from vllm_doctor.operate.tune.ramp import Ramp, ramp
from vllm_doctor.operate.tune.unit import OutOfTime, TuneNotDone
from vllm_doctor.operate.tune.watch import ScrapePeaks


class Service:
    """A service in memory: throughput grows with the sequences up to a knee, each run takes a minute."""

    def __init__(self, knee=32, breaks=None):
        self.knee, self.breaks = knee, breaks or {}
        self.deeds, self.setting, self.trial, self.now = [], TrialSetting(8), False, 0.0

    def clock(self):
        return self.now

    def guard(self, _seconds):
        self.deeds.append("guard")

    def apply(self, setting):
        self.deeds.append(f"apply {setting.seqs}")
        self.trial, self.setting = True, setting
        self._break("apply")

    def ready(self, _within_s):
        self.now += 20
        return self._break("ready")

    def measure(self, at_once, within_s):
        if within_s < 30:
            raise OutOfTime
        self.deeds.append(f"measure {at_once}")
        self.now += 40
        self._break("measure")
        streams = tuple(LoadStream(0.1, (0.02,) * 9, 10) for _ in range(min(at_once, self.knee) * 3))
        return LoadResult(streams, (), 30.0), ScrapePeaks(0.01 * at_once, float(at_once), 0.0, 0.0, 0.5, 60)

    def alive(self):
        return self._break("alive")

    def explain(self):
        return None

    def restore(self):
        if not self.trial:
            return False
        self.deeds.append("restore")
        self.trial, self.setting = False, TrialSetting(8)
        return True

    def _break(self, where):
        what = self.breaks.get((where, self.setting.seqs))
        if isinstance(what, BaseException):
            raise what
        return what


@pytest.fixture
def what(tmp_path):
    return Ramp(
        start=TrialSetting(8),
        limits=Limits(),
        allowed=lambda _: None,
        budget_s=3600,
        ready_s=300,
        state=tmp_path / "tune.json",
        key="k",
    )


def go(what, service):
    said = []
    return ramp(what, service, said.append, service.clock), said


def test_the_service_as_it_stands_is_measured_without_a_restart(what):
    outcome, _ = go(what, service := Service())
    assert service.deeds[0] == "measure 8"
    assert outcome.best.setting.seqs == 32
    assert outcome.complete
    assert outcome.restored


def test_the_guard_is_armed_before_every_trial_and_what_served_is_put_back_once(what):
    _, _ = go(what, service := Service())
    for i, deed in enumerate(service.deeds):
        if deed.startswith("apply"):
            assert service.deeds[i - 1] == "guard"
    assert service.deeds.count("restore") == 1
    assert service.deeds[-1] == "restore"


@pytest.mark.parametrize(
    ("where", "what_breaks"),
    [
        ("apply", TuneNotDone("systemctl restart failed: no such binary")),
        ("ready", "the service ended while it started"),
        ("alive", "the service ended under the load"),
    ],
)
def test_a_trial_that_fails_is_a_row_and_the_rest_is_put_back(what, where, what_breaks):
    outcome, _ = go(what, service := Service(breaks={(where, 16): what_breaks}))
    failed = next(r for r in outcome.rows if r.setting.seqs == 16)
    assert failed.problem == str(what_breaks)
    assert outcome.best.setting.seqs < 16
    assert service.deeds[-1] == "restore"


@pytest.mark.parametrize("signal", [KeyboardInterrupt(), RuntimeError("a bug of ours")])
@pytest.mark.parametrize("where", ["apply", "ready", "measure", "alive"])
def test_whatever_interrupts_the_service_is_put_back(what, where, signal):
    service = Service(breaks={(where, 16): signal})
    with pytest.raises(type(signal)):
        go(what, service)
    assert service.deeds[-1] == "restore"
    assert service.setting == TrialSetting(8)


def test_after_ctrl_c_it_goes_on_with_the_step_that_was_cut(what):
    with pytest.raises(KeyboardInterrupt):
        go(what, Service(breaks={("measure", 16): KeyboardInterrupt()}))
    outcome, said = go(what, service := Service())
    assert outcome.resumed == 1
    assert service.deeds[1] == "apply 16"
    assert "continues from 1 rows" in said[0]
    assert [r.setting.seqs for r in outcome.rows][:3] == [8, 16, 32]


def test_a_step_in_which_the_machine_went_down_is_not_tried_again(what):
    tune_state.save(what.state, tune_state.TuneState("k", trying=None))
    first, _ = go(what, Service(knee=8))
    tune_state.save(what.state, tune_state.TuneState("k", first.rows[:1], trying=TrialSetting(16)))
    outcome, _ = go(what, service := Service())
    assert "apply 16" not in service.deeds
    assert "interrupted" in outcome.rows[1].problem


def test_rows_of_another_launch_are_not_taken_for_this_one(what):
    go(what, Service())
    outcome, _ = go(msgspec.structs.replace(what, key="another"), Service())
    assert outcome.resumed == 0


def test_a_finished_ramp_is_answered_from_its_rows_without_touching_the_service(what):
    before, _ = go(what, Service())
    after, _ = go(what, service := Service())
    assert service.deeds == []
    assert after.best == before.best


def test_the_time_is_kept_and_the_next_step_named(what):
    outcome, _ = go(msgspec.structs.replace(what, budget_s=130), service := Service())
    assert not outcome.complete
    assert "the next step would be 32 sequences" in outcome.why
    assert service.now <= 130 + 300


@pytest.mark.parametrize("slow", [50, 60, 71, 400])
def test_a_step_that_the_time_cuts_off_is_no_row_and_is_put_back(what, slow):
    service, quick = Service(), Service.ready

    def ready(within_s):
        answer = quick(service, within_s)
        if service.trial:
            service.now += min(slow - 20, within_s - 20)
            return None if slow <= within_s else "no answer on /health"
        return answer

    service.ready = ready
    outcome, _ = go(msgspec.structs.replace(what, budget_s=130), service)
    assert "the time is used up while 16 sequences was tried" in outcome.why
    assert not outcome.complete
    assert [r.setting.seqs for r in outcome.rows] == [8]
    assert service.now <= 130 + 20  # and the way back


def test_without_a_guard_nothing_is_tried(what):
    service = Service()
    service.guard = lambda _: (_ for _ in ()).throw(TuneNotDone("the guard could not be armed"))
    outcome, _ = go(what, service)
    assert "guard" in outcome.why
    assert not [d for d in service.deeds if d.startswith("apply")]
    assert not outcome.complete


def test_a_way_back_that_fails_is_said_before_all_else(what):
    service = Service()
    applied = service.restore
    service.restore = lambda: (
        applied() and service.breaks.update({("ready", 8): "the service ended while it started"}) is None
    )
    outcome, said = go(what, service)
    assert not outcome.restored
    assert outcome.why.startswith("the earlier configuration DOES NOT ANSWER")
    assert any("DOES NOT ANSWER" in line for line in said)


def test_a_server_whose_metrics_vanish_is_not_trusted(what):
    service = Service()
    service.measure = lambda *_: (
        LoadResult((LoadStream(0.1, (0.02,), 2),), (), 1.0),
        ScrapePeaks(None, None, None, None, None, 0),
    )
    outcome, _ = go(what, service)
    assert outcome.best is None
    assert "metrics" in outcome.why
