"""How long a start may say nothing, step by step, and where to look when it is longer."""

from datetime import datetime

import msgspec

from vllm_doctor.log.clock import second_of_year
from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.run import ORDER
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


# By the step that is under way. What is usual is what 120 starts printed (docs/measurements/sets.md): weights
# 24 s at the median, 12 min in a tenth, two above an hour; profile to warm-up 45 s, 3 min in a tenth, 13 min at most;
# graphs 8 s, 3 min at most; compiling 21 s, 7 min at most. The bounds stand above the longest that was seen in order.
_STEPS: dict[StartupPhase | None, Usual] = {
    StartupPhase.CONFIG: Usual(
        "within a minute", 10, f"the hub may not answer (HF_HUB_OFFLINE=1 does not ask it); {_DUMP}"
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
_DEVICES = "seconds; a minute or two where ranks of several hosts meet"
_BATCH = "offline-progress"
_OWN = "--disable-custom-all-reduce uses NCCL's all-reduce instead"
_WEIGHTS = _STEPS[StartupPhase.WEIGHTS]
_COMPILES = Usual(
    "half a minute; up to ten where nothing is cached",
    20,
    "torch.compile works next: Dynamo traces the model, and Inductor compiles it: ps for its compile processes, ptxas "
    "or cicc, py-spy dump of the worker; a cache folder on a network waits for its locks (VLLM_CACHE_ROOT, "
    "TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR name local ones); --enforce-eager compiles nothing",
)
_FLASHINFER = Usual(
    "a minute; up to twenty where kernels are compiled for the first time",
    30,
    "FlashInfer tries its kernels next, and compiles those that its cache lacks: ps for nvcc, cicc or ninja; a lock "
    "that a killed build left stops it (find ~/.cache/flashinfer -name '*.lock'); kernel_config with "
    "enable_flashinfer_autotune false skips the tries",
)
# By the line after which starts are known to stand still: what the ranks do next, and what is known to end it.
_WAITS: dict[str, Usual] = {
    "wait-nccl": Usual(
        _DEVICES,
        10,
        "NCCL opens its paths between the GPUs next; on one host an IOMMU or ACS that breaks direct copies stops it: "
        "start once with NCCL_P2P_DISABLE=1; between hosts it is the interface or a firewall: NCCL_DEBUG=INFO shows "
        "which, NCCL_SOCKET_IFNAME names it",
    ),
    "wait-peer-test": Usual(
        "seconds for each pair of GPUs, once",
        10,
        "vLLM tries direct copies between each pair of GPUs next, in separate processes: "
        "--disable-custom-all-reduce skips the test; remove the file that an interrupted test left in the cache "
        "folder (gpu_p2p_access_cache_for_*.json)",
    ),
    "wait-queue": Usual(
        _DEVICES,
        10,
        "the ranks connect to this queue next, each over its own host's address: is every rank there, and does "
        f"VLLM_HOST_IP name an address that the others reach? {_DUMP}",
    ),
    "wait-graph-addresses": Usual(
        "seconds", 10, f"the ranks exchange the addresses of vLLM's own all-reduce next: {_OWN}"
    ),
    "graphs-start": Usual(
        "ten seconds; up to ten minutes where kernels are compiled for the first time",
        15,
        f"a graph is captured: on several GPUs {_OWN}, --enforce-eager captures no graph; {_COMPILED}",
    ),
    "wait-weight-files": Usual(
        _WEIGHTS.usual,
        _WEIGHTS.minutes,
        "the files are downloaded next, without a bar: does the hub's cache grow (du -sh)? a lock of a killed process "
        "stops it (find ~/.cache/huggingface /tmp -name '*.lock'); a local folder needs neither",
    ),
    "wait-compile-cache": _COMPILES,
    "wait-compile": _COMPILES,
    "wait-deep-gemm": Usual(
        "a minute; half an hour the first time, a kernel for each shape",
        60,
        "DeepGEMM compiles a kernel for each shape next: its bar grows, ps shows nvcc or its compile processes; "
        "the next start finds them in the cache (~/.cache/vllm/deep_gemm), if that folder is kept; "
        "VLLM_DEEP_GEMM_WARMUP=skip leaves them to the first requests (VLLM_SKIP_DEEP_GEMM_WARMUP=1 before 0.12)",
    ),
    "wait-flashinfer": _FLASHINFER,
    "wait-autotuner": _FLASHINFER,
    "wait-ray": Usual(
        "seconds",
        10,
        "Ray connects, and then waits for the GPUs of the placement group: ray status shows both, whether the head "
        "answers and what is asked for and free; the head's port and its workers' must be open between the hosts",
    ),
    "wait-placement": Usual(
        "seconds, where the GPUs are free",
        10,
        "Ray looks for the GPUs of all ranks, and vLLM soon counts how long it waits for them: ray status shows what "
        "is asked for and free, and whether each node has the address that VLLM_HOST_IP names there",
    ),
    "lmcache-engine": Usual(
        "seconds; minutes where the pool has hundreds of GiB",
        10,
        "LMCache takes its whole local pool of the host's memory next, and pins it, in every rank "
        "(max_local_cpu_size GB each, LMCACHE_MAX_LOCAL_CPU_SIZE): free -h and the container's limit must hold all "
        "of them; if a process is gone, journalctl -k or kubectl describe says whether it was killed for memory",
    ),
    _BATCH: Usual(
        "seconds; a few minutes where kernels are compiled for the first time",
        15,
        f"the first step of the batch is computed: nvidia-smi shows whether the GPUs compute; on several GPUs "
        f"{_OWN}, and NCCL_P2P_DISABLE=1 tells a broken direct copy; {_DUMP}",
    ),
    "weights-shards": Usual(
        _WEIGHTS.usual,
        _WEIGHTS.minutes,
        f"{_WEIGHTS.look} safetensors are mapped, and a network reads a mapping in small pieces: "
        "--safetensors-load-strategy prefetch (eager before 0.19) reads each file whole, into memory of the host",
    ),
}
# Ranks write the same line one after another, and a page adds a mark where it was cut.
_LAST = 24
_TELLING = 3
_ANY = Usual("a few minutes", 15, _DUMP)


def current(run: AnalysedRun) -> StartupPhase | None:
    """The step that is under way: after an engine announced itself, its ranks open their devices and meet."""
    reached = run.reached()
    return StartupPhase.DEVICE if reached is StartupPhase.CONFIG and run.first("engine-config") is not None else reached


def step(reached: StartupPhase | None) -> Usual:
    """What is known of the silence that follows this step."""
    return _STEPS.get(reached, _ANY)


def wait(run: AnalysedRun) -> Hit | None:
    """The line with which the run ends, where starts are known to stand still after it; None where it is another."""
    end = len(run.lines)
    # of a batch, only its very beginning: a bar that has grown shows steps that were computed
    told = (h for h in reversed(run.hits) if h.id in _WAITS and (h.id != _BATCH or int(h.fields.get("done", 1)) == 0))
    found = next(told, None)
    if found is None:
        return None
    own = run.lines[found.index]
    # that a process waits for another is said by the clock, and no step of the start
    waits = {hit.index for told in ("broadcast-wait", "engine-awaited") for hit in run.all(told)}
    below = ((i, run.lines[i]) for i in range(found.index + 1, end))
    after = [line for i, line in below if i not in waits and not says(line.text, "front-end-waits")]
    spoken = any(line.level is not None and line.module != own.module for line in after if line.text.strip())
    return None if spoken or len(after) >= _LAST else found


class Behind(msgspec.Struct, frozen=True):
    """A rank whose last step is an earlier one than all others'; `index` is its last line of a step."""

    rank: str
    index: int
    step: StartupPhase
    others: StartupPhase

    def __str__(self) -> str:
        """In one clause."""
        return (
            f"{self.rank} is behind: last seen in the phase {self.step.value}, the others reached {self.others.value}"
        )


def behind(run: AnalysedRun) -> Behind | None:
    """The one rank that stays behind, where the ranks sign what they write and all others came further."""
    if run.served():
        return None
    last: dict[str, tuple[int, StartupPhase]] = {}
    for index, stage in run.miles:
        name = run.lines[index].process or ""
        if says(name, "process-of-worker"):
            key = name if "_" in name else f"{name} of process {run.lines[index].pid}"
            if key not in last or ORDER[stage] >= ORDER[last[key][1]]:
                last[key] = (index, stage)
    least = min((stage for _, stage in last.values()), key=ORDER.__getitem__, default=None)
    found = [(name, index) for name, (index, stage) in last.items() if stage is least]
    others = {stage for _, stage in last.values()} - {least}
    # Where the first rank alone says what all do, of two ranks neither can be told from the other.
    if least is None or len(found) != 1 or len(last) < _TELLING or not others:
        return None
    return Behind(*found[0], least, min(others, key=ORDER.__getitem__))


def usual(run: AnalysedRun) -> Usual:
    """What is known of the silence in which the run ends: by its last line, else by its step."""
    last = wait(run)
    return _WAITS[last.id] if last is not None else step(current(run))


def before_the_stop(run: AnalysedRun) -> float:
    """For how many minutes a run had said nothing when its stop began; 0 where that is not known."""
    stop = run.stopped if run.stopped is not None else len(run.lines)
    said = next((line.at for line in reversed(run.lines[:stop]) if line.at), None)
    ended = next((line.at for line in run.lines[stop:] if line.at), None)
    begun, end = second_of_year(said), second_of_year(ended)
    return max(0, end - begun) / 60 if begun is not None and end is not None else 0


def minutes(run: AnalysedRun, taken_at: str) -> float:
    """How old the last line of a run is whose start is not complete; 0 where that is not known."""
    if run.served() or not run.lines:
        return 0
    said = next((line.at for line in reversed(run.lines) if line.at), None)
    if said is None:
        return 0
    try:
        return (datetime.fromisoformat(taken_at) - datetime.fromisoformat(said)).total_seconds() / 60
    except (ValueError, TypeError):  # a time of no zone, or none at all
        return 0
