"""VD104: the card was full before vLLM put anything on it: not even a context could be made."""

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, sums
from vllm_doctor.rules.gates.unified import PAGES_OF_FILES, shares_memory
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.say import finding, thing

# Before any weight vLLM itself holds buffers of a batch, far less than this.
_OWN = 2 * GIB


def judge(case: Case) -> Outcome:
    """Did memory run out when the device was opened, before any weight?"""
    oom = exhausted(case, StartupPhase.DEVICE)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if oom.torch is not None and (oom.torch.allocated or 0) >= _OWN:
        return _of_this_process(case, oom, (oom.torch.allocated or 0) / GIB)
    # cuBLAS says "not initialized" of a driver that does not fit too.
    told = "cublas-create" not in oom.fault.ids and (len(oom.run.crashes) > 1 or oom.torch is not None)
    return finding(
        RULE,
        confidence=Confidence.CONFIRMED if told else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(
            _end_process(
                case,
                f"an engine or worker of an earlier run may have outlived its server: {maker_tool(case).name} names "
                "the process; end it with kill PID, after ps -o pid,ppid,lstart,cmd",
            ),
            stop_others(case, "a driver context takes 0.3 to 0.6 GiB, and less than that was free"),
            _drop_pages() if shares_memory(case) else None,
        ),
        refute=f"{maker_tool(case).name} shows more than 1 GiB free on every card just before the start",
        then=PAGES_OF_FILES if shares_memory(case) else "",
    )


def _of_this_process(case: Case, oom: Oom, held: float) -> Finding:
    return finding(
        RULE,
        title=f"This process held {held:.2f} GiB of the GPU before vLLM loaded a weight",
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(
            _end_process(
                case,
                "an engine, a model or a trainer that the same process made before is still on the GPU: deleting the "
                "object does not free all of the memory; ending the process does: make each engine in a separate "
                "process",
            ),
        ),
        refute="the process had made nothing on the GPU before it made the engine",
    )


def _end_process(case: Case, why: str) -> Change:
    return thing(ChangeKind.OS, "old-process", Direction.STOP, why, command=maker_tool(case).holders)


def _drop_pages() -> Change:
    why = "GPU and host share their memory, and the driver does not count pages of files as free"
    command = "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches"
    return thing(ChangeKind.OS, "page-cache", Direction.REMOVE, why, command=command)


RULE = rule("VD104", reads=frozenset({Signal.LOG, Signal.GPUS}), judge=judge)
