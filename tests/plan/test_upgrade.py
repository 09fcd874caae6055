"""`plan --upgrade FROM:TO`: one launch with two releases."""

import json

import pytest

from tests.plan.models import GPT_OSS_20B, LLAMA_8B
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.knowledge.versions import newest_known


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def asked(releases, *flags, config=LLAMA_8B, gpu="H100"):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        card = ("--gpu", gpu, "--model-config", str(file), *(f for f in flags if f.startswith("--format")))
        launch = [f for f in flags if not f.startswith("--format")]
        code = run(
            ["plan", "--upgrade", releases, *card, "--", "vllm", "serve", "m", "--max-model-len", "8192", *launch]
        )
        said = capsys.readouterr()
        return code, said.out or said.err

    return asked


def test_each_term_stands_with_both_releases_and_the_pool_comes_first(ask):
    code, told = ask("0.28.0:0.33.0")
    assert code == Exit.OK
    assert told.splitlines()[0] == (
        "vLLM 0.28.0 → 0.33.0: the KV cache goes from 56.22 to 54.54 GiB; with both it starts"
    )
    lines = {line[2:20].strip(): line[20:].split() for line in told.splitlines() if line.startswith("  ")}
    assert lines["graphs, charged"] == ["0.00", "0.85", "+0.85"]
    assert lines["activation"] == ["0.99", "1.82", "+0.84"]
    assert lines["KV cache"] == ["56.22", "54.54", "-1.68"]


def test_the_reasons_are_what_the_two_do_differently(ask):
    _, told = ask("0.28.0:0.33.0")
    assert "the second runner's graph estimate is charged" in told
    assert "[v1/worker/gpu/model_runner.py profile_cudagraph_memory]" in told
    assert "caches prefixes" not in told
    _, back = ask("0.33.0:0.28.0")
    assert "no longer: the second runner's graph estimate is charged" in back


def test_only_what_changes_this_launch_is_told(ask):
    _, told = ask("0.28.0:0.33.0")
    different = told.partition("differences")[2]
    assert len(different.strip().splitlines()) == 4  # the heading's end, the estimate, the blocks, the warm-up
    assert not any(word in different for word in ("GLM", "Gemma", "Mamba", "GPTQ", "connector"))


def test_what_the_later_release_refuses_ends_it(ask):
    code, told = ask("0.27.1:0.33.0", "--quantization", "bitsandbytes")
    assert code == Exit.FINDINGS
    assert "the later release refuses the launch" in told.splitlines()[0]
    assert "0.27.1 is the last that had it" in told
    assert ask("0.19.0:0.33.0", gpu="V100 32GB")[0] == Exit.FINDINGS


def test_a_release_with_which_the_first_full_step_fails_is_a_finding(ask):
    pool = ("--kv-cache-memory-bytes", "6G", "--max-num-batched-tokens", "16384", "--max-num-seqs", "16")
    config = {**LLAMA_8B, "vocab_size": 32000}
    code, told = ask("0.18.1:0.19.0", *pool, "--enforce-eager", config=config, gpu="L4")
    assert told.splitlines()[0].endswith("; with both it starts, and its first full step runs out of memory")
    assert code == Exit.FINDINGS


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (40000, "with both it starts"),
        (54500, "with 0.27.1 it starts, with 0.33.0 it does not start"),
        (64000, "with both it does not start"),
    ],
)
def test_the_first_line_says_with_which_release_it_starts(ask, length, said):
    """110 layers: a pool of 24.54 GiB becomes one of 21.91."""
    deep = {**LLAMA_8B, "num_hidden_layers": 110}
    _, told = ask("0.27.1:0.33.0", "--max-model-len", str(length), config=deep)
    assert told.splitlines()[0].endswith(f"; {said}")


def test_the_json_has_both_plans(ask):
    code, told = ask("0.12.0:0.20.0", "--format=json", config=GPT_OSS_20B)
    found = json.loads(told)["upgrade"]
    assert code == Exit.OK
    assert [found[end]["version"] for end in ("from", "to")] == ["0.12.0", "0.20.0"]
    assert found["from"]["predicted"]["cudagraph_budget_gib"] == 0
    assert found["to"]["predicted"]["cudagraph_budget_gib"] > 0
    assert {
        "what": "graph memory is estimated and charged by default",
        "source": "envs.py VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    } in found["different"]


@pytest.mark.parametrize("releases", ["0.28.0", "0.28.0:", ":0.33.0", "a:b", "0.28.0-0.33.0", "0.28.0:0.33.0:1"])
def test_what_are_no_two_releases_is_refused_in_a_sentence(ask, releases):
    code, told = ask(releases)
    assert code == Exit.USAGE
    assert "needed: two releases with a colon" in told


def test_a_release_that_nobody_has_read_is_not_compared(ask):
    code, told = ask("0.28.0:99.99.99")
    assert code == Exit.USAGE
    assert f"needed: releases up to {newest_known()}, the newest that was read" in told


def test_a_pool_that_is_less_than_nothing_is_told_as_what_is_missing(ask):
    code, told = ask("0.28.0:0.33.0", gpu="RTX 5060 Ti 16GB")
    assert code == Exit.FINDINGS
    assert "for its KV cache the GPU lacks" in told.splitlines()[0]
    assert "-" not in told.splitlines()[0]


@pytest.mark.parametrize("twice", ["0.33.0:0.33.0", "0.33:0.33.0"])
def test_one_release_twice_is_no_upgrade(ask, twice):
    code, told = ask(twice)
    assert code == Exit.USAGE
    assert "one release twice; needed: two releases" in told


@pytest.mark.parametrize("beside", [("--context", "8192"), ("--concurrency", "4")])
def test_a_workload_is_not_left_out_silently(capsys, beside):
    assert (
        run(["plan", "--upgrade", "0.28.0:0.33.0", "--gpu", "H100", *beside, "--", "vllm", "serve", "m"]) == Exit.USAGE
    )
    assert f"--upgrade: found {beside[0]} beside it" in capsys.readouterr().err
