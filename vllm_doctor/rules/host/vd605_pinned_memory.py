"""VD605: memory that the GPU reads directly could not be pinned: too much of it was asked, or a limit forbids it."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.host_claims import SWAPPED, host_claims
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import MEMLOCK, environment, finding, set_flag, thing

# The calls that take memory of the host, by their names; CUDA's own word for both is the same.
_HOST = frozenset({"host-register", "host-alloc"})
_REFUSED = _HOST | {"cuda-oom", "device-oom"}
# V0's function that makes the cache of the GPU and of the host.
_CACHE = frozenset({"_allocate_kv_cache", "allocate_cpu_cache"})
# Calls that copy weights to the host when --cpu-offload-gb asks for it.
_OFFLOADS = frozenset({"maybe_offload_to_cpu", "_maybe_offload_to_cpu", "wrap_modules"})
# Frames in which CUDA's "out of memory" means the host's memory.
_PINNING = frozenset(
    {"pin_memory", "cudaHostRegister", "cudaHostAlloc", "_allocate_cpu_kv_cache", "allocate_cpu_cache"}
)

# GB that LMCache pins where nothing is set (lmcache/v1/config.py).
_LOCAL_CACHE = 5


def judge(case: Case) -> Outcome:
    """Did pinning host memory fail?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    fault = case.root
    if fault is None or not (fault.ids & _REFUSED or _invalid(fault)):
        return NotHere("no call of CUDA failed for lack of memory")
    if not fault.ids & _HOST and not _pins(fault):
        return Clear("the failed call asks for GPU memory, not for pinned host memory")
    return finding(
        RULE,
        evidence=(case.line(_at(fault)),),
        changes=(
            *_pools(case, fault),
            thing(
                ChangeKind.OS,
                "LimitMEMLOCK",
                Direction.RAISE,
                "set it in the unit: pinned memory counts as locked memory",
                to="infinity",
                command=MEMLOCK,
            ),
        ),
        refute="the same start fails with --swap-space 0 and without offload",
    )


def _pools(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """What pins memory of the host here: the copy of a sleeping engine's weights, or pools that a start takes."""
    if fault.crash is not None and any(f.function == "sleep" for f in fault.crash.root.frames):
        why = "level 2 keeps no copy of the weights in memory of the host; who wakes the engine must load them again"
        command = f"curl -X POST 'http://127.0.0.1:{case.count('port') or 8000}/sleep?level=2'"
        return (thing(ChangeKind.OS, "sleep-level", Direction.SET, why, to=2, before=1, command=command),)
    held = host_claims(case)
    if not held and _OFFLOADS & set(fault.functions):
        why = "offloaded weights are pinned in memory of the host, this many GiB of every rank"
        return (set_flag(case, "cpu-offload-gb", None, Direction.LOWER, why),)
    if not held and any("/lmcache/" in file.replace("\\", "/").lower() for file in fault.files):
        why = "every rank pins this many GiB of the host for LMCache; max_local_cpu_size in its file"
        name, told = "LMCACHE_MAX_LOCAL_CPU_SIZE", case.env("LMCACHE_MAX_LOCAL_CPU_SIZE")
        now = float(told) if told is not None and told.replace(".", "", 1).isdigit() else None
        to = max(1, int((now or _LOCAL_CACHE) / 2))
        return (environment(name, Direction.LOWER, why, to=to, before=now),)
    if held:
        return tuple(claim.change for claim in held)
    why = "vLLM pins CPU blocks at start, this many GiB per GPU (4 by default)"
    old = SWAPPED if case.run is not None and case.run.engine == "V0" else None
    return (set_flag(case, "swap-space", 0, Direction.LOWER, why, until=old),)


def _at(fault: Fault) -> int:
    """The line that says it."""
    at = fault.crash.root.at if fault.crash is not None and not fault.hits else None
    return at if at is not None else fault.hits[0].index if fault.hits else fault.last


def _invalid(fault: Fault) -> bool:
    """More than can be pinned is an invalid argument to some drivers. What V0 fills when it makes the cache is either
    the GPU's, which has no such answer, or the host's."""
    if fault.crash is None or not says(fault.crash.root.message, "invalid-argument"):
        return False
    return any(f.function in _CACHE or says(f.code, "code-pins") for f in fault.crash.root.frames[-3:])


def _pins(fault: Fault) -> bool:
    if _invalid(fault):
        return True
    last = fault.crash.root.frames[-3:] if fault.crash is not None else ()
    return any(f.function in _PINNING or says(f.code, "code-pins") for f in last)


RULE = rule("VD605", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
