"""VD005: vLLM sees no GPU because the container was given none."""

from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.container import none, state
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.pod import limits
from vllm_doctor.rules.say import finding, thing

# vLLM, torch and NVML where no device is there for them.
_IDS = ("driver-silent", "no-gpus", "no-device-detected", "cuda-init-failed", "device-type", "device-empty")


def judge(case: Case) -> Outcome:
    """Does vLLM miss a GPU in a container that was given none?"""
    container = case.container
    if container is None:
        return none(case)
    if container.gpus is None:
        return NotHere("the container runtime does not show which devices the container has")
    if container.gpus:
        return Clear("the container was given GPUs")
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=(*shown(case, fault, *_IDS), state(container)),
        changes=(_give(case, container),),
        refute="nvidia-smi in the container lists a GPU",
    )


def _give(case: Case, container: Container) -> Change:
    ranks = (case.count("tensor-parallel-size") or 1) * (case.count("pipeline-parallel-size") or 1)
    if container.is_pod:
        return thing(
            ChangeKind.OS,
            "container-devices",
            Direction.ADD,
            "resources.limits of the container",
            to=f"nvidia.com/gpu: {ranks}",
            command=limits(container, "nvidia.com/gpu", str(ranks)),
        )
    if container.is_job:
        why = "an option of the batch script; without it Slurm hides the node's GPUs from the job"
        return thing(ChangeKind.OS, "job-gpus", Direction.ADD, why, to=f"#SBATCH --gres=gpu:{ranks}")
    option = "--device nvidia.com/gpu=all" if container.runtime == "podman" else "--gpus all"
    why = "an option of `run`, before the image; an existing container cannot get a GPU: create it again"
    return thing(ChangeKind.OS, "container-devices", Direction.ADD, why, to=option)


RULE = rule("VD005", reads=frozenset({Signal.CONTAINER, Signal.LOG, Signal.LAUNCH}), judge=judge)
