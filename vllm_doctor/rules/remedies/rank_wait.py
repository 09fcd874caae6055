"""What may end a wait of ranks for one another, whoever gave up first."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import environment, set_flag, upgrade


def ways_out(case: Case) -> tuple[Change | None, ...]:
    """Without direct copies, without vLLM's own all-reduce, with a newer release."""
    why = "to find out whether direct copies between the cards are at fault (slower)"
    return (
        environment("NCCL_P2P_DISABLE", Direction.SET, why, to=1),
        set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "NCCL instead of vLLM's own all-reduce"),
        upgrade(case, "hangs between ranks are mended release by release"),
    )
