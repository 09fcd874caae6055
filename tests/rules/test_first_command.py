"""What is typed first for a change whose own line says no value: by what is known of model, card, release and place."""

import pytest

from tests.scenarios.loading import diagnosis
from vllm_doctor.records.finding import Change
from vllm_doctor.render.instructions import deed


def offered(scenario: str, name: str) -> Change:
    found = [c for f in diagnosis(scenario).findings for c in f.changes if c.name == name]
    return found[0]


@pytest.mark.parametrize(
    ("scenario", "name", "command"),
    [
        (
            "vd602-driver-word-fires",
            "model",
            (
                "curl -s 'https://huggingface.co/api/models?filter=base_model:quantized:example/model-8b"
                '&sort=downloads&limit=9\' | grep -o \'"modelId":"[^"]*"\'   # its quantized checkpoints'
            ),
        ),
        (
            "vd105-charged-by-0.6.4-near-miss",
            "model",
            (
                "vllm-doctor plan ORG/MODEL --gpu-memory-gib 39.38 --vllm-version 0.6.4   "
                "# does the one that you choose fit?"
            ),
        ),
        ("vd503-ray-gpus-fires", "tensor-parallel-size", "ray status"),
        (
            "vd503-no-json-fires",
            "compilation-config",
            (
                """vllm serve … --compilation-config '{"cudagraph_mode": "PIECEWISE"}'   """
                "# the form; the values are yours"
            ),
        ),
        (
            "vd527-tools-of-a-request-fires",
            "tool-call-parser",
            "vllm serve --help=tool-call-parser",
        ),
        ("vd003-host-fires", "host-ram", "docker stats --no-stream; free -g"),
        ("vd604-compiler-killed-fires", "host-ram", "free -g; ps -eo rss,pid,comm --sort=-rss | head"),
        (
            "vd110-full-with-graphs-near-miss",
            "max-num-batched-tokens",
            "cat WHOLE-LOG | grep -o -m1 'max_num_batched_tokens=[0-9]*'   # what it is now",
        ),
        (
            "vd907-launch-fires",
            "vllm_api_key",
            "openssl rand -hex 32   # a key; give it as VLLM_API_KEY in the server's environment",
        ),
        (
            "vd316-one-has-a-queue-fires",
            "load-balancer",
            "vllm-doctor diagnose http://p:9090   # all replicas side by side",
        ),
        (
            "vd514-a-module-of-a-users-own-code-fires",
            "foreign-module",
            "grep -rn acme_layers /srv/models/example --include=*.md --include=*.txt --include=*.py",
        ),
    ],
)
def test_a_decision_has_the_command_that_shows_what_it_needs(scenario: str, name: str, command: str) -> None:
    assert offered(scenario, name).command == command


def test_a_value_that_is_not_known_is_offered_as_the_default_moved() -> None:
    change = offered("vd110-full-with-graphs-near-miss", "gpu-memory-utilization")

    assert (change.after, change.by, change.unset) == (None, 0.02, 0.88), "0.9 is the lowest default of any release"
    assert deed(change) == "--gpu-memory-utilization 0.88"
