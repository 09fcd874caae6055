"""Options within sentences are evidence where they have one value, and where nobody only advises them."""

import pytest

from vllm_doctor.launch.prose import told_options


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("with --enable-lora --max-loras 4 it dies:", {"enable-lora": True, "max-loras": "4"}),
        ("rollout failed, gpu_memory_utilization=0.6 tp", {"gpu-memory-utilization": "0.6"}),
        ("开启 --max-lora-rank 512 后启动就爆显存", {"max-lora-rank": "512"}),
        ("(2 cards, --gpu-memory-utilization 0.95, fp16)", {"gpu-memory-utilization": "0.95"}),
        ("""after --speculative-config '{"model": "a/b"}' (x)""", {"speculative-config": '{"model": "a/b"}'}),
        ("--max-num-seqs 8 fails, --max-num-seqs 4 fails", {}),
        ("two of them, --gpu-memory-utilization 0.6, 0.3, and the second dies", {}),
        ("gpu_memory_utilization=0.9/0.8 fail alike", {}),
        ("--gpu-memory-utilization 0.9, 2 cards", {"gpu-memory-utilization": "0.9"}),
        ("OOM. python -m vllm --model an-owner/a-13b-chat.", {"model": "an-owner/a-13b-chat"}),
        ("please try --max-num-seqs 8", {}),
        ("you could lower --max-num-seqs 8", {}),
        ("Consider reducing tensor_parallel_size or running with --quantization gptq.", {}),
        ("You can use float16 instead by explicitly setting the `dtype` flag in CLI, for example: --dtype=half.", {}),
        ("LoRA is not enabled. Use --enable-lora to enable LoRA.", {}),
        ("To bypass, set `--allow-deprecated-quantization`.", {}),
        ("I set --max-num-seqs 8 and it still fails", {"max-num-seqs": "8"}),
        ("error: unrecognized arguments: --max-num-seqs 8", {}),
        (
            "gpu_memory_utilization is 0.85 and max_num_seqs 64",
            {"gpu-memory-utilization": "0.85", "max-num-seqs": "64"},
        ),
        ("gpu-memory-utilization 0.98, TP2", {"gpu-memory-utilization": "0.98", "tensor-parallel-size": "2"}),
        (
            "tp=4, util 0.92, pp is 2",
            {"tensor-parallel-size": "4", "gpu-memory-utilization": "0.92", "pipeline-parallel-size": "2"},
        ),
        ("Try increasing `gpu_memory_utilization`. --max-num-seqs 8 is set", {"max-num-seqs": "8"}),
        ("max_num_seqs (1024) exceeds available blocks", {}),
        ("(VllmWorker TP1 pid=302) ERROR 09-10 10:41:37 failed", {}),
        ("the flag --no-such-option-here 3 and some_word = 4", {}),
    ],
)
def test_options_of_a_sentence(text: str, flags: dict[str, str | bool]) -> None:
    assert told_options([text]).flags == flags


def test_a_variable_is_of_the_environment() -> None:
    assert told_options(["cpu build, VLLM_CPU_KVCACHE_SPACE=40 on 64 GB"]).env == {"VLLM_CPU_KVCACHE_SPACE": "40"}


@pytest.mark.parametrize(
    "text",
    [
        "Object of this type is not serializable. Set VLLM_ALLOW_INSECURE_SERIALIZATION=1 to allow fallback",
        "please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging",
        "The model runner cannot do this. Unset VLLM_USE_V2_MODEL_RUNNER=0.",
    ],
)
def test_a_variable_that_a_message_asks_for_is_not_set(text: str) -> None:
    assert told_options([text]).env == {}
