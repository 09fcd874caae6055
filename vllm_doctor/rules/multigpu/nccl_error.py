"""VD803: NCCL could not set up or use the paths between the ranks."""

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
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "shm volume",
                Direction.RAISE,
                "in a container the call that fails is mostly the one for a segment in /dev/shm, 64 MiB by default",
            )
            if "nccl-system" in fault.ids or "system" in (_why(fault) or "").lower()
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
