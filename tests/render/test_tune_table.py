"""The ramp's table and the inventory's lines."""

from vllm_doctor.operate.tune.decide import Limits, Measured, TrialSetting
from vllm_doctor.operate.tune.unit import changes
from vllm_doctor.render import tune

FIRST = Measured(TrialSetting(8), 30, 0, 100.0, 50.0, 90.0, 10.0, 20.0, 0.12, 8.0, 0.0, 0.0, 0.4)
SECOND = Measured(TrialSetting(16), 60, 0, 180.0, 70.0, 120.0, 11.0, 22.0, 0.24, 16.0, 0.0, 0.0, 0.4)
FAILED = Measured(TrialSetting(32), problem="VD115: the sampler's warm-up ran out of memory")


def text(rows, best, **more):
    given = (
        changes(("/v", "--max-num-seqs", "8"), best.setting, lambda n: f"vllm_{n.replace('-', '_')}") if best else ()
    )
    told = {"limits": Limits(), "why": "at 32 sequences: it failed", "changes": given, "restored": True} | more
    return tune.text("vllm@main.service", rows, best=best, **told)


def test_the_best_is_marked_and_becomes_a_line_of_the_inventory():
    told = text([FIRST, SECOND, FAILED], SECOND)
    assert "\n*   16 " in told
    assert "  vllm_max_num_seqs: 16\n" in told
    assert "+80% tokens a second" in told
    assert "serves again" in told


def test_what_speaks_against_a_row_stands_beside_it():
    line = next(line for line in text([FIRST, SECOND, FAILED], SECOND).splitlines() if line.startswith("    32"))
    assert line.endswith("VD115: the sampler's warm-up ran out of memory")


def test_unknown_is_not_zero():
    told = text([Measured(TrialSetting(8), 10, 0, 50.0)], None)
    assert "?" in told
    assert "nothing is recommended" in told


def test_nothing_to_change_is_said():
    assert "change nothing" in text([FIRST], FIRST)
