"""The profile run of V0's encoder-decoder models: what makes it smaller."""

from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import Oom
from vllm_doctor.rules.remedies.step import sequences
from vllm_doctor.rules.say import set_flag


def fewer_inputs(case: Case, oom: Oom) -> Change | None:
    """V0 profiles an encoder-decoder model with max_num_seqs sequences, each with the longest input of the encoder."""
    begun = oom.run.first("profile-encoder-decoder")
    told = begun is not None and begun.index < oom.fault.index
    if not told and not any(says(f, "call-encoder-decoder") for f in oom.fault.files):
        return None
    now = sequences(case)[0]
    to = min(16, now // 2)
    if to < 1:
        return None
    why = f"the profile run holds the longest encoder input of each of {now} sequences"
    return set_flag(case, "max-num-seqs", to, Direction.LOWER, why)
