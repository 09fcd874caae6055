"""The ramp's judgement on recorded figures: where it climbs, where it stops, and what it calls the best."""

import pytest

from vllm_doctor.operate.tune.decide import Limits, Measured, Stop, TrialSetting, best, following, trouble

LIMITS = Limits()


def free(_setting):
    return None


def row(seqs, tps, *, kv=0.1, tokens=None, **more):
    figures = {
        "requests": 3 * seqs,
        "itl_p99_ms": 20.0,
        "ttft_p99_ms": 200.0,
        "kv_peak": kv,
        "running_peak": float(seqs),
        "waiting_peak": 0.0,
        "preemptions": 0.0,
        "memory_free": 0.3,
    }
    return Measured(TrialSetting(seqs, tokens), output_tps=tps, **(figures | more))


def climb(server, rows, allowed=free, limits=LIMITS, most=30):
    """Follow the ramp on a server given as a function of the setting; the rows and why it stopped."""
    rows = list(rows)
    for _ in range(most):
        step = following(rows, limits, allowed)
        if isinstance(step, Stop):
            return rows, step.why
        rows.append(server(step))
    raise AssertionError(f"the ramp does not end: {[r.setting for r in rows]}")


def test_it_doubles_while_throughput_grows():
    assert following([row(8, 400)], LIMITS, free) == TrialSetting(16)
    assert following([row(8, 400), row(16, 700)], LIMITS, free) == TrialSetting(32)


def test_it_stops_where_more_sequences_bring_nothing():
    rows, why = climb(lambda s: row(s.seqs, min(s.seqs, 32) * 40), [row(8, 320)])
    assert [r.setting.seqs for r in rows] == [8, 16, 32, 64]
    assert best(rows, LIMITS).setting.seqs == 32
    assert "more than 32 sequences brought less than 3%" in why


def test_it_stops_before_the_pool_is_full_and_does_not_find_out_by_preempting():
    def server(s):
        return row(s.seqs, s.seqs * 40, kv=s.seqs * 0.02)

    rows, why = climb(server, [server(TrialSetting(8))])
    assert [r.setting.seqs for r in rows] == [8, 16, 32, 40]
    assert max(r.kv_peak for r in rows) <= 0.9
    assert "would take 100% of the KV cache" in why
    assert best(rows, LIMITS).setting.seqs == 40


def test_the_pools_use_follows_the_requests_that_ran_and_not_those_that_were_allowed():
    # 64 are allowed, the load only ever had 16 running at 20 %: 128 would take 160 % of the pool.
    assert isinstance(following([row(64, 100, kv=0.2, running_peak=16.0)], LIMITS, free), Stop | TrialSetting)
    step = following([row(64, 100, kv=0.2, running_peak=16.0)], LIMITS, free)
    assert isinstance(step, Stop)
    assert "would take" in step.why


def test_after_trouble_the_middle_is_tried_and_never_the_troubled_value_again():
    def server(s):
        return row(s.seqs, s.seqs * 40, preemptions=float(s.seqs > 50))

    rows, why = climb(server, [server(TrialSetting(8))])
    tried = [r.setting.seqs for r in rows]
    assert tried[:4] == [8, 16, 32, 64]
    assert len(tried) == len(set(tried))
    assert 32 < best(rows, LIMITS).setting.seqs <= 50
    assert "preemptions" in why


def test_a_start_that_fails_is_trouble_and_the_last_good_row_wins():
    def server(s):
        return (
            row(s.seqs, s.seqs * 40)
            if s.seqs < 16
            else Measured(s, problem="VD115: out of memory in the sampler's warm-up")
        )

    rows, why = climb(server, [server(TrialSetting(8))])
    assert best(rows, LIMITS).setting.seqs < 16
    assert "VD115" in why


def test_the_plan_bounds_the_ramp_and_smaller_steps_are_tried_first():
    def allowed(s):
        return "the plan leaves nothing" if s.seqs > 12 else None

    rows, why = climb(lambda s: row(s.seqs, s.seqs * 40), [row(8, 320)], allowed)
    assert [r.setting.seqs for r in rows] == [8, 12]
    assert why == "the plan leaves nothing"


def test_tokens_of_a_step_come_after_sequences_and_stop_without_gain():
    def server(s):
        return row(s.seqs, min(s.seqs, 16) * 40 + (30 if s.tokens >= 4096 else 0), tokens=s.tokens)

    rows, why = climb(server, [server(TrialSetting(8, 2048))])
    assert [(r.setting.seqs, r.setting.tokens) for r in rows] == [
        (8, 2048),
        (16, 2048),
        (32, 2048),
        (16, 4096),
        (16, 8192),
    ]
    assert best(rows, LIMITS).setting == TrialSetting(16, 4096)
    assert "more tokens a step" in why


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (row(8, 100, problem="the service ended under the load"), "ended"),
        (row(8, 100, errors=2), "2 of 26 requests failed"),
        (row(8, 0, requests=0), "no request finished"),
        (row(8, 100, preemptions=3.0), "3 preemptions"),
        (row(8, 100, kv=0.97), "97%"),
        (row(8, 100, memory_free=0.01), "memory stayed free"),
    ],
)
def test_a_service_in_trouble_as_it_stands_is_not_tuned(bad, word):
    step = following([bad], LIMITS, free)
    assert isinstance(step, Stop)
    assert word in step.why
    assert "is already in trouble" in step.why
    assert best([bad], LIMITS) is None


def test_latency_limits_are_those_asked_for_and_the_slowdown():
    first, slow = row(8, 320), row(16, 640, itl_p99_ms=50.0)
    assert "2.5 times" in trouble(slow, first, LIMITS)
    assert trouble(slow, first, Limits(slowdown=3)) is None
    assert "above 40" in trouble(slow, first, Limits(slowdown=3, itl_ms=40))
    assert "first token" in trouble(first, first, Limits(ttft_ms=100))


def test_a_server_that_hides_its_kv_use_is_judged_by_the_rest():
    rows, _ = climb(lambda s: row(s.seqs, min(s.seqs, 16) * 40, kv=None), [row(8, 320, kv=None)])
    assert best(rows, LIMITS).setting.seqs == 16


@pytest.mark.parametrize("start", [1, 2, 3, 7, 8, 255, 1024])
@pytest.mark.parametrize("knee", [1, 5, 100, 4000])
def test_it_ends_whatever_the_server_is(start, knee):
    def server(s):
        return row(s.seqs, min(s.seqs, knee) * 10, kv=None, preemptions=float(s.seqs > 2 * knee))

    rows, why = climb(server, [server(TrialSetting(start))])
    assert why
    assert len(rows) < 20
