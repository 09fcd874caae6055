"""Stop what else holds memory of the GPU: the maker's tool names it."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.say import thing


def stop_others(case: Case, why: str) -> Change:
    """Stop the other processes."""
    return thing(ChangeKind.OS, "other-gpu-processes", Direction.STOP, why, command=maker_tool(case).holders)
