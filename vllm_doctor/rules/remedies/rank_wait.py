"""What may end a wait of ranks for one another, whoever gave up first."""

from vllm_doctor.log.match import Hit, says
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


def between_hosts(case: Case) -> bool:
    """Are ranks of more than one host among them? Ray names a worker's address only where it is not the driver's own,
    and NCCL says over how many nodes it speaks."""
    nodes, run = case.effective("nnodes"), case.run
    if nodes not in {None, "1"}:
        return True
    return run is not None and any(says(line.excerpt or line.text, "of-another-host") for line in run.lines)


def network(case: Case) -> tuple[Change, ...]:
    """How the ranks of several hosts are told their way to each other."""
    asked = case.env("NCCL_SOCKET_IFNAME")
    return (
        environment(
            "NCCL_SOCKET_IFNAME",
            Direction.SET if asked is None else Direction.CHANGE,
            "name, on each host, the interface over which the hosts reach each other (GLOO_SOCKET_IFNAME too)",
            before=asked,
            command="ip -br addr",
        ),
        environment(
            "NCCL_IB_DISABLE",
            Direction.SET,
            "uses sockets instead of RDMA: slower, but shows whether RDMA is at fault",
            to=1,
        ),
        environment("NCCL_DEBUG", Direction.SET, "each rank then writes the path on which it waits", to="INFO"),
    )


def ways_out(case: Case) -> tuple[Change | None, ...]:
    """Of several hosts their network; else without direct copies, without vLLM's own all-reduce, a newer release."""
    if between_hosts(case):
        return network(case)
    why = "shows whether direct copies between the GPUs are at fault (slower)"
    return (
        environment("NCCL_P2P_DISABLE", Direction.SET, why, to=1),
        set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "uses NCCL's all-reduce instead of vLLM's"),
        upgrade(case, "newer releases fix hangs between ranks"),
    )
