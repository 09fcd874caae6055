"""A container as a snapshot: what its runtime says of it, its launch and the release that its image names."""

from collections.abc import Sequence

from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.gather.launch import is_vllm, parse_argv
from vllm_doctor.knowledge.images import release_of
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Subject
from vllm_doctor.records.host import Launch
from vllm_doctor.records.reading import NOT_GIVEN, Absent, Known, Reading, Unknown
from vllm_doctor.redact.launch import secret_values

_INSPECT = {"kubernetes": "kubectl get pod", "slurm": "scontrol show job"}


def launch_in_container(seen: Inspected, medium: str | None = None) -> Reading[Launch]:
    """The launch in the container's description; secrets are not in it."""
    container = seen.container
    if not is_vllm(seen.argv) and container.is_job:
        remedy = f"give it: --launch 'vllm serve …' (scontrol write batch_script {container.name} -)"
        return Unknown(f"the batch script of job {container.name} was not seen, or shows no vllm serve", remedy)
    if not is_vllm(seen.argv):
        told = excerpt.word(" ".join(seen.argv[:3])) or "nothing"
        return Unknown(f"{container.name} starts {told}, which is not vllm serve", "give it: --launch 'vllm serve …'")
    launch = parse_argv(seen.argv, seen.env)
    kind = medium or ("pod" if container.is_pod else "slurm" if container.is_job else "docker")
    return Known(Launch(launch.argv, launch.model, launch.flags, launch.env, kind), source_of(seen))


def version_in(seen: Inspected) -> Reading[str]:
    """The release that the image's tag names."""
    if seen.container.is_job:
        return NOT_GIVEN
    found = release_of(seen.container.image)
    if found is not None:
        return Known(found, f"the image {seen.container.image}")
    return Unknown(f"the image {seen.container.image or '?'} names no release", "give it: --vllm-version X.Y.Z")


def source_of(seen: Inspected) -> str:
    """The program that told of it."""
    return _INSPECT.get(seen.container.runtime, f"{seen.container.runtime} inspect")


def place_of(seen: Inspected) -> str:
    """The container as `diagnose` takes it."""
    kind = "pod/" if seen.container.is_pod else f"{seen.container.runtime}:"
    return kind + seen.container.name


def subject_of(seen: Inspected) -> Subject:
    """Whom the answer is about."""
    return Subject(host=seen.container.node, place=place_of(seen))


def secrets_of(seen: Inspected, beside: Sequence[str] = ()) -> frozenset[str]:
    """What the container is given and nobody else may know."""
    own = secret_values((*seen.argv, *beside), seen.env, (seen.container.name,))
    return own.union(*(secret_values(argv, env, (seen.container.name,)) for argv, env in seen.others))


def no_unit(seen: Inspected) -> Absent:
    """No unit starts it."""
    return Absent(f"{seen.container.runtime} runs it, no unit of systemd's")
