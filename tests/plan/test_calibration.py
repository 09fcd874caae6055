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
from vllm_doctor.plan.question.ask import KnownStart, foresee
from vllm_doctor.plan.terms.outside_torch import non_torch, not_of_torch

REFIT = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "refit.py"))


def outside(version, card, line="", total=None, of=non_torch):
    v, a, gpu = as_version(version), arch(LLAMA_8B), find(card) if card else None
    words = line.split()
    env = [w for w in words if "=" in w]
    launch = [*env, "vllm", "serve", "m", *(w for w in words if "=" not in w)]
    return of(a, resolve(parse_launch(launch, v), v, a, gpu, total or 80.0, 8), gpu, total)


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


def test_one_host_alone_reaches_to_what_its_kind_takes_in_other_releases():
    fit = {
        h: REFIT["Fit"](middle=m, each=0.0, below=0.1, above=0.1, hosts=h, starts=h, error=None)
        for h, m in ((1, 3.4), (2, 0.2))
    }
    alone, others, unlike = (
        cell(ranks="tensor", link="pcie", fit=fit[1]),
        cell(ranks="tensor", link="pcie", fit=fit[2]),
        cell(ranks="tensor", link="nvlink", fit=fit[2]),
    )
    assert REFIT["_beside"](alone, [alone, others]).fit.below == pytest.approx(3.2)
    assert REFIT["_beside"](alone, [alone, unlike]) == alone
    assert REFIT["_beside"](others, [alone, others]) == others


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
        ("0.8.5", "L40S", "VLLM_USE_V1=0 --tensor-parallel-size 2", 0.25),
        ("0.10.2", "H200", "--tensor-parallel-size 2", 1.38),
        ("0.10.2", "H100", "--tensor-parallel-size 4", 1.84),
        ("0.12.0", "H100", "--tensor-parallel-size 2", 0.488),
        ("0.12.0", "H100", "--tensor-parallel-size 8", 1.322),
        ("0.19.0", "H100", "", 0.24),
        ("0.19.0", "H100", "--tensor-parallel-size 2", 2.075),
        ("0.19.0", "H100", "--tensor-parallel-size 8", 2.303),
        ("0.21.0", "RTX 3090", "--tensor-parallel-size 2", 0.06),
        ("0.21.0", "RTX 5090", "--tensor-parallel-size 2", 0.12),
        ("0.27.1", "RTX 3090", "VLLM_USE_V2_MODEL_RUNNER=0 --tensor-parallel-size 2", 0.28),
        # No fused all-reduce, and so no workspace of it: GLM-5.1 on eight H200 of 0.19 and 0.20.
        ("0.19.0", "H200", "--tensor-parallel-size 8 --enforce-eager", 0.65),
        ("0.20.1", "H200", "--tensor-parallel-size 8 --enforce-eager", 0.65),
        ("0.17.0", "H200", "--tensor-parallel-size 8 --enforce-eager", 1.322),
        ("0.21.0", "H100", "--pipeline-parallel-size 2", 0.07),
    ],
)
def test_each_kind_of_start_has_its_own_figure(version, card, line, gib):
    assert outside(version, card, line).gib == pytest.approx(gib, abs=0.002)


def test_releases_that_count_all_used_memory_lose_a_part_of_the_card_over_nvlink():
    h100, a100 = (
        outside("0.5.4", card, "--tensor-parallel-size 2", total=t)
        for card, t in (("H100", 79.19), ("A100-SXM4-40GB", 39.39))
    )
    assert (round(h100.gib, 1), round(a100.gib, 1)) == (11.3, 5.6)


def test_over_pcie_they_lose_as_much_of_a_large_card_as_of_a_small_one():
    t4, l40 = (
        outside("0.5.4", card, "--tensor-parallel-size 2", total=t) for card, t in (("T4", 14.56), ("L40", 44.42))
    )
    assert t4.gib == l40.gib == pytest.approx(0.47)
    # Three hosts, 0.2, 0.47 and 3.4 GiB: what torch keeps there is no measure of what lies outside it elsewhere.
    assert t4.gib - t4.below <= 0.2
    assert t4.gib + t4.above >= 3.4


def test_what_torch_keeps_does_not_widen_what_lies_outside_it():
    early = [c for c in cells() if REFIT["counts_torch"](c)]
    assert {(c.engine, c.until) for c in early} == {("V0", "0.6.4")}
    rows = starts()
    one = start("other", 40.0, tp=2, release="0.5.0", engine="V0", link="pcie", capability=7.5)
    assert REFIT["spare_part"]((*rows, one)) == REFIT["spare_part"](rows)


@pytest.mark.parametrize(("version", "stays"), [("0.5.4", 0.25), ("0.6.6", 0.25)])
def test_blocks_that_torch_kept_are_there_when_it_runs_short(version, stays):
    got = outside(version, "L40", "--tensor-parallel-size 2", total=44.42, of=not_of_torch)
    assert got == pytest.approx(stays, abs=0.01)


def test_an_unnamed_card_is_joined_as_cards_of_its_memory_are():
    assert outside("0.19.0", None, "--tensor-parallel-size 2", total=24.0).gib == pytest.approx(0.06)
    unsure = outside("0.19.0", None, "--tensor-parallel-size 2", total=80.0)
    assert unsure.gib - unsure.below <= 0.06
    assert unsure.gib + unsure.above >= 2.1


def test_only_the_last_stage_keeps_the_second_runner_s_counts_of_output():
    v, a, gpu = as_version("0.29.0"), arch(LLAMA_8B), find("H100")
    line = parse_launch(["vllm", "serve", "m", "--pipeline-parallel-size", "2"], v)
    s = resolve(line, v, a, gpu, gpu.total_gib, 2)
    first, last = (non_torch(a, s, gpu, gpu.total_gib, last_stage=last).gib for last in (False, True))
    assert last - first == pytest.approx(1024 * 128256 * 4.125 / 2**30)


def test_ranks_that_each_have_a_host_are_joined_by_its_network():
    line = ("vllm", "serve", "m", "--max-model-len", "8192", "--tensor-parallel-size", "2")
    together, apart = (
        foresee(KnownStart((*line, *more), "0.33.0", LLAMA_8B, "NVIDIA H20", 95.0, gpus=2))
        for more in ((), ("--nnodes", "2"))
    )
    assert together is not None
    assert apart is not None
    assert apart.now.non_torch_gib < together.now.non_torch_gib - 1


def test_rocm_takes_less_from_0_17_on():
    line = ("vllm", "serve", "m", "--max-model-len", "8192")
    told = [foresee(KnownStart(line, v, LLAMA_8B, "AMD Instinct MI300X", 191.98)) for v in ("0.16.0", "0.17.0")]
    assert [round(t.now.non_torch_gib, 2) for t in told if t is not None] == [1.65, 0.85]


def test_to_0_9_0_the_first_engine_counts_the_context_too():
    """v1/worker/gpu_worker.py: all that the card has lent. What its ranks share is measured from the first look on."""
    early, late = (outside(v, "RTX 4090", total=23.55) for v in ("0.9.0", "0.9.1"))
    assert early.gib - late.gib == pytest.approx(0.4)
    assert (early.below - late.below, early.above - late.above) == (pytest.approx(0.2), pytest.approx(0.2))
    old, new = (outside(v, "RTX 4090", total=23.55, of=not_of_torch) for v in ("0.9.0", "0.9.1"))
    assert old == new
