"""`plan --goal`: which cards, and how many, hold so many requests of such a length."""

import json
import shlex

import pytest

from tests.plan.models import DEEPSEEK_LIKE, GEMMA3_LIKE, GPT_OSS_20B, HYBRID_LIKE, LLAMA_8B
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.plan.question.planner import Planner, Question, planner
from vllm_doctor.render.plan_json import predicted_figures

CARDS = {"L4": 0.8, "H100 80GB": 2.5, "A100 80GB": 1.5}


@pytest.fixture
def say(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def said(*options, config=LLAMA_8B, version="0.33.0", launch=("vllm", "serve", "m")):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        code = run(["plan", *options, "--vllm-version", version, "--model-config", str(file), "--", *launch])
        told = capsys.readouterr()
        return code, told.out or told.err

    return said


@pytest.fixture
def ask(say):
    def asked(goal, *options, **more):
        code, told = say("--goal", goal, "--format", "json", *options, **more)
        return code, json.loads(told)["goal"]

    return asked


@pytest.fixture
def priced(tmp_path):
    def write(prices):
        file = tmp_path / "prices"
        file.write_text(prices if isinstance(prices, str) else json.dumps(prices))
        return str(file)

    return write


@pytest.mark.parametrize(
    ("config", "version"),
    [(LLAMA_8B, "0.33.0"), (GPT_OSS_20B, "0.19.1"), (HYBRID_LIKE, "0.30.0")],
    ids=["dense", "experts", "hybrid"],
)
def test_every_row_is_what_plan_says_of_that_card_and_launch(ask, say, tmp_path, config, version):
    code, goal = ask("context=32k,concurrency=16", config=config, version=version)
    assert code == Exit.OK
    for row in goal["rows"]:
        words = tuple(shlex.split(row["launch"]))
        asked = Question(words, row["gpu"], row["gpus"], None, version, str(tmp_path / "config.json"))
        assert predicted_figures(planner(asked).predict()) == row["predicted"], row
    row = goal["rows"][0]
    card = ("--gpu", row["gpu"], "--gpus", str(row["gpus"]), "--format", "json")
    code, told = say(*card, config=config, version=version, launch=shlex.split(row["launch"]))
    planned = json.loads(told)
    assert code == Exit.OK
    assert (planned["predicted"], planned["margin"]) == (row["predicted"], row["margin"])


@pytest.mark.parametrize("config", [LLAMA_8B, GPT_OSS_20B, DEEPSEEK_LIKE], ids=["dense", "experts", "latent"])
def test_rows_start_for_certain_and_hold_the_requests_at_the_low_end(ask, config):
    _, goal = ask("context=64k,concurrency=12", config=config)
    assert goal["rows"]
    for row in goal["rows"]:
        assert row["predicted"]["verdict"] == "starts"
        assert row["requests_at_once"][1] >= row["requests_at_once"][0] >= 12, row
        assert row["predicted"]["max_concurrency"]["len"] == 65536
    sizes = [row["memory_gib"] for row in goal["rows"]]
    assert sizes == sorted(sizes)


def test_fewer_of_a_card_than_a_row_says_do_not_do(ask):
    _, goal = ask("context=128k,concurrency=8", "--gpu", "H100")
    two = {("fp8", 2), ("fp8 KV cache", 2)}
    assert {(row["format"], row["gpus"]) for row in goal["rows"]} == {("as stored", 4), *two}
    _, fewer = ask("context=128k,concurrency=8", "--gpu", "H100", "--gpus", "2")
    assert {(row["format"], row["gpus"]) for row in fewer["rows"]} == two


def test_a_cache_in_8_bits_is_offered_where_it_saves_cards_and_the_card_computes_it(ask):
    """16 GiB a request of 128k tokens in 16 bits, 8 in 8: eight fill 128 or 64 GiB."""
    _, goal = ask("context=128k,concurrency=8", "--gpu", "H100")
    row = next(row for row in goal["rows"] if row["format"] == "fp8 KV cache")
    assert row["launch"].endswith("--tensor-parallel-size 2 --kv-cache-dtype fp8")
    assert row["requests_at_once"][0] == pytest.approx(15.63, abs=0.05)
    _, goal = ask("context=66k,concurrency=16", "--gpu", "A100 80GB")
    assert {row["format"] for row in goal["rows"]} == {"as stored", "fp8"}
    _, goal = ask("context=2k", "--gpu", "H100")
    assert {row["format"] for row in goal["rows"]} == {"as stored"}


def test_who_loses_accuracy_reads_it_and_what_it_would_take_to_lose_none(say):
    _, told = say("--goal", "context=128k,concurrency=8", "--gpu", "H100")
    first, second = told.splitlines()[:2]
    assert first.endswith("2 × NVIDIA H100 80GB HBM3, fp8 KV cache")
    assert second == "  8 bits cost some accuracy; full accuracy needs 4 × NVIDIA H100 80GB HBM3, as stored"
    _, told = say("--goal", "context=2k", "--gpu", "H100")
    assert "accuracy" not in told


def test_a_checkpoint_that_is_quantized_stays_as_it_is(ask):
    for config in (GPT_OSS_20B, DEEPSEEK_LIKE):
        _, goal = ask("context=8k", config=config)
        assert {row["format"] for row in goal["rows"]} <= {"as stored", "fp8 KV cache"}
    _, goal = ask("context=8k", launch=("vllm", "serve", "m", "--quantization", "fp8"))
    assert {row["format"] for row in goal["rows"]} <= {"as stored", "fp8 KV cache"}
    _, goal = ask("context=64k", launch=("vllm", "serve", "m", "--kv-cache-dtype", "fp8"))
    assert {row["format"] for row in goal["rows"]} == {"as stored", "fp8"}


def test_an_early_release_must_hold_all_of_the_weights_before_it_quantizes_them(ask):
    """14.96 GiB as stored do not lie on 14.5 GiB, whatever is made of them."""
    card = ("--gpu", "RTX 4060 Ti", "--gpu-memory-gib", "15", "--gpus", "1")
    _, early = ask("context=2k", *card, version="0.15.1")
    _, late = ask("context=2k", *card, version="0.16.0")
    assert [row["format"] for row in late["rows"]] == ["fp8"]
    assert early["rows"] == []
    assert "GiB more" in early["nearest"]["missing"]


def test_a_card_that_the_release_has_no_code_for_is_no_row(ask):
    _, goal = ask("context=8k", version="0.33.0")
    assert not any("V100" in row["gpu"] for row in goal["rows"])
    code, goal = ask("context=8k", "--gpu", "V100 32GB")
    assert (code, goal["rows"]) == (Exit.FINDINGS, [])
    assert "vLLM refuses it: --gpu" in goal["nearest"]["missing"]


def test_prices_choose_the_cards_and_their_order(ask, say, priced):
    for text in (CARDS, "# an hour\nL4: 0.8\nH100 80GB: 2.5\nA100 80GB: 1.5\n"):
        _, goal = ask("context=32k,concurrency=16", "--prices", priced(text))
        rows = [(row["gpu"], row["gpus"], row["format"], row["price_per_hour"]) for row in goal["rows"]]
        assert rows == sorted(rows, key=lambda row: row[3])
        assert {row[0] for row in rows} == {"NVIDIA L4", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"}
        assert all(
            price == pytest.approx(count * {"L": 0.8, "H": 2.5, "A": 1.5}[gpu[7]]) for gpu, count, _, price in rows
        )
    code, told = say("--goal", "context=32k,concurrency=16", "--prices", priced(CARDS))
    assert code == Exit.OK
    assert told.splitlines()[0] == (
        "vLLM 0.33.0, 16 requests of 32,768 tokens at once: 1 × NVIDIA H100 80GB HBM3, fp8 KV cache, 2.5 an hour"
    )


def test_each_row_has_its_launch_and_the_list_is_short(say):
    code, told = say("--goal", "context=32k,concurrency=16")
    assert code == Exit.OK
    assert 4 <= told.count("  run      vllm serve m --max-model-len 32768 --max-num-seqs 16") <= 9
    assert ", as stored: " in told
    assert ", fp8: " in told
    assert ", fp8 KV cache: " in told
    _, every = say("--goal", "context=32k,concurrency=16", "--explain")
    assert every.count("  run ") > told.count("  run ")
    assert "more with --explain" in told
    assert "more with --explain" not in every


def test_cards_of_one_generation_and_size_are_one_row(say):
    _, told = say("--goal", "context=32k,concurrency=16")
    rows = told.split("\n\n")
    (h100,) = (row for row in rows if "H100 80GB HBM3" in row)
    assert h100.splitlines()[1] == "  or       NVIDIA H100 80GB HBM3, NVIDIA H800"
    assert "H100 NVL" not in h100, "94 GiB are not 80"


def test_a_deprecated_method_is_asked_for_with_the_option_that_allows_it(ask):
    old = {**LLAMA_8B, "quantization_config": {"quant_method": "fbgemm_fp8"}}
    code, goal = ask("context=8k", config=old, version="0.24.0")
    assert code == Exit.OK
    assert all("--allow-deprecated-quantization" in row["launch"] for row in goal["rows"])


def test_the_rest_of_the_launch_stays(ask):
    launch = ("VLLM_USE_V2_MODEL_RUNNER=0", "vllm", "serve", "m", "--kv-cache-dtype", "fp8", "--max-num-seqs", "3")
    _, goal = ask("context=32k,concurrency=16", launch=launch)
    for row in goal["rows"]:
        assert row["launch"].startswith("VLLM_USE_V2_MODEL_RUNNER=0 vllm serve m ")
        assert "--kv-cache-dtype fp8" in row["launch"]
        assert "--max-num-seqs 16" in row["launch"]


def test_where_no_card_does_the_nearest_says_what_is_missing(say):
    code, told = say("--goal", "context=128k,concurrency=5000")
    lines = told.splitlines()
    assert code == Exit.FINDINGS
    assert lines[0].endswith("no card that was tried certainly reaches it")
    assert lines[1] == "  nearest  8 × NVIDIA GB300, fp8 and fp8 KV cache"
    assert "GiB more on each GPU; its KV cache holds" in lines[2]


def test_a_model_that_is_not_known_is_no_answer(ask):
    strange = {**LLAMA_8B, "architectures": ["NobodysForCausalLM"], "model_type": "nobodys"}
    code, goal = ask("context=8k", config=strange)
    assert (code, goal["rows"]) == (Exit.INCOMPLETE, [])
    assert goal["nearest"]["missing"].startswith("cannot be predicted: ")


@pytest.mark.parametrize(
    ("goal", "needed"),
    [
        ("context", "context is ''; needed: a whole number"),
        ("context=", "context is ''; needed: a whole number"),
        ("context=many", "context is 'many'"),
        ("context=0", "context is '0'"),
        ("context=1.5k", "context is '1.5k'"),
        ("context=9999m", "context is '9999m'"),
        ("context=8k,context=9k", "found context twice"),
        ("concurrency=32", "found no context"),
        ("context=8k,requests=32", "found 'requests=32'; needed: context and concurrency"),
        ("context=8k,", "found ''; needed: context and concurrency"),
        ("context=256k", "context is 262144; needed: at most 131072"),
    ],
)
def test_what_is_no_goal_is_refused_in_a_line(say, goal, needed):
    code, told = say("--goal", goal)
    assert code == Exit.USAGE
    assert needed in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ({"L4": "0.8"}, "L4 is '0.8'; needed: a number"),
        ({"L4": -1}, "L4 is '-1'; needed: a number from 0 to 1,000,000,000"),
        ("L4: .nan", "L4 is 'nan'"),
        ({"L4": True}, "L4 is 'True'"),
        ({"L5": 1}, "found 'L5'; needed: the name of an NVIDIA card"),
        ({"H100": 1, "H100 80GB HBM3": 2}, "found NVIDIA H100 80GB HBM3 twice"),
        ("[1, 2]", "holds no cards with prices"),
        ("{}", "holds no cards with prices"),
        ("a: b: c", "is neither JSON nor YAML"),
        ("7: 1", "found '7'; needed: the name of an NVIDIA card"),
    ],
)
def test_what_are_no_prices_is_refused_in_a_line(say, priced, text, needed):
    code, told = say("--goal", "context=8k", "--prices", priced(text))
    assert code == Exit.USAGE
    assert needed in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("beside", [("--sweep", "gpus"), ("--context", "8192"), ("--weights-gib", "9")])
def test_what_would_be_left_out_is_refused(say, beside):
    code, told = say("--goal", "context=8k", *beside)
    assert code == Exit.USAGE
    assert f"--goal: found {beside[0]} beside it" in told


def test_prices_need_a_goal_and_the_card_that_was_named(say, priced):
    code, told = say("--gpu", "L4", "--prices", priced(CARDS))
    assert (code, "found neither --goal nor --speed" in told) == (Exit.USAGE, True)
    code, told = say("--goal", "context=8k", "--gpu", "H200", "--prices", priced(CARDS))
    assert (code, "holds no price of NVIDIA H200" in told) == (Exit.USAGE, True)


ODD = {**LLAMA_8B, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 10, "head_dim": 128}


def test_cards_that_heads_do_not_divide_among_are_made_stages_as_few_as_there_must_be(ask, say, tmp_path):
    """Ten KV heads: two ranks, not four."""
    code, goal = ask("context=32k,concurrency=16", "--gpu", "L4", "--gpus", "8", config=ODD)
    assert code == Exit.OK
    row = next(row for row in goal["rows"] if row["format"] == "as stored")
    assert row["gpus"] == row["tensor_parallel_size"] * row["pipeline_parallel_size"]
    assert (row["tensor_parallel_size"], row["pipeline_parallel_size"] > 1) == (2, True)
    assert "--tensor-parallel-size 2 --pipeline-parallel-size" in row["launch"]
    words = tuple(shlex.split(row["launch"]))
    asked = Question(words, row["gpu"], row["gpus"], None, "0.33.0", str(tmp_path / "config.json"))
    assert predicted_figures(planner(asked).predict()) == row["predicted"]


def test_a_model_that_vllm_makes_no_stages_of_gets_none(say):
    phi4mm = {**ODD, "model_type": "phi4mm", "architectures": ["Phi4MMForCausalLM"]}
    code, told = say("--gpu", "L4", "--gpus", "2", config=phi4mm, launch=("vllm", "serve", "m", "-pp", "2"))
    assert code != Exit.OK
    assert "vLLM 0.33.0 makes no stages of Phi4MMForCausalLM" in told


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def test_experts_stay_whole_where_tensor_parallelism_would_cut_their_blocks(ask):
    # 768 channels in four are one block of 128 and a half, which 0.28 refuses.
    experts = {
        **LLAMA_8B,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_hidden_layers": 8,
        "num_experts": 48,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "quantization_config": FP8,
    }
    card = ("--gpu", "L4", "--gpus", "4")
    _, goal = ask("context=32k,concurrency=50", *card, config=experts, version="0.28.0")
    plain = next(row for row in goal["rows"] if row["format"] == "as stored")
    assert (plain["gpus"], plain["tensor_parallel_size"], plain["expert_parallel"]) == (4, 4, True)
    assert "--enable-expert-parallel" in plain["launch"]


def test_latents_are_kept_once_where_data_parallel_ranks_hold_more(ask):
    card = ("--gpu", "H200", "--gpus", "8")
    latent = {**DEEPSEEK_LIKE, "quantization_config": FP8}
    _, few = ask("context=64k,concurrency=6", *card, config=latent)
    _, many = ask("context=64k,concurrency=20", *card, config=latent)
    plain = [next((r for r in goal["rows"] if r["format"] == "as stored"), None) for goal in (few, many)]
    assert (plain[0]["tensor_parallel_size"], plain[0]["data_parallel_size"]) == (8, 1)
    assert (plain[1]["tensor_parallel_size"], plain[1]["data_parallel_size"]) == (1, 8)
    assert "--max-num-seqs 3" in plain[1]["launch"]
    assert plain[1]["requests_at_once"][0] >= 20


def test_a_larger_card_with_a_wider_step_does_not_rule_out_a_smaller_one(ask, priced):
    # 8192 tokens of a step lie beside every window of an RTX PRO 6000, 2048 beside those of an RTX 5090.
    def rows(prices):
        _, told = ask("context=16k,concurrency=16", "--prices", priced(prices), config=GEMMA3_LIKE)
        return {row["format"]: row["gpus"] for row in told["rows"] if "5090" in row["gpu"]}

    alone = rows({"RTX 5090": 1})
    assert alone["as stored"] == 4
    assert rows({"RTX PRO 6000 Blackwell Server Edition": 9, "RTX 5090": 1}) == alone


@pytest.mark.parametrize(("config", "version"), [(DEEPSEEK_LIKE, "0.33.0"), (LLAMA_8B, "0.19.1")])
def test_what_others_of_a_kind_needed_spares_most_of_the_work(ask, monkeypatch, config, version):
    tried = []
    real = Planner.predict
    monkeypatch.setattr(Planner, "predict", lambda self, changes=None: (tried.append(1), real(self, changes))[1])
    ask("context=128k,concurrency=32", "--gpus", "16", config=config, version=version)
    assert len(tried) < 700
