"""`docker inspect` and `podman inspect` as records: the state, the limits, the GPUs and the command line in effect."""

import re
from collections.abc import Mapping

import msgspec

from vllm_doctor.gather import json_path
from vllm_doctor.gather.bounded import json_value
from vllm_doctor.gather.launch import is_vllm
from vllm_doctor.gather.made import made
from vllm_doctor.knowledge.images import release_of
from vllm_doctor.launch.line import serving
from vllm_doctor.records import excerpt
from vllm_doctor.records.container import Check, Container, End, Made
from vllm_doctor.records.reading import Known, Reading, Unknown

_SECOND = 10**9
_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
_SHARED_IPC = frozenset({"host"})
_GPU_DEVICE = re.compile(r"/dev/nvidia\d+")
# What is a GPU of another maker's: whether it was given is not for this to say.
_OTHER_DEVICE = re.compile(r"/dev/(kfd|dri|accel|davinci|hl|xpu)")


class Inspected(msgspec.Struct, frozen=True):
    """A container and what is needed to look further but is not for the snapshot: secrets are still in `argv` and
    `env`, and in `others`, the command lines and variables of a pod's other containers. `serves` says that its program
    is a vLLM server; `ports` are its published ports, by the one inside; `files` is where a batch job writes, and
    `owner` the job's user."""

    container: Container
    id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    ports: dict[int, int] = {}
    files: tuple[str, ...] = ()
    owner: int | None = None
    others: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = ()

    @property
    def serves(self) -> bool:
        """Is its program a vLLM server, or its image vLLM's own?"""
        return is_vllm(self.argv) or release_of(self.container.image) is not None


def read(data: bytes, name: str, runtime: str = "docker") -> Reading[tuple[Inspected, ...]]:
    """What `inspect` printed: one container, or several."""
    remedy = f"{runtime} inspect NAME > FILE"
    told = json_value(data, name, remedy)
    if isinstance(told, Unknown):
        return told
    listed = told.value if isinstance(told.value, list) else [told.value]
    found = tuple(seen(one, runtime) for one in listed[:256] if is_one(one))
    return Known(found, name) if found else Unknown(f"{name}: no container is described in it", remedy)


def is_one(value: object) -> bool:
    """Is this what `inspect` says of a container?"""
    return isinstance(value, Mapping) and isinstance(value.get("State"), Mapping) and "Config" in value


def seen(told: object, runtime: str) -> Inspected:
    """One container's description."""
    if json_path.at(told, "OCIRuntime") is not None or json_path.at(told, "Pod") is not None:
        runtime = "podman"
    state = json_path.text(told, "State", "Status").lower()
    started, finished = json_path.moment(told, "State", "StartedAt"), json_path.moment(told, "State", "FinishedAt")
    code = json_path.whole(told, "State", "ExitCode")
    killed = json_path.at(told, "State", "OOMKilled") is True
    running = state in {"running", "paused"}
    ended = started is not None and finished is not None and (not running or bool(code) or killed)
    ipc = json_path.text(told, "HostConfig", "IpcMode")
    env = _environment(json_path.words(told, "Config", "Env"))
    container = Container(
        name=excerpt.name(json_path.text(told, "Name").lstrip("/")) or excerpt.short(json_path.text(told, "Id")),
        runtime=runtime,
        image=excerpt.name(json_path.text(told, "ImageName") or json_path.text(told, "Config", "Image")),
        state="exited" if state in {"dead", "stopped"} else state,
        error=json_path.text(told, "State", "Error"),
        end=End(code, "OOMKilled" if killed else "", killed, started, finished) if ended else None,
        restarts=json_path.whole(told, "RestartCount"),
        started_at=started,
        memory_limit=json_path.whole(told, "HostConfig", "Memory") or None,
        shm_bytes=json_path.whole(told, "HostConfig", "ShmSize") or None,
        shares_shm=ipc in _SHARED_IPC or _mounts_shm(told),
        gpus=_gpus(told),
        checks=_checks(told),
        pid=json_path.whole(told, "State", "Pid") or None,
        address=_address(told),
        id=excerpt.name(json_path.text(told, "Id")),
        made=_made(told, runtime),
    )
    return Inspected(
        container, excerpt.name(json_path.text(told, "Id")) or container.name, _argv(told), env, _ports(told)
    )


def _argv(told: object) -> tuple[str, ...]:
    """The program in effect, a shell's own command taken apart."""
    argv = (json_path.text(told, "Path"), *json_path.words(told, "Args"))
    return unshelled(argv if argv[0] else json_path.words(told, "Config", "Cmd"))


def _made(told: object, runtime: str) -> Made | None:
    """How it was made; None where a shell starts the server: what else its script does is not in the launch."""
    whole = (json_path.text(told, "Path"), *json_path.words(told, "Args"))
    if unshelled(whole) != whole:
        return None
    image = json_path.text(told, "ImageName") or json_path.text(told, "Config", "Image")
    return made(told, runtime=runtime, name=json_path.text(told, "Name").lstrip("/"), image=image, program=whole[0])


def unshelled(argv: tuple[str, ...]) -> tuple[str, ...]:
    """`sh -c 'pip install …; vllm serve …'` as the command of it that starts the server."""
    if len(argv) < 3 or argv[0].rsplit("/", 1)[-1] not in _SHELLS or not argv[1].endswith("c"):
        return argv
    return serving(argv[2]) or argv


def _environment(assigned: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, equals, value in (item.partition("=") for item in assigned) if equals}


def _mounts_shm(told: object) -> bool:
    """Is something mounted over /dev/shm?"""
    mounts = (json_path.text(one, "Destination") for one in json_path.rows(told, "Mounts"))
    return any(place.rstrip("/") == "/dev/shm" for place in mounts)  # noqa: S108 - the place itself


def _gpus(told: object) -> int | None:
    """How many GPUs it was given: 0 only where the runtime lists its devices and no GPU is among them."""
    host = json_path.at(told, "HostConfig")
    if json_path.at(host, "Privileged") is True or not isinstance(host, Mapping):
        return None
    asked = [one for one in json_path.rows(host, "DeviceRequests") if _asks_gpu(one)]
    if asked:
        ids = sum(len(json_path.rows(one, "DeviceIDs")) for one in asked)
        counts = [one.get("Count") for one in asked if isinstance(one, Mapping)]
        return ids or (-1 if -1 in counts else sum(c for c in counts if isinstance(c, int) and c > 0)) or None
    paths = [json_path.text(one, "PathOnHost") for one in json_path.rows(host, "Devices")]
    cards = sum(_GPU_DEVICE.fullmatch(path) is not None for path in paths)
    words = " ".join(json_path.words(told, "Config", "CreateCommand"))
    if cards or any(_OTHER_DEVICE.match(path) for path in paths) or "nvidia.com/gpu" in words or "--gpus" in words:
        return cards or None
    listed = "DeviceRequests" in host or "Devices" in host
    return 0 if listed and json_path.text(host, "Runtime") in {"runc", "crun", "oci", ""} else None


def _asks_gpu(request: object) -> bool:
    sets = [item for item in json_path.rows(request, "Capabilities") if isinstance(item, list)]
    return any("gpu" in one for one in sets) or any(
        "nvidia.com/gpu" in i for i in json_path.words(request, "DeviceIDs")
    )


def _checks(told: object) -> tuple[Check, ...]:
    """The image's or the container's health check: it marks a container, and ends none by itself."""
    check = json_path.at(told, "Config", "Healthcheck")
    test = json_path.words(check, "Test")
    if not test or test[0] == "NONE":
        return ()
    delay, period, timeout = (
        (json_path.whole(check, name) or 0) / _SECOND for name in ("StartPeriod", "Interval", "Timeout")
    )
    asks = excerpt.said(" ".join(test[1:]))
    return (Check("health", delay, period or 30.0, timeout or 30.0, json_path.whole(check, "Retries") or 3, asks),)


def _ports(told: object) -> dict[int, int]:
    """The published ports: the one in the container, and the one of the host."""
    listed = json_path.at(told, "NetworkSettings", "Ports")
    found: dict[int, int] = {}
    for inside, bound in listed.items() if isinstance(listed, Mapping) else ():
        number, _, kind = str(inside).partition("/")
        first = bound[0] if isinstance(bound, list) and bound else None
        port = json_path.text(first, "HostPort")
        if number.isdecimal() and len(number) < 6 and kind in {"", "tcp"} and port.isdecimal() and len(port) < 6:
            found[int(number)] = int(port)
    return found


def _address(told: object) -> str | None:
    """Where its ports are, seen from the host: the host's own network, or the container's address on a bridge."""
    if json_path.text(told, "HostConfig", "NetworkMode") == "host":
        return "127.0.0.1"
    own = json_path.text(told, "NetworkSettings", "IPAddress")
    networks = json_path.at(told, "NetworkSettings", "Networks")
    each = [json_path.text(one, "IPAddress") for one in networks.values()] if isinstance(networks, Mapping) else []
    return next((ip for ip in (own, *each) if re.fullmatch(r"[0-9.]{7,15}", ip)), None)
