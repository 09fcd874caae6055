"""Can this release run this at all: what vLLM refuses before memory counts, and what nobody can say."""

import json

import pytest
from msgspec.structs import replace

from tests.plan.models import DEEPSEEK_LIKE, DSA_LIKE, GEMMA3_LIKE, GPT_OSS_20B, HYBRID_LIKE, LLAMA_8B
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.knowledge.builds import has_code
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.plan.advice.remedies import hardware
from vllm_doctor.plan.question.planner import Question, planner

# 48 experts of 768 channels: at 4 ranks 192 each, which is one block of 128 and a half.
FP8_EXPERTS = {
    **LLAMA_8B,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_hidden_layers": 8,
    "num_experts": 48,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
AWQ = {
    **LLAMA_8B,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
}


@pytest.fixture
def ask(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def asked(config, flags="", *, gpu="H100", gpus=8, version="0.33.0"):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        said = flags.split()
        set_first = [word for word in said if word.startswith(("VLLM_", "TRITON_PTXAS"))]
        words = (*set_first, "vllm", "serve", "m", "--max-model-len", "4096", *said[len(set_first) :])
        return planner(Question(words, gpu, gpus, None, version, str(file)))

    return asked


def refused(planned):
    p = planned.predict()
    assert (p.outcome == "rejected") == bool(p.settings.refusals)
    return [r.flag for r in p.settings.refusals]


@pytest.mark.parametrize(
    ("capability", "version", "told"),
    [
        (7.0, "0.19.0", True),
        (7.0, "0.20.0", False),
        (12.0, "0.8.5", False),  # code for 9.0 alone, and no PTX
        (12.0, "0.9.0", True),  # PTX of 9.0
        (7.0, "0.22.0", False),
        (7.0, "0.33.0", False),
        (7.5, "0.33.0", True),
        (6.1, "0.33.0", False),
        (12.1, "0.33.0", True),  # code for 12.0 runs on 12.1
        (11.0, "0.33.0", True),  # PTX of 8.0 is compiled by the driver
        (7.0, "0.5.0", None),  # no wheel as old was read
    ],
)
def test_a_card_is_supported_where_the_wheel_has_code_for_it(capability, version, told):
    assert has_code(capability, as_version(version)) is told


def test_a_v100_is_refused_by_a_wheel_without_code_for_it(ask):
    assert refused(ask(LLAMA_8B, gpu="V100 32GB")) == ["--gpu"]
    assert refused(ask(LLAMA_8B, gpu="V100 32GB", version="0.19.0")) == []


def test_a_card_without_code_is_told_the_nearest_release_that_has_it(ask):
    (told,) = ask(LLAMA_8B, gpu="V100 32GB").predict().settings.refusals
    assert told.needed == "7.5 or higher, for which the wheel of 0.33.0 has code; 0.19.1 has code for it"


def test_mxfp4_is_refused_on_a_card_below_its_compute_capability(ask):
    found = ask(GPT_OSS_20B, gpu="T4").predict().settings.refusals
    assert [(r.flag, r.needed.partition(",")[0]) for r in found] == [("quantization_config", "compute capability 8.0")]


def test_a_type_that_the_quantization_does_not_take_is_refused(ask):
    assert refused(ask(GPT_OSS_20B, "--dtype float16")) == ["--dtype"]
    assert refused(ask(GPT_OSS_20B)) == []


@pytest.mark.parametrize(
    ("tp", "version", "flags"),
    [
        (2, "0.28.0", []),  # 384: three blocks
        (4, "0.28.0", ["--tensor-parallel-size"]),  # 192: one and a half
        (4, "0.29.0", []),  # scales are refined to blocks of 64
        (4, "0.33.0", []),
    ],
)
def test_blocks_of_fp8_experts_are_not_cut_before_scales_are_refined(ask, tp, version, flags):
    assert refused(ask(FP8_EXPERTS, f"-tp {tp}", version=version)) == flags


# 4 KV heads of 192: at 4 ranks and at 8 one each, which is one block of 128 and a half.
MIMO = {
    **LLAMA_8B,
    "architectures": ["MiMoV2ForCausalLM"],
    "model_type": "mimo_v2",
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


@pytest.mark.parametrize(
    ("tp", "version", "flags"),
    [
        (4, "0.23.0", ["--tensor-parallel-size"]),
        (4, "0.24.0", []),  # its class splits the joined projections itself
        (8, "0.30.0", ["--tensor-parallel-size"]),  # among no more ranks than KV heads
        (8, "0.31.0", []),
    ],
)
def test_projections_that_the_model_splits_itself_are_not_refused(ask, tp, version, flags):
    config = {**MIMO, "intermediate_size": 16384}
    assert refused(ask(config, f"-tp {tp}", version=version)) == flags
    other = {**config, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    assert refused(ask(other, f"-tp {tp}", version=version)) == ["--tensor-parallel-size"]


@pytest.mark.parametrize(("model_type", "flags"), [("mimo_v2_flash", []), ("mimo_v2", ["--tensor-parallel-size"])])
def test_projections_stored_apart_in_the_parts_of_four_ranks_may_load(ask, model_type, flags):
    config = {**MIMO, "model_type": model_type, "intermediate_size": 16384}
    assert refused(ask(config, "-tp 4", version="0.14.0")) == flags


@pytest.mark.parametrize(
    ("architecture", "ranks", "flags"),
    [
        ("Qwen3NextForCausalLM", "-tp 2", ["--tensor-parallel-size"]),  # 704 of the shared expert: five and a half
        ("Qwen3NextForCausalLM", "-tp 2 --enable-expert-parallel", ["--tensor-parallel-size"]),
        ("Qwen3NextForCausalLM", "-tp 2 -dp 2", ["--tensor-parallel-size"]),
        ("Qwen3NextForCausalLM", "-tp 2 -dp 2 --enable-expert-parallel", []),  # each rank has all of it
        ("Qwen2MoeForCausalLM", "-tp 2 -dp 2 --enable-expert-parallel", ["--tensor-parallel-size"]),  # or never has
        ("KimiLinearForCausalLM", "-tp 2 -dp 2 --enable-expert-parallel", []),  # or may have
    ],
)
def test_a_shared_expert_that_each_rank_may_hold_whole_is_not_refused(ask, architecture, ranks, flags):
    config = {
        **FP8_EXPERTS,
        "architectures": [architecture],
        "model_type": "qwen2_moe",
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 1408,
    }
    assert refused(ask(config, ranks)) == flags


def test_the_refusal_names_the_sizes_that_split(ask):
    (told,) = ask(FP8_EXPERTS, "-tp 4", version="0.28.0").predict().settings.refusals
    assert told.needed == (
        "a size that splits the 768 outputs of gate_proj of the experts into blocks of 128 that share a scale; 192 for "
        "each rank is not a multiple, such as 1, 2"
    )


@pytest.mark.parametrize(
    ("flags", "gpu", "version", "told"),
    [
        ("--dtype bfloat16 --quantization awq", "A100", "0.5.4", ["--dtype"]),
        ("--dtype bfloat16", "A100", "0.5.4", []),  # which takes Marlin
        ("--dtype half --quantization awq_marlin", "T4", "0.9.0", ["quantization_config"]),
        ("--dtype half", "T4", "0.9.0", []),
    ],
)
def test_a_method_that_is_asked_for_stands_for_itself(ask, flags, gpu, version, told):
    assert refused(ask(AWQ, flags, gpu=gpu, version=version)) == told


def test_groups_of_awq_are_not_cut(ask):
    # 18944 channels are 148 groups of 128: four ranks hold 37 each, and 28 heads are split in 4 as well.
    assert refused(ask(AWQ, "-tp 4")) == []
    narrow = {**AWQ, "intermediate_size": 18944 + 128}
    assert refused(ask(narrow, "-tp 4")) == ["--tensor-parallel-size"]


@pytest.mark.parametrize(
    ("flags", "version", "told"),
    [
        ("-tp 4", "0.4.0", ["--tensor-parallel-size"]),  # before Marlin took such checkpoints
        ("-tp 4 --quantization gptq", "0.8.5", ["--tensor-parallel-size"]),
        ("-tp 4", "0.8.5", []),
    ],
)
def test_groups_of_gptq_are_not_cut_in_its_own_class(ask, flags, version, told):
    stored = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    plain = {**LLAMA_8B, "rope_scaling": None, "torch_dtype": "float16"}
    config = {**plain, "intermediate_size": 18944 + 128, "quantization_config": stored}
    assert refused(ask(config, flags, version=version)) == told


INTEGERS, FLOATS = {"num_bits": 4, "type": "int", "group_size": 128}, {"num_bits": 8, "type": "float"}
TOKENS_IN_8 = {"num_bits": 8, "type": "int", "dynamic": True}


def compressed(weights, inputs=None):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    stored = {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {"group_0": group}}
    return {**LLAMA_8B, "torch_dtype": "float16", "quantization_config": stored}


@pytest.mark.parametrize(
    ("config", "gpu", "version", "flags"),
    [
        (compressed(INTEGERS), "T4", "0.11.0", ["quantization_config"]),
        (compressed(INTEGERS), "T4", "0.12.0", []),
        (compressed(INTEGERS), "A10", "0.11.0", []),
        (compressed(FLOATS), "T4", "0.14.1", ["quantization_config"]),
        (compressed(FLOATS), "T4", "0.16.0", []),
        (compressed({**INTEGERS, "num_bits": 8}, TOKENS_IN_8), "T4", "0.9.1", []),
        (compressed({**INTEGERS, "num_bits": 8}, TOKENS_IN_8), "V100", "0.9.1", ["quantization_config"]),
    ],
)
def test_compressed_tensors_asks_the_card_by_what_weights_and_inputs_are(ask, config, gpu, version, flags):
    assert refused(ask(config, gpu=gpu, gpus=1, version=version)) == flags


def test_a_width_that_does_not_divide_is_refused(ask):
    assert refused(ask({**LLAMA_8B, "intermediate_size": 14338}, "-tp 4")) == ["--tensor-parallel-size"]


def test_a_cache_of_another_plain_type_is_refused_from_the_release_that_does(ask):
    assert refused(ask(LLAMA_8B, "--kv-cache-dtype float16")) == ["--kv-cache-dtype"]
    assert refused(ask(LLAMA_8B, "--kv-cache-dtype bfloat16")) == []
    assert refused(ask(LLAMA_8B, "--kv-cache-dtype float16", version="0.32.0")) == []


@pytest.mark.parametrize(("version", "flags"), [("0.14.1", ["--kv-cache-dtype"]), ("0.15.0", [])])
def test_bfloat16_names_a_cache_from_the_release_whose_kernels_list_it(ask, version, flags):
    assert refused(ask(LLAMA_8B, "--kv-cache-dtype bfloat16", version=version)) == flags


def test_a_backend_of_other_cards_is_refused(ask):
    assert refused(ask(DEEPSEEK_LIKE, "-tp 8 --attention-backend CUTLASS_MLA", gpu="H200")) == ["--attention-backend"]
    assert refused(ask(DEEPSEEK_LIKE, "-tp 8 --attention-backend FLASHMLA", gpu="H200")) == []


@pytest.mark.parametrize(
    ("gpu", "version", "only"),
    [
        ("B200", "0.6.2", "no published build of 2.4.0"),  # PTX of 9.0 is in vLLM's own code
        (
            "RTX 5090",
            "0.8.5",
            "the wheel of 0.8.5 has code for compute capability 9.0 at most, and none for 12.0; 0.9.0",
        ),
        ("B200", "0.9.0", "for CUDA 12.8 has code"),
        ("GB10", "0.10.1", "for CUDA 12.8 has code"),  # code for 12.0 runs on 12.1
        ("B200", "0.10.2", None),  # the index has torch 2.8 for CUDA 12.8
        ("V100 32GB", "0.8.5", None),
        ("V100 32GB", "0.9.0", "for CUDA 12.6 has code"),
        ("V100 32GB", "0.10.2", None),
        ("V100 32GB", "0.33.0", None),  # refused
        ("H100", "0.9.0", None),
        ("Jetson AGX Orin 64GB", "0.9.0", None),  # builds of its own
        ("B200", "0.1.0", None),  # its torch is not in the table
    ],
)
def test_a_build_of_torch_that_the_launch_does_not_show_leaves_the_start_uncertain(ask, gpu, version, only):
    settled = "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas --gpu-memory-utilization 0.8"  # what a GB10 also depends on
    flags = f"VLLM_USE_FLASHINFER_SAMPLER=0 {settled} --dtype half --max-model-len 4096"
    p = ask(LLAMA_8B, flags, gpu=gpu, gpus=1, version=version).predict()
    assert [only in told.detail for told in p.settings.depends] == [True] * (only is not None)
    assert only is None or (p.outcome, p.verdict, p.odds) == ("ok", "uncertain", None)


@pytest.mark.parametrize(
    ("gpu", "version", "launch", "told"),
    [
        ("RTX PRO 6000", "0.10.1", "", ["the build of torch"]),  # its torch is older than triton_kernels asks for
        ("RTX PRO 6000", "0.10.2", "", ["whether triton_kernels is installed"]),
        (
            "GB10",
            "0.11.2",
            "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas --gpu-memory-utilization 0.8",
            ["whether triton_kernels is installed"],
        ),
        ("RTX PRO 6000", "0.11.0", "VLLM_MXFP4_USE_MARLIN=1", ["whether triton_kernels is installed"]),
        ("RTX PRO 6000", "0.11.2", "VLLM_MXFP4_USE_MARLIN=1", []),
        ("RTX PRO 6000", "0.12.0", "", []),
        ("B200", "0.11.0", "", []),
        ("H100", "0.11.0", "", []),
    ],
)
def test_kernels_of_mxfp4_experts_on_cards_newer_than_they_are(ask, gpu, version, launch, told):
    s = ask(GPT_OSS_20B, launch, gpu=gpu, gpus=1, version=version).predict().settings
    assert [x.on for x in s.depends] == told


SEES = {
    "model_type": "qwen3_vl",
    "depth": 4,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "out_hidden_size": 4096,
    "deepstack_visual_indexes": [1],
}
NO_ITEMS = "--limit-mm-per-prompt.image 0 --limit-mm-per-prompt.video 0"


@pytest.mark.parametrize(
    ("name", "version", "flags", "lighter"),
    [
        ("Qwen3VLForConditionalGeneration", "0.11.0", NO_ITEMS, True),
        ("Qwen3VLForConditionalGeneration", "0.33.0", NO_ITEMS, True),
        ("Qwen3VLForConditionalGeneration", "0.33.0", "--limit-mm-per-prompt.image 0", False),  # videos need it
        ("Qwen2VLForConditionalGeneration", "0.10.0", NO_ITEMS, False),
        ("Qwen2VLForConditionalGeneration", "0.10.1", NO_ITEMS, True),
        ("Gemma3ForConditionalGeneration", "0.14.1", "--limit-mm-per-prompt.image 0", False),
        ("Gemma3ForConditionalGeneration", "0.15.0", "--limit-mm-per-prompt.image 0", True),
    ],
)
def test_a_tower_without_items_is_not_made(ask, name, version, flags, lighter):
    seeing = {**LLAMA_8B, "architectures": [name], "model_type": "qwen3_vl", "vision_config": SEES}
    with_it = ask(seeing, version=version).predict().weights_gib
    assert (ask(seeing, flags, version=version).predict().weights_gib < with_it - 0.1) == lighter


@pytest.mark.parametrize(("version", "ends"), [("0.6.2", True), ("0.6.3", False)])
def test_a_tower_has_no_place_in_a_class_of_text_alone(ask, version, ends):
    seeing = {**LLAMA_8B, "architectures": ["ChatGLMModel"], "model_type": "chatglm", "vision_config": SEES}
    blind = {key: value for key, value in seeing.items() if key != "vision_config"}
    told = "ChatGLMModel with a vision tower"
    assert [
        any(r.found == told for r in ask(c, version=version).predict().settings.refusals) for c in (seeing, blind)
    ] == [ends, False]


@pytest.mark.parametrize(("version", "open_"), [("0.6.4", True), ("0.6.5", False)])
def test_drafts_over_stages_before_any_release_refused_them_are_left_open(ask, version, open_):
    flags = "--speculative-model x/y --num-speculative-tokens 3 --pipeline-parallel-size 2"
    assert (
        any(
            "over pipeline stages" in d for d in ask(LLAMA_8B, flags, version=version, gpus=2).predict().settings.doubts
        )
        == open_
    )


@pytest.mark.parametrize(("version", "ends"), [("0.4.2", True), ("0.5.0", False)])
def test_drafts_were_of_one_card_once(ask, version, ends):
    flags = "--speculative-model x/y --num-speculative-tokens 3 --use-v2-block-manager --tensor-parallel-size 2"
    found = ask(LLAMA_8B, flags, version=version, gpus=2).predict().settings.refusals
    assert any("drafts on one card" in r.needed for r in found) == ends


def test_what_does_not_fit_fails_with_any_build_of_torch(ask):
    p = ask({**LLAMA_8B, "num_hidden_layers": 480}, gpu="B200", gpus=1, version="0.9.0").predict()
    assert p.settings.depends
    assert p.verdict == "does-not-start"


def test_a_card_that_the_release_has_no_code_for_is_never_offered(ask):
    offered = {card.name for card, _, _ in hardware(ask(LLAMA_8B, "--max-model-len 131072", gpu="L4", gpus=1))}
    assert offered
    assert not [name for name in offered if "V100" in name or "P100" in name]


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({**LLAMA_8B, "architectures": ["TomorrowForCausalLM"], "model_type": "tomorrow"}, "has no model code"),
        ({**LLAMA_8B, "architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}, "has no model code"),
        ({**LLAMA_8B, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}, None),
        (
            {
                **LLAMA_8B,
                "architectures": ["NemotronParseForConditionalGeneration"],
                "model_type": "nemotron_parse",
                "is_encoder_decoder": True,
                "encoder_layers": 4,
                "max_source_positions": 1500,
            },
            "encoder and a decoder",
        ),
    ],
)
def test_a_model_that_nobody_knows_is_unknown(ask, config, word):
    p = ask(config).predict()
    assert (p.outcome == "unknown") == (word is not None)
    assert word is None or word in p.settings.doubts[0]


def test_an_architecture_is_known_from_the_release_that_has_it(ask):
    qwen = {**LLAMA_8B, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    assert ask(qwen, version="0.8.2").predict().outcome == "unknown"
    assert ask(qwen, version="0.8.5").predict().outcome == "ok"


def test_a_layout_of_the_cache_that_is_not_known_here_is_unknown_and_no_error(ask):
    windowed = {**LLAMA_8B, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 1024}
    p = ask(windowed, "--kv-cache-dtype turboquant_k8v4").predict()
    assert p.outcome == "unknown"
    told = "--kv-cache-dtype turboquant_k8v4: how it lays out layers with a window is not known here"
    assert p.settings.doubts == (told,)


def test_unknown_is_no_success_and_no_finding(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA_8B, "architectures": ["TomorrowForCausalLM"], "model_type": "tomorrow"}))
    asked = ["--vllm-version", "0.33.0", "--gpu", "H100", "--model-config", str(file)]
    assert run(["plan", *asked, "--", "vllm", "serve", "m"]) == Exit.INCOMPLETE
    assert "cannot be predicted" in capsys.readouterr().out.splitlines()[0]


T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_decoder_layers": 6,
    "num_heads": 8,
    "vocab_size": 32128,
    "is_encoder_decoder": True,
    "n_positions": 512,
}


def test_a_model_that_the_release_has_no_code_for_is_unknown_whatever_its_config_calls_the_heads(ask):
    planned = ask(T5, "--max-model-len 512", gpus=1)
    assert any("no model code for T5ForConditionalGeneration" in doubt for doubt in planned.predict().settings.doubts)


@pytest.mark.parametrize("question", [["--gpu", "H100"], ["--goal", "context=8k"]])
def test_a_config_alone_is_a_model_to_plan(question, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    code = run(["plan", *question, "--model-config", str(tmp_path), "--vllm-version", "0.33.0"])
    assert (code, "vllm serve MODEL" in capsys.readouterr().out) == (Exit.OK, True)


DSA = {**DEEPSEEK_LIKE, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}


@pytest.mark.parametrize(
    ("gpu", "version", "flags"),
    [
        ("A100-SXM4-80GB", "0.33.0", ["--gpu"]),  # kernels for 9, 10 and 12
        ("L40S", "0.33.0", ["--gpu"]),
        ("H200", "0.33.0", []),
        ("RTX PRO 6000", "0.33.0", []),
        ("RTX PRO 6000", "0.19.1", ["--gpu"]),  # for 9 and 10 alone
        ("H200", "0.19.1", []),
        ("B200", "0.19.1", []),
    ],
)
def test_sparse_latent_attention_has_kernels_for_some_generations_alone(ask, gpu, version, flags):
    assert refused(ask(DSA, "-tp 8", gpu=gpu, version=version)) == flags


@pytest.mark.parametrize(
    ("config", "gpu", "version", "flags"),
    [
        (LLAMA_8B, "A100 80GB", "0.33.0", []),  # FlashInfer, with heads of 128
        ({**LLAMA_8B, "head_dim": 96}, "A100 80GB", "0.33.0", ["--kv-cache-dtype"]),
        ({**LLAMA_8B, "head_dim": 96}, "L40S", "0.33.0", []),  # reads 8 bits by itself
        ({**LLAMA_8B, "head_dim": 96}, "A100 80GB", "0.19.1", ["--kv-cache-dtype"]),  # Triton does not compile it
        (GPT_OSS_20B, "A100 80GB", "0.33.0", ["--kv-cache-dtype"]),  # sinks
        (DEEPSEEK_LIKE, "A100 80GB", "0.33.0", ["--kv-cache-dtype"]),
        ({**LLAMA_8B, "torch_dtype": "float16"}, "T4", "0.33.0", ["--kv-cache-dtype"]),
    ],
)
def test_an_8_bit_cache_is_refused_where_no_kernel_reads_it(ask, config, gpu, version, flags):
    assert refused(ask(config, "-tp 8 --kv-cache-dtype fp8", gpu=gpu, version=version)) == flags


def test_triton_asked_for_does_not_read_8_bits_on_ampere(ask):
    asked = "--kv-cache-dtype fp8 --attention-backend"
    assert refused(ask(LLAMA_8B, f"{asked} TRITON_ATTN", gpu="A100 80GB")) == ["--kv-cache-dtype"]
    assert refused(ask(LLAMA_8B, f"{asked} TRITON_ATTN", gpu="L40S")) == []


@pytest.mark.parametrize(
    ("method", "gpu", "flags"),
    [
        ("fp8_per_channel", "L40S", []),
        ("fp8_per_channel", "A100 80GB", ["--quantization"]),  # compute capability 8.9
        ("fp8_per_tensor", "T4", []),
        ("int8_per_channel_weight_only", "A100 80GB", []),
    ],
)
def test_what_is_quantized_while_loading_asks_for_its_card(ask, method, gpu, flags):
    config = {**LLAMA_8B, "torch_dtype": "float16"}
    assert refused(ask(config, f"--quantization {method}", gpu=gpu)) == flags


def test_experts_in_nvfp4_ask_for_blackwell_and_what_has_none_does_not(ask):
    experts = {k: v for k, v in FP8_EXPERTS.items() if k != "quantization_config"}
    assert refused(ask(experts, "--quantization nvfp4_per_token")) == ["--quantization"]
    assert refused(ask(experts, "--quantization nvfp4_per_token", gpu="B200")) == []
    assert refused(ask(LLAMA_8B, "--quantization nvfp4_per_token")) == []


def test_more_ranks_than_the_host_has_cards_are_refused(ask):
    config = {**FP8_EXPERTS, "num_experts": 64}
    assert refused(ask(config, "-dp 8 -tp 2 --enable-expert-parallel")) == [
        "--tensor-parallel-size × --pipeline-parallel-size × --data-parallel-size"
    ]
    assert refused(ask(config, "-dp 8 --enable-expert-parallel")) == []
    assert refused(ask(config, "-dp 16 -dpl 8 --enable-expert-parallel")) == []
    assert refused(ask(config, "-dp 16 -dpl 8 -tp 2 --enable-expert-parallel")) != []
    assert refused(ask(config, "-dp 16 --data-parallel-backend ray --enable-expert-parallel")) == []


@pytest.mark.parametrize(
    ("config", "gpu", "version", "flags"),
    [
        (LLAMA_8B, "B200", "0.28.0", []),
        (LLAMA_8B, "H100", "0.28.0", ["--kv-cache-dtype"]),
        (LLAMA_8B, "H100", "0.33.0", []),
        ({**LLAMA_8B, "head_dim": 64}, "H100", "0.33.0", ["--kv-cache-dtype"]),
        ({**LLAMA_8B, "head_dim": 96}, "B200", "0.33.0", ["--kv-cache-dtype"]),
        (LLAMA_8B, "H100", "0.31.0", ["--kv-cache-dtype"]),
    ],
)
def test_a_cache_of_nvfp4_is_refused_where_flashinfer_does_not_take_it(ask, config, gpu, version, flags):
    assert refused(ask(config, "--kv-cache-dtype nvfp4", gpu=gpu, version=version)) == flags


@pytest.mark.parametrize(
    ("model", "version", "verdict"),
    [
        ("chat-Q4_K_M.gguf", "0.23.0", "starts"),
        ("chat-Q4_K_M.gguf", "0.24.0", "unknown"),  # its reader went to a plugin, which no launch shows
        ("acme/chat:Q4_K_M", "0.23.0", "starts"),
        ("acme/chat:Q4_K_M", "0.33.0", "unknown"),
    ],
)
def test_gguf_is_read_by_a_plugin_from_0_24_on(tmp_path, model, version, verdict):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_8B))
    words = ("vllm", "serve", model, "--max-model-len", "4096")
    p = planner(Question(words, "H100", 1, None, version, str(file))).predict()
    assert p.verdict == verdict
    assert p.weights_gib == pytest.approx(8.03e9 * 4.83 / 8 / 2**30, rel=0.02)


def test_what_is_not_known_of_a_model_is_no_matter_where_its_weights_alone_are_more_than_the_card_has(ask):
    strange = {**LLAMA_8B, "model_type": "nobody_knows", "architectures": ["LlamaForCausalLM"]}
    assert ask(strange, gpu="L4").predict().verdict == "unknown"
    # 15.0 GiB, of which a type that is not known may have a third less: 9.7 on a card of 7.6.
    assert ask(strange, gpu="RTX 4060").predict().outcome == "oom-weights"


GEMMA2_LIKE = {
    **LLAMA_8B,
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "rope_scaling": None,
    "num_hidden_layers": 8,
    "head_dim": 256,
    "attn_logit_softcapping": 50.0,
}
UNCAPPED = {**GEMMA2_LIKE, "attn_logit_softcapping": None}


@pytest.mark.parametrize(
    ("config", "gpu", "version", "env", "flags"),
    [
        (GEMMA2_LIKE, "L40S", "0.5.1", "", ["VLLM_ATTENTION_BACKEND"]),
        (GEMMA2_LIKE, "L40S", "0.5.1", "FLASHINFER", []),
        (GEMMA2_LIKE, "T4", "0.5.1", "FLASHINFER", ["VLLM_ATTENTION_BACKEND"]),
        (GEMMA2_LIKE, "T4", "0.6.2", "", ["--gpu"]),
        (GEMMA2_LIKE, "L40S", "0.6.2", "", []),
        (GEMMA2_LIKE, "L40S", "0.6.2", "XFORMERS", ["VLLM_ATTENTION_BACKEND"]),
        (UNCAPPED, "T4", "0.6.2", "", []),
        (GEMMA2_LIKE, "T4", "0.6.5", "", []),
    ],
)
def test_attention_that_is_capped_is_refused_where_the_kernel_does_not_cap(  # noqa: PLR0917
    ask, config, gpu, version, env, flags
):
    planned = ask(config, "--dtype float16", gpu=gpu, gpus=1, version=version)
    line = replace(planned.line, env={"VLLM_ATTENTION_BACKEND": env} if env else {})
    assert refused(replace(planned, line=line)) == flags


@pytest.mark.parametrize(
    ("gpu", "version", "dtype", "flags"),
    [
        ("V100 32GB", "0.16.0", "fp8", ["--kv-cache-dtype"]),
        ("V100 32GB", "0.16.0", "fp8_e5m2", []),
        ("T4", "0.16.0", "fp8", []),  # FlashInfer takes it
        ("T4", "0.24.0", "fp8", ["--kv-cache-dtype"]),
        ("RTX 3090", "0.11.0", "fp8", ["--kv-cache-dtype"]),
        ("RTX 3090", "0.14.1", "fp8", []),
        ("L40S", "0.11.0", "fp8", []),
        ("L40S", "0.14.1", "bfloat16", ["--kv-cache-dtype"]),
        ("L40S", "0.16.0", "bfloat16", []),
    ],
)
def test_a_cache_that_no_kernel_of_an_older_release_takes_is_refused(ask, gpu, version, dtype, flags):
    model = {**LLAMA_8B, "num_hidden_layers": 8}
    asked = f"--kv-cache-dtype {dtype} --gpu-memory-utilization 0.8"
    assert refused(ask(model, asked, gpu=gpu, gpus=1, version=version)) == flags


@pytest.mark.parametrize(
    ("gpu", "version", "flags"),
    [
        ("RTX PRO 6000", "0.17.0", ["--attention-backend"]),
        ("RTX PRO 6000", "0.28.0", []),
        ("B200", "0.17.0", []),
        ("H100", "0.28.0", ["--attention-backend"]),
        ("H100", "0.33.0", []),
    ],
)
def test_flashinfer_takes_sinks_on_the_cards_that_a_release_has_kernels_for(ask, gpu, version, flags):
    assert refused(ask(GPT_OSS_20B, "--attention-backend FLASHINFER", gpu=gpu, gpus=1, version=version)) == flags


def test_an_architecture_that_nothing_stands_in_for_is_refused(ask):
    """Before there was a way through Transformers; and a model is made to pool from 0.6.5 on alone."""
    classes = {**LLAMA_8B, "architectures": ["Qwen2ForSequenceClassification"], "model_type": "qwen2"}
    assert refused(ask(classes, version="0.6.1", gpus=1)) == ["architectures"]
    assert refused(ask(classes, version="0.6.5", gpus=1)) == []
    later = ask(
        {**LLAMA_8B, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe"}, version="0.8.5", gpus=1
    )
    assert later.predict().outcome == "unknown"


def test_before_0_8_the_v1_engine_asks_for_ampere(ask):
    planned = ask(LLAMA_8B, "--dtype float16", gpu="V100 32GB", gpus=1, version="0.7.3")
    asked = replace(planned, line=replace(planned.line, env={"VLLM_USE_V1": "1"}))
    assert (refused(planned), refused(asked)) == ([], ["VLLM_USE_V1"])


def test_v0_drafts_in_one_stage_alone(ask):
    drafts = "--num-speculative-tokens 1 --tensor-parallel-size 8 --pipeline-parallel-size 2"
    deep = {**DEEPSEEK_LIKE, "architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1}
    assert "--pipeline-parallel-size" in refused(ask(deep, drafts, gpu="H200", gpus=16, version="0.7.3"))
    plain = drafts.replace("--num-speculative-tokens 1 ", "")
    assert "--pipeline-parallel-size" not in refused(ask(deep, plain, gpu="H200", gpus=16, version="0.7.3"))


def test_packed_integers_are_cut_as_marlin_takes_them_while_it_is_the_only_kernel(ask):
    """29568 channels: at 4 ranks 7392 each, which is no multiple of 128."""
    wide = {**LLAMA_8B, "rope_scaling": None, "intermediate_size": 29568}
    packed = {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True, "desc_act": False}
    gptq = {**wide, "quantization_config": packed}
    assert refused(ask(gptq, "--tensor-parallel-size 4", version="0.5.1")) == ["--tensor-parallel-size"]
    assert refused(ask(gptq, "--tensor-parallel-size 2", version="0.5.1")) == ["--tensor-parallel-size"]
    assert refused(ask(gptq, version="0.5.1")) == []
    assert refused(ask(gptq, "--tensor-parallel-size 4 --dtype half", version="0.6.4")) == []  # by Exllama's kernel


def test_kimi_linear_of_one_release_ends_with_a_missing_part(ask):
    kimi = {**LLAMA_8B, "architectures": ["KimiLinearForCausalLM"]}
    assert [refused(ask(kimi, version=v)) for v in ("0.11.2", "0.12.0", "0.13.0")] == [[], ["architectures"], []]


GEMMA4 = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "model_type": "gemma4",
    "text_config": {**LLAMA_8B, "model_type": "gemma4_text", "use_bidirectional_attention": "vision"},
    "vision_config": SEES,
}
BLIND_TO_IT = {**GEMMA4, "text_config": {**LLAMA_8B, "model_type": "gemma4_text", "use_bidirectional_attention": None}}


@pytest.mark.parametrize(
    ("config", "gpu", "version", "flags", "ends"),
    [
        (GEMMA4, "L4", "0.19.1", "", False),  # cuts its items
        (GEMMA4, "L4", "0.20.0", "", True),  # 2048 tokens a step; vLLM issue 42687
        (GEMMA4, "H100", "0.20.0", "", False),  # 8192
        (GEMMA4, "L4", "0.22.0", "", False),  # makes the step longer
        (GEMMA4, "H100", "0.33.0", "--max-num-batched-tokens 2048", True),
        (GEMMA4, "H100", "0.33.0", "--max-num-batched-tokens 2496", False),
        (GEMMA4, "H100", "0.33.0", "--max-num-batched-tokens 2048 --language-model-only", False),
        (GEMMA4, "H100", "0.33.0", "--max-num-batched-tokens 2048 --limit-mm-per-prompt.video 0", False),
        (BLIND_TO_IT, "L4", "0.20.0", "", False),
    ],
)
def test_an_item_that_is_not_cut_fits_into_a_step(ask, config, gpu, version, *, flags, ends):
    found = refused(ask(config, flags, gpu=gpu, gpus=1, version=version))
    assert ("--max-num-batched-tokens" in found) == ends


def test_the_step_is_made_as_long_as_the_item_where_none_is_asked_for(ask):
    steps = [ask(GEMMA4, gpu="L4", gpus=1, version=v).predict().settings.batched for v in ("0.20.0", "0.22.0")]
    assert steps == [2048, 2496]


class TestOfFirstReleases:
    """What the first engine's kernels do not take."""

    def test_flashinfer_of_the_first_engine_profiles_with_flash_attention(self, ask):
        env = "VLLM_ATTENTION_BACKEND=FLASHINFER"
        assert refused(ask(LLAMA_8B, f"{env} --dtype half", gpu="T4", version="0.7.2")) == ["VLLM_ATTENTION_BACKEND"]
        assert refused(ask(LLAMA_8B, env, gpu="A100", version="0.7.2")) == []
        latent = ask(DEEPSEEK_LIKE, f"{env} --dtype half", gpu="T4", version="0.7.2")  # Triton's kernel is chosen first
        assert "VLLM_ATTENTION_BACKEND" not in refused(latent)

    @pytest.mark.parametrize(
        ("version", "gpu", "flags", "taken"),
        [
            ("0.6.3", "A100", "", False),
            ("0.6.3", "A100", "--quantization awq", True),
            ("0.6.3", "T4", "--dtype half", True),  # AWQ's own kernel
            ("0.7.3", "A100", "", True),  # which 0.7.3 takes for such a layer
            ("0.5.1", "A100", "", True),
        ],
    )
    def test_marlin_has_to_take_every_layer_of_an_awq_checkpoint(self, ask, version, gpu, flags, taken):
        config = {
            **AWQ,
            "intermediate_size": 10944,
            "quantization_config": {**AWQ["quantization_config"], "group_size": 64},
        }
        planned = ask(config, f"--tensor-parallel-size 1 {flags}", gpu=gpu, version=version)
        assert ("--quantization" not in refused(planned)) is taken

    def test_a_width_of_whole_hundred_and_twenty_eights_is_taken(self, ask):
        assert refused(ask(AWQ, "--tensor-parallel-size 1", gpu="A100", version="0.6.3")) == []


SHARED = "-tp 8 -dcp 4 --enable-prefix-caching"


@pytest.mark.parametrize(
    ("config", "flags", "version", "told"),
    [
        (HYBRID_LIKE, SHARED, "0.18.0", ["--decode-context-parallel-size"]),
        (HYBRID_LIKE, SHARED, "0.26.0", []),
        (HYBRID_LIKE, "-tp 8 -dcp 4 --no-enable-prefix-caching", "0.18.0", []),
        (HYBRID_LIKE, "-tp 8", "0.18.0", []),
        (LLAMA_8B, SHARED, "0.18.0", []),  # one kind of layers
        (GEMMA3_LIKE, SHARED, "0.18.0", ["--decode-context-parallel-size"]),
        (GEMMA3_LIKE, SHARED, "0.30.0", ["--decode-context-parallel-size"]),
        (GEMMA3_LIKE, SHARED, "0.31.0", []),
        (GEMMA3_LIKE, f"{SHARED} --disable-hybrid-kv-cache-manager", "0.18.0", []),
    ],
)
def test_ranks_share_the_context_of_one_kind_of_layers(ask, config, flags, version, told):
    assert refused(ask({**config, "num_attention_heads": 16, "num_key_value_heads": 2}, flags, version=version)) == told


PACKED = "--kv-cache-dtype turboquant_k8v4"


@pytest.mark.parametrize(
    ("config", "env", "version", "told"),
    [
        (HYBRID_LIKE, "", "0.20.2", ["--kv-cache-dtype"]),  # a NotImplementedError of its own
        (HYBRID_LIKE, "", "0.24.0", []),
        (HYBRID_LIKE, "", "0.26.0", ["--kv-cache-dtype"]),  # on the first model runner
        (LLAMA_8B, "VLLM_USE_V2_MODEL_RUNNER=0 ", "0.26.0", ["--kv-cache-dtype"]),
        (LLAMA_8B, "VLLM_USE_V2_MODEL_RUNNER=1 ", "0.26.0", []),
        (LLAMA_8B, "VLLM_USE_V2_MODEL_RUNNER=0 ", "0.27.0", []),
    ],
)
def test_a_turboquant_cache_is_refused_where_the_runner_makes_none(ask, config, env, version, told):
    assert refused(ask(config, env + PACKED, version=version)) == told


WINDOWS = {**LLAMA_8B, "model_type": "mistral", "sliding_window": 4096}


@pytest.mark.parametrize(
    ("config", "flags", "version", "told"),
    [
        (WINDOWS, "", "0.20.2", ["--kv-cache-dtype"]),
        (WINDOWS, "", "0.25.1", ["--kv-cache-dtype"]),  # said once, whichever runner it is
        (WINDOWS, "", "0.28.0", []),
        (LLAMA_8B, "", "0.24.0", []),
        ({**WINDOWS, "num_hidden_layers": 4}, "", "0.24.0", []),  # the first and the last two keep their type
        (WINDOWS, " --kv-cache-dtype-skip-layers sliding_window", "0.24.0", []),
        (WINDOWS, " --disable-sliding-window", "0.24.0", []),
    ],
)
def test_a_turboquant_cache_is_refused_of_windows_alone(ask, config, flags, version, told):
    assert refused(ask(config, PACKED + flags, version=version)) == told


FLOATS = {"quant_method": "fp8", "activation_scheme": "dynamic"}
PACKED_FLOATS = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}},
}
MIXTRAL = {**LLAMA_8B, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


BLOCKS = {**LLAMA_8B, "quantization_config": {**FLOATS, "weight_block_size": [128, 128]}}


@pytest.mark.parametrize(
    ("config", "card", "version", "told"),
    [
        (BLOCKS, "A100 80GB", "0.8.5", True),
        (BLOCKS, "A100 80GB", "0.9.0", False),
        (BLOCKS, "L40S", "0.8.5", False),
        ({**LLAMA_8B, "quantization_config": FLOATS}, "A100 80GB", "0.8.5", False),  # plain layers run on Marlin
        ({**MIXTRAL, "quantization_config": FLOATS}, "RTX 3090", "0.8.5", True),
        ({**MIXTRAL, "quantization_config": PACKED_FLOATS}, "RTX 3090", "0.8.5", True),
        ({**MIXTRAL, "quantization_config": FLOATS}, "RTX 3090", "0.9.0", False),
    ],
)
def test_8_bit_floats_of_triton_alone_ask_for_a_card_that_has_them(ask, config, card, version, told):
    assert ("quantization_config" in refused(ask(config, gpu=card, version=version))) is told


def test_experts_that_are_quantized_as_they_load_ask_for_it_too(ask):
    assert refused(ask(MIXTRAL, "--quantization fp8", gpu="A100 80GB", version="0.8.5")) == ["--quantization"]


PLAIN_EXPERTS = {key: value for key, value in FP8_EXPERTS.items() if key != "quantization_config"}


def test_experts_that_are_quantized_in_blocks_as_they_load_are_padded_to_whole_blocks_from_0_25(ask):
    line = "-tp 4 --quantization fp8_per_block"
    assert refused(ask(PLAIN_EXPERTS, line, version="0.24.0")) == ["--tensor-parallel-size"]
    four, wider = (
        ask({**PLAIN_EXPERTS, "moe_intermediate_size": width}, line, version="0.30.0").predict()
        for width in (768, 1024)  # 192 and 256 a rank
    )
    assert (four.outcome, wider.outcome) == ("ok", "ok")
    assert four.weights_gib == wider.weights_gib


BIASED = DEEPSEEK_LIKE | {"topk_method": "noaux_tc"}


@pytest.mark.parametrize(
    ("config", "flags", "version", "told"),
    [
        (BIASED, "--cpu-offload-gb 40", "0.7.2", ["--cpu-offload-gb"]),  # the router's bias has two names
        (BIASED, "", "0.7.2", []),
        (DEEPSEEK_LIKE, "--cpu-offload-gb 40", "0.7.2", []),  # no bias
        (LLAMA_8B, "--cpu-offload-gb 4", "0.7.2", []),  # no router
        (BIASED, "VLLM_USE_V1=1 --cpu-offload-gb 40", "0.9.2", []),  # V1 maps the host's memory
    ],
)
def test_v0_keeps_no_experts_with_a_bias_on_the_host(ask, config, flags, version, told):
    assert [flag for flag in refused(ask(config, flags, version=version)) if flag != "--gpu"] == told


@pytest.mark.parametrize(
    ("flags", "version", "told"),
    [
        ("--runner pooling --convert classify", "0.15.1", ["--convert"]),
        ("--runner pooling --convert classify", "0.21.0", []),
        ("--runner pooling --convert embed", "0.15.1", []),
        ("--task classify", "0.10.0", ["--task"]),
        ("--task classify", "0.9.2", []),  # makes no classifier of it
        ('--runner pooling --convert classify --hf-overrides {"classifier_from_token":["no","yes"]}', "0.15.1", []),
        (
            "--runner pooling --convert classify --quantization fp8",
            "0.15.1",
            [],
        ),  # asks for the weights of plain checkpoints alone
    ],
)
def test_a_generating_model_has_no_weights_of_classes(ask, flags, version, told):
    assert refused(ask(LLAMA_8B, flags, version=version)) == told


@pytest.mark.parametrize(("version", "told"), [("0.10.2", []), ("0.11.0", ["--speculative-config"]), ("0.11.1", [])])
def test_a_drafter_is_not_made_in_the_experts_format(ask, version, told):
    draft = '{"method":"eagle3","model":"d","num_speculative_tokens":3}'
    flags = refused(ask(GPT_OSS_20B, f"--speculative-config {draft}", version=version))
    assert [flag for flag in flags if version != "0.10.2"] == told  # 0.10.2 has no eagle3 for the model at all


MINIMAX = FP8_EXPERTS | {"architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2"}


@pytest.mark.parametrize(
    ("flags", "gpu", "version", "told"),
    [
        ("", "B200", "0.16.0", ["VLLM_USE_FLASHINFER_MOE_FP8"]),
        ("", "B200", "0.15.1", []),
        ("", "B200", "0.17.0", []),
        ("", "H200", "0.16.0", []),
        ("VLLM_USE_FLASHINFER_MOE_FP8=0", "B200", "0.16.0", []),
    ],
)
def test_flashinfer_asks_for_groups_of_experts(ask, flags, gpu, version, told):
    assert refused(ask(MINIMAX, flags, gpu=gpu, version=version)) == told


@pytest.mark.parametrize(
    ("flags", "version", "told"),
    [
        ("", "0.11.0", ["whether FlashInfer is installed"]),
        ("VLLM_USE_FLASHINFER_SAMPLER=0", "0.11.0", []),
        ("", "0.11.1", []),  # asked for or not used
        ("", "0.8.5", []),  # the first engine, which does not ask it
    ],
)
def test_flashinfer_samples_on_no_card_below_turing(ask, flags, version, told):
    p = ask(LLAMA_8B, f"{flags} --dtype half", gpu="V100-SXM2-32GB", version=version).predict()
    assert [one.on for one in p.settings.depends] == told
    assert refused(ask(LLAMA_8B, "--dtype half", gpu="V100-SXM2-32GB", version=version)) == []


def test_flashinfers_sampler_is_not_to_be_asked_for_there(ask):
    asked = ask(LLAMA_8B, "VLLM_USE_FLASHINFER_SAMPLER=1 --dtype half", gpu="V100-SXM2-32GB", version="0.12.0")
    assert refused(asked) == ["VLLM_USE_FLASHINFER_SAMPLER"]


DRAFTS = '--speculative-config {"method":"ngram","num_speculative_tokens":7}'


@pytest.mark.parametrize(
    ("flags", "version", "told"),
    [
        ("--max-cudagraph-capture-size 4", "0.33.0", ["--max-cudagraph-capture-size"]),
        ("--max-cudagraph-capture-size 8", "0.33.0", []),  # one request of a token and seven drafts
        ("--max-cudagraph-capture-size 4 --enforce-eager", "0.33.0", []),
        ('--max-cudagraph-capture-size 4 --compilation-config {"cudagraph_mode":"PIECEWISE"}', "0.33.0", []),
        ('--max-cudagraph-capture-size 4 --compilation-config {"cudagraph_mode":"FULL"}', "0.33.0", []),
        ("--cuda-graph-sizes 4", "0.11.0", []),
        ("--max-cudagraph-capture-size 4", "0.11.1", ["--max-cudagraph-capture-size"]),
        ("--max-num-seqs 1", "0.33.0", []),  # the size follows the sequences and their drafts
    ],
)
def test_a_graph_holds_one_request_with_its_drafts(ask, flags, version, told):
    assert refused(ask(LLAMA_8B, f"{DRAFTS} {flags}", version=version)) == told


TWO = '--speculative-config {"method":"ngram","num_speculative_tokens":2}'


@pytest.mark.parametrize(
    ("drafts", "flags", "version", "told"),
    [
        (TWO, "-tp 4", "0.11.1", ["--speculative-config"]),  # three tokens of a request, four ranks
        (DRAFTS, "-tp 4", "0.11.1", []),
        (TWO, "-tp 1", "0.11.1", []),
        (TWO, "-tp 4 --enforce-eager", "0.11.1", []),
        (TWO, "-tp 4", "0.11.2", []),
        (TWO, "-tp 4", "0.11.0", []),
    ],
)
def test_graphs_of_drafts_are_multiples_of_the_ranks_in_one_release(ask, drafts, flags, version, told):
    assert refused(ask(LLAMA_8B, f"{drafts} {flags}", version=version, gpus=4)) == told


@pytest.mark.parametrize(
    ("flags", "gpu", "told"),
    [
        ('{"indexer_kv_dtype":"mxfp4"}', "H200", ["--attention-config"]),
        ('{"indexer_kv_dtype":"mxfp4"}', "B200", []),
        ('{"indexer_kv_dtype":"fp8"}', "H200", []),
    ],
)
def test_an_indexer_has_a_cache_of_four_bits_on_ten_alone(ask, flags, gpu, told):
    assert refused(ask(DSA_LIKE, f"--attention-config {flags}", gpu=gpu)) == told


def test_the_flag_of_earlier_releases_means_the_same(ask):
    flags = '--attention-config {"use_fp4_indexer_cache":true}'
    assert refused(ask(DSA_LIKE, flags, gpu="H200", version="0.24.0")) == ["--attention-config"]
