"""The guard's hands on a real host."""

import time
from collections.abc import Mapping

import msgspec

from vllm_doctor.gather import kernel, look
from vllm_doctor.operate.guard import restart
from vllm_doctor.operate.guard.explain import explained
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.records.reading import Reading
from vllm_doctor.records.sample import Look


class RealHands(msgspec.Struct, frozen=True):
    """What the guard sees and does here."""

    policy: Policy

    def look(self, names: tuple[str, ...], *, cards: bool, canaries: Mapping[str, float]) -> Reading[tuple[Look, ...]]:
        """Look at the units."""
        return look.looks(names, cards=cards, canaries=canaries)

    def kernel(self, since: float) -> tuple[str, ...]:
        """The kernel's lines since that time."""
        return kernel.since(since, 3.0)

    def refused(self, unit: str) -> str | None:
        """Why it would not be restarted now."""
        return restart.refused(unit, self.policy, time.time())

    def restart(self, ask: restart.Ask) -> None:
        """Start it anew. Raises NotPermitted."""
        restart.restart(ask, self.policy)

    def explain(self, unit: str) -> str:
        """The doctor's first finding."""
        return explained(unit)
