"""VD314: an engine that slept does not get its memory back, or new weights find no room beside its KV cache."""

import math

from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, own_pass, sums
from vllm_doctor.rules.gates.run_time import in_trainer
from vllm_doctor.rules.gates.sleep import maps_again, method, shown_to_wake, wakes
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.say import finding, set_flag, thing

# What an engine with weights and a KV cache can never leave.
_MOST_OF_CARD = 0.7


def judge(case: Case) -> Outcome:
    """Did mapping the memory of a sleeping engine again fail?"""
    oom = exhausted(case)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if _updates(oom):
        return _of_new_weights(case, oom)
    waking = wakes(oom)
    if in_trainer(oom) and not waking and "cumem-oom" not in oom.fault.ids:
        return _of_trainers_step(case, oom)
    if own_pass(oom.run, oom.fault):
        return _of_own_pass(case, oom)
    if not waking and not maps_again(oom):
        return Clear("the engine ran out of memory while it was awake")
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.CONFIRMED if shown_to_wake(oom) else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(
            # What slept is mapped piece by piece: the one that was refused is not the last.
            lower_utilization(
                case, oom.torch, "the engine must fit beside the process that took the memory", more=math.inf
            ),
            _trainer_first(case, "then wake the engine"),
        ),
        refute=f"{maker_tool(case).name} shows, before the wake-up, as much free memory as the sleep freed",
    )


def _updates(oom: Oom) -> bool:
    """Were a trainer's new weights taken, while the engine has its own?"""
    if oom.fault.startup_phase not in {StartupPhase.SERVING, StartupPhase.READY} and not method(oom):
        return False
    called = (*oom.fault.functions, method(oom))
    return any(says(name, "function-of-new-weights") for name in called) or any(
        says(file, "call-of-weights-update") for file in oom.fault.files
    )


def _of_new_weights(case: Case, oom: Oom) -> Finding:
    return _beside_trainer(
        case,
        oom,
        title="The trainer's new weights do not fit beside the KV cache",
        changes=(
            lower_utilization(
                case, oom.torch, "new weights are received in memory that gpu_memory_utilization leaves free"
            ),
            thing(
                ChangeKind.OS,
                "kv-cache",
                Direction.STOP,
                "free the KV cache while weights change (--enable-sleep-mode): sleep at level 2, wake the weights "
                "alone (tags=weights), send the new ones, then wake the KV cache (tags=kv_cache)",
            ),
            _trainer_first(case, "or send the weights in parts"),
        ),
        refute=f"{maker_tool(case).name} shows, before the update, more free memory than the largest tensor takes",
    )


def _of_trainers_step(case: Case, oom: Oom) -> Finding:
    return _beside_trainer(
        case,
        oom,
        title="The trainer's pass does not fit beside the engine",
        changes=(
            lower_utilization(
                case,
                oom.torch,
                "the trainer works in the memory that the engine leaves it (in TRL the option is "
                "vllm_gpu_memory_utilization)",
            ),
            set_flag(case, "enable-sleep-mode", True, Direction.ADD, "a sleeping engine lends its memory to the pass"),
            thing(
                ChangeKind.OS,
                "per_device_train_batch_size",
                Direction.LOWER,
                "the pass holds logits of every token of a batch over the whole vocabulary: fewer sequences a pass, "
                "more gradient accumulation",
                command="grep -rn per_device_train_batch_size TRAINING-CONFIG   # halve it",
            ),
        ),
        refute="the same pass fails with the engine in another process and on other GPUs",
    )


def _of_own_pass(case: Case, oom: Oom) -> Finding:
    return _beside_trainer(
        case,
        oom,
        title="The program's own code does not fit beside the engine that it made",
        changes=(
            lower_utilization(case, oom.torch, "the program works in the memory that the engine leaves it")
            if oom.torch is None or oom.torch.total is None or oom.torch.asked < oom.torch.total * _MOST_OF_CARD
            else None,
            thing(
                ChangeKind.OS,
                "own-pass",
                Direction.LOWER,
                "the calls that asked are the program's, not vLLM's, and no option of vLLM bounds them: give them less "
                "at once (shorter audio, smaller pictures, fewer inputs), or run them on another GPU",
                command=f"{maker_tool(case).holders}   # what the program and the engine hold",
            ),
        ),
        refute="the same call fails before the engine is made",
    )


def _beside_trainer(case: Case, oom: Oom, *, title: str, changes: tuple[Change | None, ...], refute: str) -> Finding:
    return finding(
        RULE,
        title=title,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=changes,
        refute=refute,
    )


def _trainer_first(case: Case, then: str) -> Change:
    why = f"let the trainer free its memory first (empty its cache, offload), {then}"
    return thing(ChangeKind.OS, "other-gpu-processes", Direction.STOP, why, command=maker_tool(case).holders)


RULE = rule("VD314", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
