"""VD710: the card's compute mode keeps a second process, or every process, from using it."""

from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import modes_told
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing


def judge(case: Case) -> Outcome:
    """Is a card in a mode that refuses this service?"""
    gpus, run = case.gpus, case.run
    if gpus is None:
        return Unseen(frozenset({Signal.GPUS}))
    if not modes_told(case):
        return NotHere("no GPU reports its compute mode")
    closed = tuple(g for g in gpus if g.compute_mode == "prohibited")
    alone = tuple(g for g in gpus if (g.compute_mode or "").startswith("exclusive"))
    refused = run is not None and run.root is not None and "devices-busy" in run.root.ids
    bad = closed or (alone if refused or any(len(g.processes) > 1 for g in alone) else ())
    if not bad or (run is not None and run.served() and not refused):
        return Clear("the cards are open to this service" if not alone else "one process holds each exclusive card")
    evidence = tuple(Evidence("NVML", f"GPU {g.index}", f"compute mode {g.compute_mode}; {_who(g)}") for g in bad[:4])
    if run is not None and run.root is not None and refused:
        evidence += (case.line(run.root.hits[0].index),)
    return finding(
        RULE,
        title=f"GPU {bad[0].index} is in compute mode {bad[0].compute_mode}; {_who(bad[0])}",
        severity=Severity.BLOCKS_START,
        evidence=evidence,
        changes=(
            thing(
                ChangeKind.OS,
                "compute-mode",
                Direction.SET,
                "an exclusive GPU takes only one process, even if that is an exporter or a leftover engine",
                to="default",
                command=f"nvidia-smi -i {bad[0].index} -c DEFAULT",
            ),
        ),
        refute="nvidia-smi -q -d COMPUTE shows Default",
    )


def _who(gpu: Gpu) -> str:
    names = ", ".join(f"{p.pid} ({p.name or p.unit or '?'})" for p in gpu.processes[:3])
    return f"held by {names}" if names else "no process is listed"


RULE = rule("VD710", reads=frozenset({Signal.GPUS, Signal.LOG}), judge=judge)
