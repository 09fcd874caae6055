"""The guard's hands on a real host."""

import os
import time
from collections.abc import Mapping

import msgspec

from vllm_doctor.gather import kernel, look
from vllm_doctor.operate.guard import restart
from vllm_doctor.operate.guard.first_finding import Explanation, explained
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.records.reading import Known, Reading
from vllm_doctor.records.sample import Look


class RealHands(msgspec.Struct, frozen=True):
    """What the guard sees and does here."""

    policy: Policy

    def look(self, names: tuple[str, ...], *, cards: bool, canaries: Mapping[str, float]) -> Reading[tuple[Look, ...]]:
        """Look at the units."""
        seen = look.looks(names, cards=cards, canaries=canaries)
        if os.geteuid() == 0 or not isinstance(seen, Known):
            return seen
        # A server that wants its key is asked by root's helper, so that this user never has one.
        return Known(tuple(self._asked(one, canaries) for one in seen.value), seen.source)

    def _asked(self, one: Look, canaries: Mapping[str, float]) -> Look:
        if one.unit not in canaries or one.canary is not None or one.health != 200 or one.unit not in self.policy.units:
            return one
        try:
            came = restart.by_helper(restart.Ask(one.unit, what="complete", within_s=canaries[one.unit]))
        except restart.NotPermitted:
            return one
        return msgspec.structs.replace(one, canary=came)

    def kernel(self, since: float) -> tuple[str, ...]:
        """The kernel's lines since that time."""
        return kernel.since(since, 3.0)

    def refused(self, unit: str) -> str | None:
        """Why it would not be restarted now."""
        return restart.refused(unit, self.policy, time.time())

    def restart(self, ask: restart.Ask) -> None:
        """Start it anew. Raises NotPermitted."""
        restart.restart(ask, self.policy)

    def explain(self, unit: str) -> Explanation:
        """What the doctor says of it now."""
        return explained(unit)
