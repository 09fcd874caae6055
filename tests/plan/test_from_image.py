"""What a `docker run` tells of a start: vLLM's image has FlashInfer, and a container without a volume keeps no code."""

import shlex

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.knowledge.images import is_for_cuda
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.question.ask import KnownStart, foresee

A100, GB10, GH200 = ("NVIDIA A100-SXM4-80GB", 79.25), ("NVIDIA GB10", 119.7), ("NVIDIA GH200 480GB", 94.5)
PLAIN = "vllm serve m"


def run(options="", image="vllm/vllm-openai:v0.28.0"):
    return f"docker run --gpus all {options} {image} --model m"


def planned(line, version, card=A100):
    words = (*shlex.split(line), "--max-model-len", "8192", "--max-num-batched-tokens", "2048")
    told = foresee(KnownStart(words, version, LLAMA_8B, *card))
    assert told is not None
    return told.now


@pytest.mark.parametrize(
    ("options", "forgets"),
    [
        ("", True),
        ("--rm -e HF_TOKEN=x", True),
        ("-v ~/.cache/huggingface:/root/.cache/huggingface", True),
        ("-v /data:/root/.cache/vllm:rw", False),
        ("-v /data:/root/.cache", False),
        ("--volume=/data:/root/", False),
        ("-v /data:/root/.cache/vllm/torch_compile_cache", False),
        ("--mount type=bind,source=/data,target=/root/.cache/vllm", False),
        ("--mount type=bind,source=/data,dst=/models,readonly", True),
        ("-v /root/.cache/vllm", False),
        ("-e VLLM_CACHE_ROOT=/cache -v /data:/cache", False),
        ("-e VLLM_CACHE_ROOT=/cache -v /data:/root/.cache", True),
        ("-e XDG_CACHE_HOME=/cache -v /data:/cache/vllm", False),
        ("-e HOME=/home/me -v /data:/home/me", False),
        ("-v $PWD:$HOME/.cache", False),
        ("-e VLLM_CACHE_ROOT=$CACHE", False),
        ("--restart unless-stopped", False),
        ("--restart=no", True),
        ("-u 1000", False),
        ("--env-file .env", False),
    ],
)
def test_a_container_keeps_what_was_compiled_where_a_volume_holds_it_or_it_is_started_again(options, forgets):
    assert parse_launch(shlex.split(run(options)), as_version("0.28.0")).forgets is forgets


def test_no_other_line_tells_of_its_cache():
    line = parse_launch(shlex.split(PLAIN), as_version("0.28.0"))
    assert (line.image, line.forgets) == ("", False)


def test_each_start_of_such_a_container_compiles():
    always = planned(f"VLLM_DISABLE_COMPILE_CACHE=1 {PLAIN}", "0.28.0")
    assert planned(run(), "0.28.0").margin_gib == always.margin_gib
    assert planned(run("-v /data:/root/.cache"), "0.28.0").margin_gib == planned(PLAIN, "0.28.0").margin_gib


def test_an_image_of_another_name_may_hold_compiled_code():
    assert planned(run(image="acme/vllm:v0.28.0"), "0.28.0").margin_gib == planned(PLAIN, "0.28.0").margin_gib


@pytest.mark.parametrize(
    ("image", "ours"),
    [
        ("vllm/vllm-openai", True),
        ("vllm/vllm-openai:latest", True),
        ("docker.io/vllm/vllm-openai:v0.10.2", True),
        ("vllm/vllm-openai:v0.10.2@sha256:00", True),
        ("vllm/vllm-openai:v0.10.2-aarch64", False),
        ("vllm/vllm-openai-rocm:v0.10.2", False),
        ("acme/vllm-openai:v0.10.2", False),
        ("", False),
    ],
)
def test_which_image_is_for_nvidias_cards_on_x86(image, ours):
    assert is_for_cuda(image) is ours


def test_vllms_image_samples_with_flashinfer():
    """docker/Dockerfile of 0.7 to 0.11.0 installs it (0.2.1.post1 to 0.3.1)."""
    there, asked = planned(run(), "0.10.1"), planned(f"VLLM_USE_FLASHINFER_SAMPLER=1 {PLAIN}", "0.10.1")
    assert there.activation_gib == pytest.approx(asked.activation_gib)
    low, high = there.margin_gib
    assert high - low < 0.4 < asked.margin_gib[1] - asked.margin_gib[0]


@pytest.mark.parametrize(
    ("line", "version", "card"),
    [
        (run("-e VLLM_USE_FLASHINFER_SAMPLER=0"), "0.10.1", A100),
        (run(image="acme/vllm:v0.10.1"), "0.10.1", A100),
        (run(), "0.10.1", GB10),
        (run(), "0.10.1", GH200),
        (run(), "0.12.0", A100),
    ],
    ids=["declined", "another image", "on Arm", "beside Arm", "a release that does not"],
)
def test_elsewhere_it_is_sampled_as_without_an_image(line, version, card):
    declined = "VLLM_USE_FLASHINFER_SAMPLER=0 " if "SAMPLER" in line else ""
    other = planned(f"{declined}{PLAIN}", version, card)
    assert planned(line, version, card).activation_gib == pytest.approx(other.activation_gib)
