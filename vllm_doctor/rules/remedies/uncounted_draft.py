"""A draft model's weights, which V0 does not count when it sizes the KV cache."""

from vllm_doctor.knowledge.hub import billions
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.out_of_memory import Oom
from vllm_doctor.rules.say import mapping, set_flag

# Where the launch names the draft: V0's own option, and the field of the one that took its place in 0.8.
_OPTION, _FIELD, _INSIDE = "speculative-model", "speculative-config", "model"


def uncounted(case: Case, oom: Oom) -> float | None:
    """GiB of the draft's weights on one GPU, as its name counts them, 16 bits each; None where V0 has none, or the name
    does not say it.

    SpecDecodeWorker.determine_num_available_blocks asks the target's worker alone, and splits what that gives between
    both caches (0.4.0 to the end of V0; #14067 would have counted the draft and was not merged)."""
    named, run = _draft(case), case.run
    if named is None or run is None or run.engine != "V0" or not any(says(f, "call-draft") for f in oom.fault.files):
        return None
    size = billions(named)
    split = case.count("speculative-draft-tensor-parallel-size") or case.count("tensor-parallel-size") or 1
    return size * 2e9 / GIB / split if size is not None else None


def without_draft(case: Case) -> Change | None:
    """No draft, where V0 planned the KV cache without it."""
    option = _OPTION if case.flag(_OPTION) is not None else _FIELD
    why = "V0 does not count the draft model when it sizes the KV cache; without a draft the server decodes slower"
    return set_flag(case, option, None, Direction.REMOVE, why)


def _draft(case: Case) -> str | None:
    told = case.flag(_OPTION) or (mapping(case.flag(_FIELD)) or {}).get(_INSIDE)
    return told if isinstance(told, str) else None
