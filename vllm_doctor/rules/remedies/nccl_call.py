"""The call of which NCCL says that it failed, and the setting on which that call hangs.

Settings and their defaults: NCCL's documentation of its environment. Where a warning stands in NCCL's source says which
transport it is about: `p2p` copies between cards, `shm` host memory between ranks of a host, `nvls` multicast in the
switches, `net_ib` and `ibvwrap` RDMA, `socket` and `bootstrap` TCP.
"""

import msgspec

from vllm_doctor.log.match import says
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
    """A warning by NCCL's files (any where empty) and the message of its words. `ends`: no communicator survives it."""

    files: tuple[str, ...]
    words: str
    changes: tuple[Change, ...]
    ends: bool = False


_ONE_GPU_EACH = environment(
    "CUDA_VISIBLE_DEVICES",
    Direction.CHANGE,
    "two ranks of one communicator are on the same GPU: give each process, a trainer and its server too, its own",
    command="nvidia-smi -L; nvidia-smi --query-compute-apps=pid,gpu_uuid --format=csv",
)
# The first that fits; what follows in the words of a later one may be an effect of it.
_CALLS: tuple[_Call, ...] = (
    _Call((), "nccl-call-same-gpu", (_ONE_GPU_EACH,), ends=True),
    _Call((), "nccl-call-multicast", (_NO_MULTICAST, _FABRIC), ends=True),
    _Call(("nvls",), "nccl-call-cuda", (_NO_MULTICAST, _FABRIC), ends=True),
    _Call(("shm",), "nccl-call-cuda-failure", (_NO_CUMEM_HOST,), ends=True),
    _Call(("p2p",), "nccl-call-peer", (_NO_PEER, _NO_CUMEM), ends=True),
    _Call(
        (
            "alloc",
            "cudawrap",
        ),
        "nccl-call-refused",
        (_NO_CUMEM,),
        ends=True,
    ),
    _Call((), "nccl-call-shared-memory", (_NO_SHARED,), ends=True),
    _Call((), "nccl-call-address", (_GID, _SOCKETS), ends=True),
    _Call((), "nccl-call-no-answer", (_GID, _ADAPTERS, _SOCKETS), ends=True),
    _Call((), "nccl-call-no-access", (_GPU_DIRECT, _SOCKETS), ends=True),
    _Call((), "nccl-call-memory-lock", _LOCKED),
    _Call((), "nccl-call-verbs", (_SOCKETS,)),
    _Call((), "nccl-call-interface", (_INTERFACE,), ends=True),
    _Call(
        (),
        "nccl-call-connect",
        (_INTERFACE,),
    ),
)


class NcclWarning(msgspec.Struct, frozen=True):
    """The line in which NCCL names the call, what it hangs on, and whether the communicator ends with it."""

    index: int
    changes: tuple[Change, ...]
    ends: bool


def call_told(case: Case) -> NcclWarning | None:
    """The warning, or else torch's last line about it, that names a call; None if none does."""
    run = case.run
    if run is None:
        return None
    for hit in run.all("nccl-warning"):
        file, words = hit.fields.get("file", ""), hit.fields["words"]
        call = next((c for c in _CALLS if _in(c, file) and says(words, c.words)), None)
        if call is not None:
            return NcclWarning(hit.index, _wanted(case, call.changes), call.ends)
    peer = run.first("nccl-peer-access")
    return NcclWarning(peer.index, _wanted(case, _peer(run)), True) if peer is not None else None


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
