"""VD803: NCCL could not set up or use the paths between the ranks."""

import re

from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, ChangeKind, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.launch._fault import named, severity, shown
from vllm_doctor.rules.registry import Clear, NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import environment, finding, set_flag, thing
from vllm_doctor.rules.story import Fault

_IDS = (
    "nccl-system",
    "nccl-unhandled",
    "nccl-internal",
    "all-reduce-arg",
    "nccl-any",
    "nccl-cupy",
    "gloo",
    "ordinal-peer",
)


def judge(case: Case) -> Outcome:
    """Did NCCL fail?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    if fault.ids & {"nccl-shm", "shm-full"}:
        return Clear("/dev/shm is full")
    said = _told(case)
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=(*((case.line(said[0]),) if said is not None else ()), *shown(case, fault, *_IDS)),
        changes=(
            *(said[1] if said is not None else ()),
            thing(
                ChangeKind.OS,
                "shm volume",
                Direction.RAISE,
                "in a container the call that fails is mostly the one for a segment in /dev/shm, 64 MiB by default",
            )
            if said is None and ("nccl-system" in fault.ids or "system" in (_why(fault) or "").lower())
            else None,
            environment("NCCL_DEBUG", Direction.SET, "shows which call failed", to="INFO"),
            set_flag(case, "disable-custom-all-reduce", True, Direction.ADD, "NCCL instead of vLLM's own all-reduce"),
            environment(
                "PYTORCH_CUDA_ALLOC_CONF",
                Direction.REMOVE,
                "expandable_segments and custom all-reduce do not go together",
            )
            if "all-reduce-arg" in fault.ids
            else None,
        ),
        refute="a single GPU fails in the same way",
    )


def _told(case: Case) -> tuple[int, tuple[Change, ...]] | None:
    """The warning in which NCCL names the call that failed, and what that call hangs on; None if it names none."""
    story = case.story
    for hit in story.all("nccl-warning") if story is not None else ():
        words = hit.fields["words"]
        changes = next((made for mark, made in _CALLS if mark.search(words)), None)
        if changes is not None:
            return hit.index, tuple(c for c in changes if c.name != _BUFFER or _may_be_set(case))
    return None


def _may_be_set(case: Case) -> bool:
    """Is a buffer size of one's own in the environment, or is the environment not known?"""
    return case.launch is None or case.env(_BUFFER) is not None


_BUFFER = "NCCL_BUFFSIZE"
_SOCKETS = environment(
    "NCCL_IB_DISABLE", Direction.SET, "sockets instead of RDMA: slower, and shows whether it is RDMA alone", to="1"
)
# Which call of verbs, sockets or buffers failed, and what sets it (NCCL's documentation of its environment).
_CALLS: tuple[tuple[re.Pattern[str], tuple[Change, ...]], ...] = (
    (
        re.compile(r"ibv_modify_qp failed.*local GID ::,"),
        (
            environment(
                "NCCL_IB_GID_INDEX",
                Direction.CHANGE,
                "the GID at this index is empty; show_gids, or /sys/class/infiniband/*/ports/*/gids, shows the one "
                "of RoCE v2 with an address; unset, NCCL looks for it itself",
            ),
            _SOCKETS,
        ),
    ),
    (
        re.compile(r"ibv_reg_(?:dmabuf_)?mr\w* failed with error Cannot allocate memory"),
        (
            thing(
                ChangeKind.OS,
                "LimitMEMLOCK",
                Direction.RAISE,
                "RDMA locks its buffers in memory: infinity for the unit, --ulimit memlock=-1 for a container",
            ),
            environment(_BUFFER, Direction.REMOVE, "a size of one's own registers more at once: the default is 4 MiB"),
            _SOCKETS,
        ),
    ),
    (re.compile(r"\bibv_\w+ failed"), (_SOCKETS,)),
    (
        re.compile(r"[Nn]o socket interface found|socketStartConnect|Connect(?:ion)? to .* (?:failed|refused)"),
        (
            environment(
                "NCCL_SOCKET_IFNAME",
                Direction.CHANGE,
                "the interface over which the ranks reach one another: ip -br addr",
            ),
        ),
    ),
)


def _why(fault: Fault) -> str | None:
    return fault.fields("nccl-any").get("why") or fault.fields("nccl-cupy").get("why")


RULE = Rule(
    code="VD803",
    slug="nccl-error",
    title="NCCL failed",
    node="multigpu",
    cause=Cause.OTHER,
    phase=Phase.NCCL_OR_MULTIGPU,
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}),
    judge=judge,
    rank=48,
)
