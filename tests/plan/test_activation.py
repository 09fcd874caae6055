"""The profile run's peak, term by term, against figures that start-up logs state."""

import pytest

from tests.plan.models import HYBRID_LIKE, LLAMA_8B, arch
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.prediction.record import GIB
from vllm_doctor.plan.terms.activation import estimate, sampler_bytes_per_logit, tensor
from vllm_doctor.plan.terms.outside_torch import graphs


def peak(config, line, version, gpu="H100", **kwargs):
    v, a, card = as_version(version), arch(config), find(gpu)
    s = resolve(parse_launch(["vllm", "serve", "m", *line.split()], v), v, a, card, card.total_gib, 8)
    return estimate(a, s, capability=card.capability, multiprocessors=card.multiprocessors, **kwargs)


def test_the_tensor_of_the_article_is_5_34_gib():
    assert tensor(200_000, 14336, 2) / GIB == pytest.approx(5.34, abs=0.005)


def test_the_sampler_wins_on_large_cards():
    # 1.89 GiB logged by 0.19.0: 1024 × 128256 × 14 B, 132 × 128256 × 4 B of Triton buffer, 8192 hidden states, cuBLAS.
    got = peak(LLAMA_8B, "--max-model-len 8192", "0.19.0")
    assert got.winner == "logits and sampler"
    assert got.peak / GIB == pytest.approx(1.89, abs=0.01)


def test_sorting_samplers_cost_38_bytes_a_logit():
    # 5.64 GiB logged by 0.11.0 for Qwen3-32B (V 151936, H 5120) at 1024 sequences.
    config = {
        **LLAMA_8B,
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "num_attention_heads": 64,
        "head_dim": 128,
        "vocab_size": 151936,
    }
    assert peak(config, "", "0.11.0").peak / GIB == pytest.approx(5.64, abs=0.02)


def test_the_forward_pass_wins_with_a_small_vocabulary():
    # 0.77 GiB logged by 0.19.0 for a 7B model of 32016 tokens vocabulary.
    config = {**LLAMA_8B, "intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32016}
    got = peak(config, "", "0.19.0")
    assert got.winner == "forward pass, MLP"
    assert got.peak / GIB == pytest.approx(0.77, abs=0.03)


def test_only_the_last_stage_samples():
    # 1.05 and 2.01 GiB logged by the first and last of four stages.
    first = peak(LLAMA_8B, "-pp 4", "0.19.0", last_stage=False)
    last = peak(LLAMA_8B, "-pp 4", "0.19.0", first_stage=False)
    assert first.peak / GIB == pytest.approx(1.05, abs=0.04)
    assert last.peak / GIB == pytest.approx(2.01, abs=0.01)


def test_fewer_sequences_cost_fewer_logits():
    many, few = peak(LLAMA_8B, "--max-num-seqs 1024", "0.19.0"), peak(LLAMA_8B, "--max-num-seqs 64", "0.19.0")
    assert many.peak > few.peak


@pytest.mark.parametrize(
    ("version", "v2", "expected"),
    [("0.16.0", False, 38), ("0.19.0", False, 14), ("0.28.0", True, 2), ("0.33.0", True, 14)],
)
def test_bytes_per_logit_follow_the_release(version, v2, expected):
    assert sampler_bytes_per_logit(as_version(version), "V1", v2, 2)[0] == expected


@pytest.mark.parametrize(
    ("version", "each"), [("0.11.0", 38), ("0.11.1", 46), ("0.16.0", 46), ("0.17.0", 30), ("0.19.0", 30)]
)
def test_drafts_are_rejected_in_the_profile_too(version, each):
    # With 1024 sequences and 154,880 words 2.4 GiB more than the sampler alone (eight H20 of 0.23).
    drafts = """--max-num-seqs 1024 --speculative-config {"method":"ngram","num_speculative_tokens":4}"""
    told = peak(LLAMA_8B, drafts, version)
    sampler = next(t for t in told.terms if t.name == "logits and sampler")
    assert f"1024 × 128256 × {each} B" in sampler.formula


VISION = {
    "model_type": "qwen3_vl",
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "patch_size": 16,
    "spatial_merge_size": 2,
}


def test_the_encoder_profile_stays_under_the_language_pass():
    text = {**LLAMA_8B, "model_type": "qwen3_vl_text"}
    seeing = {"model_type": "qwen3_vl", "text_config": text, "vision_config": VISION}
    blind, both = peak(text, "", "0.19.0"), peak(seeing, "", "0.19.0")
    # 16384 tokens of output in the model's width, and their pixels: 4 patches of 16 × 16 × 3 × 2 each, 2 bytes a value.
    kept = 16384 * 4096 * 2 + 65536 * 16 * 16 * 3 * 2 * 2
    assert both.peak - blind.peak == pytest.approx(kept)
    assert peak(seeing, "--skip-mm-profiling", "0.19.0").peak == blind.peak


@pytest.mark.parametrize(("ranks", "values"), [(2, 9 * 1152), (4, 7 * 1152)])
def test_each_rank_has_a_part_of_attention_and_all_of_what_stands_beside_it(ranks, values):
    text = {**LLAMA_8B, "model_type": "qwen3_5_text"}
    seeing = {"model_type": "qwen3_5", "text_config": text, "vision_config": {**VISION, "model_type": "qwen3_5"}}
    told = peak(seeing, f"--tensor-parallel-size {ranks}", "0.27.0")
    run = next(t for t in told.terms if t.name == "vision encoder").bytes
    assert run == pytest.approx(65536 * 2 * (values + 16 * 16 * 3 * 2))


def test_a_long_v0_profile_of_a_vision_model_takes_the_card():
    # A start of Qwen2.5-VL-3B on 32 GB left 0.1 GiB for the cache at 128000 tokens, and 16.9 at 32768.
    text = {
        **LLAMA_8B,
        "model_type": "qwen2_5_vl",
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 128000,
        "rope_scaling": None,
    }
    seeing = {
        **text,
        "vision_config": QWEN25_VL_TOWER,
    }
    assert peak(seeing, "--max-model-len 32768", "0.7.3", "V100").peak / GIB == pytest.approx(4.06, abs=0.15)
    assert peak(seeing, "--max-model-len 128000", "0.7.3", "V100").peak / GIB > 20


QWEN25_VL_TOWER = {
    "model_type": "qwen2_5_vl",
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "patch_size": 14,
    "spatial_merge_size": 2,
}
QWEN25_VL_7B = {
    **LLAMA_8B,
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 128000,
    "rope_scaling": None,
    "vision_config": QWEN25_VL_TOWER,
}


def test_a_long_context_lets_the_profile_take_a_whole_video():
    # A start of 0.23.0 on 80 GB: "budget of 114688 tokens, … 1 video items", 15.5 GiB beside weights and graphs.
    whole = peak(QWEN25_VL_7B, "--max-num-seqs 256", "0.23.0", "A100 80GB")
    assert whole.peak / GIB == pytest.approx(14.5, abs=0.8)
    # Seven pairs of frames as large as an image; at 32768 tokens two, and without videos one image.
    two = peak(QWEN25_VL_7B, "--max-num-seqs 256 --max-model-len 32768", "0.23.0", "A100 80GB")
    none = peak(QWEN25_VL_7B, '--max-num-seqs 256 --limit-mm-per-prompt {"video":0}', "0.23.0", "A100 80GB")
    assert none.peak < two.peak < 0.4 * whole.peak


def test_room_for_a_video_is_kept_only_where_one_may_come():
    # Qwen3-VL-235B FP8, eight L40S, 0.11.0, {"video": 0}: 9.71 GiB of cache, with the room 5.5 would be left.
    tower = {**QWEN25_VL_TOWER, "model_type": "qwen3_vl", "deepstack_visual_indexes": [8, 16, 24]}
    config = {**QWEN25_VL_7B, "vision_config": tower}
    kept = peak(config, "", "0.11.0").peak - peak(config, '--limit-mm-per-prompt {"video":0}', "0.11.0").peak
    assert kept == (153_600 - 16_384) * 3584 * 2 * 4


def test_without_items_nothing_is_profiled_of_the_encoder():
    silent = peak(QWEN25_VL_7B, '--limit-mm-per-prompt {"image":0,"video":0}', "0.23.0")
    assert silent.peak == peak(QWEN25_VL_7B, "--skip-mm-profiling", "0.23.0").peak


@pytest.mark.parametrize(
    ("flags", "gib"),
    [
        ("--max-model-len 2048", 1.40),  # logged on a V100: the sampler was reached
        ("--max-model-len 131072 --max-num-batched-tokens 2048", 0.23),  # chunked: the forward pass alone
    ],
)
def test_v0_of_07_samples_only_where_a_profile_is_not_cut_in_chunks(flags, gib):
    config = {
        **LLAMA_8B,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "num_hidden_layers": 28,
        "vocab_size": 152064,
    }
    assert peak(config, flags, "0.7.2", "V100 32GB").peak / GIB == pytest.approx(gib, abs=0.08)


def test_flashinfers_sampler_may_be_installed_and_then_the_peak_is_smaller():
    # 1.26 GiB with torch's sampler, 0.48 with FlashInfer's, whose presence no launch line shows before 0.11.1.
    flags = "--max-num-seqs 256 --max-num-batched-tokens 2048"
    got = peak(LLAMA_8B, flags, "0.10.0")
    assert got.otherwise < 0.5 * got.peak
    told = peak(LLAMA_8B, flags, "0.12.0")
    assert told.otherwise == told.peak


@pytest.mark.parametrize(("version", "sure"), [("0.10.1", False), ("0.12.0", True)])
def test_flashinfers_sampler_that_is_asked_for_is_the_one_counted(version, sure):
    def told(switch):
        v, a, card = as_version(version), arch(LLAMA_8B), find("A100 80GB PCIe")
        words = [*switch.split(), "vllm", "serve", "m", "--max-num-seqs", "256", "--max-num-batched-tokens", "2048"]
        return estimate(
            a,
            resolve(parse_launch(words, v), v, a, card, card.total_gib, 8),
            capability=card.capability,
            multiprocessors=1,
        )

    asked, refused = told("VLLM_USE_FLASHINFER_SAMPLER=1"), told("VLLM_USE_FLASHINFER_SAMPLER=0")
    assert asked.compiled < 0.5 * refused.compiled
    # Before 0.11.1 a host without FlashInfer samples with torch all the same, after a warning.
    assert asked.otherwise == (asked.peak if sure else pytest.approx(refused.peak))
    assert refused.otherwise == refused.peak


def graph_gib(flags, version="0.22.0", gpu="L40S", config=LLAMA_8B):
    v, a, card = as_version(version), arch(config), find(gpu)
    s = resolve(parse_launch(["vllm", "serve", "m", *flags.split()], v), v, a, card, card.total_gib, 1)
    return graphs(a, s, card).gib


def test_decode_graphs_end_at_the_sequence_limit():
    # 512 tokens: 51 sizes for mixed batches; for decoding 51 again or, at 128 sequences, 19.
    both = graph_gib("--max-num-batched-tokens 8192 --max-num-seqs 512 --max-cudagraph-capture-size 512")
    fewer = graph_gib("--max-num-batched-tokens 8192 --max-num-seqs 128 --max-cudagraph-capture-size 512")
    assert both - fewer == pytest.approx(32 * 32 * 0.122 / 1024)


def test_flashinfers_workspace_comes_with_the_first_full_graph():
    # Starts of 0.20 on RTX 5090 with an fp8 cache estimate 0.36 GiB for one graph of a mode; FlashAttention's do not.
    small = "--max-num-seqs 1 --max-cudagraph-capture-size 1"
    added = graph_gib(f"{small} --kv-cache-dtype fp8", gpu="RTX 5090") - graph_gib(small, gpu="RTX 5090")
    assert added == pytest.approx(394 / 1024)
    drafting = f'{small} --kv-cache-dtype fp8 --speculative-config {{"method":"mtp","num_speculative_tokens":2}}'
    assert graph_gib(drafting, gpu="RTX 5090") < 0.1
    assert graph_gib(f"{small} --kv-cache-dtype fp8", gpu="H100") < 0.1


@pytest.mark.parametrize(("version", "takes"), [("0.12.0", True), ("0.13.0", False), ("0.33.0", False)])
def test_flashinfer_is_not_taken_unasked_where_images_are_seen_both_ways(version, takes):
    seeing = {**LLAMA_8B, "architectures": ["Gemma3ForConditionalGeneration"]}
    line = "--max-num-seqs 1 --max-cudagraph-capture-size 1 --kv-cache-dtype fp8"
    more = graph_gib(line, version, "RTX 5090") - graph_gib(line, version, "RTX 5090", seeing)
    assert more == pytest.approx(0.0 if takes else 394 / 1024)
    if version == "0.33.0":
        asked = f"{line} --attention-backend FLASHINFER"
        assert graph_gib(asked, version, "RTX 5090", seeing) == graph_gib(asked, version, "RTX 5090")


@pytest.mark.parametrize(
    ("gpu", "config", "version", "halved"),
    [
        ("H100", LLAMA_8B, "0.22.0", False),
        ("H200", LLAMA_8B, "0.22.0", False),
        ("L40S", LLAMA_8B, "0.22.0", True),
        ("RTX 5090", LLAMA_8B, "0.22.0", True),  # Qwen3-0.6B of 0.19.1: 0.27 GiB
        ("L40S", HYBRID_LIKE, "0.22.0", False),
        ("L40S", HYBRID_LIKE, "0.29.0", True),  # Qwen3.5-4B on an L4 of 0.29: 0.47 GiB charged
    ],
)
def test_cublas_keeps_a_small_workspace_before_hopper_and_on_cards_of_12_0(gpu, config, version, halved):
    fixed = "--max-num-batched-tokens 8192 --max-num-seqs 256 --max-cudagraph-capture-size 512"
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    shared = graph_gib(fixed, version, gpu, config) - 86 * layers * 0.122 / 1024
    assert shared == pytest.approx((0.2 + 0.063 * hidden / 1000) * (0.5 if halved else 1.0))


def test_graphs_of_several_ranks_share_a_least_size():
    # Four H100 of 0.19.1 with 16 captured tokens: 0.19 GiB of graphs.
    fixed = "--max-num-batched-tokens 8192 --max-num-seqs 256 --max-cudagraph-capture-size 16"
    one, two = graph_gib(fixed, gpu="H100"), graph_gib(f"{fixed} -tp 2", gpu="H100")
    assert two - one == pytest.approx(0.07 - (0.2 + 0.063 * 4096 / 1000) * 16 / 512)


@pytest.mark.parametrize(
    ("gpu", "flags", "captured"),
    [
        ("L40S", "-tp 4", True),  # no NVLink between more than two cards: vLLM's own all-reduce stays off
        ("L40S", "-tp 2", False),  # the driver knows whether one card reads the other: within the range
        ("H100", "-tp 4", False),
        ("H100", "-tp 4 --disable-custom-all-reduce", True),
    ],
)
def test_graphs_keep_the_plans_of_the_all_reduces_that_nccl_does(gpu, flags, captured):
    # Qwen2.5-72B on four L40S (0.19.0): 86 graphs of 80 layers took 2.62 GiB, 1.54 of which is not NCCL's.
    fixed = "--max-num-batched-tokens 2048 --max-num-seqs 256"
    ranks = graph_gib(f"{fixed} {flags}", "0.19.0", gpu)
    alone = graph_gib(fixed, "0.19.0", gpu)
    assert ranks - alone == pytest.approx(86 * 32 * 2 * 80 / 2**20 if captured else 0.0)


QWEN2_VL = {
    **LLAMA_8B,
    "architectures": ["Qwen2VLForConditionalGeneration"],
    "model_type": "qwen2_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {
        "model_type": "qwen2_vl",
        "depth": 32,
        "embed_dim": 1280,
        "mlp_ratio": 4,
        "num_heads": 16,
        "hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": 2,
    },
}
INT4 = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
EXPERTS = {
    **LLAMA_8B,
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "quantization_config": INT4,
}


@pytest.mark.parametrize(
    ("version", "tokens"), [("0.10.2", 32768), ("0.11.2", 32768), ("0.17.0", 16384), ("0.18.0", 65536)]
)
def test_experts_take_a_part_of_a_wide_step_at_once_to_0_17(version, tokens):
    got = peak(EXPERTS, "--max-model-len 4096 --max-num-batched-tokens 65536", version, experts="nvfp4")
    each = 8 * (max(768, EXPERTS["hidden_size"]) + max(2 * 768, EXPERTS["hidden_size"])) * 2
    assert {t.name: t.bytes for t in got.terms}["MoE workspace"] == tokens * each


def test_ranks_that_share_experts_hold_the_hidden_states_of_all_of_them():
    """Whole experts on each, or a part of each one's width: the tokens of all ranks come to either."""
    alone = peak(EXPERTS, "--max-model-len 4096", "0.19.0")
    parts = peak(EXPERTS, "--max-model-len 4096 -dp 4", "0.19.0")
    whole = peak(EXPERTS, "--max-model-len 4096 -dp 4 --enable-expert-parallel", "0.19.0")
    name = "all ranks' hidden states"
    assert name not in {t.name for t in alone.terms}
    for shared in (parts, whole):
        assert {t.name: t.bytes for t in shared.terms}[name] == 2 * 4 * 8192 * EXPERTS["hidden_size"] * 2
    size = {t.name: t.bytes for t in parts.terms}["MoE workspace"]
    assert size == 4 * 8192 * 8 * 2 * (2048 + 2048), "768 / 4 is below the hidden size"


def test_experts_of_a_direct_marlin_call_keep_no_workspace():
    direct, modular = (peak(EXPERTS, "--max-model-len 4096", v, experts="awq4") for v in ("0.21.0", "0.24.0"))
    plain = peak(EXPERTS, "--max-model-len 4096", "0.21.0")
    assert direct.peak < plain.peak
    size = {t.name: t.bytes for t in direct.terms}["MoE workspace"]
    assert size == 2 * 8192 * 8 * (max(2 * 768, 2048) + 768)
    assert size < {t.name: t.bytes for t in modular.terms}["MoE workspace"]


@pytest.mark.parametrize(
    ("version", "more", "own"),
    [("0.19.0", "--moe-backend cutlass", True), ("0.19.0", "", False), ("0.14.0", "", True), ("0.15.0", "", False)],
)
def test_own_kernels_of_four_bit_experts_sort_the_states_three_times(version, more, own):
    # Two RTX 5090 with Gemma 4 26B logged 0.6 and 1.2 GiB less pool than its workspace alone explains.
    plain = {k: v for k, v in EXPERTS.items() if k != "quantization_config"}
    got = peak(plain, f"--max-model-len 4096 --max-num-batched-tokens 8192 {more}", version, "B200", experts="nvfp4")
    size = {t.name: t.bytes for t in got.terms}
    assert size["MoE workspace"] == 8192 * 8 * 2 * (2048 + 768 if own else 2 * 2048)
    assert (size["forward pass with experts"] == 8192 * 2 * (3 * 8 + 4) * 2048) is own


@pytest.mark.parametrize(
    ("version", "experts", "each"),
    [
        ("0.7.2", "", 3 * 768 + 2048),  # DeepSeek-R1 on H200: 1.94 GiB of a step of 16384 tokens, not 3.5
        ("0.8.0", "fp8", max(2 * 768, 2048) + 768),
        ("0.13.0", "", max(2 * 768, 2048) + 768),
        ("0.14.0", "", 2 * 2048),
        ("0.13.0", "nvfp4", 2 * 2048),
    ],
)
def test_buffers_of_experts_that_are_called_to_0_13(version, experts, each):
    plain = {k: v for k, v in EXPERTS.items() if k != "quantization_config"}
    got = peak(plain, "--max-model-len 4096 --max-num-batched-tokens 8192", version, "A100", experts=experts)
    assert {t.name: t.bytes for t in got.terms}["MoE workspace"] == 8192 * 8 * each * 2


@pytest.mark.parametrize(
    ("pixels", "gib"),
    [(None, 4.17), (2_116_800, 1.32)],  # one start of a Qwen2-VL-7B with such a limit logged 1.16
)
def test_smaller_images_cost_a_smaller_profile(pixels, gib):
    line = "--max-model-len 8192" + (f' --mm-processor-kwargs {{"max_pixels":{pixels}}}' if pixels else "")
    assert peak(QWEN2_VL, line, "0.6.6", "A10").peak / GIB == pytest.approx(gib, abs=0.02)


def test_few_sequences_bring_few_items():
    few, many = (
        peak(
            QWEN2_VL,
            f"--max-model-len 4096 --max-num-seqs {n} --max-num-batched-tokens 65536 "
            '--limit-mm-per-prompt {"image":1,"video":0} --mm-processor-kwargs {"max_pixels":200704}',
            "0.19.0",
        )
        for n in (2, 512)
    )
    assert few.peak < many.peak


@pytest.mark.parametrize(
    ("version", "gpu", "experts", "stays"),
    [
        ("0.11.2", "H200", "fp8", True),  # DeepGEMM and CUTLASS; eight H200 with DeepSeek-R1 logged 4.6 GiB less pool
        ("0.11.0", "H200", "fp8", False),
        ("0.11.2", "A100", "fp8", False),
        ("0.11.2", "H200", "", False),
        ("0.13.0", "H200", "", False),  # still called as fused_experts, which frees them
        ("0.14.0", "H200", "", True),
    ],
)
def test_experts_in_8_bit_floats_keep_their_workspace_one_release_earlier(version, gpu, experts, stays):
    plain = {k: v for k, v in EXPERTS.items() if k != "quantization_config"}
    got = peak(plain, "--max-model-len 4096", version, gpu, experts=experts)
    size = {t.name: t.bytes for t in got.terms}
    under = got.peak - max(v for k, v in size.items() if k.startswith(("forward", "logits")))
    assert (under > size["MoE workspace"]) is stays


def test_v0_profiles_all_images_of_a_prompt_at_once():
    # Ten images of 16384 tokens: ten times the patches, which a card of 32 GB does not hold.
    one, ten = (
        peak(QWEN2_VL, "--max-model-len 8192" + more, "0.6.6", "A10").peak / GIB
        for more in ("", ' --limit-mm-per-prompt {"image":10}')
    )
    assert ten / one == pytest.approx(9.4, abs=0.3)


@pytest.mark.parametrize(
    ("version", "widths"), [("0.9.2", 13), ("0.11.0", 20), ("0.11.2", 17), ("0.12.0", 4 + 3 * 3420 / 1280)]
)
def test_one_card_turns_queries_and_keys_of_its_tower_in_float32_to_0_11(version, widths):
    told = peak(QWEN25_VL_7B, "--max-model-len 8192 --enforce-eager", version, "L4")
    run = next(t for t in told.terms if t.name == "vision encoder").bytes
    assert run == pytest.approx(65536 * 2 * (widths * 1280 + 14 * 14 * 3 * 2))


def test_several_cards_have_a_part_of_them_each():
    told = peak(QWEN25_VL_7B, "--max-model-len 8192 --tensor-parallel-size 2", "0.9.2", "L4")
    run = next(t for t in told.terms if t.name == "vision encoder").bytes
    assert run == pytest.approx(65536 * 2 * (4 * 1280 + 3 * 3420 / 2 + 14 * 14 * 3 * 2))
