"""What may end a wait of ranks for one another, whoever gave up first."""

from vllm_doctor.log.match import Hit
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import environment, set_flag, upgrade

_OWN = frozenset({"wait-peer-test", "wait-graph-addresses", "graphs-start"})


def known(case: Case, last: Hit | None) -> tuple[Change | None, ...]:
    """What is known to end the wait that follows this line."""
    if last is None:
        return ()
    if last.id == "weights-shards":
        why = "reads each file whole; a mapped file is read over a network in small pieces"
        fact = case.has_flag("safetensors-load-strategy")
        to = "prefetch" if fact is not None and "prefetch" in (fact.choices or ()) else "eager"
        return (set_flag(case, "safetensors-load-strategy", to, Direction.SET, why),)
    ranks = (case.count("tensor-parallel-size") or 1) > 1
    if last.id in _OWN and ranks:
        why = "uses NCCL's all-reduce instead of vLLM's"
        return (set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, why),)
    return ()


def ways_out(case: Case) -> tuple[Change | None, ...]:
    """Without direct copies, without vLLM's own all-reduce, with a newer release."""
    why = "shows whether direct copies between the GPUs are at fault (slower)"
    return (
        environment("NCCL_P2P_DISABLE", Direction.SET, why, to=1),
        set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "uses NCCL's all-reduce instead of vLLM's"),
        upgrade(case, "newer releases fix hangs between ranks"),
    )
