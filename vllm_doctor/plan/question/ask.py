"""What a diagnosis asks of the memory model: what would this start be with a change in its launch?

Where the start logged its own pool, the plan tells only by how much the change moves it: the log is nearer to the truth
than any plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import usable_gib
from vllm_doctor.knowledge.versions import parse_version
from vllm_doctor.launch.parse import LaunchError, parse_launch
from vllm_doctor.plan.launch.flags import SettingError
from vllm_doctor.plan.model.config_json import ConfigError, Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.prediction.predict import predict
from vllm_doctor.plan.prediction.record import GIB, Prediction
from vllm_doctor.plan.question.planner import Planner, PlanProblem, card_of

OptionValue = str | bool | None
# Why there is no plan: what was asked, the model, the launch or a value of it.
PROBLEMS = (PlanProblem, ConfigError, LaunchError, SettingError)
# Changes of these move the weights of one GPU, so that what was logged of them no longer holds.
_WEIGHTS = frozenset(
    {
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "enable-expert-parallel",
        "quantization",
        "dtype",
        "cpu-offload-gb",
        "language-model-only",
    }
)
# vLLM logs sizes with two decimals.
_ROUNDING = 0.01
# How far a planned difference between two launches may be off.
_OFF = 0.15


class KnownStart(msgspec.Struct, frozen=True):
    """What is known of a start. `weights_gib` and `pool_gib` are what it logged, of one GPU."""

    argv: tuple[str, ...]
    version: str
    config: Mapping[str, object]
    gpu: str | None = None
    total_gib: float | None = None
    gpus: int = 1
    weights_gib: float | None = None
    pool_gib: float | None = None


class Outlook(msgspec.Struct, frozen=True):
    """A launch as planned: vLLM's outcome, the KV cache of one GPU in GiB and tokens, and the longest request that it
    takes. `hopeless` is it where it would not start even at the good end of the plan's range."""

    outcome: str
    pool_gib: float
    tokens: int | None
    longest: int | None
    hopeless: bool


class Foresight(msgspec.Struct, frozen=True):
    """Answers for one start, as long as nothing but its flags change."""

    planner: Planner
    now: Prediction
    pool_gib: float | None

    def outlook(self, changes: Mapping[str, OptionValue]) -> Outlook | None:
        """The launch with these flags set or (None) left out; None where no plan can be made of it."""
        moved = bool(_WEIGHTS & changes.keys())
        planner = replace(self.planner, known=KnownTerms()) if moved else self.planner
        try:
            then = planner.predict(dict(changes))
            refused = then.outcome == "rejected"
            if refused or self.pool_gib is None or self.now.available_kv_gib is None or then.available_kv_gib is None:
                return _told(then, then.margin_gib[1] if then.margin_gib is not None else None)
            change = then.available_kv_gib - self.now.available_kv_gib
            pool = self.pool_gib + change
            then = predict(planner.arch, then.settings, None, None, KnownTerms(available_kv_gib=pool))
            return _told(then, pool + _ROUNDING + _OFF * abs(change))
        except PROBLEMS:
            return None

    def further(self, flag: str, value: float) -> int | float | None:
        """The value nearest to `value` with which the launch starts, farther from what it is now; None if none is."""
        before = self.planner.line.flags.get(flag)
        try:
            now = float(before) if isinstance(before, str) else None
        except ValueError:
            return None
        for tried in _farther(flag, value, rises=now is not None and value > now, gpus=self.planner.gpus):
            seen = self.outlook({flag: str(tried)})
            if seen is not None and seen.outcome == "ok":
                return tried
        return None


def foresee(start: KnownStart) -> Foresight | None:
    """None where release, model, card or launch do not allow a plan, or vLLM would refuse the launch as it is read."""
    version = parse_version(start.version)
    if version is None or "+cpu" in start.version or start.total_gib is None:
        return None
    try:
        card = card_of(start.gpu or None, start.total_gib)
        planner = Planner(
            arch=describe(Section(start.config)),
            line=parse_launch(list(start.argv), version),
            version=version,
            gpu=card,
            total_gib=start.total_gib if card is None else usable_gib(card, start.total_gib),
            gpus=start.gpus,
            known=KnownTerms(weights_gib=start.weights_gib),
        )
        now = planner.predict()
    except PROBLEMS:
        return None
    return Foresight(planner, now, start.pool_gib) if not now.settings.refusals else None


def _told(p: Prediction, best_gib: float | None) -> Outlook | None:
    if p.available_kv_gib is None:
        return None
    hopeless = p.outcome != "ok"
    if p.outcome == "kv-too-small" and p.checked is not None and best_gib is not None and best_gib > 0:
        hopeless = p.checked.longest(best_gib * GIB, p.length) < p.length
    return Outlook(p.outcome, p.available_kv_gib, p.kv_tokens, p.longest, hopeless)


def _farther(flag: str, value: float, *, rises: bool, gpus: int) -> Iterator[int | float]:
    if flag == "gpu-memory-utilization":
        steps = range(round(value * 100) + 1, 98) if rises else range(round(value * 100) - 1, 30, -1)
        yield from (step / 100 for step in steps)
    elif flag == "tensor-parallel-size":
        tried = int(value) * 2
        while rises and tried <= gpus:
            yield tried
            tried *= 2
    elif flag in {"max-model-len", "max-num-batched-tokens", "max-num-seqs"} and not rises:
        least = 1 if flag == "max-num-seqs" else 512
        tried = int(value) * 3 // 4
        while tried >= least:
            yield tried // 256 * 256 if tried > 4096 else tried
            tried = tried * 3 // 4
