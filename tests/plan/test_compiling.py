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


def test_before_0_32_the_copy_may_stay_on_the_cards_where_it_was_seen_to(planned):
    def below(**asked):
        p = planned(**asked)
        return p.available_kv_gib - p.margin_gib[0]

    stays = below(gpu="RTX 5090", version="0.28.0")
    assert stays - below(gpu="RTX 5090", version="0.32.0") > 0.8 * TABLE
    assert stays - below(gpu="L40S", version="0.28.0") > 0.8 * TABLE
    grown = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert stays - below(gpu="RTX 5090", version="0.28.0", env=grown) > 0.8 * TABLE


def test_the_answer_tells_what_the_next_start_has_more(model, capsys):
    asked = ["--vllm-version", "0.33.0", "--gpu", "L40S", "--model-config", model(LLAMA_8B)]
    command(*asked, "--", "vllm", "serve", "m", *FEW.split())
    assert "the first start compiles; the next one has 0.74 GiB more" in capsys.readouterr().out
    command(*asked, "--", "vllm", "serve", "m", *FEW.split(), "--enforce-eager")
    assert "the first start compiles" not in capsys.readouterr().out
