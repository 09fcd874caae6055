# ruff: noqa: ARG002 - the hands have the names of the protocol
"""The guard's loop with hands that are told what to see: what it does, says, keeps, and leaves alone."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from tests.operate.guard.test_store import look
from vllm_doctor.operate.guard import act, helper, restart
from vllm_doctor.operate.guard.act import DeedEnd
from vllm_doctor.operate.guard.first_finding import Explanation, beside
from vllm_doctor.operate.guard.loop import Guard
from vllm_doctor.operate.guard.memory import Decision, DecisionKind
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.operate.guard.restart import Ask, NotPermitted
from vllm_doctor.operate.history.store import Store
from vllm_doctor.operate.history.store_reader import Reader
from vllm_doctor.records.finding import MemoryTerm, MemoryUse
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.sample import Counters, Look

UNIT = "vllm@main.service"
MEMORY = "weights 14.90 GiB (15.10 planned)"
POLICY = Policy(units=(UNIT,), act=True, beat_s=1, every_s=1, engine_silent_s=4, cool_down_s=3600)


class Hands:
    """A host whose clock is moved on by each look; the engine stands still until it is restarted."""

    def __init__(self, refuses: str = "", refused: str | None = None) -> None:
        self.asked: list[Ask] = []
        self.refuses, self._refused = refuses, refused
        self.up = self.begun = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.run = 0

    def look(self, names: tuple[str, ...], *, cards: bool, canaries: Mapping[str, float]) -> Known[tuple[Look, ...]]:
        self.up += 1
        counters = Counters(running=2, waiting=0, kv=0.5, prompt=1, generated=self.run * self.up, finished=0)
        came = self.run > 0 if UNIT in canaries else None
        now = {"up": self.up, "awake": self.up, "at": 1e9 + self.up, "invocation": f"run{self.run}", "engine_cpu": 1.0}
        return Known((msgspec.structs.replace(look(), counters=counters, canary=came, **now),), "here")

    def kernel(self, since: float) -> tuple[str, ...]:
        return ("NVRM: Xid (PCI:0000:05:00): 13, token=sk-abcdefghijklmnopqrstuvwxyz0123456789",)

    def refused(self, unit: str) -> str | None:
        return self._refused

    def restart(self, ask: Ask) -> None:
        self.asked.append(ask)
        if self.refuses:
            raise NotPermitted(self.refuses)
        self.run += 1

    def explain(self, unit: str) -> Explanation:
        return Explanation("", MEMORY) if self.run else Explanation("VD909: the engine is dead")


def beat(guard: Guard, until: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end
        guard.beat()
        time.sleep(0.001)


@pytest.fixture
def told() -> list[str]:
    return []


def test_a_dead_engine_is_diagnosed_restarted_and_answers_and_all_of_it_is_kept(
    tmp_path: Path, told: list[str]
) -> None:
    hands, store = Hands(), Store(tmp_path / "s")
    guard = Guard(POLICY, store, hands, told.append)
    beat(guard, lambda: any("answers:" in line for line in told))
    assert [(ask.unit, ask.cut) for ask in hands.asked] == [(UNIT, True)]
    lines = [line.removeprefix(f"{UNIT}: ") for line in told if line.startswith(UNIT)]
    assert lines[0].startswith("engine-dead: restarts it: 2 running, 0 waiting, no token for 4 s (limit 4")
    assert lines[1] == "diagnosed: before the restart: VD909: the engine is dead"
    assert lines[2].startswith("answers: restarted; a completion came back after ")
    kinds = [event.kind for event in Reader(tmp_path / "s").events(UNIT, 0)]
    assert kinds[:3] == ["engine-dead", "diagnosed", "answers"]
    assert "sk-abcdefghijklmnop" not in repr(Reader(tmp_path / "s").events(None, 0))


def test_a_restart_that_was_refused_is_not_tried_with_every_look(tmp_path: Path, told: list[str]) -> None:
    hands = Hands(refuses="no right to restart")
    guard = Guard(POLICY, None, hands, told.append)
    beat(guard, lambda: any("not-restarted: no right" in line for line in told))
    for _ in range(40):
        guard.beat()
    assert len(hands.asked) == 1
    assert len([line for line in told if "would restart it (the last attempt failed)" in line]) == 1


class Script(Hands):
    """A host that shows one look after the other, the last one for ever."""

    def __init__(self, *looks: dict[str, object]) -> None:
        super().__init__()
        self.looks = list(looks)

    def look(self, names: tuple[str, ...], *, cards: bool, canaries: Mapping[str, float]) -> Known[tuple[Look, ...]]:
        now = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return Known((look(**{"invocation": "mine", "canary": None, **now}),), "here")


LOADING: dict[str, object] = {"health": 0}
SERVES: dict[str, object] = {"canary": True}


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        ({"drained": True}, "it was drained"),
        ({"active": "inactive"}, "it was stopped"),
        ({"held": "playbooks/rollback.yml"}, "it is being changed (playbooks/rollback.yml)"),
        ({"invocation": "another's"}, "something other than its Restart= started it again"),
    ],
)
def test_an_answer_after_another_took_the_unit_in_hand_is_not_the_guards(
    meanwhile: dict[str, object], said: str
) -> None:
    assert acted(LOADING, LOADING | meanwhile, SERVES)[-1][0] == "left-alone"
    assert (
        f"restarted; {said}, so the guard stopped waiting for it, after" in acted(LOADING, LOADING | meanwhile)[-1][1]
    )


def test_a_start_that_systemd_repeats_is_waited_for_and_one_that_it_gave_up_is_not() -> None:
    second: dict[str, object] = {"invocation": "second", "restarts": 1}
    assert acted(LOADING, LOADING | second, SERVES | second)[0] == ("answers", "a completion came back")
    assert acted(LOADING, {"active": "failed", "health": 0})[0] == ("no-answer", "the service failed")


def acted(*looks: dict[str, object]) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    policy = msgspec.structs.replace(POLICY, beat_s=0.01)
    why = Decision(DecisionKind.GROWTH, "it grows", restart=True)
    hands = Script(*looks)
    hands.run = 1  # nothing to be found before
    assert act.restarted(hands, policy, UNIT, why, lambda kind, text: steps.append((kind, text))) is DeedEnd.RESTARTED
    assert [ask.why for ask in hands.asked] == ["growth: it grows"]
    return [(kind, text.removeprefix("restarted; ").rpartition(" after ")[0] if kind != "left-alone" else text)
            for kind, text in steps]  # fmt: skip


def test_each_step_of_a_restart_is_said_when_it_is_done(told: list[str]) -> None:
    hands = Hands()
    waits = threading.Event()
    hands.restart = lambda _ask: waits.wait(60)  # type: ignore[method-assign]
    guard = Guard(POLICY, None, hands, told.append)
    beat(guard, lambda: any("diagnosed: before the restart" in line for line in told))
    assert not any("answers" in line for line in told)
    waits.set()


def test_each_start_is_kept_with_its_planned_memory_and_no_unit_s_diagnosis_is_lost(told: list[str]) -> None:
    hands = Two()
    guard = Guard(msgspec.structs.replace(POLICY, units=(UNIT, "vllm@two.service")), None, hands, told.append)
    beat(guard, lambda: sum("memory:" in line for line in told) == 2)
    assert sorted(line for line in told if "memory:" in line) == [
        f"{UNIT}: memory: {MEMORY}",
        f"vllm@two.service: memory: {MEMORY}",
    ]


class Two(Hands):
    """Two services that load at first, and then begin to serve in the same moment."""

    def look(self, names: tuple[str, ...], *, cards: bool, canaries: Mapping[str, float]) -> Known[tuple[Look, ...]]:
        seen = super().look(names, cards=cards, canaries=canaries).value[0]
        self.run = 1
        seen = msgspec.structs.replace(seen, invocation="one", health=200 if self.up - self.begun > 3 else 0)
        return Known((seen, msgspec.structs.replace(seen, unit="vllm@two.service")), "here")


def test_what_a_start_took_is_told_where_it_was_planned() -> None:
    terms = (MemoryTerm("weights", 14.9, 15.1, "the log"), MemoryTerm("CUDA graphs", 0.5, None, "the log"))
    assert beside(MemoryUse(terms, ())) == MEMORY
    assert beside(MemoryUse(terms[1:], ())) == beside(None) == ""


def test_what_a_store_says_of_itself_does_not_wait_for_systemd(tmp_path: Path, told: list[str]) -> None:
    (tmp_path / "s").write_bytes(b"x" * 5000)
    hands = Hands()
    hands.look = lambda *_, **__: Unknown("systemd: did not answer", "")  # type: ignore[method-assign]
    Guard(POLICY, Store(tmp_path / "s"), hands, told.append).beat()
    assert "not readable (file is not a database); kept as s.spoiled-" in told[0]


def test_a_rehearsal_and_a_refusal_do_nothing_and_are_said_once(told: list[str]) -> None:
    for guard, hands in (
        (Guard(POLICY, None, (one := Hands()), told.append, dry=True), one),
        (Guard(POLICY, None, (two := Hands(refused="it is drained")), told.append), two),
    ):
        for _ in range(30):
            guard.beat()
        assert hands.asked == []
    said = [line for line in told if "would restart it" in line]
    assert ["(a rehearsal" in said[0], "(it is drained)" in said[1], len(said)] == [True, True, 2]


def test_a_systemd_that_is_silent_is_said_and_the_guard_goes_on(told: list[str]) -> None:
    hands = Hands()
    hands.look = lambda *_, **__: Unknown("systemd: did not answer", "")  # type: ignore[method-assign]
    guard = Guard(POLICY, None, hands, told.append)
    assert [guard.beat(), guard.beat()] == [(), ()]
    assert told == ["the host: note: systemd: did not answer"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "not a request"),
        (b"reboot", "not a request"),
        (b'{"unit": "vllm@main.service", "argv": ["sh"]}', "unknown field"),
        (b'{"unit": "ssh.service"}', "no policy names a unit"),
        (b'{"unit": "ssh.service", "what": "complete"}', "not among the policy's units"),
    ],
)
def test_roots_helper_refuses_what_the_policy_does_not_name(
    said: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart, "LOCK", tmp_path / "lock")
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path))
    answer = helper.answered(said)
    assert answer["done"] is False
    assert why in str(answer["why"])
