"""`plan --speed`: a package of aiconfigurator's name in an environment of its own answers as the real one does.

The real one (0.12.0) was asked by hand; docs/measurements/plan.md has what it said.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import vllm_doctor
from tests.plan.models import LLAMA_8B
from tests.plan.test_experts import MOE
from tests.plan.test_plan import model, run
from vllm_doctor.cli.exit_codes import Exit

__all__ = ["model"]

REPO = Path(vllm_doctor.__file__).parents[1]
# Its cli_estimate, as far as it is asked here: what it was given is written down, and a rate follows from it.
PACKAGE = """
import json, os, pathlib

class Result:
    def __init__(self, asked):
        self.ttft, self.tpot, self.backend_version = 400.0, 25.0, "0.24.0"
        requests = asked["batch_size"] * asked["attention_dp_size"]
        self.raw = {"tokens/s": requests * 40.0, "seq/s": requests * 40.0 / asked["osl"], "concurrency": requests}

def cli_estimate(folder, **asked):
    print("a library prints")
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    pathlib.Path(r"ASKED").write_text(json.dumps({"config": config, "asked": asked, "cwd": os.getcwd()}))
    if config.get("quantization_config"):
        raise ValueError("Unsupported quant algorithm: awq. It knows others at /somewhere")
    if config["vocab_size"] == 7:
        result = Result(asked)
        result.ttft = 0.0
        return result
    if config["vocab_size"] == 8:
        os._exit(0)
    if config["vocab_size"] == 9:
        os.abort()
    return Result(asked)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """An interpreter that has the doctor, what it needs, and the package; asked.json lies beside it."""
    home = tmp_path_factory.mktemp("speed")
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    needed = [str(REPO), *(p for p in sys.path if p.endswith("site-packages"))]
    (packages / "here.pth").write_text("\n".join(needed) + "\n", encoding="utf-8")
    (packages / "aiconfigurator-0.12.0.dist-info").mkdir()
    (packages / "aiconfigurator-0.12.0.dist-info" / "METADATA").write_text("Name: aiconfigurator\nVersion: 0.12.0\n")
    (packages / "aiconfigurator" / "cli").mkdir(parents=True)
    for name in ("aiconfigurator/__init__.py", "aiconfigurator/cli/__init__.py"):
        (packages / name).touch()
    written = PACKAGE.replace("ASKED", str(home / "asked.json"))
    (packages / "aiconfigurator" / "cli" / "api.py").write_text(written, encoding="utf-8")
    shutil.copy(REPO / "bin" / "vllm-doctor", home / "bin")
    return home / "bin" / "python"


@pytest.fixture
def ask(python, model):
    """Ask the command of that interpreter; (exit code, what it said, what the package was asked)."""

    def asked(*options, launch=("vllm", "serve", "m"), config=LLAMA_8B, gpu="H100"):
        words = ["plan", "--vllm-version", "0.33.0", "--gpu", gpu, "--model-config", model(config)]
        seen = python.parents[1] / "asked.json"
        seen.unlink(missing_ok=True)
        done = subprocess.run(
            [python.with_name("vllm-doctor"), *words, *options, "--", *launch],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )
        given = json.loads(seen.read_text()) if seen.exists() else None
        return done.returncode, done.stdout + done.stderr, given

    return asked


def lines(told):
    """The lines of the estimate."""
    told = told.splitlines()
    start = next(n for n, line in enumerate(told) if line.startswith("  speed"))
    return [
        told[start],
        *(
            x
            for x in told[start + 1 : start + 5]
            if re.match(r" {11}(first|needed|NVIDIA|without|[0-9.]+ for a million)", x)
        ),
    ]


def test_the_estimate_stands_below_the_launch_and_says_whose_it_is(ask):
    code, told, given = ask("--speed", "4000:500", "--concurrency", "16")
    assert code == Exit.OK
    assert lines(told) == [
        "  speed    16 requests at once of 4,000 tokens in and 500 out:",
        "           first token after 0.40 s, then 40 tokens/s each; 640 tokens/s in all, 1.28 requests/s",
        "           NVIDIA's aiconfigurator 0.12.0 estimates it from steps of vLLM 0.24.0; not measured here",
    ]
    assert given["config"] == LLAMA_8B
    assert given["cwd"] == "/", "nothing of the current folder is imported"
    assert given["asked"] == {
        "system_name": "h100_sxm",
        "backend_name": "vllm",
        "isl": 4000,
        "osl": 500,
        "batch_size": 16,
        "ctx_tokens": 4000,
        "tp_size": 1,
        "pp_size": 1,
        "attention_dp_size": 1,
    }


def test_requests_at_once_are_what_the_planned_cache_holds(ask):
    _, told, given = ask("--speed", "60000:5536")
    assert "  holds    3.4 requests of 131072 tokens" in told
    assert given["asked"]["batch_size"] == 6
    assert given["asked"]["ctx_tokens"] == 16384, "a step takes no more of a prompt"


@pytest.mark.parametrize(
    ("launch", "given"),
    [
        ("-tp 2", {"tp_size": 2, "attention_dp_size": 1, "moe_tp_size": 2, "moe_ep_size": 1}),
        ("-dp 2", {"tp_size": 1, "attention_dp_size": 2, "moe_tp_size": 2, "moe_ep_size": 1}),
        ("-dp 2 --enable-expert-parallel", {"attention_dp_size": 2, "moe_tp_size": 1, "moe_ep_size": 2}),
        ("-tp 2 --kv-cache-dtype fp8", {"kvcache_quant_mode": "fp8"}),
        ("-tp 2 --quantization fp8", {"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8"}),
    ],
)
def test_the_launch_is_told_in_the_tools_words(ask, launch, given):
    _, _, found = ask("--speed", "1000:100", "--gpus", "2", launch=("vllm", "serve", "m", *launch.split()), config=MOE)
    assert {key: found["asked"].get(key) for key in given} == given


def test_a_price_of_the_card_prices_answers(ask, tmp_path):
    """Two cards at 2.5 an hour and 640 tokens a second: 5 / (640 x 3600) x 10^6."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("H100: 2.5\n")
    asked = ("--speed", "4000:500", "--concurrency", "16", "--gpus", "2", "--prices", str(prices))
    tp = ("vllm", "serve", "m", "-tp", "2")
    _, told, _ = ask(*asked, launch=tp)
    assert "           2.17 for a million tokens of answers, if it is always this busy" in lines(told)
    _, told, _ = ask(*asked, "--format", "json", launch=tp)
    assert json.loads(told)["speed"] == {
        "estimate": {
            "prompt_tokens": 4000,
            "answer_tokens": 500,
            "requests_at_once": 16,
            "time_to_first_token_ms": 400.0,
            "time_per_output_token_ms": 25.0,
            "output_tokens_per_second": 640.0,
            "requests_per_second": 1.28,
            "price_per_million_output_tokens": 2.1701,
        },
        "by": "aiconfigurator 0.12.0",
        "measured_with_vllm": "0.24.0",
        "left_out": [],
    }
    code, told, _ = ask(*asked, gpu="L40S", launch=tp)
    assert code == Exit.USAGE
    assert "holds no price of NVIDIA L40S; needed: one" in told


DRAFTS = '{"method": "ngram", "num_speculative_tokens": 3}'


def test_what_the_tool_does_not_model_is_said(ask):
    launch = ("vllm", "serve", "m", "--speculative-config", DRAFTS, "--enable-lora")
    _, told, _ = ask("--speed", "1000:100", launch=launch)
    without = "           without speculative decoding and LoRA adapters, which it does not model"
    assert without in lines(told)


@pytest.mark.parametrize(
    ("change", "launch", "gpu", "why"),
    [
        ({}, "", "RTX 4090", "aiconfigurator has no measurements of NVIDIA GeForce RTX 4090"),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}},
            "",
            "H100",
            "aiconfigurator 0.12.0 refuses: Unsupported quant algorithm: awq",
        ),
        ({"vocab_size": 7}, "", "H100", "aiconfigurator 0.12.0 answers no times"),
        ({"vocab_size": 8}, "", "H100", "aiconfigurator 0.12.0 answers in a form that is not known here"),
        ({"vocab_size": 9}, "", "H100", "aiconfigurator 0.12.0 was ended by signal 6"),
        ({}, "--quantization bitsandbytes", "L40S", "aiconfigurator does not model --quantization bitsandbytes"),
        ({}, "--cpu-offload-gb 4", "H100", "aiconfigurator does not model weights in memory of the host"),
        ({"num_hidden_layers": 200}, "", "L4", "the launch does not start"),
    ],
)
def test_where_there_is_no_estimate_the_plan_stands_and_says_why(ask, change, launch, gpu, why):
    version = ("--vllm-version", "0.25.0") if "bitsandbytes" in launch else ()
    _, told, _ = ask(
        "--speed",
        "1000:100",
        *version,
        config={**LLAMA_8B, **change},
        gpu=gpu,
        launch=("vllm", "serve", "m", *launch.split()),
    )
    assert lines(told)[0] == f"  speed    no estimate: {why}"
    assert told.startswith("vLLM 0.")


def test_without_the_package_the_plan_says_what_to_install(model, capsys):
    asked = ["plan", "--vllm-version", "0.33.0", "--gpu", "H100", "--model-config", model(LLAMA_8B), "--speed", "9:9"]
    assert run([*asked, "--", "vllm", "serve", "m"]) == Exit.OK
    assert lines(capsys.readouterr().out) == [
        "  speed    no estimate: aiconfigurator, which estimates it, is not installed",
        "           needed: pip install 'aiconfigurator==0.12.*' in the doctor's environment (0.8 GB)",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--speed", "fast"], "--speed: found 'fast'; needed: tokens of the mean prompt"),
        (["--speed", "4000"], "--speed: found '4000'"),
        (["--speed", "0:500"], "--speed: found '0:500'"),
        (["--speed", "4000:1"], "--speed: found '4000:1'"),
        (["--speed", "999999999:2"], "--speed: found '999999999:2'"),
        (["--speed", "131000:100"], "131000 and 100 tokens are 131100; needed: at most 131072"),
        (["--speed", "9:9", "--upgrade", "0.28:0.33"], "--speed: found --upgrade beside it"),
        (["--speed", "9:9", "--sweep", "gpus"], "--speed: found --sweep beside it"),
        (["--speed", "9:9", "--goal", "context=8k"], "--goal: found --speed beside it"),
        (["--speed", "9:9", "--available-kv-gib", "3"], "--speed: found --available-kv-gib beside it"),
    ],
)
def test_a_question_that_is_none_is_refused(model, capsys, options, said):
    asked = ["plan", "--vllm-version", "0.33.0", "--gpu", "H100", "--model-config", model(LLAMA_8B), *options]
    assert run([*asked, "--", "vllm", "serve", "m"]) == Exit.USAGE
    assert said in capsys.readouterr().err
