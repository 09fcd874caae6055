"""What real starts on this host logged, beside what was planned: the next plan of the same launch uses the measured
terms.

One small JSON file a host. A record is found again by card, model, version and the flags that the terms depend on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_doctor.knowledge.gpus import find
from vllm_doctor.memory.plan import Known, Prediction

SCHEMA_VERSION = 1
KEEP = 500
# Flags that change no term of the start.
_IRRELEVANT = re.compile(
    r"^--(host|port|api-key|served-model-name|uvicorn-log-level|chat-template|tool-call-parser|reasoning-parser|seed|ssl-.*|log-.*|disable-log-.*)$"
)

_PATTERNS = (
    (
        "weights_gib",
        re.compile(
            r"Model loading took (\d+\.\d+) GiB|model weights take (\d+\.\d+) ?GiB|"
            r"Loading model weights took (\d+\.\d+) G"
        ),
    ),
    (
        "activation_gib",
        re.compile(
            r"PyTorch activation peak memory takes (\d+\.\d+) ?GiB|"
            r"torch peak memory increase (?:in GiB: |is )(\d+\.\d+)|(\d+\.\d+) GiB for peak activation"
        ),
    ),
    ("non_torch_gib", re.compile(r"non_torch_memory takes (\d+\.\d+) ?GiB|(\d+\.\d+) GiB for non-torch memory")),
    ("consumed_gib", re.compile(r"(\d+\.\d+) GiB for consumed memory")),
    (
        "graphs_gib",
        re.compile(
            r"Graph capturing finished in [\d.]+ secs?, took (-?\d+\.\d+) GiB|"
            r"CUDA graph pool memory: (\d+\.\d+) GiB \(actual\)"
        ),
    ),
    (
        "available_kv_gib",
        re.compile(
            r"Available KV cache memory: (-?\d+\.\d+) GiB|rest of the memory reserved for KV Cache is (-?\d+\.\d+) ?GiB"
        ),
    ),
)


@dataclass(frozen=True)
class Difference:
    """One term: planned and logged, in GiB."""

    term: str
    planned: float
    logged: float

    @property
    def off(self) -> float:
        """Logged minus planned."""
        return self.logged - self.planned


def folder() -> Path:
    """Where the records lie: $VLLM_DOCTOR_STATE, else the state folder of root or of the user."""
    given = os.environ.get("VLLM_DOCTOR_STATE")
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/vllm-doctor")
    return Path(os.environ.get("XDG_STATE_HOME", str(Path.home() / ".local/state"))) / "vllm-doctor"


def read_log(lines: Iterable[str]) -> Known:
    """The terms that a start-up log states, in GiB; the first of each wins (rank 0)."""
    found: dict[str, float] = {}
    for line in lines:
        for name, pattern in _PATTERNS:
            if name in found:
                continue
            hit = pattern.search(line)
            if hit:
                found[name] = float(next(g for g in hit.groups() if g is not None))
    if "consumed_gib" in found and "weights_gib" in found:
        found.setdefault("non_torch_gib", max(0.0, found["consumed_gib"] - found["weights_gib"]))
    return Known(
        found.get("weights_gib"),
        found.get("available_kv_gib"),
        found.get("non_torch_gib"),
        found.get("activation_gib"),
        found.get("graphs_gib") if found.get("graphs_gib", -1.0) >= 0 else None,
    )


def compare(p: Prediction, logged: Known) -> list[Difference]:
    """Planned beside logged, for the terms that both have."""
    pairs = (
        ("weights", p.weights_gib, logged.weights_gib),
        ("non-torch", p.non_torch_gib, logged.non_torch_gib),
        ("activation", p.activation_gib, logged.activation_gib),
        ("graphs", p.cudagraph_gib, logged.graphs_gib),
        ("KV pool", p.available_kv_gib, logged.available_kv_gib),
    )
    return [
        Difference(name, planned, real) for name, planned, real in pairs if planned is not None and real is not None
    ]


def key(gpu: str | None, config: str, version: str, argv: Sequence[str]) -> str:
    """The name of a record: card, model description, version and the flags that matter, hashed."""
    card = find(gpu) if gpu else None
    flags: list[str] = []
    skip = False
    for i, word in enumerate(argv):
        if skip:
            skip = False
            continue
        if _IRRELEVANT.match(word.split("=", 1)[0]):
            skip = "=" not in word and i + 1 < len(argv) and not argv[i + 1].startswith("-")
            continue
        flags.append(word.replace("_", "-") if word.startswith("--") else word)
    path = Path(config)
    file = path / "config.json" if path.is_dir() else path
    try:
        model = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        model = config
    return hashlib.sha256(
        json.dumps([card.name if card is not None else gpu, model, version, sorted(flags)]).encode()
    ).hexdigest()[:32]


def _load(file: Path) -> dict[str, dict[str, float]]:
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    starts = (
        loaded.get("starts") if isinstance(loaded, dict) and loaded.get("schema_version") == SCHEMA_VERSION else None
    )
    return {k: v for k, v in starts.items() if isinstance(v, dict)} if isinstance(starts, dict) else {}


def measured(gpu: str | None, config: str, version: str, argv: Sequence[str]) -> Known:
    """The terms logged by an earlier start of the same launch on this host; nothing known when there was none."""
    record = _load(folder() / "starts.json").get(key(gpu, config, version, argv), {})
    values = {
        n: float(v)
        for n, v in record.items()
        if isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < 4096
    }
    return Known(
        values.get("weights_gib"),
        None,
        values.get("non_torch_gib"),
        values.get("activation_gib"),
        values.get("graphs_gib"),
    )


def remember(gpu: str | None, config: str, version: str, argv: Sequence[str], logged: Known) -> Path:
    """Keep what a start logged; the oldest records go first. Raises OSError where the folder cannot be written."""
    from filelock import FileLock

    place = folder()
    place.mkdir(mode=0o755, parents=True, exist_ok=True)
    file = place / "starts.json"
    with FileLock(str(file) + ".lock", timeout=5):
        starts = _load(file)
        name = key(gpu, config, version, argv)
        starts.pop(name, None)
        kept = replace(logged, available_kv_gib=None)
        starts[name] = {n: v for n, v in vars(kept).items() if v is not None}
        text = json.dumps({"schema_version": SCHEMA_VERSION, "starts": dict(list(starts.items())[-KEEP:])}, indent=1)
        fresh = file.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(file)
    return file
