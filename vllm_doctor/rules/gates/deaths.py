"""By which signal a process ended, as its parent, its shell or its container tells it."""

from vllm_doctor.log.match import Hit, read
from vllm_doctor.log.root_cause import AnalysedRun

# What V1 engines, and vllm-omni's of several stages, say of a start alone.
START_FAILED = frozenset({"engine-core-failed", "engine-init-failed", "orchestrator-failed"})
# Messages that name the signal by a word.
_NAMED = {
    "shell-killed": "9",
    "child-killed": "9",
    "exit-minus-nine": "9",
    "killed-suspects-memory": "9",
    "native-crash": "11",
    "native-dump": "11",
    "core-abort": "6",
    "shell-signal": "4",
    "shell-arithmetic": "8",
}
_WORDS = {"SIGSEGV": "11", "SIGABRT": "6", "Aborted": "6", "11": "11", "6": "6", "4": "4", "8": "8"}
# A shell adds this to the number of the signal that ended its child.
_SHELLS = 128


def signal_of(hit: Hit) -> str | None:
    """The number of the signal; None where the message does not tell, or the process ended by itself."""
    if hit.id in {"container-exited", "exit-by-signal", "exit-by-signal-told"}:
        ended = int(hit.fields.get("code", "0"))
        return str(ended - _SHELLS) if ended > _SHELLS else None
    told = " ".join(hit.fields.values())
    code = read("exit-signal", told)
    return _NAMED.get(hit.id) or _WORDS.get(told.strip()) or (code["signal"] if code is not None else None)


def killed(run: AnalysedRun) -> Hit | None:
    """The first process that was killed with SIGKILL, before anybody stopped the service."""
    first = next((hit for hit in run.deaths if signal_of(hit) == "9"), None)
    return None if first is None or (run.stopped is not None and run.stopped < first.index) else first
