"""The whole plan: outcome, range, choice, remedies, and the command with its contract."""

import json
import shlex
import time

import pytest
from msgspec.structs import replace

from tests.plan.models import DEEPSEEK_LIKE, GEMMA3_LIKE, GPT_OSS_20B, LLAMA_8B
from vllm_doctor.cli.main import run
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.plan.advice.alternatives import left
from vllm_doctor.plan.advice.choice import choose
from vllm_doctor.plan.advice.recommendation import Workload, safe, table_tokens
from vllm_doctor.plan.advice.remedies import hardware, remedies
from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.question.planner import Question, planner


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def write(config):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        return str(file)

    return write


def plan(config, flags="", *, gpu="H100", gpus=1, version="0.19.0", measured=None, env=""):
    return planner(
        Question(
            (*env.split(), "vllm", "serve", "m", *flags.split()),
            gpu,
            gpus,
            None,
            version,
            config,
            measured=measured or KnownTerms(),
        )
    )


def test_of_a_release_that_nobody_read_the_figures_are_told_and_no_verdict(model):
    newer, mended = (plan(model(LLAMA_8B), version=version) for version in ("0.99.0", "0.33.9"))
    told = "is newer than 0.33.0, the newest release that was read; planned as that one"
    assert newer.predict().outcome == "unknown"
    assert newer.predict().settings.doubts == (f"vLLM 0.99.0 {told}",)
    assert newer.predict().available_kv_gib == mended.predict().available_kv_gib
    assert mended.predict().outcome == "ok"  # a release that mends one that was read
    assert f"vLLM 0.33.9 {told}" in mended.notes


def test_a_logged_start_lies_in_the_range(model):
    # llm-d-planner pull 205: llama-3.1-8b, H100 80GB HBM3, 0.19.0, utilization 0.95: 14.99 / 0.25 / 1.89 / 58.11 GiB.
    p = plan(model(LLAMA_8B), "--gpu-memory-utilization 0.95 --max-model-len 8192").predict()
    assert p.outcome == "ok"
    assert p.available_kv_gib == pytest.approx(58.11, abs=0.05)
    assert p.margin_gib[0] <= 58.11 <= p.margin_gib[1]
    assert p.margin_gib[1] - p.margin_gib[0] < 1


@pytest.mark.parametrize(
    ("config", "flags", "gpu", "version", "outcome"),
    [
        (LLAMA_8B, "--max-model-len 131072", "L4", "0.19.0", "kv-too-small"),
        (DEEPSEEK_LIKE, "", "H100", "0.11.0", "oom-weights"),
        (LLAMA_8B, "", "T4", "0.19.0", "oom-weights"),
        (LLAMA_8B, "-tp 3", "H100", "0.19.0", "rejected"),
        (LLAMA_8B, "--max-model-len 8192", "H100", "0.19.0", "ok"),
    ],
)
def test_outcomes(model, config, flags, gpu, version, outcome):  # noqa: PLR0917
    assert plan(model(config), flags, gpu=gpu, version=version).predict().outcome == outcome


def test_a_known_term_replaces_the_predicted_one(model):
    file = model(LLAMA_8B)
    plain, told = plan(file).predict(), plan(file, measured=KnownTerms(weights_gib=16.0)).predict()
    assert plain.available_kv_gib - told.available_kv_gib == pytest.approx(16.0 - plain.weights_gib)


@pytest.mark.parametrize("profile", ["conservative", "balanced", "max"])
@pytest.mark.parametrize(
    ("gpu", "flags"),
    [("L4", ""), ("H100", ""), ("RTX 4090", "--max-model-len 16384"), ("H100", "--max-num-batched-tokens 200000")],
)
def test_what_is_recommended_is_safe_and_accepted(model, profile, gpu, flags):
    p = plan(model(LLAMA_8B), flags, gpu=gpu, version="0.32.0")
    choice = choose(p, Workload(), profile)
    assert choice is not None
    assert safe(choice.predicted)
    again = plan(
        model(LLAMA_8B),
        " ".join(f"--{k} {v}" if not isinstance(v, bool) else f"--{k}" for k, v in choice.launch.items()),
        gpu=gpu,
        version="0.32.0",
    ).predict()
    assert again.outcome == "ok"
    assert {r.flag for r in choice.because} == set(choice.launch)


def test_profiles_are_ordered(model):
    p = plan(model(LLAMA_8B), version="0.32.0")
    pools = [choose(p, Workload(), x).predicted.budget_gib for x in ("conservative", "balanced", "max")]
    assert pools == sorted(pools)


def test_a_wide_step_is_never_below_the_tables_where_it_fits(model):
    for gpu in ("L4", "A100 40GB", "H100"):
        p = plan(model({**LLAMA_8B, "num_hidden_layers": 8}), gpu=gpu, version="0.32.0")
        assert choose(p, Workload(), "balanced").launch["max-num-batched-tokens"] >= table_tokens(find(gpu).total_gib)


def test_the_workload_sets_the_length(model):
    choice = choose(plan(model(LLAMA_8B), version="0.32.0"), Workload(context=6000, concurrency=40), "balanced")
    assert (choice.launch["max-model-len"], choice.launch["max-num-seqs"]) == (6000 // 1, 40)


@pytest.mark.parametrize(("requests", "short"), [(7, False), (8, True)])
def test_a_workload_that_is_not_held_is_said_in_the_first_line(model, requests, short, capsys):
    asked = ["--vllm-version", "0.33.0", "--gpu", "H100", "--model-config", model(LLAMA_8B)]
    asked += ["--context", "65536", "--concurrency", str(requests), "--", "vllm", "serve", "m"]
    assert command(*asked) == 0
    told = capsys.readouterr().out
    assert (told.splitlines()[0].endswith(": starts, but does not hold the workload")) is short
    assert (f"  short    of the workload's {requests} requests at once it holds 6.98: the others wait" in told) is short
    assert (f"--goal context=65536,concurrency={requests} names cards that hold it all" in told) is short
    assert command("--format", "json", *asked) == 0
    held = json.loads(capsys.readouterr().out)["workload"]
    assert held == {"requests": requests, "held": 6.98 if short else 7.09}, "for seven the step is narrower"


def test_a_workload_that_is_held_in_the_middle_of_the_range_may_not_be_held(model, capsys):
    asked = ["--vllm-version", "0.33.0", "--gpu", "H100", "--model-config", model(LLAMA_8B)]
    assert command(*asked, "--context", "66100", "--concurrency", "7", "--", "vllm", "serve", "m") == 0
    told = capsys.readouterr().out
    assert told.splitlines()[0].endswith(": starts, but may not hold the workload")
    assert "--max-num-batched-tokens 8192" in told, "a step of 16384 does not hold it in the middle either"
    assert "  holds    7.0 requests of 66100 tokens" in told
    assert "  short    of the workload's 7 requests at once it holds 6.98 at the low end: the others wait" in told


def test_a_launch_that_takes_shorter_requests_than_the_workload_says_so(model, capsys):
    asked = ["--vllm-version", "0.33.0", "--gpu", "L4", "--model-config", model(LLAMA_8B), "--context", "131072"]
    assert command(*asked, "--", "vllm", "serve", "m", "--max-model-len", "131072") == 1
    told = capsys.readouterr().out
    assert "  short    of the workload's 131072 tokens it takes 60928: a longer request is refused" in told
    assert "--goal context=131072,concurrency=1 names cards that hold it all" in told


def test_a_change_that_is_too_short_for_the_workload_says_so(model, capsys):
    asked = [
        "--vllm-version",
        "0.33.0",
        "--gpu",
        "L4",
        "--model-config",
        model({**LLAMA_8B, "num_hidden_layers": 64}),
        "--context",
        "131072",
    ]
    assert command(*asked, "--", "vllm", "serve", "m") == 1
    assert ", less than the workload's 131072 tokens:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("card", "quantized", "instead"),
    [
        ("GTX 1080", None, "use others"),
        ("T4", {"quant_method": "mxfp4"}, "use others, or a checkpoint in another format"),
    ],
)
def test_what_a_card_cannot_run_gets_no_advice_on_memory(model, card, quantized, instead, capsys):
    config = model(LLAMA_8B if quantized is None else {**LLAMA_8B, "quantization_config": quantized})
    command("--vllm-version", "0.33.0", "--gpu", card, "--model-config", config, "--", "vllm", "serve", "m")
    assert f"  no launch is recommended on these cards: {instead}\n" in capsys.readouterr().out


def test_weights_that_need_two_cards_get_two(model):
    big = {
        **LLAMA_8B,
        "num_hidden_layers": 80,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
    }
    choice = choose(plan(model(big), "--max-model-len 8192", gpus=4, version="0.32.0"), Workload(), "balanced")
    assert choice.launch["tensor-parallel-size"] >= 2


def test_the_smallest_changes_and_the_cards_are_named(model):
    p = plan(model(LLAMA_8B), "--max-model-len 131072", gpu="L4")
    found = {r.flag: r for r in remedies(p)}
    assert int(found["max-model-len"].value) < 131072
    assert safe(p.predict({"max-model-len": found["max-model-len"].value}))
    assert all(safe(q) for _, _, q in hardware(p))
    assert hardware(p)
    kinds = [g.template for g, _, _ in hardware(p)]
    assert len(kinds) == len(set(kinds)), "one card of each kind"


def test_a_card_that_holds_the_weights_in_another_type_rules_out_no_other(model):
    # Turing has no bfloat16 and Gemma 3 no float16: there it is twice as large.
    p = plan(model(GEMMA3_LIKE), "--max-model-len 16384", gpu="L4", version="0.26.0")
    assert ("NVIDIA H100 80GB HBM3", 1) in {(card.name, count) for card, count, _ in hardware(p)}


def command(*args):
    return run(["plan", *args])


def test_the_contract(model, capsys):
    code = command(
        "--format",
        "json",
        "--vllm-version",
        "0.33.0",
        "--gpu",
        "NVIDIA H100 80GB HBM3",
        "--gpus",
        "4",
        "--model-config",
        model(LLAMA_8B),
        "--",
        "vllm",
        "serve",
        "m",
        "--tensor-parallel-size",
        "4",
        "--max-model-len",
        "32768",
    )
    out = json.loads(capsys.readouterr().out)
    assert code == 0
    assert out["schema_version"] == 1
    assert set(out["predicted"]) >= {
        "outcome",
        "weights_gib",
        "non_torch_gib",
        "activation_gib",
        "cudagraph_gib",
        "available_kv_gib",
        "kv_tokens",
        "gpu_blocks",
        "max_concurrency",
        "estimated_max_len",
        "needed_kv_gib",
    }
    assert len(out["margin"]["available_kv_gib"]) == 2
    assert set(out["recommended"]) >= {"launch", "command", "env", "predicted"}
    assert out["recommended"]["command"].startswith("vllm serve m --tensor-parallel-size 4 --max-model-len 32768 ")
    assert all(set(b) == {"flag", "why", "arithmetic"} for b in out["because"])


def test_the_command_has_what_was_asked_and_stays(model, capsys):
    launch = ["VLLM_USE_V2_MODEL_RUNNER=0", "vllm", "serve", "m", "--kv-cache-dtype", "fp8", "--enable-lora"]
    asked = ["--vllm-version", "0.33.0", "--gpu", "H100", "--model-config", model(LLAMA_8B)]
    assert command("--format", "json", *asked, "--", *launch) == 0
    told = json.loads(capsys.readouterr().out)["recommended"]
    assert "kv-cache-dtype" not in told["launch"]
    assert told["command"].startswith("VLLM_USE_V2_MODEL_RUNNER=0 vllm serve m --kv-cache-dtype fp8 --enable-lora ")
    assert command(*asked, "--", *shlex.split(told["command"])) == 0


@pytest.mark.parametrize("named", ["org/m", "org/x"])
def test_a_model_before_its_launch_line_is_the_same_model(model, capsys, named):
    asked = ["--vllm-version", "0.33.0", "--gpu", "H100", "--model-config", model(LLAMA_8B), "org/m"]
    code = command(*asked, "--", "vllm", "serve", named, "--max-model-len", "4096")
    said = capsys.readouterr()
    if named == "org/m":
        assert code == 0
        assert "vllm serve org/m --max-model-len 4096" in said.out
    else:
        assert code == 2
        assert "found 'org/m' before a launch line of another model; needed: the launch line alone" in said.err


def test_what_lacks_is_told_of_what_the_launch_may_take(model, capsys):
    deep = model({**LLAMA_8B, "num_hidden_layers": 64})
    command("--vllm-version", "0.33.0", "--gpu", "L4", "--model-config", deep, "--", "vllm", "serve", "m")
    told = capsys.readouterr().out
    assert "           --gpu-memory-utilization 0.92 lets it take 20.27 of the card's 22.03 GiB\n" in told
    assert "! too much " in told


def test_token_arithmetic_needs_no_card(model, capsys):
    assert (
        command(
            "--format",
            "json",
            "--vllm-version",
            "0.19.0",
            "--available-kv-gib",
            "58.11",
            "--model-config",
            model(LLAMA_8B),
            "--",
            "VLLM_USE_V1=1",
            "vllm",
            "serve",
            "m",
            "--max-model-len",
            "8192",
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["predicted"]["max_concurrency"] == {"len": 8192, "x": 58.11}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--gpu", "H101"], "nearest: NVIDIA H100"),
        (["--gpu", "L4", "--gpu-memory-gib", "24GB"], "24GB"),
        (["--gpu", "L4", "--gpu-memory-gib", "22563"], "MiB were meant"),
        (["--gpu", "L4", "--weights-gib", "-1"], "--weights-gib"),
        (["--gpu", "L4", "--profile", "fast"], "conservative"),
        (["--gpu", "L4", "--format", "xml"], "'human', 'json'"),
        (["--gpu", "L4", "--sweep", "H100,NoCard"], "NoCard"),
        (["--gpu", "L4", "--gpu-memory-gib", "80"], "about 22.03"),
    ],
)
def test_bad_questions_end_with_2_and_one_sentence(model, capsys, args, said):
    assert (
        command("--vllm-version", "0.19.0", "--model-config", model(LLAMA_8B), *args, "--", "vllm", "serve", "m") == 2
    )
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert not told.out


def test_a_start_teaches_the_next_plan(model, tmp_path, capsys):
    log = tmp_path / "start.log"
    log.write_text("Model loading took 15.50 GiB memory and 9 s\nAvailable KV cache memory: 52.00 GiB\n")
    asked = ["--vllm-version", "0.19.0", "--gpu", "H100", "--model-config", model(LLAMA_8B)]
    assert command(*asked, "--learn", str(log), "--", "vllm", "serve", "m", "--port", "1") == 0
    assert "+0.51" in capsys.readouterr().out
    assert command(*asked, "--format", "json", "--", "vllm", "serve", "m", "--port", "2") == 0
    assert json.loads(capsys.readouterr().out)["predicted"]["weights_gib"] == 15.5


def test_a_log_without_figures_teaches_nothing(model, tmp_path, capsys):
    log = tmp_path / "start.log"
    log.write_text("hello\n")
    assert (
        command(
            "--vllm-version",
            "0.19.0",
            "--gpu",
            "H100",
            "--model-config",
            model(LLAMA_8B),
            "--learn",
            str(log),
            "--",
            "vllm",
            "serve",
            "m",
        )
        == 2
    )
    assert "--learn" in capsys.readouterr().err


def test_sweep_compares_cards(model, capsys):
    assert (
        command(
            "--vllm-version",
            "0.33.0",
            "--sweep",
            "L4,H100",
            "--model-config",
            model(LLAMA_8B),
            "--",
            "vllm",
            "serve",
            "m",
            "--max-model-len",
            "8192",
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "NVIDIA L4" in out
    assert "NVIDIA H100 80GB HBM3" in out


def test_explain_draws_the_card(model, capsys):
    assert (
        command(
            "--vllm-version",
            "0.33.0",
            "--gpu",
            "H100",
            "--explain",
            "--model-config",
            model(LLAMA_8B),
            "--",
            "vllm",
            "serve",
            "m",
        )
        == 0
    )
    out = capsys.readouterr().out
    assert all(word in out for word in ("weights", "activation", "graphs", "KV cache", "free", "█"))


def test_a_plan_takes_milliseconds(model):
    p = plan(model(DEEPSEEK_LIKE), "-tp 8", gpu="H200", gpus=8, version="0.33.0")
    start = time.thread_time()  # what others do on this machine does not count
    p.predict()
    assert time.thread_time() - start < 0.1


def test_more_than_is_free_at_the_start_is_refused(model):
    # An idle RTX 5090 has 30.86 of 31.36 GiB free when vLLM 0.28 looks.
    p = plan(
        model(LLAMA_8B), "--gpu-memory-utilization 0.99 --max-model-len 4096", gpu="RTX 5090", version="0.28.0"
    ).predict()
    assert p.outcome == "rejected"
    assert "free" in str(p.settings.refusals[-1])
    fits = plan(
        model(LLAMA_8B), "--gpu-memory-utilization 0.9 --max-model-len 4096", gpu="RTX 5090", version="0.28.0"
    ).predict()
    assert fits.outcome == "ok"


def test_a_quantization_that_is_not_known_is_said_and_widens_the_range(model):
    strange = plan(model({**LLAMA_8B, "quantization_config": {"quant_method": "hqq", "nbits": 4}}))
    assert any("hqq" in n for n in strange.notes)
    p = strange.predict()
    assert 4 < p.weights_gib < 8
    assert p.margin_gib[1] - p.margin_gib[0] > 1


@pytest.mark.parametrize(("flags", "code"), [((), 0), (("--swap-space", "4"), 1), (("--max-model-len", "banana"), 2)])
def test_the_exit_code_says_whether_it_starts(model, capsys, flags, code):
    asked = ["--vllm-version", "0.33.0", "--gpu", "H100", "--model-config", model(LLAMA_8B)]
    assert command(*asked, "--", "vllm", "serve", "m", *flags) == code


@pytest.mark.parametrize(
    ("gpu", "version", "utilization", "outcome"),
    [
        ("H100", "0.19.0", "0.95", "oom-cudagraph"),  # logged: the sampler's warm-up found 1.78 GiB in pieces
        ("H100", "0.19.0", "0.90", "ok"),
        ("H100", "0.16.0", "0.95", "ok"),  # torch 2.9 left no such pieces
        ("H100", "0.25.1", "0.95", "ok"),  # loading splits no large block any more
        ("A100 80GB", "0.19.0", "0.95", "ok"),  # Marlin converts in place of Triton
    ],
)
def test_pieces_that_loading_strands_are_missed_by_the_sampler(model, gpu, version, utilization, outcome):
    p = plan(
        model(GPT_OSS_20B), f"--gpu-memory-utilization {utilization} --max-model-len 8192", gpu=gpu, version=version
    ).predict()
    assert p.outcome == outcome
    assert any(t.name == "stranded while loading" for t in p.terms) == (gpu == "H100" and version == "0.19.0")


def test_a_card_with_doubled_memory_is_planned_and_said(model):
    p = planner(Question(("vllm", "serve", "m"), "NVIDIA GeForce RTX 4090", 1, "47.37", "0.19.0", model(LLAMA_8B)))
    assert p.total_gib == 47.37
    assert any("47.37" in n for n in p.notes)


def test_before_012_the_range_holds_both_layouts_of_mxfp4_on_hopper(model):
    # gpt-oss-20b: 13.5 GiB for Triton, 14.3 for Marlin; the pool of a start with either lies in the range.
    low, high = plan(model(GPT_OSS_20B), "--max-model-len 8192", version="0.11.2").predict().margin_gib
    later = plan(model(GPT_OSS_20B), "--max-model-len 8192", version="0.12.0").predict().margin_gib
    assert high - low > later[1] - later[0] + 0.2


def test_a_length_that_serves_nobody_is_not_recommended(model):
    # 4 bits already, and 25 heads that no number of cards divides: host memory is the last resort.
    odd = {**LLAMA_8B, "hidden_size": 3200, "num_attention_heads": 25, "num_key_value_heads": 5}
    odd |= {"num_hidden_layers": 200, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    p = plan(model(odd), gpu="T4", version="0.33.0")
    choice = choose(p, Workload(), "balanced")
    assert choice.launch["cpu-offload-gb"] > 0
    assert choice.launch["max-model-len"] >= 1024
    big = {**LLAMA_8B, "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64}
    assert choose(plan(model(big), gpu="T4", version="0.33.0"), Workload(), "balanced") is None


def test_weights_in_host_memory_are_not_recommended_where_4_bits_or_four_cards_would_do(model, capsys):
    large = {**LLAMA_8B, "num_hidden_layers": 64}  # 28 GiB of a T4's 14.56: 8.8 in 4 bits
    assert choose(plan(model(large), gpu="T4", version="0.33.0"), Workload(), "balanced") is None
    run(["plan", "--gpu", "T4", "--vllm-version", "0.33.0", "--model-config", model(large), "--", "vllm", "serve", "m"])
    assert "or a checkpoint in 4 bits, whose weights take 8." in capsys.readouterr().out


def test_weights_in_host_memory_are_not_recommended_where_two_cards_or_8_bits_would_do(model):
    # 8B: 14.99 of a T4's 14.56 GiB, and two hold it; with 256 layers 106 of an H100's 79.19, and 8 bits hold it.
    assert choose(plan(model(LLAMA_8B), gpu="T4", version="0.33.0"), Workload(), "balanced") is None
    deep = {**LLAMA_8B, "num_hidden_layers": 256}
    assert choose(plan(model(deep), gpu="H100", version="0.33.0"), Workload(), "balanced") is None


def test_an_option_that_is_refused_is_not_in_the_launch_to_paste(model):
    asked = plan(model(LLAMA_8B), "-tp 2 --decode-context-parallel-size 2", gpu="H200", gpus=2, version="0.33.0")
    choice = choose(asked, Workload(), "balanced")
    assert choice.dropped == {"decode-context-parallel-size"}
    assert choice.predicted.outcome == "ok"


def test_where_no_change_does_alone_a_shorter_length_goes_with_it_and_cards_are_named(model, capsys):
    asked = ["--vllm-version", "0.27.1", "--gpu", "T4", "--model-config", model(LLAMA_8B)]
    assert command(*asked, "--", "vllm", "serve", "m") == 1
    told = capsys.readouterr().out
    assert "each with --max-model-len 8192" in told
    assert "--quantization bitsandbytes" in told
    assert "cards that hold it as asked: " in told
    assert "1 × NVIDIA A100-SXM4-40GB" in told


def test_the_longest_context_is_said_once_with_its_reason_where_memory_alone_sets_it(model, capsys):
    asked = ["--vllm-version", "0.33.0", "--gpu", "L4", "--model-config", model(LLAMA_8B)]
    assert command(*asked, "--", "vllm", "serve", "m") == 1
    told = capsys.readouterr().out
    assert "  longest  32768 tokens: one such request fills the 4.11 GiB of the range's low end" in told
    assert "one of 131072 needs 16.00" in told
    assert "the longest request that fits" not in told
    assert command(*asked, "--context", "4096", "--", "vllm", "serve", "m") == 1
    told = capsys.readouterr().out
    assert "  longest  " not in told
    assert "the longest request that fits" in told


SLICE = "NVIDIA A100-SXM4-80GB MIG 3g.40gb"


def test_a_mig_slice_is_planned_with_its_own_memory(model):
    p = plan(model(LLAMA_8B), "--max-model-len 8192", gpu=SLICE, version="0.33.0")
    assert p.total_gib == pytest.approx(39.1, abs=0.1)
    assert p.predict().outcome == "ok"
    assert find("A100 MIG 9g.90gb") is None
    assert find(SLICE, 39.25).total_gib == 39.25
    assert find(SLICE).template == "a100-80"


@pytest.mark.parametrize("flags", ["-tp 2", "-pp 2"])
def test_slices_are_not_joined(model, flags):
    p = plan(model(LLAMA_8B), f"{flags} --max-model-len 8192", gpu=SLICE, gpus=2, version="0.33.0")
    assert p.predict().outcome == "rejected"
    assert "MIG" in str(p.predict().settings.refusals[0])
    choice = choose(p, Workload(), "balanced")
    assert choice.launch.get("tensor-parallel-size", 1) == 1
    assert choice.launch.get("pipeline-parallel-size", 1) == 1


def test_a_sweep_tells_what_starts_first(model, capsys):
    asked = ["--vllm-version", "0.33.0", "--sweep", "T4,H100,L4", "--model-config", model(LLAMA_8B)]
    assert command(*asked, "--", "vllm", "serve", "m", "--max-model-len", "8192") == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [r.split()[1] for r in rows] == ["L4", "H100", "T4"]


def test_stages_that_hold_different_things_are_drawn_apart(model, capsys):
    asked = ["--vllm-version", "0.33.0", "--gpu", "H100", "--gpus", "4", "--model-config", model(LLAMA_8B), "--explain"]
    assert command(*asked, "--", "vllm", "serve", "m", "-tp", "2", "-pp", "2", "--max-model-len", "8192") == 0
    told = capsys.readouterr().out
    assert "each of 2 GPUs of stage 1 of 2" in told
    assert "each of 2 GPUs of stage 2 of 2" in told
    assert told.count("░ KV cache") == 2  # in the key of each stage's bar


def test_what_the_choice_leaves_alone_is_told_with_its_sum(model, capsys):
    words = ["--gpu", "H100", "--vllm-version", "0.32.0", "--model-config", model(LLAMA_8B), "--", "vllm", "serve", "m"]
    run(["plan", "--format", "json", *words])
    left = {r["flag"]: r for r in json.loads(capsys.readouterr().out)["left"]}
    assert set(left) == {"kv-cache-dtype", "quantization", "block-size", "max-cudagraph-capture-size"}
    assert "tokens instead of" in left["kv-cache-dtype"]["why"]
    assert left["quantization"]["arithmetic"][0]["value"] > 60  # half of 15 GiB of weights becomes pool
    run(["plan", "--format", "json", *words, "--kv-cache-dtype", "fp8"])
    assert "kv-cache-dtype" not in {r["flag"] for r in json.loads(capsys.readouterr().out)["left"]}


def test_what_an_old_card_cannot_compute_is_not_offered(model):
    p = plan(model(LLAMA_8B), "--max-model-len 8192", gpu="A100", version="0.32.0")
    choice = choose(p, Workload(), "balanced")
    assert {r.flag for r in left(p, choice.launch)} == {"block-size", "max-cudagraph-capture-size"}


def test_the_narrowest_spread_that_fits_is_a_remedy(model):
    wide = {**LLAMA_8B, "num_hidden_layers": 64}  # 28 GiB of weights: two T4 do not hold them, four do
    p = plan(model(wide), "--max-model-len 8192 --max-num-seqs 64", gpu="T4", gpus=4, version="0.32.0")
    assert {r.flag: r.value for r in remedies(p)}["tensor-parallel-size"] == "4"


def test_where_only_all_cards_and_another_change_do_both_are_told(model, capsys):
    large = {**LLAMA_8B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80}
    large |= {"num_attention_heads": 64, "max_position_embeddings": 8192}
    card = ("--gpu", "NVIDIA A100-SXM4-40GB", "--gpus", "2", "--vllm-version", "0.27.1")
    words = [*card, "--model-config", model(large)]
    run(["plan", *words, "--", "vllm", "serve", "m"])
    said = capsys.readouterr().out
    assert "each of these alone lets it start, each with --tensor-parallel-size 2:" in said
    assert "--quantization bitsandbytes" in said
    assert "no launch is recommended on these cards" in said


def test_fewer_graphs_are_tried_before_none(model):
    p = plan(model(LLAMA_8B), "--max-model-len 23500", gpu="L4", version="0.32.0")
    found = [r.flag for r in remedies(p)]
    assert found.index("max-cudagraph-capture-size") < found.index("enforce-eager")


@pytest.mark.parametrize(("version", "gib"), [("0.13.0", 1.0), ("0.14.1", 4.0), ("0.16.0", 4.0), ("0.17.1", 1.0)])
def test_014_to_016_check_one_request_against_all_stages_together(model, version, gib):
    # vLLM issue 34076: eight stages of 0.15 refuse what each of them could hold.
    p = plan(model(LLAMA_8B), "-pp 4 --max-model-len 32768", gpu="L4", gpus=4, version=version).predict()
    assert p.needed_kv_gib == pytest.approx(gib, rel=0.01)
    assert p.kv_tokens == pytest.approx(p.available_kv_gib * 2**30 / (4.0 * 2**30 / 32768 / 4), rel=0.01)


PER_GIB = 8192  # tokens of Llama 3.1 8B in one GiB of cache


def on_l4(file, length):
    return plan(file, f"--gpu-memory-utilization 0.85 --max-model-len {length}", gpu="L4").predict()


def test_a_need_inside_the_range_is_uncertain_with_odds_and_what_would_tell(model, capsys):
    low, high = on_l4(model(LLAMA_8B), 8192).margin_gib
    card = ["--vllm-version", "0.19.0", "--gpu", "L4", "--model-config", model(LLAMA_8B)]
    launch = [
        "vllm",
        "serve",
        "m",
        "--gpu-memory-utilization",
        "0.85",
        "--max-model-len",
        str(int(high * PER_GIB) - 64),
    ]
    assert command(*card, "--", *launch) == 3
    told = capsys.readouterr().out
    assert "may start or not" in told.splitlines()[0]
    assert "of 100 such cases; least sure is compiled code" in told
    assert "whether this launch has started here before" in told
    assert "--learn START.LOG settles it" in told
    assert on_l4(model(LLAMA_8B), int(low * PER_GIB) - 64).verdict == "starts"
    assert on_l4(model(LLAMA_8B), int(high * PER_GIB) + 64).verdict == "does-not-start"


@pytest.mark.parametrize(("card", "total"), [("A100-PCIE-40GB", 39.39), ("T4", 14.56), ("L4", 22.03)])
def test_the_range_reaches_to_what_older_drivers_leave_of_the_card(model, card, total):
    named = plan(model(LLAMA_8B), "--max-model-len 8192 --enforce-eager", gpu=card, version="0.15.1")
    given = replace(named, total_gib=total + 0.001).predict()
    assert given.margin_gib[1] < named.predict().margin_gib[1]
    assert given.margin_gib[0] == pytest.approx(named.predict().margin_gib[0], abs=0.01)


def test_the_odds_fall_from_one_end_of_the_range_to_the_other(model):
    low, high = on_l4(model(LLAMA_8B), 8192).margin_gib
    odds = [on_l4(model(LLAMA_8B), int((low + (high - low) * part) * PER_GIB)).odds for part in (0.05, 0.5, 0.95)]
    assert 0.96 > odds[0] > odds[1] > odds[2] > 0.04


def test_a_length_that_follows_the_pool_is_never_uncertain(model):
    p = plan(model(LLAMA_8B), "--max-model-len auto", gpu="L4", version="0.32.0").predict()
    assert p.verdict == "starts"


def test_a_model_s_name_alone_is_answered_with_the_launch_that_starts(model, capsys):
    """`vllm serve` of an 8B model with its 131,072 tokens does not start on an L4; asked by name, it gets what does."""
    asked = ["plan", "--gpu", "L4", "--vllm-version", "0.19.0", "--model-config", model(LLAMA_8B)]
    assert run([*asked, "--", "vllm", "serve", "org/chat"]) == 1
    assert capsys.readouterr().out.startswith("vLLM 0.19.0 on NVIDIA L4: does not start: ")
    assert run([*asked, "org/chat"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("vLLM 0.19.0 on NVIDIA L4: starts\n  run      vllm serve org/chat ")
    assert "note: vllm serve org/chat alone does not start: the KV cache cannot hold one request\n" in said
