"""What a plan is asked of, and what is told of it on the way."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.versions import Version, env_names
from vllm_doctor.launch.parse import LaunchLine, Refusal
from vllm_doctor.plan.behaviour import Behaviour, behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.model.architecture import Architecture


class LaunchGiven(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is asked of; `env` has those of vLLM's variables that the release reads, and all others."""

    line: LaunchLine
    flags: Flags
    env: dict[str, str]
    version: Version
    arch: Architecture
    gpu: Card | None
    total_gib: float | None  # of one card
    gpus: int  # of the host
    draft_model: Architecture | None  # the drafter's architecture, where it is a separate model

    @property
    def does(self) -> Behaviour:
        """What the release does where releases differ."""
        return behaviour(self.version)


class LaunchSaid(msgspec.Struct, frozen=True):
    """What is told of a launch beside its settings, in the order in which it was found."""

    refusals: list[Refusal]
    notes: list[str]


def variables_read(environment: Mapping[str, str], version: Version) -> dict[str, str]:
    """The variables without those of vLLM that this release does not read: there they change nothing."""
    names = env_names(version)
    return {name: value for name, value in environment.items() if not name.startswith("VLLM_") or name in names}
