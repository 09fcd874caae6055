"""What the doctor answers where a log says one sentence of the catalogue, with its sample's figures: three runs of it.

A scenario is written for a rule; here each wording of each message meets all of them: at a start of which nothing else
is known, at one whose launch, release and cards were given, and in a server that answers.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.approved.text import number
from vllm_doctor.launch.command import parse_line
from vllm_doctor.log.match import FOLDER, Message, of_family
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Change, Diagnosis, Finding
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

_PACKAGES = "/opt/v/lib/python3.12/site-packages"
_CALLS = (
    "Traceback (most recent call last):",
    f'  File "{_PACKAGES}/vllm/v1/engine/core.py", line 700, in run_engine_core',
    "    engine_core = EngineCoreProc(*args, **kwargs)",
)
_HANDED_ON = (
    "Traceback (most recent call last):",
    f'  File "{_PACKAGES}/vllm/entrypoints/openai/api_server.py", line 1900, in run_server',
    "    async with build_async_engine_client(args) as engine_client:",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
)
_READY = (
    "INFO 01-02 10:02:00 [gpu_worker.py:298] Available KV cache memory: 20.00 GiB",
    "INFO:     Application startup complete.",
    'INFO:     10.0.0.1:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    (
        "INFO 01-02 10:05:00 [loggers.py:127] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        "throughput: 3.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.0%, "
        "Prefix cache hit rate: 0.0%"
    ),
)
_DEAD = ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",)
_LAUNCH = (
    "vllm serve acme/chat --tensor-parallel-size 4 --max-num-seqs 512 --max-num-batched-tokens 16384 "
    "--max-model-len 32768 --gpu-memory-utilization 0.95 --dtype bfloat16"
)
_NEWEST = "0.33.0"
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout): ")
_RELEASES = re.compile(r"(?:[\d.]+\.\.)?(0\.\d+(?:\.\d+)?)")


@cache
def families() -> tuple[str, ...]:
    """The files of the catalogue with a message that says that something is wrong."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json") if any(_asked(path.stem))))


def answers(family: str) -> str:
    """A block a message, a line for each run of each sample; runs that are answered alike share one."""
    return "\n".join("\n".join(_block(message)) + "\n" for message in _asked(family))


def _asked(family: str) -> Iterator[Message]:
    return (m for m in of_family(family) if m.kind != "benign" and m.scope != "file")


def _block(message: Message) -> Iterator[str]:
    yield f"{message.id}:"
    for at, sample in enumerate(message.samples, 1):
        by_answer: dict[str, list[str]] = {}
        for run in runs(sample.line, sample.versions):
            by_answer.setdefault(run.told, []).append(run.name)
        for text, alike in by_answer.items():
            yield f"  {at}, {', '.join(alike)}: {text}"


class Run(NamedTuple):
    """One run with a line: its name, what is answered, and the codes of what was found."""

    name: str
    told: str
    codes: tuple[str, ...]


@cache
def runs(line: str, versions: str) -> tuple[Run, ...]:
    """Each run with a sample's line. Kept: not only the approved answers ask."""
    return tuple(
        Run(name, told(answer), tuple(f.code for f in answer.findings)) for name, answer in _of(line, versions)
    )


def _of(line: str, versions: str) -> Iterator[tuple[str, Diagnosis]]:
    last = _RELEASES.fullmatch(versions)
    version = last[1] if last is not None else _NEWEST
    begun = (f"INFO 01-02 10:00:00 [api_server.py:1212] vLLM API server version {version}",)
    said = (*(_CALLS if _RAISED.match(line) else ()), *line.split("\n"))
    at_start = Known(log_of_lines((*begun, *said, *_HANDED_ON), "log"), "log")
    serving = Known(log_of_lines((*begun, *_READY, *said, *_DEAD), "log"), "log")
    given = Snapshot(
        taken_at="",
        log=at_start,
        launch=Known(parse_line(_LAUNCH), "--launch"),
        version=Known(version, "--vllm-version"),
        gpus=Known(tuple(Gpu(i, "NVIDIA H100 80GB HBM3", total_bytes=85 * 10**9) for i in range(4)), "--gpu"),
    )
    yield "start", diagnose(Snapshot(taken_at="", log=at_start), preview=True)
    yield "given", diagnose(given, preview=True)
    yield "serving", diagnose(Snapshot(taken_at="", log=serving), preview=True)


def told(answer: Diagnosis) -> str:
    """The verdict, and each finding with its changes and sums."""
    head = f"{answer.verdict} {answer.phase}" if answer.phase else str(answer.verdict)
    return " | ".join((head, *map(_finding, answer.findings)))


def _finding(found: Finding) -> str:
    sums = (f"{a.name} {number(a.value)} {a.unit}" for a in found.arithmetic)
    of = f" of {found.explained_by}" if found.explained_by else ""
    parts = (f"{found.code}{of} {found.confidence}, {found.severity}", found.title, *map(_change, found.changes), *sums)
    return "; ".join(parts)


def _change(change: Change) -> str:
    value = change.after if change.by is None else f"by {number(change.by)}"
    return f"{change.name} {number(change.before)} -> {number(value)}"
