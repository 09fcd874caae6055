"""The flowchart as data: its boxes in the order in which they are asked. A rule names the box that it answers."""

import msgspec

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Phase

_LOG = frozenset({Signal.LOG})
_OF_LOG = (_LOG,)
_SERVING = (_LOG, frozenset({Signal.METRICS}))


class Node(msgspec.Struct, frozen=True):
    """One box: a question with a yes or a no. `under` is the box whose yes leads here; None is the main line.

    `sources` are the sets of inputs of which one must have been read, whole, before the answer may be no. `phases` and
    `causes` say which findings are a yes, whichever box their rule answers. `statistics` says that of the log it is
    the lines of statistics that answer.
    """

    id: str
    question: str
    under: str | None = None
    sources: tuple[frozenset[Signal], ...] = _OF_LOG
    phases: frozenset[Phase] = frozenset()
    causes: frozenset[Cause] = frozenset()
    statistics: bool = False


NODES: tuple[Node, ...] = (
    Node(
        "platform",
        "Did the GPU, its driver or the libraries on them fail?",
        sources=(frozenset({Signal.LOG, Signal.KERNEL, Signal.GPUS}),),
        phases=frozenset({Phase.DRIVER_CUDA_MISMATCH, Phase.GPU_FAULT}),
    ),
    Node(
        "tenant",
        "Does something else hold the GPU's memory?",
        sources=(frozenset({Signal.GPUS}),),
        phases=frozenset({Phase.OTHER_PROCESS_ON_GPU}),
        causes=frozenset({Cause.GPU_SHARED}),
    ),
    Node(
        "refused",
        "Did vLLM refuse the launch before it used a GPU?",
        sources=(_LOG, frozenset({Signal.LAUNCH})),
        phases=frozenset({Phase.FLAG_ERROR}),
    ),
    Node("startup", "Did vLLM run out of memory while it started?"),
    Node(
        "startup-free-memory",
        "In the check of free memory?",
        "startup",
        phases=frozenset({Phase.STARTUP_FREE_MEMORY_CHECK}),
    ),
    Node("startup-weights", "While weights were loaded?", "startup", phases=frozenset({Phase.STARTUP_WEIGHTS})),
    Node("startup-profile", "In the profile run?", "startup", phases=frozenset({Phase.STARTUP_PROFILE})),
    Node(
        "startup-kv",
        "Was the KV cache too small, or was no memory left for the KV cache?",
        "startup",
        phases=frozenset({Phase.STARTUP_KV_CACHE}),
    ),
    Node("startup-graphs", "While CUDA graphs were captured?", "startup", phases=frozenset({Phase.STARTUP_CUDAGRAPH})),
    Node(
        "startup-warmup",
        "In the warm-up after the KV cache was made?",
        "startup",
        phases=frozenset({Phase.STARTUP_SAMPLER_WARMUP}),
    ),
    Node(
        "host",
        "Did the host run out of memory, or kill a process?",
        sources=(frozenset({Signal.LOG, Signal.KERNEL}),),
        phases=frozenset({Phase.HOST_RAM}),
        causes=frozenset({Cause.HOST_OOM_KILL}),
    ),
    Node(
        "burst",
        "Did a step at run time need more memory than was left?",
        phases=frozenset({Phase.RUNTIME_PREFILL_BURST}),
    ),
    Node(
        "burst-logprobs",
        "For log-probabilities over the vocabulary?",
        "burst",
        causes=frozenset({Cause.LOGPROBS_SPIKE}),
    ),
    Node("burst-encoder", "In the vision or audio encoder?", "burst"),
    Node(
        "pressure",
        "Does the server run, but lack KV cache: preemption, swapping, a growing queue?",
        sources=_SERVING,
        statistics=True,
        phases=frozenset({Phase.RUNTIME_KV_PREEMPTION}),
    ),
    Node(
        "chronic",
        "Does memory shrink over time: a leak, a fragmented allocator?",
        phases=frozenset({Phase.RUNTIME_LEAK_OR_FRAGMENTATION}),
        causes=frozenset({Cause.FRAGMENTATION}),
    ),
    Node(
        "prefix",
        "Is prefix caching at fault, or useless here?",
        sources=_SERVING,
        statistics=True,
        phases=frozenset({Phase.PREFIX_CACHE}),
    ),
    Node(
        "multigpu",
        "Did the communication between GPUs fail?",
        phases=frozenset({Phase.NCCL_OR_MULTIGPU}),
    ),
    Node("not-memory", "Did something fail that is not memory?", phases=frozenset({Phase.NOT_MEMORY})),
)


def node(wanted: str) -> Node:
    """The box of this id. Raises KeyError for a box that is not on the chart."""
    return {n.id: n for n in NODES}[wanted]
