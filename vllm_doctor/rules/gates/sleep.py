"""Whether an engine that slept was taking its memory back when none was there."""

from vllm_doctor.log.match import first
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.told_step import WAKES
from vllm_doctor.rules.gates.out_of_memory import Oom, has_words

# Lines above a failure in which its logger says what it was about to do.
_ABOVE = 3


def wakes(oom: Oom) -> bool:
    """Did it wake up, as the log shows or somebody says?"""
    return shown_to_wake(oom) or has_words(oom, WAKES)


def shown_to_wake(oom: Oom) -> bool:
    """Do the calls, the method or the lines below say that it woke up?"""
    return "wake_up" in oom.fault.functions or method(oom) == "wake_up" or _wakes_below(oom)


def maps_again(oom: Oom) -> bool:
    """Did the allocator of sleep mode fail after the engine had slept? It maps memory at no other time of serving."""
    slept = oom.run.first("sleep-freed", "engine-awake")
    mapped = "cumem-oom" in oom.fault.ids and oom.fault.startup_phase in {
        StartupPhase.CONFIG,
        StartupPhase.READY,
        StartupPhase.SERVING,
    }
    return mapped and slept is not None and slept.index < oom.fault.index


def method(oom: Oom) -> str:
    """The engine's method that a client called, as its answer names it, or the line above; empty where none does."""
    at = oom.fault.index
    near = (oom.run.lines[i].text for i in range(at, max(-1, at - _ABOVE), -1))
    said = first(near, "method-of-engine")
    return said["method"] if said is not None else ""


def _wakes_below(oom: Oom) -> bool:
    """The allocator's own line comes before the traceback of the call that asked it."""
    crashes = oom.run.crashes if "cumem-oom" in oom.fault.ids and oom.fault.crash is None else ()
    after = (crash for crash in crashes if crash.first > oom.fault.index)
    return any("wake_up" in crash.functions for crash in after)
