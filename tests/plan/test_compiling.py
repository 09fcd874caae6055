"""The first start of a launch compiles inside the profile: its pool is smaller by a copy of the embedding table."""

import json

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_plan import command, model, plan
from vllm_doctor.plan.question.planner import Question, planner

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


# A drafter of DFlash with two layers, beside a model with the same words.
BLOCKS = {
    **LLAMA_8B,
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "dflash_config": {"target_layer_ids": [1, 15, 30]},
}
TOWER = {
    "model_type": "qwen3_vl", "depth": 2, "hidden_size": 256, "intermediate_size": 512, "num_heads": 16,
    "patch_size": 16, "spatial_merge_size": 2, "out_hidden_size": 4096,
}  # fmt: skip
SEEING = {"model_type": "qwen3_vl", "text_config": {**LLAMA_8B, "model_type": "qwen3_vl_text"}, "vision_config": TOWER}
STATES = 2048 * 4096 * 2 / GIB  # of a step, of one layer


@pytest.fixture
def drafted(tmp_path):
    """A plan with a drafter that is a model of its own, or without one."""

    def asked(config=LLAMA_8B, method="dflash", line=FEW, version="0.26.0", gpu="L40S"):
        for name, values in (("m", config), ("d", BLOCKS)):
            (tmp_path / f"{name}.json").write_text(json.dumps(values))
        drafts = json.dumps({"method": method, "model": "d", "num_speculative_tokens": 5})
        words = (*line.split(), *(("--speculative-config", drafts) if method else ()))
        own = str(tmp_path / "d.json") if method else None
        q = Question(("vllm", "serve", "m", *words), gpu, 1, None, version, str(tmp_path / "m.json"), draft_config=own)
        return planner(q).predict()

    return asked


def test_a_drafter_is_compiled_while_the_states_that_the_model_hands_it_are_alive(drafted):
    p = drafted()
    assert p.activation.winner == "compiling, the drafter's embedding table"
    assert p.activation_gib - drafted(method=None).activation_gib == pytest.approx((1 + 3) * STATES, abs=1e-3)
    assert "drafter's embedding table" not in {t.name for t in drafted(line=f"{FEW} --enforce-eager").terms}


def test_one_that_is_given_token_ids_copies_the_table_beside_a_model_that_takes_images_too(drafted):
    def copies(method):
        return [t.bytes / GIB for t in drafted(SEEING, method).terms if t.name.startswith("compiling")]

    assert copies("dflash") == [pytest.approx(TABLE)]
    assert copies("eagle3") == []


def test_a_drafters_copy_may_stay_but_is_not_planned_to(drafted):
    p = drafted(SEEING, gpu="RTX 5090", version="0.28.0", line=f"{FEW} --enforce-eager")
    compiled = drafted(SEEING, gpu="RTX 5090", version="0.28.0")
    assert (p.staying_gib, compiled.staying_gib) == (0.0, 0.0)
    assert compiled.available_kv_gib - compiled.margin_gib[0] > p.available_kv_gib - p.margin_gib[0] + 0.5 * TABLE
