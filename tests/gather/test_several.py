"""Which vLLMs of a host are read, for how long, and what each picture may hold: stand-ins for the readings."""

from collections.abc import Callable
from typing import Any

import pytest

from vllm_doctor.gather import containers, kernel, live, nvml, place, prometheus, systemd
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.gather.systemd import Found
from vllm_doctor.gather.target import Target
from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Subject
from vllm_doctor.records.host import Driver, Gpu, Kernel, KernelEvent, Machine, Process, Unit
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown
from vllm_doctor.records.snapshot import Snapshot

GPUS: Reading[tuple[Gpu, ...]] = Known((Gpu(0, "H100"),), "NVML")
DRIVER: Reading[Driver] = Absent("no driver")
EVENTS: Reading[Kernel] = Known(Kernel((KernelEvent("NVRM: Xid 79 key-a key-b", None, 1),), "b00t"), "kernel log")


def _unit(name: str) -> Found:
    return Found(Unit(name, "loaded", "active", "running", "success"), ("vllm", "serve", "m"), {}, "", None)


def _shot(name: str = "", **more: Any) -> Snapshot:
    return Snapshot("now", subject=Subject(host="h", **({"unit": name} if name else {})), live=True, **more)


class Host:
    """What a host holds, by the reader that finds it; and how long each reading was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.units: Reading[tuple[Found, ...]] = Absent("no unit of vLLM's")
        self.containers: tuple[Inspected, ...] = ()
        self.shots: dict[str, tuple[Snapshot, tuple[str, ...]]] = {}
        self.processes: tuple[Process, ...] = ()
        self.given: list[float] = []
        self.asked: list[tuple[object, ...]] = []
        self.late: set[object] = set()
        host = self

        class Worker:
            def __init__(self, work: Callable[[], Any], kind: object, deadline_s: float) -> None:
                self._work, self._kind = work, kind
                host.given.append(deadline_s)

            def result(self, late: Callable[[str], Any]) -> Any:
                return late("not read in time") if self._kind in host.late else self._work()

        for module, name, stand_in in (
            (live, "Worker", Worker), (live, "collect", lambda _: None),
            (nvml, "read", lambda: (GPUS, DRIVER)), (kernel, "read", lambda _: EVENTS),
            (systemd, "find", self._find), (containers, "find", lambda _: (self.containers, ())),
            (live, "_snapshot", lambda one, *given, **more: self._read(one.unit.name, *given, **more)),
            (live, "_without_unit", lambda told: (_shot(unit=told), ())),
            (place, "of_container", lambda one, *given, **more: self._read(one.id, *given, **more)),
            (place, "of_process", lambda pid, **more: self._read(f"{pid}", **more)),
            (place, "of_url", self._read),
            (live.procfs, "machine", lambda **_: Machine("h", processes=self.processes)),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, stand_in)

    def _find(self, name: str | None, deadline_s: float) -> Reading[tuple[Found, ...]]:
        self.asked.append(("systemd", name, deadline_s))
        return self.units

    def _read(self, name: str, *given: object, **more: object) -> tuple[Snapshot, tuple[str, ...]]:
        self.asked.append((name, *given, more.get("canary")))
        return self.shots.get(name) or (_shot(name), ())


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def names(shots: tuple[Snapshot, ...]) -> list[str | None]:
    return [shot.subject.unit for shot in shots]


BOX = Inspected(Container("llm", "docker", state="running"), "c0ffee", ("vllm", "serve"), {})
TWO: Reading[tuple[Found, ...]] = Known((_unit("a.service"), _unit("b.service")), "systemctl")


@pytest.mark.parametrize(
    ("units", "boxes", "read"),
    [
        (TWO, (), ["a.service", "b.service"]),
        (TWO, (BOX,), ["a.service", "b.service", "c0ffee"]),
        (Absent("none"), (BOX,), ["c0ffee"]),
        (Absent("none"), (), [None]),
        (Unknown("no systemd", "x"), (), [None]),
        (Unknown("no systemd", "x"), (BOX,), ["c0ffee", None]),
    ],
)
def test_each_unit_and_each_container_has_a_picture_and_a_host_without_any_has_one(
    host: Host, units: Reading[tuple[Found, ...]], boxes: tuple[Inspected, ...], read: list[str | None]
) -> None:
    host.units, host.containers = units, boxes
    shots = live.gather_all(5.0)
    assert names(shots) == read
    assert [(shot.gpus, shot.driver, shot.kernel) for shot in shots] == [(GPUS, DRIVER, EVENTS)] * len(read)
    assert [shot.unit for shot in shots if shot.subject.unit is None] == [units] * read.count(None)


def test_one_unit_by_its_name_is_read_alone(host: Host) -> None:
    host.units, host.containers = Known((_unit("a.service"),), "systemctl"), (BOX,)
    host.processes = (Process(9, 1, "vllm", ("vllm", "serve"), serves=True),)
    assert names(live.gather_all(5.0, "a.service")) == ["a.service"]
    assert live.gather_live("a.service").subject.unit == "a.service"
    assert host.asked == [("systemd", "a.service", 5.0), ("a.service", 5.0, False)] * 2


@pytest.mark.parametrize(
    ("canary", "aims", "each"),
    [(False, (), 44.5), (None, (), 64.5), (True, (), 64.5), (False, (Target("pod", "p"),), 74.5)],
)
def test_a_picture_is_waited_for_as_long_as_its_parts_may_take(
    host: Host, monkeypatch: pytest.MonkeyPatch, canary: bool | None, aims: tuple[Target, ...], each: float
) -> None:
    """Three times the deadline, the driver, a slow answer, and the token's; a cluster has 15 s for each question."""
    monkeypatch.setattr(nvml, "DEADLINE_S", 20.0)
    monkeypatch.setattr(live, "SILENCE_S", 7.5)
    monkeypatch.setattr(live, "CANARY_S", 20.0)
    monkeypatch.setattr(place, "find", lambda aim, deadline_s: Known((BOX,), f"{aim.name} {deadline_s}"))
    host.units = TWO
    live.gather_all(5.0, None, canary=canary, aims=aims)
    deadline_s = 15.0 if aims else 5.0
    listing = [] if aims else [15.0]
    assert host.given == [21.0, deadline_s + 5.0, *listing, *[each] * (1 if aims else 2)]
    assert {one[-2:] for one in host.asked if one[0] != "systemd"} == {(deadline_s, canary)}


def test_what_does_not_come_back_is_said_of_it_alone(host: Host) -> None:
    host.units = TWO
    host.late = {live._Cards, live._KernelLog}
    (shot, _) = live.gather_all(5.0)
    assert shot.gpus == shot.driver == Unknown("NVML: not read in time", "nvidia-smi")
    assert shot.kernel == Unknown("kernel log: not read in time", "journalctl -k -b")
    host.late = {live._Read}
    first, second = live.gather_all(5.0)
    assert first.log == Unknown("a.service: not read in time", "look at the load: uptime")
    assert (first.subject.unit, second.subject.unit, first.gpus) == ("a.service", "b.service", GPUS)


def test_a_secret_of_one_unit_stands_in_no_other_s_picture(host: Host) -> None:
    """Each picture comes without its own; the kernel, and another unit's log, may hold it too."""
    host.units = TWO
    for name, own in (("a.service", ("key-a",)), ("b.service", ("key-b",))):
        host.shots[name] = (_shot(name, version=Known("0.11.0 key-a key-b", "journal")), own)
    first, second = live.gather_all(5.0)
    assert "key-b" not in str(first)
    assert "key-a" not in str(second)
    assert "key-a" in str(first.version)  # its own reader took out what is a secret there
    assert "key-" not in str((first.kernel, second.kernel))


def test_what_is_of_another_machine_keeps_that_machine_s_cards(host: Host) -> None:
    there = Unknown("the pod's node is another machine", "x")
    host.units, host.shots["a.service"] = TWO, (_shot("a.service", gpus=there, driver=there, kernel=there), ())
    first, second = live.gather_all(5.0)
    assert (first.gpus, first.driver, first.kernel) == (there, there, there)
    assert second.gpus == GPUS


def _stray(pid: int, ppid: int = 1, **more: Any) -> Process:
    return Process(pid, ppid, "vllm", ("vllm", "serve", "m"), serves=True, **more)


IN_BOX = _stray(20, container=("docker", "c0ff"))
OTHERS = _stray(30, container=("podman", "dead"))


@pytest.mark.parametrize(
    ("units", "processes", "read", "rest"),
    [
        (TWO, (_stray(9),), ["a.service", "b.service", "9"], None),
        (TWO, (_stray(9), _stray(10, 9), _stray(11)), ["a.service", "b.service", "9", "11"], None),
        (TWO, (_stray(9, unit="a.service"), IN_BOX), ["a.service", "b.service"], None),
        (TWO, (_stray(9), OTHERS), ["a.service", "b.service", "9", None], (OTHERS,)),
        (Absent("none"), (_stray(9),), ["9"], None),
        (Absent("none"), (OTHERS,), [None], (OTHERS,)),
        (Absent("none"), (_stray(9), OTHERS), [None, "9"], (OTHERS, _stray(9))),
        (Unknown("no systemd", "x"), (_stray(9),), [None], (_stray(9),)),
        (TWO, tuple(_stray(100 + n) for n in range(18)), ["a.service", "b.service", *map(str, range(100, 116))], None),
    ],
)
def test_a_server_that_is_of_no_unit_and_no_container_is_judged_by_itself(
    host: Host,
    units: Reading[tuple[Found, ...]],
    processes: tuple[Process, ...],
    read: list[str | None],
    rest: tuple[Process, ...] | None,
) -> None:
    """A child of one is part of it; of another user's container only that it is there can be told."""
    host.units, host.processes = units, processes
    shots, _ = zip(*live._beside(
        [(_shot(one.unit.name), ()) for one in units.value]
        if isinstance(units, Known)
        else [(_shot(unit=units, machine=Known(Machine("h", processes=processes), "/proc")), ())],
        [BOX], 5.0, canary=None,
    ), strict=True)  # fmt: skip
    assert names(shots) == read
    bare = [shot for shot in shots if shot.subject.unit is None]
    assert [set(one.machine.value.processes) for one in bare if isinstance(one.machine, Known)] == (
        [set(rest)] if rest is not None else []
    )
    assert {one[-1] for one in host.asked} <= {None}


def test_a_url_is_a_server_or_a_site_s_own_of_many(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Reading[tuple[Snapshot, ...]]] = [Absent("no Prometheus")]
    monkeypatch.setattr(prometheus, "read", lambda *_: told[0])
    aim = Target("url", "http://h:1")
    assert names(live.gather_all(5.0, canary=True, aims=(aim,))) == ["http://h:1"]
    assert host.asked == [("http://h:1", True)]
    many = (_shot("x"), _shot("y"))
    told[0] = Known(many, "prometheus")
    assert names(live.gather_all(5.0, aims=(aim,))) == ["x", "y"]
    told[0] = Unknown("it refuses", "give a key")
    with pytest.raises(live.NotThereError, match="it refuses") as raised:
        live.gather_all(5.0, aims=(aim,))
    assert raised.value.remedy == "give a key"


@pytest.mark.parametrize(
    ("found", "remedy"), [(Absent("no container llm"), ""), (Unknown("docker denies", "usermod"), "usermod")]
)
def test_a_container_that_is_not_there_is_said_with_what_helps(
    host: Host, monkeypatch: pytest.MonkeyPatch, found: Reading[tuple[Inspected, ...]], remedy: str
) -> None:
    monkeypatch.setattr(place, "find", lambda *_: found)
    with pytest.raises(live.NotThereError, match=found.reason) as raised:
        live.gather_all(5.0, aims=(Target("docker", "llm"),))
    assert raised.value.remedy == remedy


@pytest.mark.parametrize(
    ("argv", "ours", "why"),
    [
        (("vllm", "serve"), True, None),
        ((), False, "pid:9: no such process"),
        (("nginx", "-x"), False, "pid:9 is nginx, no vLLM"),
    ],
)
def test_a_process_by_its_number_has_to_be_vllm_s(
    host: Host, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], why: str | None, *, ours: bool
) -> None:
    monkeypatch.setattr(live.procfs, "cmdline", lambda pid: argv if pid == 9 else ())
    monkeypatch.setattr(live.procfs, "is_of_vllm", lambda _: ours)
    if why is None:
        assert names(live.gather_all(5.0, canary=None, aims=(Target("pid", "9"),))) == ["9"]
        assert host.asked == [("9", None)]
        return
    with pytest.raises(live.NotThereError) as raised:
        live.gather_all(5.0, aims=(Target("pid", "9"),))
    assert str(raised.value) == why


def test_units_are_listed_by_their_names(host: Host) -> None:
    host.units = TWO
    assert live.discover() == Known(("a.service", "b.service"), "systemctl")
    host.units = Unknown("no systemd", "x")
    assert live.discover() == host.units
