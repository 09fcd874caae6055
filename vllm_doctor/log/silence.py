"""How long a start may say nothing, step by step, and where to look when it is longer."""

from datetime import datetime

import msgspec

from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase

# Compiling kernels and loading from a slow disk print nothing for a few minutes in starts that are in order.
WORTH_TELLING = 5
_DUMP = "py-spy dump of the main process and of each worker shows where they wait"
_COMPILED = "graphs are captured or kernels compiled: ps for nvcc, ninja or ptxas, py-spy dump of the worker"


class Usual(msgspec.Struct, frozen=True):
    """A step of the start: what it usually takes, from how many minutes on its silence is a fault, where to look."""

    usual: str
    minutes: int
    look: str


# By the step that is under way. What is usual is what 120 starts printed (docs/measurements/diagnosis.md): weights
# 24 s at the median, 12 min in a tenth, two above an hour; profile to warm-up 45 s, 3 min in a tenth, 13 min at most;
# graphs 8 s, 3 min at most; compiling 21 s, 7 min at most. The bounds stand above the longest that was seen in order.
_STEPS: dict[StartupPhase | None, Usual] = {
    StartupPhase.CONFIG: Usual(
        "within a minute", 10, f"the hub may not answer (HF_HUB_OFFLINE=1 does without it); {_DUMP}"
    ),
    StartupPhase.DEVICE: Usual(
        "within a minute, ranks of several hosts within a few",
        10,
        "the ranks may wait for one another: py-spy dump of each, NCCL_DEBUG=INFO, and is every rank there?",
    ),
    StartupPhase.WEIGHTS: Usual(
        "half a minute; a quarter of an hour and more from a network, or while they are downloaded",
        90,
        "weights may come slowly: does the disk or the network read (iostat, df on the hub's cache)?",
    ),
    StartupPhase.PROFILE: Usual(
        "a minute; up to ten where kernels are compiled for the first time",
        15,
        "the largest batch, dummy images and videos with it, is computed, or a kernel is compiled: "
        "nvidia-smi, ps for nvcc, ninja or ptxas, py-spy dump of the worker; limit-mm-per-prompt makes the dummies "
        "fewer",
    ),
    StartupPhase.PROFILE_ENCODER: Usual(
        "within two minutes",
        15,
        "dummy images and videos are computed: nvidia-smi, py-spy dump of the worker; "
        "limit-mm-per-prompt makes them fewer or smaller",
    ),
    StartupPhase.KV: Usual("a minute; up to ten where kernels are compiled for the first time", 15, _COMPILED),
    StartupPhase.GRAPHS: Usual(
        "ten seconds; up to ten minutes where kernels are compiled for the first time", 15, _COMPILED
    ),
}
_ANY = Usual("a few minutes", 15, _DUMP)


def current(run: AnalysedRun) -> StartupPhase | None:
    """The step that is under way: after an engine announced itself, its ranks open their devices and meet."""
    reached = run.reached()
    return StartupPhase.DEVICE if reached is StartupPhase.CONFIG and run.first("engine-config") is not None else reached


def step(reached: StartupPhase | None) -> Usual:
    """What is known of the silence that follows this step."""
    return _STEPS.get(reached, _ANY)


def minutes(run: AnalysedRun, taken_at: str) -> float:
    """How old the last line of a run is whose start is not complete; 0 where that is not known."""
    if run.served(-1) or not run.lines:
        return 0
    said = next((line.at for line in reversed(run.lines) if line.at), None)
    if said is None:
        return 0
    try:
        return (datetime.fromisoformat(taken_at) - datetime.fromisoformat(said)).total_seconds() / 60
    except (ValueError, TypeError):  # a time of no zone, or none at all
        return 0
