"""A launch line as vLLM reads it, and what a release refuses."""

import pytest
from msgspec.structs import replace

from tests.plan.models import HYBRID_LIKE, LLAMA_8B, arch
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import LaunchError, parse_launch
from vllm_doctor.plan.launch.flags import Flags, SettingError, whole
from vllm_doctor.plan.launch.resolve import resolve


def line(text, version="0.19.0"):
    return parse_launch(text.split(), as_version(version))


def resolved(flags, version="0.19.0", gpu="H100", gpus=1, config=LLAMA_8B):
    v, card = as_version(version), find(gpu)
    return resolve(parse_launch(["vllm", "serve", "m", *flags.split()], v), v, arch(config), card, card.total_gib, gpus)


def test_every_way_to_write_a_launch():
    got = line(
        "VLLM_USE_V1=0 /opt/vllm/bin/vllm serve org/model --max_num_seqs=8 -tp 2 --enforce-eager "
        "--no-enable-prefix-caching"
    )
    assert got.model == "org/model"
    assert got.env == {"VLLM_USE_V1": "0"}
    assert got.flags == {
        "max-num-seqs": "8",
        "tensor-parallel-size": "2",
        "enforce-eager": True,
        "enable-prefix-caching": False,
    }
    assert line("python3 -m vllm.entrypoints.openai.api_server --model org/model").model == "org/model"


@pytest.mark.parametrize("text", ["bash -c ls", "vllm chat", "", "python x.py"])
def test_what_is_no_launch(text):
    with pytest.raises(LaunchError):
        line(text)


@pytest.mark.parametrize(("text", "value"), [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5M", 1572864)])
def test_numbers_as_vllm_reads_them(text, value):
    assert whole("x", text) == value


@pytest.mark.parametrize("text", ["banana", "-5", "1.5", "", "8 GB"])
def test_what_is_no_number(text):
    with pytest.raises(SettingError):
        whole("max-model-len", text)


@pytest.mark.parametrize(
    ("flags", "version", "gpus", "said"),
    [
        ("--swap-space 4", "0.33.0", 1, "0.17.1"),
        ("--kv-cache-dtype fp4", "0.19.0", 1, "fp8_e4m3"),
        ("-tp 3", "0.19.0", 4, "32 attention heads"),
        ("-tp 4", "0.19.0", 2, "2 GPU"),
        ("--max-num-batched-tokens 100 --max-num-seqs 200", "0.19.0", 1, "max-num-seqs"),
        ("--no-enable-chunked-prefill --max-num-batched-tokens 2048", "0.19.0", 1, "chunked prefill is off"),
        ("--max-model-len 200000", "0.19.0", 1, "131072"),
        ("--max-num-on-the-fly-batches 4", "0.32.0", 1, "max-num-batched-tokens"),
        ("-pp 40", "0.19.0", 40, "32 layers"),
    ],
)
def test_what_a_release_refuses(flags, version, gpus, said):
    if "fp4" in flags:
        got = parse_launch(["vllm", "serve", "m", *flags.split()], as_version(version)).refusals
    else:
        got = resolved(flags, version, gpus=gpus).refusals
    assert any(said in str(r) for r in got), got


@pytest.mark.parametrize(
    "flags",
    [
        "--gpu-memory-utilization 95",
        "--gpu-memory-utilization 0",
        "--gpu-memory-utilization x",
        "--max-num-seqs -1",
        "--speculative-config {",
        "--kv-cache-dtype turbo_k8v4",
        '--speculative-config {"num_speculative_tokens":"x"}',
    ],
)
def test_a_value_that_is_none_is_an_error(flags):
    with pytest.raises(SettingError):
        resolved(flags, "0.33.0")


def test_defaults_are_the_releases_own():
    s = resolved("")
    assert (s.utilization, s.seqs, s.batched, s.length, s.dtype, s.engine) == (
        0.9,
        1024,
        8192,
        131072,
        "bfloat16",
        "V1",
    )
    s = resolved("", "0.33.0", "L4")
    assert (s.utilization, s.seqs, s.batched) == (0.92, 256, 2048)


def test_v0_profiles_the_whole_length_until_chunked_prefill_is_on():
    assert resolved("--max-model-len 16384", "0.6.6", "L4").batched == 16384
    assert resolved("--max-model-len 65536", "0.6.6", "L4").batched == 2048


def test_old_cards_have_no_bfloat16():
    assert resolved("", gpu="T4").dtype == "float16"
    assert any("bfloat16" in str(r) for r in resolved("--dtype bfloat16", gpu="T4").refusals)


def test_a_stored_bfloat16_is_refused_of_old_cards_before_0_9():
    def refused(flags, version, config=LLAMA_8B):
        return [r.flag for r in resolved(flags, version, "T4", config=config).refusals]

    assert refused("", "0.8.5") == ["--dtype"]
    assert refused("--dtype half", "0.8.5") == refused("", "0.9.0") == []
    assert refused("", "0.8.5", {**LLAMA_8B, "torch_dtype": "float32"}) == []


@pytest.mark.parametrize(
    ("version", "name", "v2"),
    [
        ("0.21.0", "Qwen3ForCausalLM", False),
        ("0.22.0", "Qwen3ForCausalLM", True),
        ("0.22.0", "Qwen2ForCausalLM", False),  # a log of 0.22.0 shows the V1 runner
        ("0.22.0", "LlamaForCausalLM", False),
        ("0.23.0", "LlamaForCausalLM", True),
        ("0.24.0", "Qwen2ForCausalLM", False),
        ("0.25.1", "Qwen2ForCausalLM", True),
    ],
)
def test_each_release_has_its_own_list_for_the_second_runner(version, name, v2):
    assert resolved("", version, config={**LLAMA_8B, "architectures": [name]}).v2_runner is v2


def test_recurrent_layers_cache_prefixes_on_their_own_from_028():
    """0.26.0 and 0.27.1 can, and leave it out unasked (engine/arg_utils.py default_prefix_caching, not is_hybrid)."""
    assert not resolved("", "0.25.1", config=HYBRID_LIKE).prefix_caching
    assert not resolved("", "0.27.1", config=HYBRID_LIKE).prefix_caching
    assert resolved("--enable-prefix-caching", "0.27.1", config=HYBRID_LIKE).prefix_caching
    assert resolved("", "0.28.0", config=HYBRID_LIKE).prefix_caching
    assert resolved("--enable-prefix-caching", "0.25.1", config=HYBRID_LIKE).prefix_caching
    assert resolved("", "0.25.1").prefix_caching


def test_limits_of_items_are_numbers_or_objects():
    s = resolved('--limit-mm-per-prompt {"image":2,"video":{"count":0,"num_frames":8}}')
    assert (s.image_limit, s.video_limit) == (2, 0)


@pytest.mark.parametrize(
    ("flags", "seqs", "batched"),
    [
        ("", 256, 2048),
        ("--performance-mode throughput", 512, 4096),
        ("--performance-mode throughput --max-num-seqs 256", 256, 4096),
        ("--performance-mode throughput --max-num-batched-tokens 2048", 512, 2048),
        ("--performance-mode interactivity", 256, 2048),
    ],
)
def test_a_launch_for_throughput_doubles_the_defaults_that_it_leaves_open(flags, seqs, batched):
    """0.17.0 on L40S logs max_num_batched_tokens=4096 and 51 full graphs up to 512."""
    got = resolved(flags, "0.17.0", "L40S")
    assert (got.seqs, got.batched) == (seqs, batched)


def test_stages_have_the_layers_that_the_environment_lists():
    v, a = as_version("0.19.0"), arch(LLAMA_8B)
    found = [
        resolve(line(f"VLLM_PP_LAYER_PARTITION={parts} vllm serve m -pp 2"), v, a, None, 79.19, 2)
        for parts in ("10,22", "10,20", "many")
    ]
    assert [s.parallel.stages(32) for s in found] == [(10, 22), (16, 16), (16, 16)]
    assert [[r.flag for r in s.refusals] for s in found] == [[], ["VLLM_PP_LAYER_PARTITION"], []]


@pytest.mark.parametrize(
    ("variable", "version", "read"),
    [
        ("VLLM_USE_V2_MODEL_RUNNER=1", "0.8.5", False),
        ("VLLM_USE_V2_MODEL_RUNNER=1", "0.14.1", True),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER", "0.14.1", True),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER", "0.33.0", False),
    ],
)
def test_a_variable_that_the_release_does_not_read_changes_nothing(variable, version, read):
    v, card = as_version(version), find("H100")
    line = ("vllm", "serve", "m")
    with_it, without = (
        replace(resolve(parse_launch([*more, *line], v), v, arch(LLAMA_8B), card, card.total_gib, 1), notes=())
        for more in ((variable,), ())
    )
    assert (with_it != without) is read


def _or_why(read):
    try:
        return read()
    except SettingError as refused:
        return str(refused)


@pytest.mark.parametrize(
    ("value", "low", "high", "read"),
    [
        ("0", 0, 8, 0),
        ("8", 0, 8, 8),
        ("9", 0, 8, "--n: found 9; needed: a whole number from 0 to 8"),
        ("1", 2, 8, "--n: found 1; needed: a whole number from 2 to 8"),
        ("2", 2, 8, 2),
        ("1k", 2, 1000, 1000),
        ("1K", 2, 1000, "--n: found 1K; needed: a whole number from 2 to 1000"),
    ],
)
def test_an_option_takes_its_least_and_its_largest_value_and_none_beyond(value, low, high, read):
    flags = Flags(replace(line("vllm serve m"), flags={"n": value}))
    assert _or_why(lambda: flags.int("n", 5, low, high)) == read
    assert flags.int("other", 5, low, high) == 5


def test_an_option_without_bounds_takes_what_any_machine_counts():
    of = Flags(replace(line("vllm serve m"), flags={"least": "0", "most": str(2**40), "beyond": str(2**40 + 1)}))
    assert (of.int("least", 5), of.int("most", 5)) == (0, 2**40)
    with pytest.raises(SettingError, match=f"from 0 to {2**40}"):
        of.int("beyond", 5)


@pytest.mark.parametrize(
    ("value", "read"),
    [("0.1", 0.1), ("0.95", 0.95), ("0.96", None), ("0.09", None), ("nan", None), ("x", None)],
)
def test_a_part_of_a_whole_takes_both_its_bounds(value, read):
    flags = Flags(replace(line("vllm serve m"), flags={"n": value}))
    if read is not None:
        assert flags.number("n", 0.5, 0.1, 0.95, "a part") == read
    else:
        with pytest.raises(SettingError, match=r"--n: found .*; needed: a part from 0\.1 to 0\.95"):
            flags.number("n", 0.5, 0.1, 0.95, "a part")
    assert flags.number("other", 0.5, 0.1, 0.95, "a part") == 0.5


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, {}),
        (True, {}),
        ('{"a": 1}', {"a": 1}),
        ("image=2", {"image": 2}),
        ("image=2,video=10", {"image": 2, "video": 10}),
        ("[1]", "--n: found '[1]'; needed: a JSON object"),
        ("image", "--n: found 'image'; needed: JSON"),
    ],
)
def test_an_option_of_pairs_is_json_or_names_with_numbers(value, read):
    flags = Flags(replace(line("vllm serve m"), flags={"n": value} if value is not None else {}))
    assert _or_why(lambda: flags.object("n")) == read


@pytest.mark.parametrize(
    ("vocab", "flags", "fits"),
    [
        (128256, "", True),  # 2004 times 64, which 3 divides
        (128200, "", True),  # padded to it
        (151936, "", False),
        (151936, "--enable-lora", True),  # to 0.11 adapters add rows
    ],
)
def test_the_rows_of_the_vocabulary_are_split_evenly(vocab, flags, fits):
    """vocab_parallel_embedding.py divide, of what is padded to 64."""
    config = {**LLAMA_8B, "num_attention_heads": 24, "num_key_value_heads": 3, "head_dim": 128, "vocab_size": vocab}
    found = [r.needed for r in resolved(f"-tp 3 {flags}", gpus=3, config=config).refusals]
    assert found == ([] if fits else ["a divisor of the vocabulary's 151936 rows, padded to 64"])
