"""VD707: a card is linked more narrowly than its siblings, or one of its NVLinks is down."""

from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing


def judge(case: Case) -> Outcome:
    """Is a link down, or narrower than the card and its siblings allow?"""
    gpus = case.gpus
    if gpus is None:
        return Unseen(frozenset({Signal.GPUS}))
    if all(g.pcie_width is None and not g.nvlink_down for g in gpus):
        return NotHere("no GPU reports its links")
    down = tuple(g for g in gpus if g.nvlink_down)
    narrow = _narrow(gpus)
    if not down and not narrow:
        return Clear("every link is as wide as the GPU allows")
    ranks = case.count("tensor-parallel-size") or 1
    return finding(
        RULE,
        title="; ".join([*(_down(g) for g in down), *(_width(g) for g in narrow)][:3]),
        severity=Severity.DEGRADED if down or ranks > 1 else Severity.ADVICE,
        evidence=(
            *(Evidence("NVML", f"GPU {g.index}", _down(g)) for g in down),
            *(Evidence("NVML", f"GPU {g.index}", _width(g)) for g in narrow),
        ),
        changes=(
            thing(
                ChangeKind.HARDWARE,
                "link",
                Direction.REPAIR,
                "reset the GPUs whose NVLink is down; reseat the narrow card, check riser and slot",
                command="nvidia-smi nvlink -s && nvidia-smi --query-gpu=index,pcie.link.width.current --format=csv",
            ),
        ),
        refute="`nvidia-smi nvlink -s` shows the link as active, and lspci the full width under load",
    )


def _narrow(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Narrower than a sibling: where the slot limits all cards alike, that is how the host is built."""
    widest = max((g.pcie_width or 0 for g in gpus), default=0)
    return tuple(g for g in gpus if g.pcie_width is not None and g.pcie_width < min(widest, g.pcie_width_max or widest))


def _down(gpu: Gpu) -> str:
    return f"NVLink {', '.join(map(str, gpu.nvlink_down))} of GPU {gpu.index} is down"


def _width(gpu: Gpu) -> str:
    return f"GPU {gpu.index} runs at PCIe x{gpu.pcie_width} instead of x{gpu.pcie_width_max}"


RULE = rule("VD707", reads=frozenset({Signal.GPUS, Signal.LOG, Signal.LAUNCH}), judge=judge)
