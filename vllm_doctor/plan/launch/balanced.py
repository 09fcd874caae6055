"""Experts that are balanced over the ranks (--enable-eplb, from 0.9.2): spare copies, and what moves them."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags, SettingError, whole
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import Architecture


def _on(flags: Flags, a: Architecture, par: Parallel) -> bool:
    return a.moe is not None and par.expert and flags.on("enable-eplb", default=False)


def spare_experts(flags: Flags, a: Architecture, par: Parallel) -> int:
    """Copies beside the model's experts, of each layer and over all ranks. Raises SettingError."""
    return _asked(flags) if _on(flags, a, par) else 0


def refused(flags: Flags) -> Iterator[Refusal]:
    """Copies that nothing would balance (config/parallel.py __post_init__, in each release from 0.9.2 to 0.33.0)."""
    count = 0 if flags.on("enable-eplb", default=False) else _asked(flags)
    if not count:
        return
    if "num-redundant-experts" in flags.values:
        yield Refusal("--num-redundant-experts", str(count), "--enable-eplb beside --num-redundant-experts")
    else:
        needed = "--enable-eplb beside num_redundant_experts of --eplb-config"
        yield Refusal("--eplb-config", f"num_redundant_experts {count}", needed)


def _asked(flags: Flags) -> int:
    told = flags.object("eplb-config").get("num_redundant_experts")
    if told is None:
        return flags.int("num-redundant-experts", 0, 0, 10**5)
    count = whole("eplb-config num_redundant_experts", str(told))
    if count > 10**5:
        raise SettingError(f"--eplb-config: found num_redundant_experts {count}; needed: a number of experts")
    return count


def balances(flags: Flags, a: Architecture, par: Parallel, does: Behaviour) -> str | None:
    """What moves them: NIXL, which reserves its memory itself, or a group that the profile makes room for; either where
    the release takes the first if it is installed (config/parallel.py __post_init__)."""
    if not _on(flags, a, par):
        return None
    told = flags.object("eplb-config").get("communicator")
    if told is not None:
        return "nixl" if told == "nixl" else "gathered"
    return "either" if does.balances_by_nixl else "gathered"
