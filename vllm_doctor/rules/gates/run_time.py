"""What every rule about a failed step at run time asks first."""

from vllm_doctor.log.match import says
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
# Lines around a message that somebody quotes with it.
_BESIDE = 3


def at_run_time(case: Case) -> Oom | NotHere | Unseen:
    """The fault, if a step at run time exhausted the GPU's memory."""
    return exhausted(case, StartupPhase.SERVING, StartupPhase.READY)


def for_logprobs(oom: Oom) -> bool:
    """Was it for log-probabilities over the whole vocabulary? The frames say so, by their names in every version; where
    somebody quoted the message without them, the line of code that stands beside it."""
    inner = oom.fault.functions[-8:]
    if inner:
        return any(mark in function for function in inner for mark in _LOGPROBS)
    near = oom.run.lines[max(0, oom.fault.index - _BESIDE) : oom.fault.last + _BESIDE + 1]
    return any(says(line.text, "code-of-logprobs") for line in near)
