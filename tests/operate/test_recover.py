"""Whose process on a GPU is ended: real processes, a simulated driver, systemd's mark."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_doctor.gather import procfs
from vllm_doctor.gather.unit_line import UnitLine
from vllm_doctor.operate.history import deeds
from vllm_doctor.operate.launch_text import can_change
from vllm_doctor.operate.recover import steps
from vllm_doctor.operate.recover.conservative import less, text
from vllm_doctor.operate.recover.orphans import Holder, end, holders
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.records.host import Gpu, GpuProcess

UNIT = "vllm@main.service"
MARK = "a" * 32
GIB = 1 << 30
LIVES = "import signal, time; signal.signal(signal.SIGTERM, {}); print('up', flush=True); time.sleep(600)"


@pytest.fixture
def start() -> Iterator[object]:
    running: list[subprocess.Popen[str]] = []

    def starter(mark: str | None = None, *, deaf: bool = False) -> subprocess.Popen[str]:
        env = {k: v for k, v in os.environ.items() if k != "INVOCATION_ID"} | ({"INVOCATION_ID": mark} if mark else {})
        code = LIVES.format("signal.SIG_IGN" if deaf else "signal.SIG_DFL")
        # The name of an engine, whoever's it is: a name decides nothing.
        made = subprocess.Popen(
            ["VLLM::EngineCore", "-c", code], executable=sys.executable, env=env, stdout=subprocess.PIPE, text=True
        )
        assert made.stdout is not None
        made.stdout.readline()
        running.append(made)
        return made

    yield starter
    for one in running:
        one.kill()
        one.wait()


def gpu(*pids: int) -> Gpu:
    processes = tuple(GpuProcess(pid, 70 * GIB) for pid in pids)
    return Gpu(0, "NVIDIA H100 80GB HBM3", uuid="GPU-1", total_bytes=80 * GIB, free_bytes=GIB, processes=processes)


def test_only_what_bears_the_units_mark_is_its_own(start) -> None:
    mine, another, nobody = start(MARK), start("b" * 32), start()
    gone = start(MARK)
    gone.kill()
    gone.wait()
    seen = holders([gpu(mine.pid, another.pid, nobody.pid, gone.pid)], UNIT, frozenset({MARK}))
    found = {h.pid: h.why_not for h in seen}
    assert found == {
        mine.pid: "",
        another.pid: "another service started it",
        nobody.pid: "no evidence shows that this unit started it",
        gone.pid: "gone, or in another namespace",
    }


def test_it_is_asked_first_and_killed_when_it_does_not_hear(start) -> None:
    polite, deaf, neighbour = start(MARK), start(MARK, deaf=True), start("b" * 32)
    mine = [h for h in holders([gpu(polite.pid, deaf.pid, neighbour.pid)], UNIT, frozenset({MARK})) if not h.why_not]
    assert end(mine, 1.0) == ()
    assert polite.wait(10) == -signal.SIGTERM
    assert deaf.wait(10) == -signal.SIGKILL
    assert neighbour.poll() is None
    assert end(mine, 0.1) == ()  # twice is as once


def test_a_number_that_is_another_process_by_now_is_left_alone(start) -> None:
    process = start(MARK)
    began = procfs.started(process.pid)
    assert began is not None
    stale = Holder(process.pid, began - 1, "GPU-1", None, "vllm", "")
    assert end([stale], 0.2) == ()
    time.sleep(0.1)
    assert process.poll() is None


ARGV = ("/opt/vllm/bin/vllm", "serve", "/srv/m", "--gpu-memory-utilization", "0.92", "--max-num-seqs", "256")
EFFECT = {"max-num-batched-tokens": 16384.0, "max-num-seqs": 256.0, "gpu-memory-utilization": 0.92}


def foresees(outcome: object) -> object:
    """A planner that says this of the changed options."""

    def predict(changed: dict[str, object]) -> Prediction:
        return type("P", (), {"outcome": outcome(changed)})()

    return predict


def lowered(told) -> dict[str, object]:
    return {c.name: c.after for c in told.changes}


LINE = UnitLine(ARGV[0], ARGV, "")


def test_the_words_of_a_launch_stay_as_systemd_has_them() -> None:
    words = (*ARGV[:3], "--served-model-name", "My  Model", "a$$b", "--api-key", "${KEY}", "50%", "x\ny")
    said = text(UnitLine(ARGV[0], words, "-:"), less(words, None, {}).changes)
    assert said.splitlines()[-1] == (
        f'ExecStart=-:{" ".join(ARGV[:3])} --served-model-name "My  Model" a$$b --api-key "${{KEY}}" 50%% '
        '"x\\x0ay" --max-num-seqs 16'
    )


@pytest.mark.parametrize(
    "line",
    [UnitLine("/bin/bash", ("/bin/bash", "-c", "exec vllm serve m"), ""), UnitLine("/v", ("other", "serve"), ""), None],
)
def test_what_is_not_vllms_own_words_is_not_rewritten(line: UnitLine | None) -> None:
    assert not can_change(line)
    assert can_change(LINE)


def test_the_emergency_figures_are_the_ceiling_of_what_the_plan_lets_start() -> None:
    told = less(ARGV, foresees(lambda _: "ok"), EFFECT)
    assert lowered(told) == {"gpu-memory-utilization": 0.75, "max-num-seqs": 16, "max-num-batched-tokens": 8192}
    assert "--gpu-memory-utilization 0.75 --max-num-seqs 16 --max-num-batched-tokens 8192" in text(LINE, told.changes)
    small = (*ARGV[:3], "--gpu-memory-utilization", "0.5", "--max-num-seqs", "4", "--max-num-batched-tokens", "2048")
    assert less(small, foresees(lambda _: "ok"), {}).changes == ()


def test_a_pool_that_would_be_too_small_keeps_its_share_of_the_memory() -> None:
    told = less(ARGV, foresees(lambda c: "kv-too-small" if "gpu-memory-utilization" in c else "ok"), EFFECT)
    assert lowered(told) == {"max-num-seqs": 16, "max-num-batched-tokens": 8192}
    assert told.why == "the plan predicts ok; with gpu-memory-utilization lowered too it would not start"


def test_without_a_plan_only_the_number_of_sequences_is_lowered() -> None:
    assert lowered(less(ARGV, None, {})) == {"max-num-seqs": 16}


def test_a_launch_that_cannot_start_is_not_made_better_by_less() -> None:
    told = less(ARGV, foresees(lambda _: "oom-weights"), EFFECT)
    assert told.changes == ()
    assert "no smaller setting helps" in told.why


def plan_of(*gpus: Gpu) -> steps.RecoveryPlan:
    return steps.RecoveryPlan(
        unit="vllm@a.service",
        line=None,
        active="active",
        drained=False,
        processes=(),
        gpus=gpus,
        gpus_unknown="",
        mine=(),
        others=(),
        less=steps.Less((), ""),
        hours=1,
    )


def test_memory_that_nobody_holds_is_waited_for_on_the_units_own_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    free = Gpu(0, "NVIDIA H100 80GB HBM3", uuid="GPU-0", total_bytes=80 << 30, free_bytes=79 << 30)
    held = Gpu(1, "NVIDIA H100 80GB HBM3", uuid="GPU-1", total_bytes=80 << 30, free_bytes=20 << 30)
    monkeypatch.setattr(steps, "seen", lambda _unit: ((free, held), "", ()))
    monkeypatch.setattr(steps, "_FREE_S", 0.0)
    monkeypatch.setattr("time.sleep", lambda _s: None)
    said: list[str] = []
    assert steps._freed(plan_of(free), said.append) == ""
    assert said == ["GPU 0: 79.00 of 80.00 GiB free"]
    assert "GPU 1: 60.00 GiB are held by no process" in steps._freed(plan_of(free, held), said.append)


def test_ctrl_c_leaves_a_word_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), steps._cut_off("vllm@a.service"):
        raise KeyboardInterrupt
    assert [(e.kind, e.text[:12]) for e in deeds.events("vllm@a.service")] == [("not-recovered", "interrupted:")]
