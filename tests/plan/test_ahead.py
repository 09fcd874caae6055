"""Steps ahead, several at once, and in chunks: each option beside a launch or a release that is taken."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import of_the_launch as flags

GUESSED = '--speculative-config {"method":"ngram","num_speculative_tokens":3}'
HEADS = '--speculative-config {"method":"eagle3","model":"x","num_speculative_tokens":3}'
SMALL = '--speculative-config {"method":"draft_model","model":"x","num_speculative_tokens":3}'
OLD = "--speculative-model [ngram] --num-speculative-tokens 3 --ngram-prompt-lookup-max 4"
RAY = "--async-scheduling -tp 2 --distributed-executor-backend ray"


@pytest.mark.parametrize(
    ("words", "version", "flag", "taken"),
    [
        ("--async-scheduling -pp 2", "0.10.0", "--async-scheduling", ("--async-scheduling -tp 2", "0.10.0")),
        ("--async-scheduling -pp 2", "0.11.0", "--async-scheduling", ("-pp 2", "0.11.0")),
        ("--async-scheduling -pp 2", "0.14.1", "--async-scheduling", ("--async-scheduling -pp 2", "0.15.0")),
        (f"--async-scheduling {HEADS}", "0.10.2", "--async-scheduling", (f"--async-scheduling {HEADS}", "0.11.1")),
        (f"--async-scheduling {GUESSED}", "0.11.1", "--async-scheduling", (GUESSED, "0.11.1")),
        (f"--async-scheduling {SMALL}", "0.15.1", "--async-scheduling", (f"--async-scheduling {SMALL}", "0.16.0")),
        (
            "--async-scheduling --distributed-executor-backend uni",
            "0.10.2",
            "--distributed-executor-backend",
            ("--async-scheduling --distributed-executor-backend uni", "0.11.0"),
        ),
        (RAY, "0.11.1", "--distributed-executor-backend", (RAY, "0.11.0")),
        (RAY, "0.20.2", "--distributed-executor-backend", (RAY, "0.21.0")),
        (f"--num-scheduler-steps 8 {OLD}", "0.7.3", "--num-scheduler-steps", (OLD, "0.7.3")),
        (f"--num-scheduler-steps 8 {GUESSED}", "0.10.0", "--num-scheduler-steps", (GUESSED, "0.10.0")),
        (
            "--num-scheduler-steps 8 --enable-chunked-prefill",
            "0.6.2",
            "--num-scheduler-steps",
            ("--num-scheduler-steps 8 --enable-chunked-prefill", "0.6.3"),
        ),
        (
            "--num-scheduler-steps 8 --enable-chunked-prefill -pp 2",
            "0.8.5",
            "--num-scheduler-steps",
            ("--num-scheduler-steps 8 -pp 2", "0.8.5"),
        ),
        (
            "--enable-lora --enable-chunked-prefill",
            "0.6.4",
            "--enable-chunked-prefill",
            ("--enable-lora --enable-chunked-prefill", "0.6.6"),
        ),
        (
            f"--enable-chunked-prefill {OLD}",
            "0.6.3",
            "--enable-chunked-prefill",
            (f"--enable-chunked-prefill {OLD}", "0.6.4"),
        ),
        (OLD, "0.6.2", "--use-v2-block-manager", (f"{OLD} --use-v2-block-manager", "0.6.2")),
        (f"-pp 2 {OLD}", "0.6.6", "--pipeline-parallel-size", (f"-tp 2 {OLD}", "0.6.6")),
    ],
)
def test_what_does_not_go_together_is_told(words, version, flag, taken):
    """And nothing else of the launch is; the neighbour is taken."""
    assert flags(LLAMA_8B, words, version) == [flag]
    assert flags(LLAMA_8B, *taken) == []


def test_the_second_ray_launcher_runs_ahead():
    assert flags(LLAMA_8B, RAY, "0.20.2", env={"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "1"}) == []
