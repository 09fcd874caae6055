"""VD709: ranks were to be spread over MIG slices, which cannot talk to one another."""

from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag, thing


def judge(case: Case) -> Outcome:
    """Is there more than one rank and nothing but slices?"""
    gpus, run = case.gpus, case.run
    if gpus is None:
        return Unseen(frozenset({Signal.GPUS}))
    slices = tuple(g for g in gpus if g.mig_parent is not None)
    if not slices:
        return NotHere("no GPU is divided into MIG slices")
    ranks = case.count("tensor-parallel-size") or 1
    whole = sum(1 for g in gpus if g.mig_parent is None and not g.mig_mode)
    if ranks < 2 or ranks <= whole or (run is not None and run.served()):
        return Clear("one rank takes one slice")
    return finding(
        RULE,
        title=f"{ranks} ranks, {whole} whole GPUs: NCCL cannot connect MIG slices",
        evidence=tuple(
            Evidence("NVML", f"slice of GPU {g.mig_parent}", f"{g.name} {g.uuid or ''}".strip()) for g in slices[:3]
        ),
        changes=(
            set_flag(case, "tensor-parallel-size", 1, Direction.LOWER, "use one rank on one slice, by its MIG- UUID"),
            thing(
                ChangeKind.HARDWARE,
                "mig-mode",
                Direction.CHANGE,
                "turn MIG off on the GPUs of this service instead (drain them first)",
                to="off",
                command="nvidia-smi -i INDEX -mig 0",
            ),
        ),
        refute="CUDA_VISIBLE_DEVICES names only whole GPUs",
    )


RULE = rule("VD709", reads=frozenset({Signal.GPUS, Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
