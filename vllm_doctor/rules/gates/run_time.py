"""What every rule about a failed step at run time asks first."""

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted
from vllm_doctor.rules.outcome import NotHere, Unseen

_LOGPROBS = (
    "prompt_logprobs",
    "compute_logprobs",
    "gather_logprobs",
    "_get_prompt_logprobs_dict",
    "get_logprobs",
    "log_softmax",
)


def at_run_time(case: Case) -> Oom | NotHere | Unseen:
    """The fault, if a step at run time exhausted the GPU's memory."""
    return exhausted(case, StartupPhase.SERVING, StartupPhase.READY)


def for_logprobs(oom: Oom) -> bool:
    """Was it for log-probabilities over the whole vocabulary? The frames say so, by their names in every version."""
    inner = oom.fault.functions[-8:]
    return any(mark in function for function in inner for mark in _LOGPROBS)
