"""Pipeline stages of unequal sizes: each has the weights, the adapters and the offloaded weights of its own layers."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from tests.plan.models import LLAMA_8B, arch
from tests.plan.test_activation import QWEN25_VL_7B, QWEN25_VL_TOWER
from tests.plan.test_launch import resolved
from tests.plan.test_plan import model, plan
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.plan.launch.all_stages import OnEach, on_each_stage
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.prediction.predict import _room_of
from vllm_doctor.plan.terms.pages import pool_of
from vllm_doctor.plan.terms.weights import WeightTarget, rank_weights

__all__ = ["model"]

GIB = 1 << 30
# Of one Llama-3.1-8B layer: rows in and out of its seven matrices, which one rank of an adapter has values for.
ADAPTED = 81_920
EMBEDDED = 128_256 + 4096
LAYER = 2 * (4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336 + 2 * 4096)


@pytest.fixture
def stages(model):
    """The predictions of the pipeline stages of a launch, by their place in the pipeline."""

    def asked(flags: str, parts: str | None, pp: int = 2, version: str = "0.19.0", config=LLAMA_8B):
        env = "" if parts is None else f"VLLM_PP_LAYER_PARTITION={parts}"
        line = f"--pipeline-parallel-size {pp} --max-model-len 8192 {flags}"
        planned = plan(model(config), line, gpu="L40S", gpus=pp, version=version, env=env)
        return {p.stage: p for p in planned.stages()}

    return asked


def grown(with_it, without) -> list[float]:
    """Bytes that each stage's weights are more."""
    return [(with_it[n].weights_gib - without[n].weights_gib) * GIB for n in sorted(without)]


@pytest.mark.parametrize("parts", ["8,24", "20,12"])
def test_adapters_have_room_for_the_layers_of_their_own_stage(stages, parts):
    layers = [int(n) for n in parts.split(",")]
    room = grown(stages("--enable-lora", parts), stages("", parts))
    # Rank 16, two bytes a value; the first stage has the embedding, the last one the head.
    assert room == [pytest.approx(16 * 2 * (n * ADAPTED + EMBEDDED), rel=1e-6) for n in layers]


def test_a_stage_offloads_no_more_than_its_own_layers(stages):
    # Four layers of the first stage take 1.6 GiB: of 4 GiB that are asked for no more can leave, the last stage's 4 do.
    told = stages("--cpu-offload-gb 4", "4,28")
    moved = [told[n].host.pools[0].asked for n in (0, 1)]
    assert moved[0] == pytest.approx(4 * LAYER / GIB, rel=1e-3)
    assert moved[1] == pytest.approx(4, abs=LAYER / GIB)
    assert moved[1] >= 4


def test_layers_fetched_ahead_are_those_of_the_stage(stages):
    # One of each four layers stays on the host: two of eight, six of 24.
    told = stages("--offload-group-size 4 --offload-num-in-group 1", "8,24")
    assert [told[n].host.pools[0].asked * GIB for n in (0, 1)] == [
        pytest.approx(2 * LAYER, rel=1e-3),
        pytest.approx(6 * LAYER, rel=1e-3),
    ]


def test_the_stage_with_most_layers_decides_though_it_is_neither_first_nor_last(stages, model):
    told = stages("", "6,20,6", pp=3)
    assert sorted(told) == [0, 1, 2]
    assert told[1].weights_gib == pytest.approx(20 * LAYER / GIB, rel=1e-2)
    whole = plan(
        model(LLAMA_8B), "--pipeline-parallel-size 3 --max-model-len 8192", gpu="L40S", gpus=3, version="0.19.0",
        env="VLLM_PP_LAYER_PARTITION=6,20,6",
    )  # fmt: skip
    assert whole.predict().stage == 1
    assert whole.predict().gpu_blocks == min(p.gpu_blocks for p in told.values())


@pytest.mark.parametrize(
    ("pp", "told"),
    [
        (3, [0, 2]),  # 11, 11 and 10 layers: the first has the embedding besides
        (4, [0, 3]),  # 8 each
        (5, [0, 2, 4]),  # 6, 6, 7, 7 and 6: one of those with seven
    ],
)
def test_a_stage_between_is_told_where_it_has_most_layers(stages, pp, told):
    assert sorted(stages("", None, pp=pp)) == told


@pytest.mark.parametrize(("version", "parts"), [("0.7.3", (10, 10, 12)), ("0.8.5", (11, 11, 10))])
def test_to_0_7_the_last_stage_took_what_an_equal_division_leaves(version, parts):
    assert resolved("-pp 3", version, gpus=3).parallel.stages(32) == parts


def test_the_stage_that_decides_is_one_that_fails_then_one_in_doubt_then_the_smallest(stages):
    """A pipeline starts where all its stages do, so the worst speaks for all."""
    sure = stages("", "16,16")[0]
    small = replace(sure, gpu_blocks=sure.gpu_blocks - 1)
    doubt = replace(sure, odds=0.5)
    fails = replace(sure, outcome="oom-profile")
    for mixed in permutations((sure, small, doubt, fails)):
        assert sorted(mixed, key=_room_of) == [fails, doubt, small, sure]


@pytest.mark.parametrize(
    ("model_type", "version", "made"),
    [
        ("qwen3_moe", "0.33.0", OnEach.BOTH),  # qwen3_moe.py asks no get_pp_group for either
        ("gpt_oss", "0.11.0", OnEach.BOTH),
        ("qwen3_5_text", "0.19.1", OnEach.EMBEDDING),
        ("qwen2", "0.6.1", OnEach.BOTH),
        ("qwen2", "0.6.4", OnEach.HEAD),
        ("qwen2", "0.7.3", OnEach.NEITHER),
        ("deepseek_v3", "0.7.3", OnEach.HEAD),
        ("deepseek_v3", "0.8.5", OnEach.NEITHER),
        ("llama", "0.33.0", OnEach.NEITHER),
    ],
)
def test_some_classes_make_embedding_and_head_on_each_stage(model_type, version, made):
    assert on_each_stage(model_type, as_version(version)) is made


@pytest.mark.parametrize(
    ("made", "tables"),
    [
        (OnEach.NEITHER, (1, 0, 1)),
        (OnEach.EMBEDDING, (1, 1, 2)),
        (OnEach.HEAD, (2, 1, 1)),
        (OnEach.BOTH, (2, 2, 2)),
    ],
)
def test_a_stage_holds_the_tables_that_its_class_makes(made, tables):
    """The vocabulary's embedding and the head have 128256 rows of 4096 values each."""
    a, target, par = arch(LLAMA_8B), WeightTarget(), Parallel(pp=3, layers=(11, 11, 10), on_each=made)
    fmt = scheme(None, None, 2)
    layers = [n * LAYER + 8192 * (n == 10) for n in par.layers]
    for stage, count in enumerate(tables):
        held = rank_weights(a, fmt, par, stage, target) - 131072 * 128 * 2
        assert held == layers[stage] + count * 128256 * 4096 * 2


def test_the_class_decides_which_tables_a_launch_has_on_its_stages():
    assert resolved("-pp 2", "0.19.0", gpus=2).parallel.on_each is OnEach.NEITHER
    moe = {**LLAMA_8B, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    assert resolved("-pp 2", "0.19.0", gpus=2, config=moe).parallel.on_each is OnEach.BOTH


# Qwen2.5-VL's tower: 32 blocks of 1280 and 3420 channels with a gate, patches of 14 x 14 in pairs of frames, and a
# projector of four patches to 3584 channels; nine vectors a block.
TOWER = 2 * (
    32 * (4 * 1280**2 + 3 * 1280 * 3420 + 9 * 1280) + 14 * 14 * 3 * 1280 * 2 + (4 * 1280) ** 2 + 4 * 1280 * 3584
)


@pytest.mark.parametrize(
    ("version", "env", "held", "profiled"),
    [
        ("0.19.1", None, True, True),  # the first runner makes it and profiles it on each stage
        ("0.26.0", None, True, False),  # the second one makes it on each, and profiles it on none
        ("0.28.0", None, True, False),  # or on the first
        ("0.33.0", None, False, False),  # where alone it is made since
        ("0.33.0", "VLLM_USE_V2_MODEL_RUNNER=0", True, True),
    ],
)
def test_later_stages_make_the_vision_tower_and_the_first_runner_profiles_it_there(model, version, env, held, profiled):
    told = {}
    for limits in ("", "--language-model-only"):
        line = f"--pipeline-parallel-size 2 --max-model-len 8192 {limits}"
        planned = plan(model(QWEN25_VL_7B), line, gpu="L40S", gpus=2, version=version, env=env or "")
        told[limits] = {p.stage: p for p in planned.stages()}
    first, last = ((told[""][n].weights_gib - told["--language-model-only"][n].weights_gib) * GIB for n in (0, 1))
    assert first == pytest.approx(TOWER, rel=2e-3)
    assert last == pytest.approx(TOWER * held, rel=2e-3)
    assert [any(t.name == "vision encoder" for t in told[""][n].terms) for n in (0, 1)] == [
        version != "0.26.0",
        profiled,
    ]


def test_what_each_layer_hears_of_the_tokens_is_split_and_its_projections_are_not():
    """gemma4.py: a table of 1000 words and a projection of 4096 channels to 32 layers x 64, which ranks share, on each
    stage; each layer's two projections of 64 to 4096 are whole."""
    config = {**LLAMA_8B, "hidden_size_per_layer_input": 64, "vocab_size_per_layer_input": 1024}
    for par in (Parallel(), Parallel(tp=2), Parallel(pp=2, on_each=OnEach.EMBEDDING)):
        with_it, without = (
            rank_weights(arch(c), scheme(None, None, 2), par, par.pp - 1, WeightTarget()) for c in (config, LLAMA_8B)
        )
        words, layers = (1024 + 4096) * 64 * 32 // par.tp, 32 // par.pp * 2 * 64 * 4096
        assert with_it - without == 2 * (words + layers)


@pytest.mark.parametrize(
    ("name", "flags", "version", "shared"),
    [
        ("Qwen2_5_VLForConditionalGeneration", "", "0.33.0", 2),
        ("Qwen2_5_VLForConditionalGeneration", "--mm-encoder-tp-mode weights", "0.33.0", 2),
        ("Qwen2_5_VLForConditionalGeneration", "--mm-encoder-tp-mode data", "0.33.0", 1),
        ("Qwen2_5_VLForConditionalGeneration", "--mm-encoder-tp-mode data", "0.10.2", 1),
        ("Qwen2_5_VLForConditionalGeneration", "--enable-multimodal-encoder-data-parallel", "0.11.0", 1),
        ("Qwen2VLForConditionalGeneration", "--mm-encoder-tp-mode data", "0.10.2", 2),
        ("Gemma3ForConditionalGeneration", "--mm-encoder-tp-mode data", "0.33.0", 2),  # warned of, and split
    ],
)
def test_ranks_that_split_items_hold_the_tower_whole(name, flags, version, shared):
    config = {**QWEN25_VL_7B, "architectures": [name]}
    par = resolved(f"-tp 2 {flags}", version, gpus=2, config=config).parallel
    seeing, blind = arch(config), arch({k: v for k, v in config.items() if k != "vision_config"})
    held, without = (rank_weights(a, scheme(None, None, 2), par, 0, WeightTarget()) for a in (seeing, blind))
    # Blocks and projector are split; patches and the nine vectors of a block are not.
    whole = 2 * (32 * 9 * 1280 + 14 * 14 * 3 * 1280 * 2)
    assert held - without == pytest.approx(whole + (TOWER - whole) / shared, rel=1e-4)


@pytest.mark.parametrize(("version", "whole"), [("0.13.0", True), ("0.14.1", False)])
def test_kimi_vl_splits_its_tower_since_0_14(version, whole):
    tower = {**QWEN25_VL_TOWER, "model_type": "moonvit"}
    config = {**QWEN25_VL_7B, "architectures": ["KimiVLForConditionalGeneration"], "vision_config": tower}
    assert resolved("-tp 2", version, gpus=2, config=config).parallel.whole_tower is whole


@pytest.mark.parametrize(("pp", "tables"), [(1, 0), (2, 1)])
def test_a_drafter_keeps_an_embedding_of_its_own_beside_a_model_of_several_stages(pp, tables):
    a, par = arch({**LLAMA_8B, "num_nextn_predict_layers": 1}), Parallel(pp=pp)
    fmt, target = scheme(None, None, 2), WeightTarget()
    drafted = rank_weights(a, fmt, par, pp - 1, target, draft_mtp=True)
    # One layer, and a projection of two hidden states to one.
    assert drafted - rank_weights(a, fmt, par, pp - 1, target) == LAYER + 2 * 2 * 4096**2 + tables * 128256 * 4096 * 2


def test_prefill_parallel_ranks_share_the_experts_and_have_all_else():
    """fused_moe/config.py flatten_tp_across_dp_and_pcp: four ranks, each with a quarter of the experts' bytes, in width
    or whole."""
    moe = {**LLAMA_8B, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    par = resolved("-tp 2 --prefill-context-parallel-size 2", "0.33.0", gpus=4, config=moe).parallel
    assert (par.cards, par.width_split, par.prefill) == (4, 4, 2)
    a, fmt, target = arch(moe), scheme(None, None, 2), WeightTarget()
    sizes = {
        par.prefill * 10 + par.expert: rank_weights(a, fmt, par, 0, target)
        for par in (Parallel(tp=2), *(Parallel(tp=2, prefill=2, expert=e) for e in (False, True)))
    }
    assert sizes[20] == sizes[21]
    assert sizes[10] - sizes[20] == 32 * 8 * 3 * 14336 * 4096 * 2 // 4


def test_prefill_parallel_ranks_ask_for_cards_of_their_own():
    told = resolved("-tp 2 --prefill-context-parallel-size 2", "0.33.0", gpus=2).refusals
    assert [one.found for one in told if one.flag.startswith("--tensor-parallel-size ×")] == ["2 × 1 × 2"]


@pytest.mark.parametrize(("version", "blocks"), [("0.25.1", 128), ("0.26.0", 256)])
def test_prefill_parallel_ranks_shared_the_cache_of_a_request_to_0_25(version, blocks):
    """8192 tokens in blocks of 16, which two ranks of decoding share, and two of prefill."""
    flags = "-tp 16 --decode-context-parallel-size 2 --prefill-context-parallel-size 2"
    held = pool_of(arch(LLAMA_8B), resolved(flags, version, gpus=32), None)
    assert held is not None
    assert held.request_blocks(8192) == blocks
