"""Options of `docker run` and `podman run` that stand behind the image's name, where the server reads them."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.say import thing

_WHY = (
    "put options of the container's program before the image's name: words behind it go to vLLM; a pod and a compose "
    "file have a field for each"
)
_RIGHT = "docker run --gpus all --ipc=host -p 8000:8000 IMAGE MODEL   # only vLLM's arguments after IMAGE"


def of_the_runtime(option: str) -> bool:
    """Is it an option of the program that runs the container, by its name?"""
    return says(option, "option-of-container-runtime")


def published(fault: Fault) -> bool:
    """Is the refused value a host's port and a container's? argparse takes `-p` behind the image for the option whose
    short name it begins."""
    return says(fault.fields("argument-invalid").get("why", ""), "published-port")


def before_the_image() -> Change:
    """Where those options belong."""
    return thing(ChangeKind.OS, "command", Direction.CHANGE, _WHY, command=_RIGHT)
