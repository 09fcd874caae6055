"""VD602: on a machine whose GPU shares the host's memory, the log ends during the start without a word."""

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Arithmetic, Change, Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kernel_said import said_since
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.gates.unified import is_named, shares_memory
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.remedies.weights import quantize
from vllm_doctor.rules.say import finding, gib, set_flag

# What a host needs for itself: the system, page cache of the weights, the Python processes.
_HOST_GIB = 8.0
# A host that serves weights of this size and has less than a quarter of it left is short of memory, whatever its GPU.
_LARGE_GIB = 32.0


def judge(case: Case) -> Outcome:
    """Do the weights leave the host too little, and does the log stop there?"""
    run = case.run
    refused = _refused(case) or _killed(case)
    if refused is not None:
        return refused
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if run.root is not None or run.deaths or run.stopped is not None or run.served():
        return NotHere("the log does not end in silence during the start")
    weights, left = case.weights_gib, run.number("checkpoint-size", "ram")
    reached = run.reached()
    if weights is None or reached not in {
        StartupPhase.PROFILE,
        StartupPhase.KV,
        StartupPhase.GRAPHS,
        StartupPhase.WARMUP,
        StartupPhase.SAMPLER,
    }:
        return Clear("the log does not show that the weights were loaded")
    named = shares_memory(case)
    # Loading to the GPU took from the host's own memory: only a shared pool loses what the GPU gains.
    first = next((float(h.fields["ram"]) for h in run.all("checkpoint-size")), None)
    shared = first is not None and left is not None and first - left > weights / 2
    if not (named or shared or (left is not None and weights >= _LARGE_GIB and left < weights / 4)):
        return Clear("no sign that the GPU shares the host's memory, or that the host ran out of memory")
    if left is None or left > _HOST_GIB + 0.25 * weights:
        return Clear("the host had memory left")
    return finding(
        RULE,
        title=f"The log stops with {left:.1f} GiB left for the host beside {weights:.1f} GiB of weights",
        confidence=Confidence.LIKELY if named or shared else Confidence.POSSIBLE,
        evidence=(case.line(len(run.lines) - 1), case.line(run.all("weights-took")[-1].index)),
        arithmetic=_sum(weights, left),
        changes=(
            _lower(case, weights, left),
            *quantize(case),
        ),
        refute="the kernel log of the same minute (journalctl -k -b -1 after a reset) shows no OOM kill",
    )


def _refused(case: Case) -> Outcome | None:
    """The driver's own word, in the log or the kernel's: the card has no memory of its own, or nothing names it."""
    run, said = case.run, _said_by_the_driver(case)
    named = is_named(case)
    if said is None or (named and not shares_memory(case)):
        return None
    # What torch says of it without figures is the same refusal; any other failure is another cause.
    if run is not None and run.root is not None and (run.oom is not None or not run.root.ids & EXHAUSTED):
        return None
    served = run is not None and run.served()
    why = "the driver found no free page: the host uses the same memory and needs some for itself"
    return finding(
        RULE,
        title="The driver found no free memory in the pool that GPU and host share"
        if named
        else "The NVIDIA driver found no free memory; the log does not name the GPU",
        severity=Severity.WILL_FAIL_UNDER_LOAD if served else Severity.BLOCKS_START,
        # A card with memory of its own refuses it to the process that asks, and that process says so.
        confidence=Confidence.LIKELY if named or _stopped_loaded(case) or _stalled(case) else Confidence.POSSIBLE,
        evidence=(said, *(case.line(h.index) for h in (run.deaths[:1] if run is not None else ()))),
        changes=(
            lower_utilization(case, None, why if named else f"if GPU and host share their memory, {why}"),
            *(quantize(case) if named else ()),
        ),
        refute="`free -g` at that minute shows several GiB, page cache included"
        if named
        else "the GPU has separate memory (nvidia-smi -q -d MEMORY shows it)",
    )


def _stopped_loaded(case: Case) -> bool:
    """Does the log end without a word in a start that had begun to fill the card?"""
    run = case.run
    if run is None or run.root is not None or run.deaths or run.stopped is not None or run.served():
        return False
    return run.reached() not in {None, StartupPhase.CONFIG, StartupPhase.DEVICE}


def _stalled(case: Case) -> bool:
    """Does an engine that had served stand still, with requests that run?"""
    return case.run is not None and case.run.served() and bool(case.run.stalled)


def _said_by_the_driver(case: Case) -> Evidence | None:
    """From the log's lines; from the kernel's, or where nothing but a Jetson's own driver names the card, only if the
    service did not go on."""
    run = case.run
    well = run is not None and run.served() and run.root is None and not run.deaths and not run.stalled
    hit = run.first("driver-no-memory", *(() if well else ("tegra-no-memory",))) if run is not None else None
    if hit is not None and (shares_memory(case) or not well):
        return case.line(hit.index)
    told = said_since(case, "driver-no-memory") if not well else ()
    return Evidence("kernel log", f"line {told[-1].number}", told[-1].text, told[-1].at) if told else None


def _killed(case: Case) -> Outcome | None:
    """The shell says that the start was killed, after the weights, where the card's memory is the host's."""
    run = case.run
    if run is None or run.root is not None or run.stopped is not None or run.served() or not shares_memory(case):
        return None
    killed = run.first("shell-killed")
    if killed is None or run.deaths[0] != killed or case.weights_gib is None:
        return None
    killer = "the kernel kills the process with the highest oom_score: usually the largest, vLLM"
    why = f"the host uses the same memory, and when no page is left {killer}"
    return finding(
        RULE,
        title="The kernel killed the start; GPU and host share the memory",
        confidence=Confidence.LIKELY,
        evidence=(case.line(killed.index), case.line(run.all("weights-took")[-1].index)),
        changes=(
            lower_utilization(case, None, why),
            set_flag(
                case, "swap-space", 0, Direction.LOWER, "V0 pins the swap space in the same memory: 4 GiB by default"
            )
            if run.first("gpu-blocks") is not None
            else None,
            *quantize(case),
        ),
        refute="the kernel log of that minute (journalctl -k) shows no OOM kill",
    )


def _sum(weights: float, left: float) -> tuple[Arithmetic, ...]:
    return (
        gib("weights", weights, "as loaded", "the log"),
        gib("host memory left", left, "while the last weights were loaded", "the log"),
        gib("needed by the host itself", _HOST_GIB, "the system, Python, page cache", "assumed"),
    )


def _lower(case: Case, weights: float, left: float) -> Change | None:
    fraction, _ = case.utilization
    total = weights + left
    to = round(min(fraction - 0.05, (total - _HOST_GIB) / total - 0.02), 2)
    return set_flag(
        case,
        "gpu-memory-utilization",
        to,
        Direction.LOWER,
        f"the host uses the same memory: {total:.0f} GiB − {_HOST_GIB:.0f} for the host, less the peak",
    )


_READS = frozenset({Signal.LOG, Signal.KERNEL, Signal.LAUNCH, Signal.VERSION, Signal.GPUS})

RULE = rule("VD602", reads=_READS, judge=judge)
