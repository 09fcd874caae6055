"""How a container was made: what `inspect` says of it as the options of the `run` that makes the same one again."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vllm_doctor.gather import json_path
from vllm_doctor.launch import container
from vllm_doctor.records import excerpt
from vllm_doctor.records.container import Made
from vllm_doctor.redact.names import is_shown_variable
from vllm_doctor.redact.text import scrub

# Who makes a container by itself makes it again by itself: a line to paste would stand beside it.
_OWNERS = (
    "com.docker.compose.project", "io.podman.compose.project", "com.docker.swarm.service.id", "PODMAN_SYSTEMD_UNIT",
    "io.kubernetes.pod.name",
)  # fmt: skip
# Docker names these of every container, with null where nothing was given.
_WHOLE = frozenset({"Binds", "PortBindings", "RestartPolicy", "NetworkMode"})
# What images set, and shells too: given by name, a shell's own value would get into the container.
_OF_IMAGES = re.compile(
    r"PATH|HOME|HOSTNAME|TERM|LANG|LC_\w+|PWD|USER|SHELL|container|(?:LD_)?LIBRARY_PATH|NV_\w+|NVARCH|CUDA_VERSION"
    r"|NVIDIA_(?:REQUIRE_CUDA|PRODUCT_NAME|DRIVER_CAPABILITIES|CUDA_\w+)|DEBIAN_FRONTEND|PYTHON_(?:VERSION|SHA256)"
    r"|GPG_KEY|VIRTUAL_ENV|UV_\w+|VLLM_USAGE_SOURCE"
)
_LABELS_OF_IMAGES = re.compile(r"org\.opencontainers\.|maintainer|com\.nvidia\.|io\.buildah\.")
_SHM = 64 << 20
# Of HostConfig: where nothing was given, the runtime fills these in; or they say nothing about the container.
_FILLED_IN = frozenset(
    ("ConsoleSize", "CgroupnsMode", "MaskedPaths", "ReadonlyPaths", "ContainerIDFile", "Isolation", "Cgroup")
)
_PLAIN: dict[str, str] = {
    "Binds": "-v", "CapAdd": "--cap-add", "CapDrop": "--cap-drop", "SecurityOpt": "--security-opt", "Dns": "--dns",
    "DnsSearch": "--dns-search", "DnsOptions": "--dns-option", "ExtraHosts": "--add-host", "GroupAdd": "--group-add",
    "VolumesFrom": "--volumes-from", "Memory": "--memory", "MemoryReservation": "--memory-reservation",
    "CpuShares": "--cpu-shares", "CpusetCpus": "--cpuset-cpus", "CpusetMems": "--cpuset-mems",
    "CpuPeriod": "--cpu-period", "CpuQuota": "--cpu-quota", "OomScoreAdj": "--oom-score-adj",
    "PidsLimit": "--pids-limit", "PidMode": "--pid", "UTSMode": "--uts", "UsernsMode": "--userns",
    "CgroupParent": "--cgroup-parent", "VolumeDriver": "--volume-driver",
}  # fmt: skip
_SWITCHES = {
    "AutoRemove": "--rm", "Init": "--init", "Privileged": "--privileged", "ReadonlyRootfs": "--read-only",
    "PublishAllPorts": "-P", "OomKillDisable": "--oom-kill-disable",
}  # fmt: skip


def made(told: object, *, runtime: str, name: str, image: str, program: str) -> Made | None:
    """The words of `docker run` up to and with the image, behind which the program's arguments stand. None where the
    description is not whole, or where something else makes the container.

    Of a variable that is not known to carry no secret only the name is in it.
    """
    labels = json_path.at(told, "Config", "Labels")
    if isinstance(labels, Mapping) and any(labels.get(owner) for owner in _OWNERS):
        return None
    if not (name and image and program):
        return None
    if runtime == "podman":
        return _by_podman(json_path.words(told, "Config", "CreateCommand"), program)
    host = json_path.at(told, "HostConfig")
    if not isinstance(host, Mapping) or not host.keys() >= _WHOLE:
        return None
    words, left = ["docker", "run", "-d", "--name", name], set[str]()
    for key, value in host.items():
        written = _written(str(key), value, told)
        if written is None:
            left.add(excerpt.word(str(key)))
        else:
            words += written
    words += [*_of_config(told, labels), *_environment(json_path.words(told, "Config", "Env"))]
    return _kept([*words, "--entrypoint", program, image], left | set(_unsaid(told)))


def _kept(words: list[str], left: set[str]) -> Made | None:
    """None where a secret stands in the words: no line can be written without it."""
    if any(scrub(word) != word for word in words):
        return None
    restarts = "--restart" in words and words[words.index("--restart") + 1] == "always"
    return Made(tuple(words), tuple(sorted(left)), always=restarts)


def _by_podman(command: tuple[str, ...], program: str) -> Made | None:
    """podman keeps the command itself."""
    told = container.split(command)
    if told is None or len(command) > 2000:
        return None
    words: list[str] = []
    for name, value, whole in container.options(told.kept):
        if name in {"-e", "--env"} and not whole[0].startswith(name):
            return None  # one word with switches before it
        if name in {"-e", "--env"} and "=" in value:
            words += _variable(*value.split("=", 1)) or ()
        elif name != "--entrypoint":
            words += whole
    return _kept([*words, "--entrypoint", program, told.image], set())


def _written(key: str, value: object, told: object) -> list[str] | None:
    """A setting of HostConfig as options; none for one that was not given, None for one that cannot be written."""
    if key in _FILLED_IN or value in (None, "", 0, False, [], {}) or (key == "PidsLimit" and value == -1):
        return []
    try:
        if key in _PLAIN:
            values = value if isinstance(value, list) else [value]
            return [word for one in values for word in (_PLAIN[key], _scalar(one))]
        if key in _SWITCHES:
            return [_SWITCHES[key]] if value is True else None
        return _OWN[key](value, told) if key in _OWN else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _scalar(value: object) -> str:
    """A text or a whole number. Raises TypeError for any other."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(value)
    return str(value)


def _mapping(value: object) -> Mapping[Any, Any]:
    """Raises TypeError for any other."""
    if not isinstance(value, Mapping):
        raise TypeError(value)
    return value


def _rows(value: object) -> list[Any]:
    """Raises TypeError for any other."""
    if not isinstance(value, list):
        raise TypeError(value)
    return value


def _ports(value: object, _told: object) -> list[str]:
    found: list[str] = []
    for inside, bound in _mapping(value).items():
        number, _, kind = str(inside).partition("/")
        rows: list[dict[str, Any]] = bound or [{}]
        for one in rows:
            address, port = one.get("HostIp") or "", one.get("HostPort") or ""
            address = f"[{address}]" if ":" in address else address
            where = f"{address}:{port}:" if address else f"{port}:" if port else ""
            found += ["-p", f"{where}{number}" + (f"/{kind}" if kind not in {"", "tcp"} else "")]
    return found


def _gpus(value: object, _told: object) -> list[str] | None:
    found: list[str] = []
    for one in _rows(value):
        ids, count = one.get("DeviceIDs") or [], one.get("Count")
        if one.get("Driver") == "cdi":
            found += [word for device in ids for word in ("--device", _scalar(device))]
        elif one.get("Options") or one.get("Capabilities") not in ([["gpu"]], [["gpu", "nvidia"]]):
            return None
        elif ids:
            found += ["--gpus", f'"device={",".join(map(_scalar, ids))}"']
        else:
            found += ["--gpus", "all" if count == -1 else _scalar(count)]
    return found


def _mounts(value: object, _told: object) -> list[str] | None:
    found: list[str] = []
    for one in _rows(value):
        if one.keys() - {"Type", "Source", "Target", "ReadOnly"}:
            return None
        told = [f"type={one['Type']}", *([f"source={one['Source']}"] if one.get("Source") else [])]
        found += [
            "--mount",
            ",".join([*told, f"target={one['Target']}", *(["readonly"] if one.get("ReadOnly") else [])]),
        ]
    return found


def _devices(value: object, _told: object) -> list[str]:
    paths = [(one["PathOnHost"], one["PathInContainer"], one.get("CgroupPermissions") or "rwm") for one in _rows(value)]
    return [
        word
        for outside, inside, may in paths
        for word in ("--device", f"{outside}:{inside}" + (f":{may}" if may != "rwm" else ""))
    ]


def _restart(value: object, _told: object) -> list[str]:
    policy, most = json_path.text(value, "Name"), json_path.whole(value, "MaximumRetryCount")
    return ["--restart", f"{policy}:{most}" if most else policy] if policy not in {"", "no"} else []


def _log(value: object, _told: object) -> list[str]:
    kind, settings = json_path.text(value, "Type"), _mapping(value).get("Config") or {}
    given = [word for name, one in settings.items() for word in ("--log-opt", f"{name}={_scalar(one)}")]
    return [*(["--log-driver", kind] if kind not in {"", "json-file"} else []), *given]


def _shm(value: object, told: object) -> list[str]:
    return ["--shm-size", _scalar(value)] if value != _SHM and not _is_host(told, "IpcMode") else []


def _swap(value: object, told: object) -> list[str]:
    memory = json_path.whole(told, "HostConfig", "Memory") or 0
    return ["--memory-swap", _scalar(value)] if value != 2 * memory else []


def _ulimits(value: object, _told: object) -> list[str]:
    return [
        w for one in _rows(value) for w in ("--ulimit", f"{one['Name']}={_scalar(one['Soft'])}:{_scalar(one['Hard'])}")
    ]


def _pairs(option: str, sign: str) -> Callable[[object, object], list[str]]:
    def pairs(value: object, _told: object) -> list[str]:
        return [word for name, one in _mapping(value).items() for word in (option, f"{name}{sign}{one}".rstrip(sign))]

    return pairs


def _one_of(option: str, *usual: str) -> Callable[[object, object], list[str]]:
    """An option with a value, which is left out where it is the usual one."""
    return lambda value, _told: [option, _scalar(value)] if value not in usual else []


_OWN: dict[str, Callable[[object, object], list[str] | None]] = {
    "PortBindings": _ports, "DeviceRequests": _gpus, "Mounts": _mounts, "Devices": _devices, "Ulimits": _ulimits,
    "RestartPolicy": _restart, "LogConfig": _log, "ShmSize": _shm, "MemorySwap": _swap,
    "NanoCpus": lambda value, _told: ["--cpus", f"{int(_scalar(value)) / 1e9:g}"],
    "Tmpfs": _pairs("--tmpfs", ":"), "Sysctls": _pairs("--sysctl", "="), "StorageOpt": _pairs("--storage-opt", "="),
    "Annotations": _pairs("--annotation", "="), "Runtime": _one_of("--runtime", "runc"),
    "NetworkMode": _one_of("--network", "default", "bridge"), "IpcMode": _one_of("--ipc", "private", "shareable"),
}  # fmt: skip


def _is_host(told: object, mode: str) -> bool:
    return json_path.text(told, "HostConfig", mode) == "host"


def _of_config(told: object, labels: object) -> Iterator[str]:
    config = json_path.at(told, "Config")
    hostname, user = json_path.text(config, "Hostname"), json_path.text(config, "User")
    if hostname and not json_path.text(told, "Id").startswith(hostname) and not _is_host(told, "NetworkMode"):
        yield from ("--hostname", hostname)
    if user:
        yield from ("--user", user)
    if (folder := json_path.text(config, "WorkingDir")) not in {"", "/", "/vllm-workspace"}:
        yield from ("-w", folder)
    for switch, name in (("-t", "Tty"), ("-i", "OpenStdin")):
        if json_path.at(config, name) is True:
            yield switch
    for name, value in labels.items() if isinstance(labels, Mapping) else ():
        if isinstance(value, str) and not _LABELS_OF_IMAGES.match(str(name)):
            yield from ("--label", f"{name}={value}")


def _unsaid(told: object) -> Iterator[str]:
    """What was given beside HostConfig, and is not written."""
    networks = json_path.at(told, "NetworkSettings", "Networks")
    each = networks if isinstance(networks, Mapping) else {}
    if len(each) > 1 or any(json_path.at(one, "IPAMConfig") for one in each.values()):
        yield "Networks"
    if json_path.words(told, "Config", "Healthcheck", "Test"):
        yield "Healthcheck"
    given = " ".join(
        [*json_path.words(told, "HostConfig", "Binds"), *map(str, json_path.rows(told, "HostConfig", "Mounts"))]
    )
    if any(json_path.text(one, "Destination") not in given for one in json_path.rows(told, "Mounts")):
        yield "Volumes"


def _environment(assigned: tuple[str, ...]) -> Iterator[str]:
    for item in assigned:
        name, equals, value = item.partition("=")
        if equals:
            yield from _variable(name, value) or ()


def _variable(name: str, value: str) -> tuple[str, str] | None:
    """`-e NAME=value`, of one that may carry a secret `-e NAME`; None for one that the image set."""
    if _OF_IMAGES.fullmatch(name) or (name == "NVIDIA_VISIBLE_DEVICES" and value == "all"):
        return None
    shown = is_shown_variable(name) and scrub(f"{name}={value}") == f"{name}={value}"
    return "-e", f"{name}={value}" if shown else name
