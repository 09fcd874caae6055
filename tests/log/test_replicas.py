"""Several pods or containers of one workload in a text that begins in the middle: each is a server of its own."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.records.verdict import Verdict

STATS = (
    "INFO 05-21 10:11:12 [loggers.py:271] Engine 000: Avg prompt throughput: 81.0 tokens/s, Avg generation throughput: "
    "92.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%"
)
ANSWERS = 'INFO:     10.0.0.7:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
SERVES = (STATS, ANSWERS, ANSWERS, ANSWERS)
FAILS = (
    "ERROR 05-21 10:11:12 [core.py:93] EngineCore encountered a fatal error.",
    "ERROR 05-21 10:11:12 [core.py:93] Traceback (most recent call last):",
    'ERROR 05-21 10:11:12 [core.py:93]   File "/opt/v/site-packages/vllm/v1/engine/core.py", line 701, in step',
    "ERROR 05-21 10:11:12 [core.py:93] RuntimeError: CUDA error: an illegal memory access was encountered",
)


def _together(one: str, other: str) -> str:
    return "\n".join(f"{one}{failed}\n{other}{served}" for failed, served in zip(FAILS, SERVES, strict=True))


@pytest.mark.parametrize(
    ("failing", "serving"),
    [
        ("vllm-1  | ", "vllm-2  | "),
        ("[pod/vllm-7c5d9c9b4f-x2k8p/server] ", "[pod/vllm-7c5d9c9b4f-9pqrs/server] "),
    ],
)
def test_the_one_that_fails_is_told_and_the_other_stands_beside_it(failing: str, serving: str) -> None:
    told = judged_text(_together(failing, serving))
    assert [f.code for f in told.findings] == ["VD705"]
    assert [other.verdict for other in told.others] == [Verdict.OK]


def test_a_proxy_beside_it_is_no_replica() -> None:
    proxy = 'nginx-1  | 10.0.0.9 - - [21/May/2026:10:11:12 +0000] "POST /v1/chat/completions HTTP/1.1" 200 81'
    told = judged_text("\n".join([*(f"vllm-1  | {line}" for line in SERVES), proxy]))
    assert (told.verdict, told.others) == (Verdict.OK, ())
