"""What stands before nearly every line of a log, whoever set it there, is taken off; nothing else is."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.log.read.envelope import without_envelope
from vllm_doctor.records.verdict import Verdict

SAID = [
    "(Worker_TP3 pid=5120) INFO 03-06 09:10:01 [gpu_model_runner.py:3992] Starting to load model /net/model...",
    "Fatal Python error: Bus error",
    "",
    "Current thread 0x00007f3c14e0b740 (most recent call first):",
    '  File "/opt/vllm/lib/python3.12/site-packages/safetensors/torch.py", line 338 in load_file',
]
# A start whose front end fails without a head of vLLM's: all that tells of it is Python's.
FAILS = [
    "INFO 03-06 09:10:01 [api_server.py:1043] vLLM API server version 0.9.1",
    "INFO 03-06 09:10:02 [utils.py:233] non-default args: {'model': 'example/model-8b', 'chat_template': 'tool_use'}",
    "Traceback (most recent call last):",
    '  File "/opt/v/lib/python3.12/site-packages/vllm/entrypoints/chat_utils.py", line 985, in load_chat_template',
    "    raise ValueError(msg) from e",
    "ValueError: The supplied chat template string (tool_use) appears path-like, but doesn't exist!",
]
SERVES = [
    "INFO 03-06 09:10:01 [api_server.py:1043] vLLM API server version 0.9.1",
    "INFO 03-06 09:10:40 [core.py:171] init engine (profile, create kv cache, warmup model) took 31.10 seconds",
    "INFO:     Application startup complete.",
    'INFO:     10.0.0.7:40112 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "/opt/v/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: 1 leaked object",
    "  warnings.warn('resource_tracker: There appear to be %d '",
]


def _of(text: str) -> list[str]:
    return without_envelope(text.split("\n"))[0]


@pytest.mark.parametrize("label", ["0: ", "  12: ", "gpu-14: ", "node07.cluster: ", "[node017] 3: "])
def test_a_launchers_label_is_taken_off(label: str) -> None:
    text = "\n".join(["srun: job 7 has been allocated resources", *(label + line for line in SAID)])
    assert _of(text)[1:] == SAID
    assert [f.code for f in judged_text(text).findings] == ["VD523"]


@pytest.mark.parametrize("label", ["[1,3]<stderr>:", "[default3]:"])
def test_that_of_a_process_of_mpirun_or_torchrun_too(label: str) -> None:
    text = "\n".join(label + line for line in SAID)
    assert [f.code for f in judged_text(text).findings] == ["VD523"]


ENVELOPES = [
    ("Mar 06  09:10:{i:02d}.118 | ", ""),
    ("\u0430\u0432\u0433 06 09:10:{i:02d} llm python3[28059]: ", ""),
    ("<14>1 2026-03-06T09:10:{i:02d}.118204Z node-7 vllm 4120 - - ", ""),
    ("2026-03-06T09:10:{i:02d}+0000 [INFO] [entry_service:vllm:1] ", ""),
    ("(head, rank=0, pid=3127) ", ""),
    ('ts=2026-03-06T09:10:{i:02d}Z level=info container=vllm msg="', '"'),
    ('[0] kube.vllm: [[1772788200.118, {{}}], {{"stream"=>"stderr", "log"=>"', '"}}]'),
    ('        "', '",'),
    ("0|vllm     | ", ""),
    ("  {i}\t", ""),
    ("INFO: ", ""),
]


@pytest.mark.parametrize(("before", "after"), ENVELOPES)
@pytest.mark.parametrize("lines", [FAILS, SERVES], ids=["fails", "serves"])
def test_a_form_that_nobody_listed_is_too(before: str, after: str, lines: list[str]) -> None:
    quoted = (line.replace('"', '\\"') if after else line for line in lines)
    text = "\n".join(before.format(i=i) + line + after.format() for i, line in enumerate(quoted, 1))
    assert [found.endswith(line) for found, line in zip(_of(text), lines, strict=True)] == [True] * len(lines)
    told = judged_text(text)
    expected = (Verdict.FINDING, ["VD503"]) if lines is FAILS else (Verdict.OK, [])
    assert (told.verdict, [f.code for f in told.findings]) == expected


@pytest.mark.parametrize(
    "names",
    [
        ("vllm-7d9c6b5f4-x2x7q vllm ", "vllm-7d9c6b5f4-k8s2p vllm "),
        ("llm_vllm.1.q8dk2j@node1    | ", "llm_vllm.2.z7k1m9@node2    | "),
        ('2026-03-06T09:10:01Z {app="vllm", pod="vllm-0"} ', '2026-03-06T09:10:01Z {app="vllm", pod="vllm-1"} '),
    ],
    ids=["stern", "swarm", "logcli"],
)
def test_two_replicas_stay_two_servers(names: tuple[str, str]) -> None:
    both = zip((*FAILS,), (*SERVES,), strict=True)
    text = "\n".join(f"{names[0]}{failed}\n{names[1]}{served}" for failed, served in both)
    told = judged_text(text)
    assert [f.code for f in told.findings] == ["VD503"]
    assert [other.verdict for other in told.others] == [Verdict.OK]


@pytest.mark.parametrize(
    "text",
    [
        "1: first\n2: second\n3: third",
        "\n".join(["a12: b", *SAID]),
        "\n".join(SAID),
        "x1: INFO 03-06 09:10:01 a\nx1: b",
        "\n".join(f"  | {line}" for line in ("Traceback (most recent call last):", *FAILS[3:])),
        "\n".join([*FAILS, f"proxy-7: {FAILS[0]}"]),
    ],
    ids=["a list", "one line", "none", "too few", "a drawing", "a quotation"],
)
def test_anything_else_stays_as_it_is(text: str) -> None:
    assert _of(text) == text.split("\n")


def test_a_name_in_brackets_tells_servers_apart() -> None:
    """The other side of a KV transfer has processes of the same names; a later one is no restart of this one."""
    text = (
        "[prefill] (EngineCore_DP0 pid=71) ERROR 03-06 09:10:01 [nixl_connector.py:1] NIXL transfer failed\n"
        "[decode] (Worker_TP0 pid=60) nixl_cu12._bindings.nixlRemoteDisconnectError: NIXL_ERR_REMOTE_DISCONNECT\n"
        "[decode] (EngineCore_DP0 pid=58) ERROR 03-06 09:10:02 [core.py:1] EngineCore encountered a fatal error."
    )
    assert _of(text)[1].startswith("(Worker_TP0 pid=60) ")
    assert [f.title for f in judged_text(text).findings] == ["The other side of the KV transfer went away"]


@pytest.mark.parametrize("level", ["INFO", "error", "Warning"])
def test_a_level_in_brackets_is_no_name(level: str) -> None:
    heads = without_envelope([f"[{level}] {line}" for line in SAID])[1]
    assert {head.stream for head in heads.values()} <= {None}
