"""The load of `vllm bench serve`, where the release that serves has it: the same figures as published benchmarks."""

import os
import tempfile
from pathlib import Path

import msgspec

from vllm_doctor.gather import trust
from vllm_doctor.gather.processes import NotRun, run
from vllm_doctor.operate.tune.load_generator import LoadResult, LoadStream, LoadTarget
from vllm_doctor.records import excerpt

# Each caller asks this many times: the first answers come together, the later ones as a service sees them.
ROUNDS = 3
# Where a tokenizer that is not on the disk comes from, and how it is reached.
_HUB = (
    "HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HF_TOKEN_PATH", "HTTP_PROXY",
    "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
)  # fmt: skip


class _Result(msgspec.Struct, frozen=True):
    """What is read of the file that --save-detailed writes (vllm/benchmarks/serve.py); times in seconds."""

    duration: float
    ttfts: list[float]
    itls: list[list[float]]
    output_lens: list[int]
    errors: list[str]


def find(argv: tuple[str, ...]) -> "VllmBench | None":
    """The benchmark of the `vllm` that the unit starts, if its release brings one, and if nobody but root and we can
    change it: it will run with our rights, and not with those of the service."""
    vllm = Path(argv[0]).resolve() if argv else Path()
    if vllm.name != "vllm" or not vllm.is_file() or trust.why_not(vllm) is not None:
        return None
    found = list(vllm.parent.parent.glob("lib/python3*/site-packages/vllm/benchmarks/serve.py"))
    return VllmBench(str(vllm)) if found else None


class VllmBench(msgspec.Struct, frozen=True):
    """The benchmark of the release whose `vllm` this is."""

    vllm: str
    name: str = "vllm bench serve"

    def drive(self, target: LoadTarget, tokenizer: str, at_once: int, limit_s: float) -> LoadResult:
        """Run it once."""
        with tempfile.TemporaryDirectory(prefix="vllm-doctor-tune-") as folder:
            file = Path(folder) / "result.json"
            # The key goes through the environment: a command line is for all to read.
            env = {"OPENAI_API_KEY": target.key or "none"} | hub(tokenizer)
            done = run(command(self.vllm, target, tokenizer, at_once, file), deadline_s=limit_s, env=env)
            if isinstance(done, NotRun):
                return LoadResult((), (f"{self.name}: {done.reason}",), limit_s)
            try:
                told = msgspec.json.decode(file.read_bytes(), type=_Result)
            except (OSError, msgspec.DecodeError) as problem:
                said = (done.err.strip().splitlines() or [str(problem)])[-1]
                return LoadResult((), (f"{self.name} ended with {done.code}: {excerpt.said(said)}",), limit_s)
        return loaded(told)


def hub(tokenizer: str) -> dict[str, str]:
    """What a load generator needs of our environment to find the tokenizer."""
    ours = {name: os.environ[name] for name in _HUB if name in os.environ}
    return ours | {"HF_HUB_OFFLINE": "1" if tokenizer.startswith("/") else "0"}


def command(vllm: str, target: LoadTarget, tokenizer: str, at_once: int, file: Path) -> list[str]:
    """The benchmark's command line."""
    said = {
        "backend": "openai",
        "base-url": target.base,
        "endpoint": "/v1/completions",
        "model": target.model,
        "tokenizer": tokenizer,
        "dataset-name": "random",
        "random-input-len": target.prompt_tokens,
        "random-output-len": target.output_tokens,
        "num-prompts": at_once * ROUNDS,
        "max-concurrency": at_once,
        "result-dir": file.parent,
        "result-filename": file.name,
    }
    switches = ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"]
    return [vllm, "bench", "serve", *(w for name, value in said.items() for w in (f"--{name}", str(value))), *switches]


def loaded(told: _Result) -> LoadResult:
    """The result file as a load."""
    rows = zip(told.ttfts, told.itls, told.output_lens, told.errors, strict=False)
    streams = [LoadStream(first, tuple(between), tokens) for first, between, tokens, error in rows if not error]
    return LoadResult(tuple(streams), tuple(e[-200:] for e in told.errors if e), told.duration)
