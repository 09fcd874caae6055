"""Memory outside torch: the fits follow from the published starts beside them, and the plan takes the right one."""

import runpy
from pathlib import Path

import pytest

from tests.plan.models import LLAMA_8B, arch
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.calibration import CELLS, Cell, PublishedStart, cells, starts
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.terms.outside_torch import non_torch

REFIT = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "refit.py"))


def outside(version, card, line="", total=None):
    v, a, gpu = as_version(version), arch(LLAMA_8B), find(card) if card else None
    words = line.split()
    env = [w for w in words if "=" in w]
    launch = [*env, "vllm", "serve", "m", *(w for w in words if "=" not in w)]
    return non_torch(a, resolve(parse_launch(launch, v), v, a, gpu, total or 80.0, 8), gpu, total)


def start(host, gib, tp=1, **more):
    fixed = {"release": "0.12.0", "engine": "V1", "runner": "V1", "card": None, "link": "nvlink", "capability": 9.0}
    rest = {"pp": 1, "starts": 1, "derived": False, "source": "made here"}
    return PublishedStart(host=host, gib=gib, tp=tp, **(fixed | rest | more))


def cell(**more):
    fixed = {"name": "a cell", "engine": "V1", "since": None, "until": None, "ranks": "one", "link": None}
    rest = {"capability": None, "runner": None, "by_ranks": False, "unit": "GiB", "fit": None}
    return Cell(**(fixed | rest | more))


def test_the_fits_that_are_kept_are_those_of_the_starts_beside_them():
    new, _, _, _ = REFIT["refit"]()
    assert [c.fit for c in new] == [c.fit for c in cells()], "run tools/refit.py --write"
    assert CELLS.is_file()


def test_a_range_holds_nine_of_ten_hosts_that_its_fit_had_not_seen():
    _, _, covered, count = REFIT["refit"]()
    assert count >= 40
    assert covered >= 0.9


def test_a_host_with_many_starts_counts_once():
    fit = REFIT["fitted"](cell(), [start("a", 0.2, starts=40), start("b", 0.3), start("c", 0.4)], 0.0)
    assert (fit.middle, fit.hosts, fit.starts) == (0.3, 3, 42)
    assert (fit.below, fit.above) == (0.13, 0.13)


def test_a_cell_that_goes_by_ranks_is_a_line_through_its_hosts():
    fit = REFIT["fitted"](cell(ranks="tensor", by_ranks=True), [start("a", 0.5, 2), start("b", 1.7, 8)], 0.0)
    assert (fit.middle, fit.each) == (0.5, 0.2)


def test_a_slope_that_one_host_shows_by_itself_takes_no_host_from_the_range():
    ranked = cell(ranks="tensor", by_ranks=True)
    alone = REFIT["fitted"](ranked, [start("a", 0.5, 2), start("b", 0.7, 4)], 1.0)
    shown = REFIT["fitted"](ranked, [start("a", 0.5, 2), start("a", 0.7, 4), start("b", 0.7, 4)], 1.0)
    assert shown.each == alone.each == pytest.approx(0.1)
    assert shown.above < alone.above


def test_a_left_out_host_is_measured_against_the_others():
    told = REFIT["errors"](cell(), [start("a", 0.2), start("b", 0.2), start("c", 1.2)], 0.0)
    assert [(round(error, 3), inside) for error, inside in told] == [(-0.5, True), (-0.5, True), (1.0, False)]


def test_every_start_is_of_a_kind_and_every_kind_has_a_fit():
    assert all(any(REFIT["_matches"](c, row) for c in cells()) for row in starts())
    assert all(c.fit is not None for c in cells())
    assert all(row.source for row in starts())


@pytest.mark.parametrize(
    ("version", "card", "line", "gib"),
    [
        ("0.9.0", "V100 32GB", "VLLM_USE_V1=0", 0.05),
        ("0.8.5", "A100-SXM4-80GB", "VLLM_USE_V1=0 --tensor-parallel-size 8", 2.125),
        ("0.8.5", "L40S", "VLLM_USE_V1=0 --tensor-parallel-size 2", 0.225),
        ("0.10.2", "H200", "--tensor-parallel-size 2", 1.38),
        ("0.10.2", "H100", "--tensor-parallel-size 4", 1.84),
        ("0.12.0", "H100", "--tensor-parallel-size 2", 0.488),
        ("0.12.0", "H100", "--tensor-parallel-size 8", 1.322),
        ("0.19.0", "H100", "", 0.24),
        ("0.19.0", "H100", "--tensor-parallel-size 2", 2.075),
        ("0.19.0", "H100", "--tensor-parallel-size 8", 2.303),
        ("0.21.0", "RTX 3090", "--tensor-parallel-size 2", 0.09),
        ("0.21.0", "RTX 5090", "--tensor-parallel-size 2", 0.69),
        ("0.21.0", "H100", "--pipeline-parallel-size 2", 0.07),
    ],
)
def test_each_kind_of_start_has_its_own_figure(version, card, line, gib):
    assert outside(version, card, line).gib == pytest.approx(gib, abs=0.002)


def test_releases_that_count_all_used_memory_lose_a_part_of_the_card():
    small = outside("0.5.4", "T4", "--tensor-parallel-size 2", total=14.56)
    large = outside("0.5.4", "H100", "--tensor-parallel-size 2", total=79.19)
    assert (round(small.gib, 1), round(large.gib, 1)) == (2.4, 13.0)


def test_an_unnamed_card_is_joined_as_cards_of_its_memory_are():
    assert outside("0.19.0", None, "--tensor-parallel-size 2", total=24.0).gib == pytest.approx(0.09)
    unsure = outside("0.19.0", None, "--tensor-parallel-size 2", total=80.0)
    assert unsure.gib - unsure.below <= 0.06
    assert unsure.gib + unsure.above >= 2.1


def test_only_the_last_stage_keeps_the_second_runner_s_counts_of_output():
    v, a, gpu = as_version("0.29.0"), arch(LLAMA_8B), find("H100")
    line = parse_launch(["vllm", "serve", "m", "--pipeline-parallel-size", "2"], v)
    s = resolve(line, v, a, gpu, gpu.total_gib, 2)
    first, last = (non_torch(a, s, gpu, gpu.total_gib, last_stage=last).gib for last in (False, True))
    assert last - first == pytest.approx(1024 * 128256 * 4.125 / 2**30)
