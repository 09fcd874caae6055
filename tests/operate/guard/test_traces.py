"""Traces of a service and what the guard makes of each: when it restarts, when it only speaks, when it is silent.

Where a trace tells of /metrics it is the text of a page in the release's own names, read by the reader that a live
service is read by.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from vllm_doctor.gather import look as gather_look
from vllm_doctor.gather.metrics import _few, parse
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.operate.guard.decide import DAY, decide, permitted
from vllm_doctor.operate.guard.memory import Decision, DecisionKind, UnitMemory
from vllm_doctor.operate.guard.policy import GrowthPolicy, Policy, Pressure
from vllm_doctor.operate.history.slope import GIB, HOUR, slope
from vllm_doctor.records.host import Scrape
from vllm_doctor.records.sample import Counters, Look

UNIT = "vllm@main.service"
POLICY = Policy(units=(UNIT,), act=True)
BEAT = 10.0
WALL = 1_700_000_000.0


def at(seconds: float, **facts: object) -> Look:
    """A look so many seconds after the trace began; the engine's processes compute unless the trace says so."""
    base = Look(UNIT, WALL + seconds, 1000 + seconds, 1000 + seconds, invocation="a", engine_cpu=seconds)
    return msgspec.structs.replace(base, **facts)


def busy(seconds: float, **more: float) -> Counters:
    """Four requests that make 40 tokens a second."""
    figures = {"running": 4.0, "waiting": 0.0, "kv": 0.3, "prompt": 1000.0, "generated": 40 * seconds, "finished": 3.0}
    return Counters(**(figures | {"preemptions": 0.0} | more))  # type: ignore[arg-type]


def play(trace: Iterable[Look], policy: Policy = POLICY, slopes: tuple = ()) -> Iterator[tuple[Look, Decision]]:
    """Every decision, with its look. A completion that is asked for is answered with the look's own `canary`."""
    memory = UnitMemory()
    for one in trace:
        seen = one if memory.ask else msgspec.structs.replace(one, canary=None)
        memory, found = decide(policy, memory, seen, slopes)
        yield from ((one, decision) for decision in found)


def restarts(trace: Iterable[Look], **kind: object) -> list[tuple[float, DecisionKind]]:
    return [(one.up - 1000, d.kind) for one, d in play(trace, **kind) if d.restart]


def kinds(trace: Iterable[Look], **more: object) -> list[DecisionKind]:
    return [d.kind for _, d in play(trace, **more)]


def beats(until: float, begin: float = 0.0, step: float = BEAT) -> Iterator[float]:
    while begin < until:
        yield begin
        begin += step


def stopped(second: float, cpu: float = 0.0, until: float = 900.0) -> Iterator[Look]:
    """The engine stops at `second`; from there it takes `cpu` seconds of the processor each second."""
    for t in beats(until):
        dead = t > second
        load = busy(min(t, second))
        used = min(t, second) + cpu * max(0.0, t - second)
        yield at(t, counters=load, canary=not dead, engine_cpu=used)


def test_an_engine_that_stops_under_load_is_restarted_once_a_completion_did_not_come() -> None:
    found = [(one.up - 1000, d) for one, d in play(stopped(300)) if d.restart]
    assert (found[0][0], found[0][1].kind, found[0][1].cut) == (350, DecisionKind.ENGINE_DEAD, True)
    assert found[0][1].sum == (
        "4 running, 0 waiting, no token for 50 s (limit 45: the engine's processes do not compute); /health 200; "
        "a completion of one token did not come within 15 s"
    )


RECORDED = Path(__file__).with_name("recorded") / "stopped_engine.json"


def recorded(*phases: str) -> Iterator[Look]:
    """A real vLLM 0.32.0 (CPU) on the sandbox, a look every eight seconds or so: idle, three streams, its engine sent
    SIGSTOP and, 90 s later, SIGCONT; then the clients give up. Its worker takes 0.019 of a processor while it waits."""
    for one in json.loads(RECORDED.read_text()):
        if one["phase"] in phases:
            yield at(
                one["seconds"],
                counters=Counters(**one["counters"]),
                canary=one["phase"] != "stopped",
                engine_cpu=one["engine_cpu"],
                engine_processes=one["engine_processes"],
            )


def test_a_recorded_engine_that_was_stopped_under_load_is_found_within_its_limit_and_no_other_time() -> None:
    found = restarts(recorded("idle", "load", "stopped"))
    assert found[0][1] is DecisionKind.ENGINE_DEAD
    stop = next(one.up for one in recorded("stopped")) - 1000
    assert 45 <= found[0][0] - stop <= 60
    assert restarts(recorded("idle", "load")) == []
    assert restarts(recorded("idle", "load", "goes-on", "given-up")) == []


@pytest.mark.parametrize(("part", "limit"), [(0.019, 45), (1.0, 600)])
def test_eight_workers_that_wait_do_not_compute_and_one_of_them_that_computes_does(part: float, limit: int) -> None:
    waiting = 8 * 0.019 if part < 1 else part
    trace = [msgspec.structs.replace(one, engine_processes=9) for one in stopped(300, cpu=waiting, until=1200)]
    assert limit <= restarts(trace)[0][0] - 300 <= limit + 30


def test_an_engine_that_spins_may_be_in_one_long_step_and_has_ten_minutes() -> None:
    assert restarts(stopped(300, cpu=1.0)) == []
    assert restarts(stopped(300, cpu=1.0, until=1000))[0] == (900, DecisionKind.ENGINE_DEAD)


def test_where_the_processor_time_is_not_known_it_counts_as_spinning() -> None:
    trace = [msgspec.structs.replace(one, engine_cpu=None) for one in stopped(300)]
    assert restarts(trace) == []


def test_standing_counters_alone_are_no_reason_while_completions_come() -> None:
    trace = [msgspec.structs.replace(one, canary=True) for one in stopped(300, until=5000)]
    assert kinds(trace) == []


def test_what_cannot_be_asked_for_a_completion_is_never_called_dead() -> None:
    trace = [msgspec.structs.replace(one, canary=None) for one in stopped(300, until=5000)]
    assert kinds(trace) == []


def test_an_idle_engine_is_asked_now_and_then_and_is_dead_after_two_silences() -> None:
    idle = Counters(running=0, waiting=0, kv=0, prompt=1, generated=1, finished=1)
    trace = [at(t, counters=idle, canary=t < 1000) for t in beats(2000)]
    when, kind = restarts(trace)[0]
    assert kind is DecisionKind.ENGINE_DEAD
    assert 1000 < when <= 1000 + POLICY.canary_every_s + 3 * BEAT


def test_a_server_that_sleeps_is_not_woken() -> None:
    asleep = Counters(running=0, waiting=0, kv=0, prompt=1, generated=1, finished=1, asleep=True)
    assert kinds(at(t, counters=asleep, canary=False) for t in beats(4000)) == []


def test_a_load_spike_is_said_once_and_not_answered_with_a_restart() -> None:
    def spike() -> Iterator[Look]:
        for t in beats(3600):
            full = 600 <= t < 1800
            load = busy(t, kv=0.99 if full else 0.3, waiting=90.0 if full else 0.0)
            yield at(t, counters=load)

    assert kinds(spike()) == [DecisionKind.PRESSURE, DecisionKind.RELIEVED]
    assert restarts(spike()) == []
    allowed = Policy(units=(UNIT,), act=True, pressure=Pressure(restart=True))
    assert [kind for _, kind in restarts(spike(), policy=allowed)] == [DecisionKind.PRESSURE]


def test_a_use_that_swings_about_the_mark_is_said_once() -> None:
    trace = [at(t, counters=busy(t, kv=0.96 if int(t / BEAT) % 2 else 0.94)) for t in beats(3600)]
    assert kinds(trace) == [DecisionKind.PRESSURE]


def leak(per_hour: float, hours: float, first: float = 40.0, limit: float = 64.0, noise: float = 0.0) -> object:
    series = [
        (WALL + t, (first + per_hour * t / HOUR + noise * ((t // 60 * 7919 % 13) / 6 - 1)) * GIB)
        for t in beats(hours * HOUR, step=60)
    ]
    return slope("host memory", series, limit * GIB)


def test_a_slow_leak_waits_for_a_quiet_moment_and_is_restarted_before_the_limit() -> None:
    grown = leak(0.64, 12, first=52.0, noise=0.3)  # 1 % of 64 GiB an hour
    assert grown.sure
    assert grown.per_hour / GIB == pytest.approx(0.64, abs=0.02)
    assert grown.hours_left == pytest.approx(6.7, abs=0.7)
    policy = msgspec.structs.replace(POLICY, growth=GrowthPolicy(hours_left=8))
    load = [at(t, counters=busy(t)) for t in beats(600)]
    assert [(d.kind, d.restart) for _, d in play(load, policy, (grown,))] == [(DecisionKind.GROWTH, False)]
    idle = msgspec.structs.replace(busy(600), running=0)
    quiet = [*load, *(at(600 + t, counters=idle, canary=True) for t in beats(120))]
    found = [(one.up - 1000, d) for one, d in play(quiet, policy, (grown,)) if d.restart]
    assert found[0][0] == 660
    assert not found[0][1].cut  # what runs is drained
    assert found[0][1].sum.startswith("host memory grows by 0.6")


def test_a_pool_that_is_in_use_is_no_leak() -> None:
    flat = leak(0.0, 24, first=60.0, noise=2.0)
    assert not flat.sure
    level = leak(0.002, 24, first=60.0)  # steady, and a day makes 0.05 GiB of 64
    assert not level.sure
    step = [(t, (20.0 if t < 6 * HOUR else 40.0) * GIB) for t in beats(12 * HOUR, step=60)]
    assert slope("host memory", step, 64 * GIB).low <= 0


def test_a_leak_far_from_its_limit_is_not_acted_on() -> None:
    assert kinds((at(t, counters=busy(t)) for t in beats(600)), slopes=(leak(0.5, 12, first=10.0),)) == []


def test_a_start_that_says_nothing_is_restarted_and_a_long_one_that_speaks_is_not() -> None:
    def starting(silent: bool) -> Iterator[Look]:
        for t in beats(3 * HOUR, step=30):
            yield at(t, health=0, counters=None, silent_s=max(0.0, t - 900) if silent else 30.0)

    assert restarts(starting(silent=False)) == []
    assert restarts(starting(silent=True))[0] == (3600, DecisionKind.SILENT_START)


def test_a_start_that_is_seen_is_told_once_it_answers_also_by_a_guard_that_began_in_the_middle() -> None:
    trace = [at(t, health=0 if t < 90 else 200, counters=busy(t) if t >= 90 else None, canary=True) for t in beats(300)]
    found = [(one.up - 1000, d) for one, d in play(trace)]
    assert [(when, d.kind, d.sum) for when, d in found] == [
        (90, DecisionKind.ANSWERS, "/health answers 200, 90 s after this run was first seen")
    ]


def test_a_service_that_restarts_in_a_loop_is_left_to_its_diagnosis() -> None:
    def flapping() -> Iterator[Look]:
        for t in beats(3600):
            yield at(
                t,
                invocation=f"run{int(t // 120)}",
                restarts=int(t // 120),
                health=200 if t % 120 > 60 else 0,
                counters=busy(t % 120),
            )

    found = kinds(flapping())
    assert found.count(DecisionKind.LOOP) == 1
    assert restarts(flapping()) == []


def test_a_counter_that_fell_begins_the_watch_anew() -> None:
    trace = [at(t, counters=busy(t if t < 300 else t - 300), canary=True) for t in beats(600)]
    assert kinds(trace) == [DecisionKind.RESET]
    assert restarts(trace) == []


def test_two_servers_behind_one_port_are_said_and_never_judged() -> None:
    trace = [at(t, counters=busy(500 if int(t / BEAT) % 2 else 90), canary=False) for t in beats(3600)]
    assert kinds(trace) == [DecisionKind.RESET, DecisionKind.TWO_SERVERS]


def test_gaps_of_the_scrape_are_no_silence_of_the_engine() -> None:
    def gaps() -> Iterator[Look]:
        for t in beats(3600):
            lost = t % 600 > 200
            yield at(
                t, counters=None if lost else busy(t), why="no answer" if lost else "", canary=None if lost else True
            )

    assert kinds(gaps()) == [DecisionKind.UNREADABLE]


def test_a_pause_of_the_guard_is_no_silence_of_the_engine() -> None:
    trace = [at(t, counters=busy(300), canary=False) for t in (*beats(300), 5000.0, 5010.0)]
    assert [k for k in kinds(trace) if k is DecisionKind.GAP] == [DecisionKind.GAP]
    assert [when for when, _ in restarts(trace) if when >= 5000] == []


def test_a_suspend_and_a_clock_that_jumps_are_said_and_nothing_follows() -> None:
    slept = [
        at(t, counters=busy(t), awake=1000 + (t if t < 300 else t - 3000)) for t in (*beats(300), *beats(3900, 3300))
    ]
    assert kinds(slept) == [DecisionKind.GAP]
    jumped = [at(t, counters=busy(t), at=WALL + t + (86400 if t >= 300 else 0)) for t in beats(900)]
    assert kinds(jumped) == [DecisionKind.CLOCK]


def test_a_unit_that_is_drained_stopped_or_being_changed_is_never_restarted() -> None:
    for state in ({"drained": True}, {"active": "inactive"}, {"active": "deactivating"}, {"held": "site.yml"}):
        trace = [msgspec.structs.replace(one, **state) for one in stopped(300)]
        assert restarts(trace) == [], state
    held = [msgspec.structs.replace(one, held="site.yml") for one in stopped(300)]
    assert kinds(held) == [DecisionKind.HELD]


PAGES = ("0.6.3", "0.8.5", "0.10.2", "0.11.0", "0.18.1", "0.33.0")


def page(release: str, t: float, skip: str = "") -> str:
    """A page of /metrics with the names of the release."""
    names = history("metrics", "metrics")
    version = as_version(release)
    figures = {
        "num_requests_running": 4, "num_requests_waiting": 1, "gpu_cache_usage_perc": 0.3, "kv_cache_usage_perc": 0.3,
        "prompt_tokens": 1000, "generation_tokens": 40 * t, "request_success": 3, "num_preemptions": 2,
    }  # fmt: skip
    lines = ["# HELP python_info x", "python_info 1.0"]
    for name, value in figures.items():
        full = next((n for n in (f"vllm:{name}", f"vllm:{name}_total") if names.exists(n, version)), None)
        if full is None or name == skip:
            continue
        total = "_total" if name in {"prompt_tokens", "generation_tokens", "request_success", "num_preemptions"} else ""
        lines.append(f'vllm:{name}{total}{{model_name="m",engine="0"}} {float(value)}')
    return "\n".join(lines) + "\n"


def read(text: str) -> Counters:
    samples = parse(_few(text, gather_look._WANTED))
    assert not isinstance(samples, str), samples
    return gather_look._counters(Scrape(0.0, samples))


@pytest.mark.parametrize("release", PAGES)
def test_each_releases_names_are_read_and_its_dead_engine_is_found(release: str) -> None:
    told = read(page(release, 10))
    assert (told.running, told.waiting, told.generated, told.finished) == (4, 1, 400, 3)
    trace = [
        at(t, counters=read(page(release, min(t, 300))), canary=t <= 300, engine_cpu=min(t, 300)) for t in beats(600)
    ]
    assert restarts(trace)[0] == (350, DecisionKind.ENGINE_DEAD)


def test_a_renamed_metric_is_no_engine_that_stands_still() -> None:
    told = read(page("0.33.0", 10, skip="num_requests_running"))
    assert told.running is None  # gather.look makes "this release names it otherwise" of it
    why = "/metrics has no vllm:num_requests_running"
    assert kinds(at(t, counters=None, why=why, canary=False) for t in beats(7200)) == [DecisionKind.UNREADABLE]


def ranks(t: float, dies: float) -> Counters:
    """The page of a server with two data-parallel engines, of which the second stops at `dies`."""
    lines = []
    for engine, made in (("0", 40 * t), ("1", 40 * min(t, dies))):
        label = f'{{model_name="m",engine="{engine}"}}'
        lines += [
            f"vllm:num_requests_running{label} 2.0",
            f"vllm:num_requests_waiting{label} 0.0",
            f"vllm:generation_tokens_total{label} {made}",
        ]
    return read("\n".join(lines) + "\n")


def test_one_dead_engine_of_several_is_found_though_the_server_answers_and_the_rest_is_drained() -> None:
    trace = [at(t, counters=ranks(t, dies=300), canary=True) for t in beats(1200)]
    found = [(one.up - 1000, d) for one, d in play(trace) if d.restart]
    assert (found[0][0], found[0][1].kind, found[0][1].cut) == (900, DecisionKind.ONE_ENGINE_DEAD, False)
    assert found[0][1].sum == (
        "engine 1 of 2: 2 running, no token for 600 s (limit 600), while the others go on; its requests never end"
    )


def test_several_engines_that_work_or_rest_are_left_alone() -> None:
    assert kinds(at(t, counters=ranks(t, dies=9000), canary=True) for t in beats(3600)) == []
    rests = [msgspec.structs.replace(one, running=0.0) for one in ranks(300, dies=10).engines]
    idle = msgspec.structs.replace(busy(0), engines=tuple(rests))
    moving = (msgspec.structs.replace(idle, generated=40 * t) for t in beats(3600))
    assert kinds(at(t, counters=c, canary=True) for t, c in zip(beats(3600), moving, strict=True)) == []


def test_a_budget_a_cool_down_and_a_clock_put_back_bound_the_restarts() -> None:
    assert permitted(POLICY, UNIT, (), WALL) is None
    assert permitted(POLICY, "vllm@other.service", (), WALL) == "vllm@other.service is not among the policy's units"
    assert "only watches" in str(permitted(Policy(units=(UNIT,)), UNIT, (), WALL))
    assert "less than 1800 s" in str(permitted(POLICY, UNIT, (WALL - 60,), WALL))
    assert permitted(POLICY, UNIT, (WALL - 4000,), WALL) is None
    spent = tuple(WALL - 4000 * n for n in (1, 2, 3))
    assert permitted(POLICY, UNIT, spent, WALL) == "3 of 3 restarts a day are used up"
    assert permitted(POLICY, UNIT, tuple(e - DAY for e in spent), WALL) is None
    ahead = tuple(at + 10 * DAY for at in spent)
    assert permitted(POLICY, UNIT, ahead, WALL) == "3 of 3 restarts a day are used up"


def test_the_slope_of_a_known_line_is_that_line() -> None:
    told = slope("x", [(float(t), 3.0 * t) for t in range(0, 7200, 60)], None)
    assert told is not None
    assert (round(told.per_hour), round(told.low), round(told.high), told.hours_left) == (10800, 10800, 10800, None)
    assert slope("x", [(float(t), 1.0) for t in range(0, 600, 60)], None) is None
    assert all(a <= b for a, b in pairwise((told.low, told.per_hour, told.high)))


def test_who_starts_it_by_hand_again_and_again_has_no_restart_loop() -> None:
    trace = [at(t, invocation=f"run{int(t // 120)}", counters=busy(t % 120)) for t in beats(1000)]
    assert set(kinds(trace)) == {DecisionKind.STARTED}


def test_an_hour_of_growth_may_be_a_cache_that_fills() -> None:
    grown = leak(4.0, 3, first=52.0)
    assert grown.sure
    assert kinds((at(t, counters=busy(t)) for t in beats(600)), slopes=(grown,)) == []
