"""VD803: NCCL, Gloo or vLLM's own all-reduce could not set up or use the paths between the ranks."""

from vllm_doctor.knowledge import kernels
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.named_fault import named, severity, shown, text
from vllm_doctor.rules.gates.shared_memory import SAID, said_by_nccl
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.compilation import with_passes_off
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.remedies.nccl_call import NcclWarning, call_told
from vllm_doctor.rules.remedies.rank_wait import between_hosts, network
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.say import SHM, environment, finding, set_flag, thing

_IDS = (
    "nccl-system",
    "nccl-unhandled",
    "nccl-internal",
    "all-reduce-arg",
    "nccl-any",
    "nccl-numbered",
    "nccl-shm-attach",
    "nccl-cupy",
    "gloo",
    "ordinal-peer",
    "expandable-shared",
)


# The title of each of NCCL's results, by its field of the message nccl-result.
_RESULTS = {
    "system": "A call of NCCL to the system failed: shared memory, sockets or files",
    "cuda": "A call of NCCL to CUDA failed",
    "remote": "A rank's process ended, or the network between the ranks broke",
    "usage": "NCCL is used in a way that it does not allow",
    "argument": "NCCL rejects an argument of a call",
    "internal": "An internal NCCL check failed",
}
_SHM_VOLUME = thing(
    ChangeKind.OS,
    "shm volume",
    Direction.RAISE,
    "in a container the call that fails is usually the one for a segment in /dev/shm, which has 64 MiB by default",
    command=SHM,
)
_ONE_GPU_EACH = environment(
    "CUDA_VISIBLE_DEVICES",
    Direction.CHANGE,
    "most often two ranks of one communicator are on the same GPU: give each process, a trainer and its "
    "server too, one that no other has",
    command="nvidia-smi -L; nvidia-smi --query-compute-apps=pid,gpu_uuid --format=csv",
)
_NO_SEGMENTS = environment("PYTORCH_CUDA_ALLOC_CONF", Direction.REMOVE, "expandable_segments breaks custom all-reduce")
# NCCL's own last error follows torch's sentence by so many lines at most.
_BELOW = 8


def judge(case: Case) -> Outcome:
    """Did NCCL fail?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return _alone(case) or fault
    if fault.ids & set(SAID) or said_by_nccl(case) is not None:
        return Clear("/dev/shm is full")
    if (at := _no_memory(case, fault)) is not None:
        return _full(case, fault, at)
    said = call_told(case)
    if said is not None:
        return _told(case, fault, said)
    own = _own(fault)
    if fault.ids & frozenset(_IDS) == {"ordinal-peer"} and not own:
        return _no_peer(case, fault)
    return finding(
        RULE,
        title=_title(fault, text(case, fault), own=own),
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=_changes(case, fault, own=own),
        refute=_REFUTE,
    )


def _full(case: Case, fault: Fault, at: int) -> Finding:
    """NCCL itself says that CUDA had no memory for it."""
    return finding(
        RULE,
        title="NCCL found no free GPU memory for its buffers",
        severity=severity(case, fault),
        evidence=(*shown(case, fault, *_IDS), case.line(at)),
        changes=(stop_others(case, "vLLM had put nothing on the GPUs yet: something else holds the memory"),)
        if fault.startup_phase is StartupPhase.DEVICE
        else (
            lower_utilization(case, None, "NCCL takes its buffers outside gpu_memory_utilization"),
            stop_others(case, "if something else holds the memory"),
        ),
        refute=f"{maker_tool(case).name} shows a GiB free on each of the GPUs at that moment",
    )


def _told(case: Case, fault: Fault, said: NcclWarning) -> Finding:
    """NCCL's own warning names the call that failed."""
    return finding(
        RULE,
        title=said.title,
        severity=severity(case, fault),
        confidence=Confidence.CONFIRMED if said.sure else Confidence.LIKELY,
        evidence=(case.line(said.index), *shown(case, fault, *_IDS)),
        changes=said.changes,
        refute=_REFUTE,
    )


def _changes(case: Case, fault: Fault, *, own: bool) -> tuple[Change | None, ...]:
    """What helps where no line names the call: of Gloo, of another host, of this one, of vLLM's own all-reduce."""
    segments = _NO_SEGMENTS if fault.ids & {"all-reduce-arg", "expandable-shared"} else None
    if "gloo" in fault.ids:
        return (*_gloo(case), segments)
    afar = not own and between_hosts(case)
    of_shm = "nccl-system" in fault.ids or says(_why(fault) or "", "nccl-of-the-system")
    same_gpu = not own and "usage" in (read("nccl-result", text(case, fault)) or ())
    return (
        *(network(case) if afar else ()),
        _SHM_VOLUME if of_shm and not afar else None,
        _ONE_GPU_EACH if same_gpu else None,
        environment("NCCL_DEBUG", Direction.SET, "shows which call failed", to="INFO")
        if not own and not afar
        else None,
        _own_off(case) if not afar else None,
        segments,
    )


def _no_peer(case: Case, fault: Fault) -> Finding:
    """CUDA itself says so of a call that is not NCCL's: a kernel that reads another GPU's memory directly, as vLLM's
    all-reduce does, and what is fused with it."""
    return finding(
        RULE,
        title="A kernel reads another GPU's memory directly, which these GPUs do not allow",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=(
            _own_off(case),
            _unfused(case),
        ),
        refute="nvidia-smi topo -p2p r shows OK between all GPUs of the launch",
    )


def _own_off(case: Case) -> Change | None:
    return set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "uses NCCL's all-reduce instead of vLLM's")


def _unfused(case: Case) -> Change | None:
    """The pass that fuses the all-reduce with what follows it, off, where the release has it."""
    if not kernels.has("pass_config", "fuse_allreduce_rms", case.release):
        return None
    why = "the kernel that is the all-reduce and the normalisation in one reads the other GPUs' memory, too"
    return with_passes_off(case, ("fuse_allreduce_rms",), why)


def _no_memory(case: Case, fault: Fault) -> int | None:
    """The line in which NCCL itself says that CUDA had no memory for it, in or just below the failure."""
    run = case.run
    if run is None:
        return None
    below = range(fault.index, min(len(run.lines), fault.last + _BELOW))
    return next((at for at in below if says(run.lines[at].text, "nccl-no-memory")), None)


def _own(fault: Fault) -> bool:
    """Was it vLLM's own all-reduce, whose ranks open each other's memory without NCCL?"""
    return bool(fault.ids & {"all-reduce-arg", "expandable-shared"}) or any(
        says(file, "call-own-all-reduce") for file in fault.files
    )


def _title(fault: Fault, said: str, *, own: bool) -> str:
    if "gloo" in fault.ids:
        return "Gloo failed: the ranks' processes do not reach each other"
    if own:
        return "vLLM's own all-reduce failed: a rank cannot use another GPU's memory"
    return next((_RESULTS[result] for result in read("nccl-result", said) or ()), "")


def _alone(case: Case) -> Finding | None:
    """NCCL's warning of a call that no communicator survives, in an excerpt that shows nothing else."""
    run, said = case.run, call_told(case)
    if run is None or case.root is not None or said is None or not said.ends or run.served():
        return None
    evidence = (case.line(said.index),)
    return finding(
        RULE,
        title=said.title,
        confidence=Confidence.LIKELY,
        evidence=evidence,
        changes=said.changes,
        refute=_REFUTE,
    )


def _gloo(case: Case) -> tuple[Change, ...]:
    """Gloo listens at the address of the host's own name; where that is the loopback, no other host reaches it."""
    name = "GLOO_SOCKET_IFNAME"
    there = Direction.CHANGE if case.env(name) is not None else Direction.SET
    return (
        environment(
            name,
            there,
            "name, on each host, the interface over which the hosts reach each other",
            command="ip -br addr",
        ),
        environment("VLLM_HOST_IP", Direction.SET, "this host's address on that interface", command="ip -br addr"),
    )


_REFUTE = "a single GPU fails in the same way"


def _why(fault: Fault) -> str | None:
    named = ("nccl-any", "nccl-numbered", "nccl-cupy")
    return next((why for name in named if (why := fault.fields(name).get("why"))), None)


RULE = rule("VD803", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
