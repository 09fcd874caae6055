"""What every rule about a failed step at run time asks first."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.told_step import LOGPROBS
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, has_words, trains
from vllm_doctor.rules.outcome import NotHere, Unseen

_OF_A_REQUEST = "compute_logprobs"
_LOGPROBS = (
    "prompt_logprobs",
    "compute_logprobs",
    "gather_logprobs",
    "_get_prompt_logprobs_dict",
    "get_logprobs",
    "log_softmax",
)
# Of the programs that drive vLLM these serve, and train nothing.
_SERVERS = frozenset({"xinference", "dynamo"})
# Lines around a message that somebody quotes with it.
_BESIDE = 3

# Kernels whose scratch memory is not in the measured peak and grows with a prefill; vLLM 0.18.1 and later warn of them.
_UNMEASURED = ("chunk_gated_delta_rule", "gdn", "fla/ops", "mamba_ssm", "ssd_")


def at_run_time(case: Case) -> Oom | NotHere | Unseen:
    """The fault, if a step at run time exhausted the GPU's memory."""
    return exhausted(case, StartupPhase.SERVING, StartupPhase.READY)


def in_trainer(oom: Oom) -> bool:
    """Did a trainer's own code ask for the memory: is it in the traceback, and vLLM's in no frame?"""
    files = oom.fault.files
    theirs = any((by := read("call-of-driver", f)) is not None and by["package"] not in _SERVERS for f in files)
    return trains(oom.fault) or (theirs and not any(says(f, "call-of-vllm") for f in files))


def for_logprobs(oom: Oom) -> bool:
    """Was it for log-probabilities over the whole vocabulary? The frames say so, by their names in every version; where
    somebody quoted the message without them, the line of code that stands beside it."""
    if in_trainer(oom):
        return False
    inner = oom.fault.functions[-8:]
    if inner:
        return any(mark in function for function in inner for mark in _LOGPROBS)
    near = oom.run.lines[max(0, oom.fault.index - _BESIDE) : oom.fault.last + _BESIDE + 1]
    return any(says(line.text, "code-of-logprobs") for line in near) or has_words(oom, LOGPROBS)


def of_a_request(fault: Fault) -> bool:
    """Does V1's sampler compute log-probabilities that a request asked for? Its dummy batch asks for none.

    The call says so, or the line of code below a call whose name was cut off."""
    if not any(says(file, "call-v1-sampler") for file in fault.files):
        return False
    frames = [frame for link in fault.crash.links for frame in link.frames] if fault.crash is not None else []
    shown = any(not frame.function and says(frame.code, "code-of-logprobs") for frame in frames)
    return shown or _OF_A_REQUEST in fault.functions


def unmeasured_kernel(oom: Oom) -> str | None:
    """The kernel among the innermost calls whose scratch memory nothing measured, as its calls name it."""
    inner = " ".join((*oom.fault.files[-6:], *oom.fault.functions[-6:]))
    return next((kernel for kernel in _UNMEASURED if kernel in inner), None)
