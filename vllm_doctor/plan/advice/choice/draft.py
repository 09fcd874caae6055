"""A launch that is being settled, flag by flag: the changes so far, each with its reason and its sum."""

from __future__ import annotations

from math import floor

from vllm_doctor.knowledge.versions import HIGHEST_UTILIZATION
from vllm_doctor.plan.advice.recommendation import Changes, Profile, Reason, Sum, Workload
from vllm_doctor.plan.prediction.before_start import held_before_start
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner

# Tokens of the shortest request that is worth a service; a launch that cannot take it is no recommendation.
LEAST = 1024
# Where the user asks for no length, a wide step is worth more than a request beyond this many tokens.
USEFUL = 8192


class Draft:
    """The user's launch, and what was changed of it. `useful` says whether its requests are long enough to serve."""

    def __init__(self, planner: Planner, work: Workload, profile: Profile) -> None:
        self.planner, self.work, self.profile = planner, work, profile
        self.changes: Changes = {}
        self.reasons: list[Reason] = []
        self.arch = planner.arch
        self.useful = True
        self._seen: dict[frozenset[tuple[str, str | bool | None]], Prediction] = {}

    def predict(self, **more: str | bool | None) -> Prediction:
        """Predict with the choices so far and some more (underscores for dashes). A launch is planned once, however
        often the search comes by it."""
        changes = {**self.changes, **{k.replace("_", "-"): v for k, v in more.items()}}
        asked = frozenset(changes.items())
        if asked not in self._seen:
            self._seen[asked] = self.planner.predict(changes)
        return self._seen[asked]

    def keep(self, name: str, value: float | str | bool, why: str, *sums: Sum) -> None:
        """Settle a flag."""
        self.changes[name] = value if isinstance(value, bool) else str(value)
        self.reasons = [r for r in self.reasons if r.flag != name] + [Reason(name, why, sums)]

    def leave(self, name: str) -> None:
        """Take a flag back: the release's own value is the one."""
        self.changes.pop(name, None)
        self.reasons = [r for r in self.reasons if r.flag != name]

    def asks_length(self) -> bool:
        """Does the user say how long a request is to be?"""
        return bool(self.work.context) or "max-model-len" in self.planner.line.flags

    def share(self, value: float, why: str) -> None:
        """Settle the fraction of the card."""
        total = self.planner.total_gib or 0.0
        budget = Sum("budget", total * value, "GiB", f"{total:g} × {value:g}", "v1/worker/utils.py request_memory")
        self.keep("gpu-memory-utilization", round(value, 3), why, budget)

    def highest(self, total: float) -> float:
        """The largest fraction of `total` GiB that leaves room for what is outside the budget."""
        p = self.predict(gpu_memory_utilization="0.5", max_model_len="256")
        free = total - held_before_start(p.settings, self.planner.gpu)
        charged = p.cudagraph_budget_gib
        outside = max(p.cudagraph_gib * 1.25 - charged, 0.0) + 0.5
        return max(0.5, min(HIGHEST_UTILIZATION, floor((free - outside) / total * 100) / 100))
