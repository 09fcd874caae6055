"""`plan` on what it should not be given: exit 2 and one sentence that names the thing and the value, never a plan."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.plan.models import GEMMA3_LIKE, LLAMA_8B
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.plan.model.config_json import MAX_BYTES, ConfigError, read_config

CARD = ("--gpu", "NVIDIA H100 80GB HBM3")
RELEASE = ("--vllm-version", "0.32.0")


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """No earlier start of this host counts, and a bug would show itself."""
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("VLLM_DOCTOR_TRACEBACK", "1")


@pytest.fixture
def refused(tmp_path, capsys):
    """What `plan` says on its error channel of a question that it must not answer."""

    def ask(config, *words, launch=("vllm", "serve", "m"), card=CARD, release=RELEASE):
        if not isinstance(config, Path):
            text = config if isinstance(config, str | bytes) else json.dumps(config)
            config = write(tmp_path / "config.json", text)
        code = run(["plan", "--model-config", str(config), *card, *release, *words, "--", *launch])
        told = capsys.readouterr()
        assert (code, told.out) == (Exit.USAGE, ""), told
        return told.err

    return ask


@pytest.fixture
def planned(tmp_path, capsys):
    """The plan for a question that may be answered, with what it says aloud."""

    def ask(config, *words, launch=("vllm", "serve", "m"), card=CARD):
        path = write(tmp_path / "config.json", json.dumps(config))
        run(["plan", "--format", "json", "--model-config", str(path), *card, *RELEASE, *words, "--", *launch])
        return json.loads(capsys.readouterr().out)

    return ask


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def without(*keys):
    return {k: v for k, v in LLAMA_8B.items() if k not in keys}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        (json.dumps(LLAMA_8B)[:100], "not JSON"),
        ("null", "holds a NoneType"),
        ("[1, 2]", "holds a list"),
        ('{"a":' * 100_000, "deeper than 64 levels"),
        ('{"a":' * 70 + "1" + "}" * 70, "deeper than 64 levels"),
        ('{"architectures": ["\\ud800"]}', "half of a character"),
        ('{"hidden_size": 1' + "0" * 400 + "}", "a number of 401 digits"),
        (b'{"model_type": "\xe9"}', "is not UTF-8 text"),
        (json.dumps(LLAMA_8B).encode("utf-16"), "is not UTF-8 text"),
        ('{"hidden_size": 8192, ' + json.dumps(LLAMA_8B)[1:], "hidden_size stands twice, as 8192 and as 4096"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not JSON"),
        ('{"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.35"}', "UNet2DConditionModel"),
        ('{"model_type": "clip", "vision_config": {"hidden_size": 1024}}', "hidden_size or n_embd"),
        ('{"model_type": "gemma3", "text_config": {}}', "text_config: hidden_size or n_embd"),
        ('{"model_type": "gemma3", "text_config": "x"}', "text_config is 'x'; needed: an object"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_a_file_that_describes_no_language_model(refused, text, said):
    assert said in refused(text)


def test_a_diffusion_pipeline_is_no_language_model(refused, tmp_path):
    write(tmp_path / "model_index.json", "{}")
    assert "diffusion pipeline" in refused(tmp_path)


def test_a_file_that_cannot_be_read(refused, tmp_path):
    assert "no config.json in this folder" in refused(tmp_path)
    assert "no such file" in refused(tmp_path / "none").lower()
    assert "File name too long" in refused(Path("x" * 5000))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "Too many levels of symbolic links" in refused(loop)
    (tmp_path / "config.json").symlink_to(loop)
    assert "too many levels of symbolic links" in refused(tmp_path)


def test_a_file_that_has_no_end_or_is_far_too_large(refused, tmp_path):
    assert "a device, not a file" in refused(Path("/dev/zero"))
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + (20 << 20))
    assert "has more than 32 MiB" in refused(large)


@contextmanager
def nobody() -> Iterator[None]:
    """Without root's right to read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_file_that_may_not_be_read_is_said_to_be_so(tmp_path):
    path = write(tmp_path / "config.json", json.dumps(LLAMA_8B))
    for locked in (path, tmp_path):
        locked.chmod(0)
        with nobody(), pytest.raises(ConfigError, match=r"(?i)permission denied"):
            read_config(path)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("hidden_size", math.nan, "nan"),
        ("hidden_size", math.inf, "inf"),
        ("hidden_size", -1, "-1"),
        ("hidden_size", True, "True"),
        ("hidden_size", "4096", "'4096'"),
        ("hidden_size", 4096.5, "4096.5"),
        ("hidden_size", 10**30, "1" + "0" * 30),
        ("hidden_size", [4096, 5120], "[4096, 5120]"),
        ("num_hidden_layers", 10**9, "1000000000"),
        ("num_hidden_layers", -4, "-4"),
        ("num_attention_heads", 0, "0"),
        ("num_key_value_heads", 5, "5"),
        ("num_key_value_heads", 64, "64"),
        ("vocab_size", -1, "-1"),
        ("max_position_embeddings", math.nan, "nan"),
        ("head_dim", 10**9, "1000000000"),
        ("sliding_window", "wide", "'wide'"),
        ("sliding_window", -5, "-5"),
        ("layer_types", ["quantum"] * 32, "quantum"),
        ("layer_types", ["full_attention"] * 3, "3 layers"),
        ("architectures", "LlamaForCausalLM", "'LlamaForCausalLM'"),
        ("torch_dtype", "float7", "'float7'"),
        ("torch_dtype", 16, "16"),
        ("tie_word_embeddings", "yes", "'yes'"),
        ("rope_scaling", "linear", "'linear'"),
        ("rope_scaling", {"rope_type": "linear", "factor": math.nan}, "factor is nan"),
        ("rope_scaling", {"rope_type": "linear", "factor": True}, "factor is True"),
        ("rope_scaling", {"rope_type": "linear", "factor": -2}, "factor is -2"),
        ("quantization_config", "awq", "'awq'"),
        ("quantization_config", {"quant_method": "awq", "bits": "4"}, "bits is '4'"),
        ("quantization_config", {"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size is 0"),
        ("vision_config", {"image_size": -4}, "image_size is -4"),
        ("vision_config", {"image_size": math.nan}, "image_size is nan"),
        ("vision_config", {"image_size": ["wide"]}, "image_size is 'wide'"),
    ],
)
def test_a_value_that_no_model_has(refused, key, value, shown):
    said = refused({**LLAMA_8B, key: value})
    assert key in said
    assert shown in said


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"])
def test_a_size_that_is_missing_is_not_guessed(refused, key):
    assert key in refused(without(key))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**LLAMA_8B, "model_type": "zorblax"}, "model_type zorblax is not known"),
        (without("model_type"), "model_type (none) is not known"),
        (without("max_position_embeddings"), "names no length (such as max_position_embeddings): vLLM takes 2048"),
        (without("torch_dtype"), "names no torch_dtype"),
        ({**LLAMA_8B, "quantization_config": {"quant_method": "zorb"}}, "quantization zorb"),
    ],
)
def test_what_the_config_leaves_open_is_said(planned, config, said):
    assert any(said in note for note in planned(config)["notes"])


def test_an_unknown_architecture_has_a_wide_margin(planned):
    known, unknown = (planned({**LLAMA_8B, "model_type": kind})["margin"] for kind in ("llama", "zorblax"))
    width = [high - low for low, high in (m["available_kv_gib"] for m in (known, unknown))]
    assert width[1] > width[0] + 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu-memory-gib", "nan"), "--gpu-memory-gib: found 'nan'"),
        (("--gpu-memory-gib", "inf"), "--gpu-memory-gib: found 'inf'"),
        (("--gpu-memory-gib", "-5"), "--gpu-memory-gib: found -5"),
        (("--gpu-memory-gib", "80GB"), "--gpu-memory-gib: found '80GB'; needed: a number of GiB"),
        (("--gpu-memory-gib", "81559"), "79.65 GiB if MiB were meant"),
        (("--gpu-memory-gib", "85899345920"), "80.00 GiB if bytes were meant"),
        (("--gpu-memory-gib", "24"), "needed: about 79.19, which is what NVIDIA H100 80GB HBM3 has"),
        (("--weights-gib", "nan"), "--weights-gib: found 'nan'"),
        (("--weights-gib", "0"), "--weights-gib: found 0"),
        (("--weights-gib", "16060522496"), "14.96 GiB if bytes were meant"),
        (("--available-kv-gib", "inf"), "--available-kv-gib: found 'inf'"),
        (("--gpus", "0"), "'--gpus': 0"),
        (("--gpus", "1.5"), "'--gpus': '1.5'"),
        (("--context", "-1"), "--context: found '-1'; needed: tokens from 1 to 1,073,741,824, such as 131072 or 128k"),
        (("--context", "1000000000000"), "--context: found '1000000000000'"),
        (("--gpu-memory-gib", "1e308"), "--gpu-memory-gib: found 1e308; needed: GiB above 0 and up to 1024\n"),
        (("--context", "200000"), "--context: found 200000; needed: at most 131072"),
        (("--concurrency", "0"), "'--concurrency': 0"),
        (("--profile", "fast"), "--profile: found 'fast'; needed: one of conservative, balanced, max"),
        (("--metrics", "/nowhere"), "--metrics /nowhere"),
        (("--sweep", "gpus,H9000"), "--sweep: found 'gpus'"),
    ],
)
def test_an_option_with_a_value_that_means_nothing(refused, words, said):
    assert said in refused(LLAMA_8B, *words)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("H1000", "NVIDIA H100 80GB HBM3"),
        ("RTX 9090", "NVIDIA GeForce RTX 4090"),
        ("RTX 4090 Laptop", "NVIDIA GeForce RTX 4090"),
        ("RTX 4090 48GB", "NVIDIA GeForce RTX 4090"),
        ("A100 60GB", "NVIDIA A100-SXM4-80GB"),
        ("H100; rm -rf /", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_a_card_that_does_not_exist_is_answered_with_the_nearest(refused, name, nearest):
    said = refused(LLAMA_8B, card=("--gpu", name))
    assert repr(name) in said
    assert nearest in said.partition("nearest:")[2]


def test_a_family_of_cards_is_settled_aloud(planned):
    notes = planned(LLAMA_8B, card=("--gpu", "A100"))["notes"]
    assert any("'A100' is planned as NVIDIA A100-SXM4-80GB, 79.25 GiB" in note for note in notes)
    assert not any("is planned as" in note for note in planned(LLAMA_8B)["notes"])


@pytest.mark.parametrize("version", ["new", "0", "-1", "nan", "1.2.3.4.5", "\u0663.\u0661"])
def test_what_is_no_release(refused, version):
    assert f"--vllm-version {version!r}: needed: a version such as 0.32.0" in refused(
        LLAMA_8B, release=("--vllm-version", version)
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--max-model-len nan", "--max-model-len: found 'nan'"),
        ("--max-model-len -5", "--max-model-len: found '-5'"),
        ("--max-model-len 32GB", "--max-model-len: found '32GB'; needed: a whole number"),
        ("--max-model-len 99999999999999", "--max-model-len: found 99999999999999"),
        ("--gpu-memory-utilization 90", "needed: a fraction of the card's memory from 0 to 1"),
        ("--gpu-memory-utilization nan", "--gpu-memory-utilization: found 'nan'"),
        ("--gpu-memory-utilization inf", "--gpu-memory-utilization: found 'inf'"),
        ("--max-num-seqs true", "--max-num-seqs: found 'true'"),
        ("--cpu-offload-gb nan", "--cpu-offload-gb: found 'nan'"),
        ("--kv-cache-dtype int3", "--kv-cache-dtype: found 'int3'"),
        ("--quantization awq", "the checkpoint has no quantization_config"),
        ("--tensor-parallel-size 1.5", "--tensor-parallel-size: found '1.5'"),
        ("--speculative-config [1]", "--speculative-config: found '[1]'; needed: a JSON object"),
        ("--compilation-config nan", "--compilation-config: found 'nan'"),
        ("--hf-overrides x", "--hf-overrides: found 'x'"),
        ('--hf-overrides {"num_hidden_layers":-1}', "num_hidden_layers is -1"),
    ],
)
def test_a_flag_with_a_value_that_means_nothing(refused, flags, said):
    assert said in refused(LLAMA_8B, launch=("vllm", "serve", "m", *flags.split()))


@pytest.mark.parametrize(
    ("flags", "found", "needed"),
    [
        ("--tensor-parallel-size 3", "--tensor-parallel-size: found 3", "a divisor of the model's 32 attention heads"),
        ("-tp 2", "--tensor-parallel-size × --pipeline-parallel-size: found 2 × 1", "at most the 1 GPU"),
        ("--pipeline-parallel-size 64", "--pipeline-parallel-size: found 64", "at most the model's 32 layers"),
        ("--max-num-seqs 256 --max-num-batched-tokens 16", "--max-num-batched-tokens: found 16", "--max-num-seqs, 256"),
        (
            "--no-enable-chunked-prefill --max-num-batched-tokens 4096 --max-model-len 8192",
            "--max-num-batched-tokens: found 4096",
            "when chunked prefill is off",
        ),
        ("--max-model-len 200000", "--max-model-len: found 200000", "at most 131072"),
        ("--dtype float7", "--dtype: found 'float7'", "one of"),
        ("another", "vllm serve: found 'another'", "two models were given"),
    ],
)
def test_flags_that_vllm_refuses_are_refused_with_what_it_takes(planned, flags, found, needed):
    told = planned(LLAMA_8B, launch=("vllm", "serve", "m", *flags.split()))
    assert told["predicted"]["outcome"] == "rejected"
    flag, _, value = found.partition(": found ")
    assert any(
        (r["flag"], r["found"]) == (flag.removeprefix("--"), value) and needed in r["needed"] for r in told["refused"]
    ), told["refused"]


@pytest.mark.parametrize(
    "flags", ["--max-model-len 8192 --max-model-len 4096", "--async-scheduling --no-async-scheduling"]
)
def test_a_flag_that_contradicts_itself_is_said(planned, flags):
    told = planned(LLAMA_8B, launch=("vllm", "serve", "m", *flags.split()))
    assert any("is given twice" in note for note in told["notes"])


def test_overrides_of_the_model_are_planned(planned):
    shorter = ("--hf-overrides", '{"num_hidden_layers": 16}')
    plain, halved = planned(LLAMA_8B), planned(LLAMA_8B, launch=("vllm", "serve", "m", *shorter))
    assert halved["predicted"]["weights_gib"] < 0.65 * plain["predicted"]["weights_gib"]
    inner = ("--hf-overrides", '{"text_config": {"max_position_embeddings": 4096}}')
    nested = planned({"model_type": "gemma3", "text_config": GEMMA3_LIKE}, launch=("vllm", "serve", "m", *inner))
    assert nested["predicted"]["max_concurrency"]["len"] == 4096


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"metadata": {"total_size": 141_107_412_992}}, "holds 131.42 GiB, the config describes"),
        ({"metadata": {"total_size": -1}}, "total_size is -1"),
        ({"metadata": {"total_size": "16GB"}}, "total_size is '16GB'"),
        ({"metadata": []}, "metadata is []; needed: an object"),
    ],
)
def test_an_index_that_contradicts_the_config(refused, tmp_path, index, said):
    write(tmp_path / "config.json", json.dumps(LLAMA_8B))
    write(tmp_path / "model.safetensors.index.json", json.dumps(index))
    assert said in refused(tmp_path)


def test_an_index_that_says_somewhat_more_is_said(planned, tmp_path):
    write(tmp_path / "model.safetensors.index.json", json.dumps({"metadata": {"total_size": 20_000_000_000}}))
    assert any("--weights-gib settles it" in note for note in planned(LLAMA_8B)["notes"])
    write(tmp_path / "model.safetensors.index.json", json.dumps({"metadata": {"total_size": 16_060_522_496}}))
    assert not any("--weights-gib" in note for note in planned(LLAMA_8B)["notes"])


def test_a_small_model_is_not_taken_for_another_one_by_its_rope_table(planned, tmp_path):
    tiny = LLAMA_8B | {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "head_dim": 128}
    tiny |= {"num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 258}
    write(tmp_path / "model.safetensors.index.json", json.dumps({"metadata": {"total_size": 2_360_000}}))
    assert not any("--weights-gib" in note for note in planned(tiny)["notes"])


def test_a_model_s_folder_alone_is_a_whole_question_wherever_it_is_named_from(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "models" / "llama"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    monkeypatch.chdir(tmp_path)
    assert run(["plan", "models/llama", *CARD, *RELEASE]) is Exit.OK
    assert f"vllm serve {folder}" in capsys.readouterr().out
