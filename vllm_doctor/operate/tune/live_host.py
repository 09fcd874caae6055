"""The ramp's host as it is: systemd, the server's port, the load, the doctor."""

import time
from collections.abc import Callable

import msgspec

from vllm_doctor.gather import probe
from vllm_doctor.gather.http import Pass
from vllm_doctor.gather.launch import parse_argv
from vllm_doctor.operate.tune import load_generator as tune_load
from vllm_doctor.operate.tune import unit as tune_unit
from vllm_doctor.operate.tune.decide import TrialSetting
from vllm_doctor.operate.tune.load_generator import Benchmark, LoadResult, LoadTarget
from vllm_doctor.operate.tune.unit import OutOfTime, TunedUnit
from vllm_doctor.operate.tune.watch import ScrapePeaks, Watch

# A request under way when a step ends is no failure of the server.
GRACE_S = 60.0


class LiveHost(msgspec.Struct):
    """One unit. `bench` makes the load where there is one; else ours does."""

    service: TunedUnit
    target: LoadTarget
    tokenizer: str
    step_s: float
    bench: Benchmark | None
    say: Callable[[str], None]
    pid: int | None = None

    @property
    def given(self) -> Pass:
        """What opens /metrics where it is closed."""
        return Pass(self.target.key, probe.certificate_of(parse_argv(self.service.argv).flags))

    def guard(self, seconds: int) -> None:
        """Arm what ends the trials if we cannot."""
        tune_unit.guard(self.service, seconds)

    def apply(self, setting: TrialSetting) -> None:
        """Restart the service with this setting."""
        tune_unit.apply(self.service, setting)

    def ready(self, within_s: float) -> str | None:
        """Wait until it answers; why it does not."""
        return tune_unit.ready(self.service, within_s)

    def measure(self, at_once: int, within_s: float) -> tuple[LoadResult, ScrapePeaks]:
        """Put the load on it and watch. A benchmark that cannot run gives way to our own load, and it is said. Raises
        OutOfTime where `within_s` seconds do not hold one step's load."""
        end = time.monotonic() + within_s
        if within_s < self.step_s:
            raise OutOfTime
        self.pid = tune_unit.main_pid(self.service.unit)
        if self.bench is not None:
            with Watch(self.service.base, given=self.given) as watch:
                load = self.bench.drive(self.target, self.tokenizer, at_once, min(self.step_s * 10, within_s))
            if load.streams:
                return load, watch.seen()
            if end - time.monotonic() < self.step_s:
                raise OutOfTime
            why = load.errors[0] if load.errors else "the benchmark measured nothing"
            self.say(f"  {why}: vllm-doctor's own load from here on")
            self.bench = None
        with Watch(self.service.base, given=self.given) as watch:
            grace = min(max(GRACE_S, self.step_s * 2), max(1.0, end - time.monotonic() - self.step_s))
            load = tune_load.drive(self.target, at_once, self.step_s, grace)
        if load.errors and time.monotonic() >= end - 0.5:
            raise OutOfTime  # requests that our own end cut off are no failure of the server
        return load, watch.seen()

    def alive(self) -> str | None:
        """Why it is not the same healthy process as before the load, or None."""
        pid = tune_unit.main_pid(self.service.unit)
        if pid is None or pid != self.pid:
            return "the service ended under the load"
        return tune_unit.ready(self.service, 10)

    def explain(self) -> str | None:
        """The doctor's first finding on the unit; None when it has none."""
        from vllm_doctor.gather.live import gather_live
        from vllm_doctor.rules.engine import diagnose

        findings = diagnose(gather_live(self.service.unit)).findings
        return f"{findings[0].code}: {findings[0].title}" if findings else None

    def restore(self) -> bool:
        """End the trial: what was there before serves again. False where no trial was under way."""
        ended = tune_unit.restore(self.service)
        tune_unit.disarm()
        return ended
