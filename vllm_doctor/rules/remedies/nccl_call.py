"""The call of which NCCL says that it failed, and the setting on which that call hangs.

Settings and their defaults: NCCL's documentation of its environment. Where a warning stands in NCCL's source says which
transport it is about: `p2p` copies between cards, `shm` host memory between ranks of a host, `nvls` multicast in the
switches, `net_ib` and `ibvwrap` RDMA, `socket` and `bootstrap` TCP.
"""

import msgspec

from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import MEMLOCK, environment, thing

BUFFER = "NCCL_BUFFSIZE"
# From this release on host memory that ranks share is taken through the driver (cuMem) rather than from /dev/shm.
_CUMEM_HOST = (2, 24)

_SOCKETS = environment(
    "NCCL_IB_DISABLE",
    Direction.SET,
    "uses sockets instead of RDMA: slower, but shows whether RDMA alone is at fault",
    to="1",
)
_GID = environment(
    "NCCL_IB_GID_INDEX",
    Direction.CHANGE,
    (
        "the GID at this index is empty or does not reach the other host; show_gids, or "
        "/sys/class/infiniband/*/ports/*/gids, shows the RoCE v2 entry with an address; without the "
        "variable NCCL finds the index itself"
    ),
    command="show_gids || grep -H . /sys/class/infiniband/*/ports/*/gids/*",
)
_ADAPTERS = environment(
    "NCCL_IB_HCA",
    Direction.SET,
    "name only the adapters over which the hosts reach each other",
    command="ibv_devinfo; rdma link",
)
_GPU_DIRECT = environment(
    "NCCL_NET_GDR_LEVEL",
    Direction.SET,
    ("turns off RDMA directly into GPU memory, which an IOMMU, or ACS between GPU and adapter, breaks"),
    to="LOC",
)
_INTERFACE = environment(
    "NCCL_SOCKET_IFNAME",
    Direction.CHANGE,
    "name the interface over which the ranks reach each other",
    command="ip -br addr",
)
_NO_PEER = environment(
    "NCCL_P2P_DISABLE", Direction.SET, "copies through host memory instead of from GPU to GPU: slower", to="1"
)
_NO_CUMEM_HOST = environment(
    "NCCL_CUMEM_HOST_ENABLE",
    Direction.SET,
    (
        "takes host memory from /dev/shm instead of through the driver (cuMem), which needs GPUs "
        "that reach each other, and in a container the right to bind memory to a NUMA node "
        "(--cap-add SYS_NICE)"
    ),
    to="0",
)
_NO_CUMEM = environment(
    "NCCL_CUMEM_ENABLE",
    Direction.SET,
    ("allocates buffers without the driver's virtual memory (cuMem), which virtual GPUs and WSL lack"),
    to="0",
)
_NO_MULTICAST = environment(
    "NCCL_NVLS_ENABLE",
    Direction.SET,
    "turns off multicast in the switches (NVLink SHARP); NVLink itself stays in use",
    to="0",
)
_FABRIC = thing(
    ChangeKind.OS,
    "nvidia-fabricmanager",
    Direction.REPAIR,
    (
        "the fabric manager sets up multicast in the switches: check that it runs, in the version of "
        "the driver; a reboot clears groups that ended processes left"
    ),
    command="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric",
)
_NO_SHARED = environment(
    "NCCL_SHM_DISABLE",
    Direction.SET,
    (
        "uses the network between ranks of one host that do not see the same /dev/shm; or let their "
        "containers share it (--ipc=host)"
    ),
    to="1",
)
_LOCKED = (
    thing(
        ChangeKind.OS,
        "LimitMEMLOCK",
        Direction.RAISE,
        "RDMA locks its buffers in memory; a container needs --ulimit memlock=-1",
        to="infinity",
        command=MEMLOCK,
    ),
    environment(BUFFER, Direction.REMOVE, "a larger NCCL_BUFFSIZE registers more memory at once; the default is 4 MiB"),
    _SOCKETS,
)


class _Call(msgspec.Struct, frozen=True):
    """A warning by NCCL's files (any where empty) and the message of its words. `title` is the problem; `ends`: no
    communicator survives it; not `sure`: it may also stand before a failure of another kind."""

    files: tuple[str, ...]
    words: str
    changes: tuple[Change, ...]
    title: str
    ends: bool = False
    sure: bool = True


_ONE_GPU_EACH = environment(
    "CUDA_VISIBLE_DEVICES",
    Direction.CHANGE,
    "two ranks of one communicator are on the same GPU: give each process, a trainer and its server too, its own",
    command="nvidia-smi -L; nvidia-smi --query-compute-apps=pid,gpu_uuid --format=csv",
)
_NO_MNNVL = environment(
    "NCCL_MNNVL_ENABLE",
    Direction.SET,
    "NVLink between hosts needs the IMEX daemon on each of them and its channels in the container; without it the "
    "network is used",
    to="0",
)
_IMEX = thing(
    ChangeKind.OS,
    "nvidia-imex",
    Direction.REPAIR,
    "the domain must show every host as ready, and a container needs /dev/nvidia-caps-imex-channels",
    command="nvidia-imex-ctl -N; ls /dev/nvidia-caps-imex-channels",
)
_ONE_NCCL = thing(
    ChangeKind.PACKAGE,
    "nvidia-nccl",
    Direction.CHANGE,
    "all ranks, on every host, load the same release of NCCL: one image for all, and no other libnccl before it",
    command="python -c 'import torch; print(torch.cuda.nccl.version())'; env | grep -E 'VLLM_NCCL_SO_PATH|LD_PRELOAD'",
)
_NO_PLUGIN = environment(
    "NCCL_NET_PLUGIN",
    Direction.SET,
    "a plugin for the network (EFA, TCPX, SHARP) that does not start keeps NCCL from its own sockets and RDMA",
    to="none",
)
_TOPOLOGY = environment(
    "NCCL_TOPO_FILE",
    Direction.REMOVE,
    "a file that was written for another machine, or a container that does not see /sys, shows paths that are not "
    "there; without the variable NCCL looks itself",
    command="env | grep -E 'NCCL_(TOPO|GRAPH)'; nvidia-smi topo -m",
)
_SETTING = thing(
    ChangeKind.OS,
    "nccl-settings",
    Direction.REPAIR,
    "the warning names the variable: take it out, or give it a value that this release of NCCL knows",
    command="env | grep ^NCCL_; cat /etc/nccl.conf ~/.nccl.conf 2>/dev/null",
)
_LIMITS = thing(
    ChangeKind.OS,
    "LimitNOFILE",
    Direction.RAISE,
    "each rank holds sockets and threads for every other one: raise the limits of open files and of tasks",
    command="ulimit -n; ulimit -u; systemctl show -p LimitNOFILE -p TasksMax UNIT",
)
_HOST_MEMORY = thing(
    ChangeKind.OS,
    "host-memory",
    Direction.RAISE,
    "NCCL's buffers for the processor are in the host's memory, which the group's limit or other processes take",
    command="free -h; cat /sys/fs/cgroup/memory.max",
)
_OTHER_RANK = thing(
    ChangeKind.OS,
    "other-rank",
    Direction.REPAIR,
    "this rank only sees that another one is gone: the log of the rank, or host, that is named says why",
    command="grep -n -m5 -E 'ERROR|Traceback|Killed' LOG-OF-THE-OTHER-RANK",
)
_DRIVER = thing(
    ChangeKind.OS,
    "gpu-driver",
    Direction.REPAIR,
    "NCCL only reports it: the call's own words, and the kernel's lines of that minute, say what the card or driver "
    "refused",
    command="journalctl -k --since -1h | grep -iE 'NVRM|Xid'; nvidia-smi",
)
_OTHER_NCCL = thing(
    ChangeKind.PACKAGE,
    "nvidia-nccl",
    Direction.CHANGE,
    "a check inside NCCL failed: another release of the same CUDA may not; VLLM_NCCL_SO_PATH names its file to vLLM",
    command="pip download --no-deps nvidia-nccl-cu12 -d /tmp/nccl   # unpack; VLLM_NCCL_SO_PATH=/…/libnccl.so.2",
)
# The first that fits; what follows in the words of a later one may be an effect of it.
_CALLS: tuple[_Call, ...] = (
    _Call((), "nccl-call-same-gpu", (_ONE_GPU_EACH,), "Two ranks of NCCL are on the same GPU", ends=True),
    _Call((), "nccl-call-mnnvl", (_NO_MNNVL, _IMEX), "NCCL's NVLink between hosts does not work here", sure=False),
    _Call((), "nccl-call-multicast", (_NO_MULTICAST, _FABRIC), "NCCL's multicast in the switches failed", ends=True),
    _Call(("nvls",), "nccl-call-cuda", (_NO_MULTICAST, _FABRIC), "NCCL's multicast in the switches failed", ends=True),
    _Call(("shm",), "nccl-call-cuda-failure", (_NO_CUMEM_HOST,), "NCCL cannot share host memory by cuMem", ends=True),
    _Call(("p2p",), "nccl-call-peer", (_NO_PEER, _NO_CUMEM), "NCCL cannot copy from GPU to GPU here", ends=True),
    _Call(
        ("alloc", "cudawrap"),
        "nccl-call-refused",
        (_NO_CUMEM,),
        "The driver refuses NCCL's way of taking memory (cuMem)",
        ends=True,
    ),
    _Call((), "nccl-call-versions", (_ONE_NCCL,), "The ranks run different releases of NCCL", ends=True),
    _Call((), "nccl-call-shared-memory", (_NO_SHARED,), "The ranks do not see the same /dev/shm", ends=True),
    _Call((), "nccl-call-address", (_GID, _SOCKETS), "NCCL's RDMA has no address that reaches the peer", ends=True),
    _Call((), "nccl-call-no-answer", (_GID, _ADAPTERS, _SOCKETS), "NCCL's RDMA gets no answer of the peer", ends=True),
    _Call((), "nccl-call-no-access", (_GPU_DIRECT, _SOCKETS), "NCCL's RDMA may not reach the GPU's memory", ends=True),
    _Call((), "nccl-call-memory-lock", _LOCKED, "NCCL may not lock the memory that RDMA needs"),
    _Call((), "nccl-call-verbs", (_SOCKETS,), "A call to the RDMA adapter failed under NCCL"),
    _Call((), "nccl-call-interface", (_INTERFACE,), "NCCL finds no network interface of that name", ends=True),
    _Call((), "nccl-call-limits", (_LIMITS,), "NCCL met a limit of the host: files, threads or tasks", sure=False),
    _Call((), "nccl-call-host-memory", (_HOST_MEMORY,), "NCCL found no host memory for its buffers", sure=False),
    _Call((), "nccl-call-peer-gone", (_OTHER_RANK,), "Another rank ended, and NCCL lost its connection", sure=False),
    _Call((), "nccl-call-connect", (_INTERFACE,), "NCCL's ranks do not reach each other over the network"),
    _Call((), "nccl-call-segment", (_NO_SHARED,), "NCCL cannot make its segment in /dev/shm", sure=False),
    _Call((), "nccl-call-no-peer-access", (_NO_PEER, _NO_CUMEM), "NCCL cannot copy from GPU to GPU here", sure=False),
    _Call(
        (), "nccl-call-adapter-event", (_ADAPTERS, _SOCKETS), "The RDMA adapter reports an error under NCCL", sure=False
    ),
    _Call((), "nccl-call-socket", (_INTERFACE,), "A socket of NCCL's could not be opened or used", sure=False),
    _Call((), "nccl-call-plugin", (_NO_PLUGIN,), "NCCL's plugin for the network does not start", sure=False),
    _Call((), "nccl-call-topology", (_TOPOLOGY,), "NCCL cannot make out how the GPUs are connected", sure=False),
    _Call((), "nccl-call-setting", (_SETTING,), "NCCL refuses the value of one of its variables", sure=False),
    _Call((), "nccl-call-cuda-failure", (_DRIVER,), "A CUDA call failed under NCCL", sure=False),
    _Call((), "nccl-call-own-state", (_OTHER_NCCL,), "NCCL failed on its own state", sure=False),
)


class NcclWarning(msgspec.Struct, frozen=True):
    """The line in which NCCL names the call, what it hangs on, and whether the communicator ends with it."""

    index: int
    changes: tuple[Change, ...]
    ends: bool
    title: str = ""
    sure: bool = True


def call_told(case: Case) -> NcclWarning | None:
    """The warning, or else torch's last line about it, that names a call; None if none does."""
    run = case.run
    if run is None:
        return None
    told = [(hit, call) for hit in run.all("nccl-warning") if (call := _call_of(hit)) is not None]
    # A communicator survives some of them: one that it does not comes before those, wherever it stands.
    first = next((one for one in told if one[1].ends), told[0] if told else None)
    if first is not None:
        hit, call = first
        return NcclWarning(hit.index, _wanted(case, call.changes), call.ends, call.title, call.sure)
    peer = run.first("nccl-peer-access")
    return NcclWarning(peer.index, _wanted(case, _peer(run)), True) if peer is not None else None


def _call_of(hit: Hit) -> _Call | None:
    file, words = hit.fields.get("file", ""), hit.fields["words"]
    return next((c for c in _CALLS if _in(c, file) and says(words, c.words)), None)


def _in(call: _Call, file: str) -> bool:
    return not call.files or file in call.files


def _peer(run: AnalysedRun) -> tuple[Change, ...]:
    """Torch's message lacks NCCL's file: which of the two ways needs peer access is a matter of NCCL's release."""
    told = run.first("nccl-version")
    if told is None:
        return (_NO_PEER, _NO_CUMEM_HOST)
    return (_NO_CUMEM_HOST,) if (int(told.fields["major"]), int(told.fields["minor"])) >= _CUMEM_HOST else (_NO_PEER,)


def _wanted(case: Case, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Without a buffer size that nobody set, and without what the environment says already."""
    set_already = (c for c in changes if c.after is None or case.env(c.name) != c.after)
    return tuple(c for c in set_already if c.name != BUFFER or case.launch is None or case.env(BUFFER) is not None)
