"""From a parsed launch to its settings: every default of the version filled in, every contradiction found."""

from __future__ import annotations

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import LaunchLine
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch import cache_groups
from vllm_doctor.plan.launch.decisions import decide_launch
from vllm_doctor.plan.launch.every_refusal import of_the_line, refuse, untold
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.host_memory import SWAPPED_GIB, host_asked, weights_kept
from vllm_doctor.plan.launch.of_launch import LaunchGiven, LaunchSaid, variables_read
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.launch.settle import settle_launch
from vllm_doctor.plan.model.architecture import Architecture


def resolve(  # noqa: PLR0917
    line: LaunchLine,
    version: Version,
    arch: Architecture,
    gpu: Card | None,
    total_gib: float | None,
    gpus: int,
    draft_model: Architecture | None = None,
) -> Settings:
    """All settings of a launch; `draft_model` is the drafter's architecture, where it is a separate model. Raises
    SettingError for values that are not of their kind; what vLLM would refuse is in `refusals`."""
    given = LaunchGiven(
        line=line,
        flags=Flags(line),
        env=variables_read(line.env, version),
        version=version,
        arch=arch,
        gpu=gpu,
        total_gib=total_gib,
        gpus=gpus,
        draft_model=draft_model,
    )
    said = LaunchSaid(of_the_line(line, arch, behaviour(version)), list(line.notes))
    decided = decide_launch(given, said)
    refuse(given, decided, said.refusals)
    pages_kept = None if decided.v1 else SWAPPED_GIB
    host = host_asked(given.flags, given.env, given.does, said.refusals, pages_kept)
    host, kept = weights_kept(host, version, v1=decided.v1, v2=decided.v2)
    said.notes.extend(kept)
    if decided.v1:
        groups = cache_groups.refusals(given.flags, arch, host.connectors, version, given.does)
        said.refusals.extend(untold(groups, said.refusals))
    return settle_launch(given, decided, host, said)
