"""The first start of a launch compiles inside the profile: its pool is smaller by a copy of the embedding table."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_plan import command, model, plan

__all__ = ["model"]

GIB = 1 << 30
TABLE = 128256 * 4096 * 2 / GIB
FEW = "--max-model-len 8192 --max-num-batched-tokens 2048 --max-num-seqs 16"


@pytest.fixture
def planned(model):
    def asked(line=FEW, *, gpu="L40S", version="0.33.0", env=""):
        return plan(model(LLAMA_8B), line, gpu=gpu, version=version, env=env).predict()

    return asked


def test_the_peak_of_a_small_step_is_the_copy_of_the_table(planned):
    p = planned()
    assert p.activation_gib == pytest.approx(TABLE, abs=0.02)
    assert p.activation.winner == "compiling, embedding table"


def test_the_range_reaches_up_to_a_start_that_finds_its_code_compiled(planned):
    p = planned()
    compiled = (p.activation.peak - p.activation.compiled) / GIB
    assert compiled > 0.7
    assert p.margin_gib[1] > p.available_kv_gib + compiled


@pytest.mark.parametrize(
    ("line", "version", "gpu"),
    [
        (f"{FEW} --enforce-eager", "0.33.0", "L40S"),
        (FEW, "0.11.0", "L40S"),
        (FEW, "0.19.0", "V100-SXM2-32GB"),
    ],
)
def test_nothing_is_copied_where_nothing_is_timed(planned, line, version, gpu):
    activation = planned(line, version=version, gpu=gpu).activation
    assert activation.compiled == activation.peak


def test_a_start_that_keeps_no_code_always_copies_it(planned):
    first, every = planned(), planned(env="VLLM_DISABLE_COMPILE_CACHE=1")
    assert every.activation.compiled == every.activation.peak == first.activation.peak
    assert every.compiling_gib == 0.0
    narrower = first.margin_gib[1] - every.margin_gib[1]
    assert narrower == pytest.approx(first.compiling_gib)
    assert first.compiling_gib > 0.7


def test_such_a_start_may_leave_the_copy_as_the_first_one_does(planned):
    def lowest(env):
        return planned(gpu="RTX 5090", version="0.28.0", env=env).margin_gib[0]

    assert lowest("VLLM_DISABLE_COMPILE_CACHE=1") == pytest.approx(lowest(""))


def test_graphs_that_are_not_captured_leave_the_copy(planned):
    assert planned(f"{FEW} -cc.cudagraph_mode=NONE").compiling_gib == pytest.approx(planned().compiling_gib, abs=1e-6)


def test_a_wide_step_hides_the_copy(planned):
    p = planned("--max-model-len 32768 --max-num-batched-tokens 32768 --max-num-seqs 16")
    assert p.activation.compiled == p.activation.peak
    assert p.activation.winner.startswith("forward pass")


def test_the_copy_may_stay_with_the_torch_where_it_was_seen_to(planned):
    def below(**asked):
        p = planned(**asked)
        return p.available_kv_gib - p.margin_gib[0]

    nothing = below(gpu="L40S", version="0.26.0")
    assert below(gpu="RTX 5090", version="0.26.0") - nothing < 0.2 * TABLE
    assert below(gpu="L40S", version="0.28.0") - nothing > 0.8 * TABLE
    assert below(gpu="L40S", version="0.32.0") - nothing < 0.2 * TABLE


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({"gpu": "RTX 5090", "version": "0.28.0"}, TABLE),
        ({"gpu": "RTX 5090", "version": "0.30.0"}, TABLE),
        ({"gpu": "RTX 5090", "version": "0.26.0"}, 0.0),
        ({"gpu": "RTX 5090", "version": "0.31.0"}, 0.0),
        ({"gpu": "L40S", "version": "0.28.0"}, 0.0),
        ({"gpu": "RTX 5090", "version": "0.28.0", "env": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"}, 0.0),
        ({"gpu": "RTX 5090", "version": "0.28.0", "line": f"{FEW} --max-num-batched-tokens 32768"}, 0.0),
    ],
)
def test_the_copy_stays_with_torch_2_13_on_these_cards(planned, asked, left):
    p = planned(**asked)
    assert p.staying_gib == pytest.approx(left)


def test_the_next_start_has_the_copy_that_stayed_too(planned):
    p = planned(gpu="RTX 5090", version="0.28.0")
    assert p.compiling_gib == pytest.approx((p.activation.peak - p.activation.compiled) / GIB + TABLE)
    assert p.margin_gib[1] > p.available_kv_gib + p.compiling_gib


def test_the_answer_tells_what_the_next_start_has_more(model, capsys):
    asked = ["--vllm-version", "0.33.0", "--gpu", "L40S", "--model-config", model(LLAMA_8B)]
    command(*asked, "--", "vllm", "serve", "m", *FEW.split())
    assert "the first start compiles; the next one has 0.74 GiB more" in capsys.readouterr().out
    command(*asked, "--", "vllm", "serve", "m", *FEW.split(), "--enforce-eager")
    assert "the first start compiles" not in capsys.readouterr().out


def test_what_stays_is_one_of_the_terms(planned):
    named = {t.name: t.bytes / GIB for t in planned(gpu="RTX 5090", version="0.28.0").terms}
    assert named["left by compiling"] == pytest.approx(TABLE)
    assert "left by compiling" not in {t.name for t in planned(gpu="L40S", version="0.28.0").terms}
