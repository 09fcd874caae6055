"""Code that runs in the V1 engine alone, where V0 was chosen: by the variable, or for an option that V1 lacks.

`_is_v1_supported_oracle` (engine/arg_utils.py, 0.8.0 to 0.11.0) falls back to V0 with a warning that names the option;
with VLLM_USE_V1=1 it raises that sentence instead.
"""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.gates.refused_options import remove
from vllm_doctor.rules.say import environment, upgrade

_VARIABLE = "VLLM_USE_V1"


def engine_needed(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """What brings V1 back; empty where no line says that it is needed."""
    if case.run is None or not says(text(case, fault), "needs-v1"):
        return ()
    newer = upgrade(case, "from 0.11.1 on V1 is the only engine, and has more of what sent older releases back to V0")
    if case.env(_VARIABLE) == "0":
        why = "it chooses V0, and this part runs in V1 alone"
        return (environment(_VARIABLE, Direction.REMOVE, why, before="0"), newer)
    warned = (read("v1-lacks", line.text) for line in case.run.lines[: fault.index + 1])
    option = next((told["option"] for told in reversed([w for w in warned if w is not None])), None)
    why = "V1 lacks this, so V0 was chosen for it; this part runs in V1 alone"
    without = remove(option, why) if option is not None else None
    named = environment(
        _VARIABLE,
        Direction.SET,
        "an option that V1 lacks (tracing, several steps at once, …), or the card, sent this start back to V0: with "
        "this the start stops and names it. Then take that option out",
        to="1",
    )
    return (without, *((named,) if without is None else ()), newer)
