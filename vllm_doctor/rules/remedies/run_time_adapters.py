"""Requests that load an adapter at run time, answered with 404: the path is not there unless a variable asks for it.

vLLM makes the paths only where VLLM_ALLOW_RUNTIME_LORA_UPDATING is set (entrypoints: attach_router), and warns that
they are on. With them on, 404 is the answer to an adapter that is not found at its place, or that was never loaded.
"""

from typing import NamedTuple

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import environment, set_flag, thing

_WHY = "vLLM has the paths that load and unload adapters only with this variable; set it where the server starts"


# Answers that show that others are served.
_SERVED = 2


class AdapterPath(NamedTuple):
    """The last request for an adapter that had 404 for an answer, the problem and what to do."""

    line: int
    title: str
    changes: tuple[Change, ...]


def adapter_path(case: Case) -> AdapterPath | None:
    """None where no such request failed, or one was answered after it, or before it while others are served: that one
    was its client's own mistake."""
    run = case.run
    hit = run.last("adapter-path-missing") if run is not None else None
    if run is None or hit is None:
        return None
    answered = [h.index for h in run.all("adapter-path-answered")]
    served = sum(h.index > hit.index for h in run.all("request-ok")) >= _SERVED
    if answered and (answered[-1] > hit.index or served):
        return None
    if run.first("adapter-path-on") is not None:
        place = thing(
            ChangeKind.OS,
            "adapter-path",
            Direction.CHANGE,
            "the folder must be one that the server itself sees (adapter_config.json and the weights in it), and an "
            "adapter that is unloaded must be loaded",
            command="ls LORA_PATH   # on the server's host or in its container; curl -s http://HOST:PORT/v1/models",
        )
        return AdapterPath(hit.index, "An adapter that a request names is not found", (place,))
    made: tuple[Change | None, ...] = (
        environment("VLLM_ALLOW_RUNTIME_LORA_UPDATING", Direction.SET, _WHY, to="True"),
        set_flag(case, "enable-lora", True, Direction.ADD, "adapters need it, at run time as well")
        if case.effective("enable-lora") is not True
        else None,
    )
    return AdapterPath(
        hit.index, "Loading adapters at run time is not switched on", tuple(c for c in made if c is not None)
    )
