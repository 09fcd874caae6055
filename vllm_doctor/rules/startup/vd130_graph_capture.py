"""VD130: the capture of CUDA graphs runs out of memory."""

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Arithmetic, Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import compiles_programs, platform
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, sums, tenants, told_whose
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.step import eager, sequences
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.remedies.weights import lighter
from vllm_doctor.rules.say import environment, finding, gib, set_flag

# The capture that measures what graphs need, before the KV cache is sized: no fraction changes what it finds free.
_MEASURES = "profile_cudagraph_memory"
# vllm-gaudi, worker/hpu_worker.py: the part of the usable memory that is kept for graphs, and what is set without it.
_GAUDI, _RESERVED, _RESERVED_DEFAULT, _MORE_RESERVED = "hpu", "VLLM_GRAPH_RESERVED_MEM", 0.1, 0.15


def judge(case: Case) -> Outcome:
    """Was the GPU's memory exhausted while graphs were captured?"""
    oom = exhausted(case, StartupPhase.GRAPHS)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if compiles_programs(case):
        return NotHere("this platform compiles programs and captures no graphs")
    if tenants(case, oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    if _MEASURES in oom.fault.functions:
        return _of_the_measure(case, oom)
    if platform(case) == _GAUDI:
        return _of_gaudi(case, oom)
    return finding(
        RULE,
        title="CUDA graph capture ran out of memory: the KV cache left too little",
        confidence=Confidence.CONFIRMED if told_whose(oom) else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(*sums(oom.torch), *_graphs(case)),
        changes=(
            lower_utilization(
                case, oom.torch, "vLLM captures graphs after it allocates the KV cache, in the memory that is left"
            ),
            _count_graphs(case),
            _fewer_sizes(case),
            _fewer_batches(case),
            eager(case),
        ),
        refute="the same launch with --enforce-eager fails as well",
    )


def _of_the_measure(case: Case, oom: Oom) -> Finding:
    return finding(
        RULE,
        title="The capture that measures CUDA graphs does not fit beside the weights",
        confidence=Confidence.CONFIRMED if told_whose(oom) else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(_fewer_sizes(case), _fewer_batches(case), eager(case), *lighter(case)),
        refute="the same launch with --enforce-eager fails as well",
    )


def _of_gaudi(case: Case, oom: Oom) -> Finding:
    """vllm-gaudi keeps a part of what is usable for HPU Graphs, and warms up buckets of every size in it."""
    printed = case.run.number("gaudi-share", "graphs") if case.run is not None else None
    told = case.env(_RESERVED) or (f"{printed:g}" if printed is not None else None)
    now = float(told) if told is not None and told.replace(".", "", 1).isdigit() else _RESERVED_DEFAULT
    why = f"this part of the usable memory is kept for graphs and not given to the KV cache: {now:g} was too little"
    return finding(
        RULE,
        title="HPU Graphs ran out of memory: the KV cache left too little",
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(
            environment(_RESERVED, Direction.RAISE, why, to=round(now + _MORE_RESERVED, 2), before=told)
            if now + _MORE_RESERVED < 1
            else None,
            lower_utilization(case, oom.torch, "the warm-up works in the memory that the KV cache leaves"),
            eager(case, "without HPU Graphs no memory is needed for them"),
        ),
        refute="the same launch with --enforce-eager fails as well",
    )


def _graphs(case: Case) -> tuple[Arithmetic, ...]:
    run = case.run
    fraction, source = case.utilization
    total = case.total_gib
    found = []
    estimate = run.number("graphs-estimate", "size") if run is not None else None
    if estimate is not None:
        found.append(gib("graphs, as estimated", estimate, "before the KV cache was sized", "the log"))
    if total is not None and case.fraction_told:
        found.append(
            gib("left outside the budget", total * (1 - fraction), f"{total:.2f} × (1 − {fraction:g})", source)
        )
    return tuple(found)


def _count_graphs(case: Case) -> Change | None:
    """0.18.0 to 0.19.1 estimate the graphs and do not subtract the estimate unless told to."""
    run = case.run
    estimate = run.number("graphs-estimate", "size") if run is not None else None
    if estimate is None or case.version is None or not Version((0, 18)) <= case.version < Version((0, 20)):
        return None
    name = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
    why = f"makes the KV cache smaller by the {estimate:.2f} GiB that the graphs are estimated to need"
    return environment(name, Direction.SET, why, to=1, before=case.env(name), applicability=Applicability.NEEDS_REVIEW)


def _fewer_batches(case: Case) -> Change | None:
    """No graph is captured for a batch that cannot occur: V0 up to max_num_seqs, V1 up to twice as many tokens."""
    now = sequences(case)[0]
    to = min(64, now // 2)
    if to < 8:
        return None
    why = f"vLLM captures only sizes that {now} sequences can fill"
    return set_flag(case, "max-num-seqs", to, Direction.LOWER, why)


def _fewer_sizes(case: Case) -> Change | None:
    for name in ("max-cudagraph-capture-size", "cudagraph-capture-sizes", "cuda-graph-sizes"):
        if case.has_flag(name) is not None:
            to = 64 if name == "max-cudagraph-capture-size" else "1 2 4 8 16 32 64"
            return set_flag(
                case, name, to, Direction.LOWER, "captures fewer and smaller graphs; larger batches run without a graph"
            )
    if case.run is not None and case.run.engine == "V1":
        return None  # V0's runner alone reads it (worker/model_runner.py)
    return set_flag(case, "max-seq-len-to-capture", 2048, Direction.LOWER, "smaller graph buffers")


RULE = rule("VD130", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
