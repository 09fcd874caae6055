"""What may end a wait of ranks for one another, whoever gave up first."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import environment, set_flag, upgrade


def ways_out(case: Case) -> tuple[Change | None, ...]:
    """Without direct copies, without vLLM's own all-reduce, with a newer release."""
    why = "shows whether direct copies between the GPUs are at fault (slower)"
    return (
        environment("NCCL_P2P_DISABLE", Direction.SET, why, to=1),
        set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "uses NCCL's all-reduce instead of vLLM's"),
        upgrade(case, "newer releases fix hangs between ranks"),
    )
