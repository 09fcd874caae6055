"""The flowchart as data: its boxes in the order in which they are asked. A rule names the box that it answers."""

import msgspec


class Node(msgspec.Struct, frozen=True):
    """One box: a question with a yes or a no. `under` is the box whose yes leads here; None is the main line."""

    id: str
    question: str
    under: str | None = None


NODES: tuple[Node, ...] = (
    Node("platform", "Did the GPU, its driver or the libraries on them fail?"),
    Node("tenant", "Does something else hold the GPU's memory?"),
    Node("refused", "Was the launch refused before a GPU was used?"),
    Node("startup", "Did it run out of memory while starting?"),
    Node("startup-free-memory", "At the check of free memory?", "startup"),
    Node("startup-weights", "While weights were loaded?", "startup"),
    Node("startup-profile", "In the pass that measures the peak?", "startup"),
    Node("startup-kv", "Was the KV cache too small, or nothing left for it?", "startup"),
    Node("startup-graphs", "While CUDA graphs were captured?", "startup"),
    Node("startup-warmup", "In the warm-up after the KV cache was made?", "startup"),
    Node("host", "Did the host run out of memory, or kill a process?"),
    Node("burst", "Did a step at run time ask for more than was left?"),
    Node("burst-logprobs", "For log-probabilities over the vocabulary?", "burst"),
    Node("burst-encoder", "In the vision or audio encoder?", "burst"),
    Node("pressure", "Is it alive but short of KV cache: preemption, swapping, a growing queue?"),
    Node("chronic", "Does memory go away over time: a leak, a fragmented allocator?"),
    Node("prefix", "Is prefix caching at fault, or useless here?"),
    Node("multigpu", "Did the communication between GPUs fail?"),
    Node("not-memory", "Did something fail that is not memory?"),
)


def node(wanted: str) -> Node:
    """The box of this id. Raises KeyError for a box that is not on the chart."""
    return {n.id: n for n in NODES}[wanted]
