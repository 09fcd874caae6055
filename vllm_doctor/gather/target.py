"""What a person names that is no file: a container, a pod, a batch job, a process, a URL."""

import re
from urllib.parse import urlsplit

import msgspec

from vllm_doctor.records import excerpt

# Nothing in a name that a program would take for an option.
CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
# Of Slurm: a job, or one task of an array.
JOB = re.compile(r"[1-9]\d{0,9}(_\d{1,7})?")
POD = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
# A name as the reader typed it, by kind; a file of such a name is given as ./NAME.
_TARGET = re.compile(r"(docker|podman|pid|slurm):(.+)|(pods?)/(.+)|(https?)://(.+)", re.DOTALL)


class Target(msgspec.Struct, frozen=True):
    """What a person named: `kind` is docker, podman, pod, slurm, pid or url."""

    kind: str
    name: str
    space: str | None = None


def target(word: str) -> Target | str | None:
    """The target that a word names, None for the name of a file; a text says what is wrong with it."""
    found = _TARGET.fullmatch(word)
    if found is None:
        return None
    if found[1] == "pid":
        return Target("pid", found[2]) if re.fullmatch(r"[1-9]\d{0,9}", found[2]) else f"{word}: needed: pid:NUMBER"
    if found[1] == "slurm":
        good = JOB.fullmatch(found[2])
        return Target("slurm", found[2]) if good else f"{word}: needed: slurm:JOBID or slurm:JOBID_TASK"
    if found[1]:
        good = CONTAINER.fullmatch(found[2])
        return Target(found[1], found[2]) if good else f"{word}: this is not the name of a container"
    if found[3]:
        parts = found[4].split("/")
        if len(parts) > 3 or not all(POD.fullmatch(part) for part in parts):
            return f"{word}: needed: pod/NAME or pod/NAMESPACE/NAME"
        *space, name = parts[:2]
        return Target("pod", name, *space)
    try:
        parsed = urlsplit(word)
        good_port = parsed.port is None or parsed.port > 0
    except ValueError:
        return f"{excerpt.name(word)}: this is not a URL"
    if not parsed.hostname or not good_port or parsed.username is not None:
        return f"{excerpt.name(word)}: needed: http://HOST:PORT, without a user and a password"
    return Target("url", f"{parsed.scheme}://{parsed.netloc}")
