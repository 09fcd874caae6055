"""The load of GuideLLM (github.com/vllm-project/guidellm), where it is installed; one release line is known here.

Its options and its report change from line to line: 0.8 has `guidellm run` with the whole run in one file, and reports
of version 2. Another line is refused instead of guessed at.
"""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import msgspec

from vllm_doctor.gather import trust
from vllm_doctor.gather.processes import PATH, NotRun, run
from vllm_doctor.operate.tune.bench import ROUNDS, hub
from vllm_doctor.operate.tune.load_generator import LoadResult, LoadStream, LoadTarget
from vllm_doctor.records import excerpt

LINE = "0.8"
NEEDED = f"guidellm {LINE} on the PATH (uv tool install 'guidellm=={LINE}.*')"
REPORT_VERSION = 2
# Its import takes seconds, and tens of them on a busy machine.
_VERSION_S = 60.0


class _Made(msgspec.Struct, frozen=True):
    version: int
    guidellm_version: str


class _Answered(msgspec.Struct, frozen=True):
    """A request that was answered; the time between tokens is the mean of the request's own.

    Tokens without text (special ones, pieces of a character) are not seen coming: then the end is the first that is.
    """

    request_latency: float
    output_tokens: int | None = None
    time_to_first_token_ms: float | None = None
    inter_token_latency_ms: float | None = None

    def stream(self) -> LoadStream:
        """The request as a stream of our own would have met it."""
        first, tokens = self.time_to_first_token_ms, self.output_tokens or 0
        between = ((self.inter_token_latency_ms or 0.0) / 1000,) * (tokens - 1) if first is not None else ()
        return LoadStream(self.request_latency if first is None else first / 1000, between, tokens)


class _Info(msgspec.Struct, frozen=True):
    error: str | None = None


class _Failed(msgspec.Struct, frozen=True):
    info: _Info


class _Requests(msgspec.Struct, frozen=True):
    successful: tuple[_Answered, ...] = ()
    errored: tuple[_Failed, ...] = ()


class _Benchmark(msgspec.Struct, frozen=True):
    duration: float
    requests: _Requests


class _Report(msgspec.Struct, frozen=True):
    """What is read of the JSON report (guidellm/schemas/benchmark)."""

    metadata: _Made
    benchmarks: tuple[_Benchmark, ...]


class Guidellm(msgspec.Struct, frozen=True):
    """The installed program and its version."""

    program: str
    version: str

    @property
    def name(self) -> str:
        """With the version: figures of two lines are not the same."""
        return f"guidellm {self.version}"

    def drive(self, target: LoadTarget, tokenizer: str, at_once: int, limit_s: float) -> LoadResult:
        """Run it once."""
        with tempfile.TemporaryDirectory(prefix="vllm-doctor-tune-") as folder:
            asked, report = Path(folder) / "run.json", Path(folder) / "report.json"
            # The key goes through a file in a folder of our own: a command line is for all to read.
            asked.write_text(json.dumps(scenario(target, tokenizer, at_once, report)), encoding="utf-8")
            words = [self.program, "run", "--config", str(asked), "--disable-console"]
            done = run(words, deadline_s=limit_s, env=hub(tokenizer))
            if isinstance(done, NotRun):
                return LoadResult((), (f"{self.name}: {done.reason}",), limit_s)
            try:
                return loaded(report.read_bytes())
            except (OSError, msgspec.DecodeError) as problem:
                said = f": {(done.err.strip().splitlines() or [''])[-1]}" if done.code else ""
                why = f"{self.name} ended with {done.code} and left no readable report ({problem}){said}"
                return LoadResult((), (excerpt.said(why),), limit_s)


def find() -> Guidellm | str:
    """The program on the PATH, or why there is none to use. The PATH is the caller's own: people install it for
    themselves. But what others could have put there is not run."""
    own = [folder for folder in os.environ.get("PATH", "").split(":") if folder.startswith("/")]
    program = shutil.which("guidellm", path=":".join([PATH, *own]))
    if program is None:
        return "it is not installed"
    if (why := trust.why_not(program)) is not None:
        return f"{program} was not started: {why}"
    told = run([program, "--version"], deadline_s=_VERSION_S)
    if isinstance(told, NotRun):
        return told.reason
    version = re.search(rb"\b\d+(?:\.\d+)+\S*", told.out)
    if version is None:
        return f"{program} --version prints no version"
    found = version[0].decode(errors="replace")
    if not found.startswith(f"{LINE}."):
        return f"found {found}, whose options and report are not known here"
    return Guidellm(program, found)


def scenario(target: LoadTarget, tokenizer: str, at_once: int, report: Path) -> dict[str, object]:
    """The run's file: prompts of made-up text of so many tokens, `at_once` in flight, a few rounds of them."""
    backend = {"target": target.base, "model": target.model, "request_format": "/v1/completions"}
    key = {} if target.key is None else {"api_key": target.key}
    lengths = {"prompt_tokens": target.prompt_tokens, "output_tokens": target.output_tokens}
    spec = {
        "backend": {"kind": "openai_http", **backend, **key},
        "profile": {"kind": "concurrent", "streams": [at_once]},
        "constraints": [{"kind": "max_requests", "count": at_once * ROUNDS}],
        "tokenizer": {"kind": "huggingface_auto", "model": tokenizer},
        "data": [{"kind": "synthetic_text", **lengths}],
        "outputs": [{"kind": "json", "path": str(report)}],
    }
    return {"spec": spec}


def loaded(report: bytes) -> LoadResult:
    """The report as a load. Raises msgspec.DecodeError for one that is of another version or no report."""
    told = msgspec.json.decode(report, type=_Report)
    if told.metadata.version != REPORT_VERSION or len(told.benchmarks) != 1:
        raise msgspec.DecodeError(
            f"a report of version {told.metadata.version} with {len(told.benchmarks)} runs; needed: version "
            f"{REPORT_VERSION} with one"
        )
    (ran,) = told.benchmarks
    streams = tuple(r.stream() for r in ran.requests.successful)
    errors = tuple((r.info.error or "failed without a message")[-200:] for r in ran.requests.errored)
    return LoadResult(streams, errors, ran.duration)
