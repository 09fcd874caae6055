"""What real starts on this host logged, beside what was planned: the next plan uses the measured terms.

One small JSON file a host. A record is found again by card, model, and the settings that the terms depend on, however
the launch spelled them; a launch that differs in other settings still gets the weights.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from vllm_doctor.gather import bounded
from vllm_doctor.log.match import read
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.config_json import MAX_BYTES
from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.records import folders, reading

SCHEMA_VERSION = 2
KEEP = 500
# Settings that size the pool or say how it came to be, and change no term before it.
_NO_TERM = frozenset(
    {
        "utilization",
        "kv_bytes",
        "blocks_override",
        "prefix_caching",
        "hybrid_manager",
        "auto_length",
        "notes",
        "refusals",
        "doubts",
        "depends",
        "defaulted",
        "flashinfer_asked",
        "flashinfer_there",
    }
)
_WEIGHTS = (
    "version",
    "parallel",
    "dtype",
    "quantization",
    "speculative",
    "draft_tokens",
    "host",
    "language_only",
    "loras",
    "lora_rank",
    "gguf",
)
_TERMS = ("weights_gib", "non_torch_gib", "activation_gib", "graphs_gib")

# The messages that state a term, each with the figure in GiB.
_SAID = {
    "weights_gib": "term-weights",
    "activation_gib": "term-activation",
    "non_torch_gib": "term-outside-torch",
    "consumed_gib": "term-consumed",
    "graphs_gib": "term-graphs",
    "available_kv_gib": "term-kv",
}


class Difference(msgspec.Struct, frozen=True):
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
        return folders.STATE
    return Path(os.environ.get("XDG_STATE_HOME", str(Path.home() / ".local/state"))) / "vllm-doctor"


def read_log(lines: Iterable[str]) -> KnownTerms:
    """The terms that a start-up log states, in GiB; the first of each wins (rank 0)."""
    found: dict[str, float] = {}
    for line in lines:
        for name, message in _SAID.items():
            if name not in found and (said := read(message, line)) is not None:
                found[name] = float(next(iter(said.values())))
    if "consumed_gib" in found and "weights_gib" in found:
        found.setdefault("non_torch_gib", max(0.0, found["consumed_gib"] - found["weights_gib"]))
    return KnownTerms(
        found.get("weights_gib"),
        found.get("available_kv_gib"),
        found.get("non_torch_gib"),
        found.get("activation_gib"),
        found.get("graphs_gib") if found.get("graphs_gib", -1.0) >= 0 else None,
    )


def compare(p: Prediction, logged: KnownTerms) -> list[Difference]:
    """Planned beside logged, for the terms that both have."""
    pairs = (
        ("weights", p.weights_gib, logged.weights_gib),
        ("non-torch", p.non_torch_gib, logged.non_torch_gib),
        ("activation", p.activation_gib, logged.activation_gib),
        ("graphs", p.cudagraph_gib, logged.graphs_gib),
        ("KV cache", p.available_kv_gib, logged.available_kv_gib),
    )
    return [
        Difference(name, planned, real) for name, planned, real in pairs if planned is not None and real is not None
    ]


def with_peak(p: Prediction, logged: KnownTerms) -> KnownTerms:
    """The logged terms, and where the peak is not logged (most releases do so only when debugging) what the logged pool
    leaves for it: budget − weights − non-torch − charged graphs − pool."""
    pool = logged.available_kv_gib
    if logged.activation_gib is not None or pool is None or p.budget_gib is None or p.settings.kv_bytes:
        return logged
    weights = p.weights_gib if logged.weights_gib is None else logged.weights_gib
    outside = (p.non_torch_gib or 0.0) if logged.non_torch_gib is None else logged.non_torch_gib
    charged = p.cudagraph_budget_gib if not p.settings.does.measures_consumed else 0.0
    rest = round(p.budget_gib - weights - outside - charged - pool, 3)
    return replace(logged, activation_gib=rest) if rest > 0 else logged


class History(msgspec.Struct, frozen=True):
    """The starts of one model on this host's cards. `starts` are records by name, as they lie in the file."""

    card: str | None = None
    model: str = ""
    starts: Mapping[str, Mapping[str, object]] = msgspec.field(default_factory=dict)

    def known(self, s: Settings) -> KnownTerms:
        """The terms logged by the last start with these settings; only its weights where other settings differ;
        nothing known where there was none."""
        if not self.starts:
            return KnownTerms()
        record = self.starts.get(self.name(s))
        if record is not None:
            terms = _figures(record.get("logged"))
            return KnownTerms(
                terms["weights_gib"], None, terms["non_torch_gib"], terms["activation_gib"], terms["graphs_gib"]
            )
        family = self._digest({n: str(getattr(s, n)) for n in _WEIGHTS})
        for other in reversed(list(self.starts.values())):
            if other.get("family") == family:
                return KnownTerms(weights_gib=_figures(other.get("logged"))["weights_gib"])
        return KnownTerms()

    def record(self, p: Prediction, logged: KnownTerms) -> dict[str, object]:
        """What is kept of a start: its terms as planned and as logged."""
        return {
            "family": self._digest({n: str(getattr(p.settings, n)) for n in _WEIGHTS}),
            "card": self.card,
            "version": str(p.settings.version),
            "planned": {d.term: round(d.planned, 3) for d in compare(p, logged)},
            "logged": {name: value for name, value in asdict(with_peak(p, logged)).items() if value is not None},
        }

    def name(self, s: Settings) -> str:
        """The name of a start's record: card, model description, and the settings that terms depend on, hashed."""
        return self._digest({name: str(getattr(s, name)) for name in s.__struct_fields__ if name not in _NO_TERM})

    def _digest(self, what: Mapping[str, str]) -> str:
        return hashlib.sha256(json.dumps([self.card, self.model, what], sort_keys=True).encode()).hexdigest()[:32]


def _figures(record: object) -> dict[str, float | None]:
    """The terms of a record that are sizes a card could hold; what is no such number is not known."""
    values: dict[str, float | None] = dict.fromkeys(_TERMS)
    if isinstance(record, dict):
        for name in _TERMS:
            value = record.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 4096:
                values[name] = float(value)
    return values


def recall(card: str | None, config: Path) -> History:
    """What this host knows of a model on a card; an empty history where nothing can be read."""
    file = config / "config.json" if config.is_dir() else config
    read = bounded.whole_file(file, MAX_BYTES)
    model = hashlib.sha256(read.value).hexdigest() if isinstance(read, reading.Known) else str(config)
    return History(card, model, _load(folder() / "starts.json"))


def _load(file: Path) -> dict[str, dict[str, object]]:
    read = bounded.whole_file(file, MAX_BYTES)
    told = bounded.json_value(read.value, str(file), "") if isinstance(read, reading.Known) else read
    if not isinstance(told, reading.Known):
        return {}
    loaded = told.value
    starts = (
        loaded.get("starts") if isinstance(loaded, dict) and loaded.get("schema_version") == SCHEMA_VERSION else None
    )
    return {k: v for k, v in starts.items() if isinstance(v, dict)} if isinstance(starts, dict) else {}


def remember(history: History, p: Prediction, logged: KnownTerms) -> tuple[Path, bool]:
    """Keep what a start logged; the oldest records go first. True where that is news. Raises OSError where the folder
    cannot be written."""
    from filelock import FileLock

    place = folder()
    place.mkdir(mode=0o755, parents=True, exist_ok=True)
    file = place / "starts.json"
    with FileLock(str(file) + ".lock", timeout=5):
        starts = _load(file)
        name, record = history.name(p.settings), history.record(p, logged)
        if starts.get(name) == record:
            return file, False
        starts.pop(name, None)
        starts[name] = record
        text = json.dumps({"schema_version": SCHEMA_VERSION, "starts": dict(list(starts.items())[-KEEP:])}, indent=1)
        fresh = file.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(file)
    return file, True
