"""What may end a wait of ranks for one another, whoever gave up first."""

from vllm_doctor.log.match import Hit, read, says
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
    several = (case.count("tensor-parallel-size") or 1) > 1
    eager = set_flag(case, "enforce-eager", True, Direction.ADD, "captures no graph: each step is slower")
    return (
        set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "uses NCCL's all-reduce instead of vLLM's")
        if last.id in _OWN and several and not between_hosts(case)
        else None,
        eager if last.id == "graphs-start" else None,
    )


def between_hosts(case: Case) -> bool:
    """Are ranks of more than one host among them? Ray names a worker's address only where it is not the driver's own,
    and NCCL says over how many nodes it speaks, and begins each line with its host's name."""
    nodes, run = case.effective("nnodes"), case.run
    if nodes not in {None, "1"}:
        return True
    if run is None:
        return False
    hosts = {told["host"] for line in run.lines if (told := read("nccl-host", line.text)) is not None}
    return len(hosts) > 1 or any(says(line.excerpt or line.text, "of-another-host") for line in run.lines)


def at_loopback(case: Case) -> tuple[Change | None, ...]:
    """Where a rank of another host is told to meet the others at 127.0.0.1, which is its own host: from where the
    address comes. The replicas' default backend starts all of them on this host (engine/arg_utils.py)."""
    run = case.run
    if run is None or not any(says(line.excerpt or line.text, "meets-at-loopback") for line in run.lines):
        return ()
    replicas = (case.count("data-parallel-size") or 1) > 1
    why = "ranks of other hosts are told to meet at 127.0.0.1, which is their own host"
    address = f"{why}: set it on each node to the address by which the other nodes reach that node"
    return (
        set_flag(case, "data-parallel-backend", "ray", Direction.SET, f"{why}: Ray then places the replicas, too")
        if replicas
        else None,
        environment("VLLM_HOST_IP", Direction.SET, address, command="ip -brief address") if not replicas else None,
    )


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
        return (*at_loopback(case), *network(case))
    why = "shows whether direct copies between the GPUs are at fault (slower)"
    return (
        environment("NCCL_P2P_DISABLE", Direction.SET, why, to=1),
        set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "uses NCCL's all-reduce instead of vLLM's"),
        upgrade(case, "newer releases fix hangs between ranks"),
    )
