"""What the doctor answers of a launch alone that a release refuses, or that means another thing than was meant: stray
words, options that are misspelled, gone or not yet there, values of another form, each in six releases.

A log shows what one release said of one line; here no log was written yet: the doctor reads it as that release would.
"""

import re
from collections.abc import Iterator
from functools import cache

from tests.approved.wordings import told
from vllm_doctor.launch.command import parse_line
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.reading import NOT_GIVEN, Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

_RELEASES = ("0.4.2", "0.6.6", "0.8.5", "0.10.2", "0.15.0", "0.33.0")
_VARIABLE = re.compile("[A-Z_0-9]+=")
_LINES = {
    "words": (
        "acme/other",
        "true false",
        "--enforce-eager true",
        "--enforce-eager=true",
        "'--port 8000'",
        '"--max-num-seqs 8" --port 8000',
        "--served-model-name a b -- c",
        "-tp2",
        "-tp 2 4",
        "—port 8000",
    ),
    "names": (
        "--max-model-length 4096",
        "--max-model 4096",
        "--max_model_len=4096",
        "--gpu-memory-utilisation 0.8",
        "--gpu-memory-util 0.8 --tensor-parallel 2",
        "--no-max-model-len",
        "--no-enable-prefix-caching --enable-chunked-prefil",
        "--chunked-prefill",
    ),
    "gone": (
        "--use-v2-block-manager",
        "--num-lookahead-slots 4",
        "--disable-log-requests",
        "--swap-space 4",
        "--speculative-model org/draft --num-speculative-tokens 4",
        "--worker-use-ray",
        "--guided-decoding-backend outlines",
        "--cuda-graph-sizes 8 16",
    ),
    "later": (
        "--async-scheduling",
        "--attention-backend FLASH_ATTN",
        "--kv-offloading-size 8",
        "--speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 4}'",
        "--enable-expert-parallel --decode-context-parallel-size 2",
    ),
    "values": (
        "--dtype fp99",
        "--max-num-seqs many",
        "--max-num-seqs 0",
        "--max-num-seqs -1",
        "--max-model-len 8k",
        "--max-model-len 8.5K",
        "--max-model-len 0",
        "--max-model-len",
        "--gpu-memory-utilization 0",
        "--gpu-memory-utilization 1",
        "--gpu-memory-utilization 1.01",
        "--gpu-memory-utilization 90",
        "--gpu-memory-utilization 90%",
        "--tensor-parallel-size 0",
        "--tensor-parallel-size 3",
        "--tensor-parallel-size 9",
        "--block-size 7",
        "--kv-cache-dtype fp88",
        "--quantization awq8",
        "--speculative-config '{method: ngram}'",
        "--compilation-config '{\"level\": 9}'",
        "-O9",
        "-O3",
        "--max-num-batched-tokens 64 --max-num-seqs 65",
        "--port 80000",
        "--limit-mm-per-prompt image=2",
        "--limit-mm-per-prompt '{\"image\": 2}'",
    ),
    "variables": (
        "VLLM_USE_V1=0",
        "VLLM_USE_V1=2",
        "VLLM_ATTENTION_BACKEND=FLASHINFER",
        "VLLM_ATTENTION_BACKEND=FLASH",
        "VLLM_LOGGING_LEVEL=LOUD",
        "VLLM_NO_SUCH_THING=1",
        "CUDA_VISIBLE_DEVICES=0,0 -tp 2",
        "CUDA_VISIBLE_DEVICES=0 -tp 2",
        "CUDA_VISIBLE_DEVICES= -tp 1",
    ),
}  # fmt: skip


@cache
def kinds() -> tuple[str, ...]:
    """What is odd about them."""
    return tuple(_LINES)


def answers(kind: str) -> str:
    """A block a line; releases that answer alike share one."""
    return "\n".join("\n".join(_block(words)) + "\n" for words in _LINES[kind])


def _block(words: str) -> Iterator[str]:
    variables, _, more = words.partition(" ") if _VARIABLE.match(words) else ("", "", words)
    line = f"{variables} vllm serve acme/chat {more}".strip()
    yield line
    by_answer: dict[str, list[str]] = {}
    for release in (*_RELEASES, None):
        by_answer.setdefault(told(_asked(line, release)), []).append(release or "any")
    yield from (f"  {', '.join(alike)}: {answer}" for answer, alike in by_answer.items())


def _asked(line: str, release: str | None) -> Diagnosis:
    given = Snapshot(
        taken_at="",
        launch=Known(parse_line(line), "--launch"),
        version=Known(release, "--vllm-version") if release is not None else NOT_GIVEN,
        gpus=Known(tuple(Gpu(i, "NVIDIA L4", total_bytes=24 * 10**9) for i in range(4)), "--gpu"),
    )
    return diagnose(given, preview=True)
