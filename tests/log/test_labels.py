"""The label of a launcher before each line is taken off, where almost every line has one."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.log.read.labels import unlabelled

SAID = [
    "(Worker_TP3 pid=5120) INFO 03-06 09:10:01 [gpu_model_runner.py:3992] Starting to load model /net/model...",
    "Fatal Python error: Bus error",
    "",
    "Current thread 0x00007f3c14e0b740 (most recent call first):",
    '  File "/opt/vllm/lib/python3.12/site-packages/safetensors/torch.py", line 338 in load_file',
]


@pytest.mark.parametrize("label", ["0: ", "  12: ", "gpu-14: ", "node07.cluster: "])
def test_it_is_taken_off(label: str) -> None:
    text = "\n".join(["srun: job 7 has been allocated resources", *(label + line for line in SAID)])
    assert unlabelled(text).split("\n")[1:] == SAID
    assert [f.code for f in judged_text(text).findings] == ["VD523"]


@pytest.mark.parametrize("label", ["[1,3]<stderr>:", "[default3]:"])
def test_that_of_a_process_of_mpirun_or_torchrun_too(label: str) -> None:
    text = "\n".join(label + line for line in SAID)
    assert [f.code for f in judged_text(text).findings] == ["VD523"]


@pytest.mark.parametrize(
    "text",
    [
        "1: first\n2: second\n3: third",
        "\n".join(["a12: b", *SAID]),
        "\n".join(SAID),
        "x1: INFO 03-06 09:10:01 a\nx1: b",
    ],
    ids=["a list", "one line", "none", "too few"],
)
def test_anything_else_stays_as_it_is(text: str) -> None:
    assert unlabelled(text) == text


def test_a_name_in_brackets_tells_servers_apart() -> None:
    """The other side of a KV transfer has processes of the same names; a later one is no restart of this one."""
    text = (
        "[prefill] (EngineCore_DP0 pid=71) ERROR 03-06 09:10:01 [nixl_connector.py:1] NIXL transfer failed\n"
        "[decode] (Worker_TP0 pid=60) nixl_cu12._bindings.nixlRemoteDisconnectError: NIXL_ERR_REMOTE_DISCONNECT\n"
        "[decode] (EngineCore_DP0 pid=58) ERROR 03-06 09:10:02 [core.py:1] EngineCore encountered a fatal error."
    )
    assert unlabelled(text).split("\n")[1].startswith("decode | (Worker_TP0 pid=60) ")
    assert [f.title for f in judged_text(text).findings] == ["The other side of the KV transfer went away"]


@pytest.mark.parametrize("level", ["INFO", "error", "Warning"])
def test_a_level_in_brackets_is_no_name(level: str) -> None:
    text = "\n".join(f"[{level}] {line}" for line in SAID)
    assert unlabelled(text) == text
