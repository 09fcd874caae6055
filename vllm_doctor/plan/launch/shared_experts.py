"""Does each rank hold the shared experts whole? So it does where ranks split tokens instead of widths: with experts
spread over data-parallel ranks of several cards, in the releases, with the backends and in the classes that do so."""

from __future__ import annotations

import ast

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.replicated import splits_tokens, whole_experts
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.parallel import Parallel, Shared
from vllm_doctor.plan.model.architecture import Architecture

_OPTION, _VARIABLE = "all2all-backend", "VLLM_ALL2ALL_BACKEND"


def shared_experts(flags: Flags, env: dict[str, str], a: Architecture, par: Parallel, version: Version) -> Shared:
    """How this launch holds them."""
    if a.moe is None or not a.moe.shared_width or not par.expert or par.tp == 1:
        return Shared.SPLIT
    if not _of_vllm(flags, a, version):
        return Shared.PERHAPS
    whole = whole_experts(a.name, version)
    if whole is None:
        return Shared.PERHAPS
    sizes = {"expert", "tensor", *(["data"] if par.dp > 1 else [])}
    told = {whole and splits_tokens(backend, sizes, version) for backend in all2all_backends(flags, env, version)}
    if len(told) > 1 or None in told:
        return Shared.PERHAPS
    return Shared.WHOLE if True in told else Shared.SPLIT


def _of_vllm(flags: Flags, a: Architecture, version: Version) -> bool:
    """Is it known that the release's own class runs?"""
    asked = flags.text("model-impl") in {None, "auto", "vllm"}
    return asked and history("models", "architectures").exists(a.name, version) is True


def all2all_backends(flags: Flags, env: dict[str, str], version: Version) -> set[str]:
    """The backend; two where the option and its variable say different things: which of them counts has changed (0.13,
    0.14 config/parallel.py __post_init__)."""
    told = {text for text in (flags.text(_OPTION), env.get(_VARIABLE)) if text}
    if told:
        return told
    for file, name in (("options", _OPTION), ("environment", _VARIABLE)):
        default = history(file, file).value(name, version).get("default")
        value = ast.literal_eval(default) if isinstance(default, str) else None
        if history(file, file).exists(name, version) is not False and isinstance(value, str):
            return {value}
    return {"naive"}
