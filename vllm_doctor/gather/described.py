"""`kubectl describe pod`, which people paste, as the object that `kubectl get pod -o json` prints of the same pod."""

import re
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime

import msgspec

_HEAD = re.compile(r"\n{0,20}Name: +\S+\nNamespace: +\S+\n")
# What vLLM or a traceback writes: then a log follows in the same file, and all of it is read as a log.
_OF_A_LOG = re.compile(r"^(?:\([A-Za-z_0-9]{1,40} pid=\d|(?:INFO|ERROR|WARNING) \d\d-\d\d |Traceback )", re.MULTILINE)
_KEY = re.compile(r"( {0,40})([A-Za-z][^:\n]{0,200}?):(?: +(.*)|$)")
_MOST = 5000
_PROBES = {"Startup": "startupProbe", "Liveness": "livenessProbe", "Readiness": "readinessProbe"}
_PROBE = re.compile(r"http-get (?:https?:)?//[^/]{0,253}?:(?P<port>[\w-]{1,40})(?P<path>/\S{0,200})")
_TIMES = {"delay": "initialDelaySeconds", "timeout": "timeoutSeconds", "period": "periodSeconds"}
_NUMBER = re.compile(r"(delay|timeout|period)=(\d{1,9})s|#(failure)=(\d{1,9})")
_MOUNT = re.compile(r"(/\S{1,500}) from (\S{1,253}) \(")
_EVENTS = re.compile(r"  Type +Reason +Age +From +Message *")
_COLUMNS = ("Reason", "Age", "From", "Message")
_TIMES_SEEN = re.compile(r"\(x(\d{1,9}) ")


class _Node(msgspec.Struct):
    """A key with what stands behind it and what is indented below it."""

    value: str = ""
    below: dict[str, "_Node"] = {}
    lines: list[str] = []

    def at(self, *path: str) -> "_Node":
        """What stands under these keys; an empty node for what is missing."""
        found = self
        for key in path:
            found = found.below.get(key) or _Node()
        return found

    def texts(self) -> dict[str, str]:
        return {key: node.value for key, node in self.below.items()}


def holds(text: str) -> bool:
    """Is this what `kubectl describe pod` prints, and no log behind it?"""
    return _HEAD.match(text) is not None and "\nContainers:\n" in text and _OF_A_LOG.search(text) is None


def pods(text: str) -> list[dict[str, object]]:
    """The pods that are described."""
    starts = [found.start() for found in re.finditer(r"^Name: ", text, re.MULTILINE)][:64]
    ends = [*starts[1:], len(text)] if starts else []
    return [_pod(text[begin:end].split("\n")[:_MOST]) for begin, end in zip(starts, ends, strict=True)]


def events(text: str) -> dict[str, object]:
    """The events below them, as `kubectl get events -o json` lists them."""
    return {"kind": "EventList", "items": list(_events(text.split("\n")))}


def _events(lines: Sequence[str]) -> Iterator[dict[str, object]]:
    """The rows below the heading, whose words say where the columns begin."""
    starts: list[int] = []
    for line in lines:
        if _EVENTS.fullmatch(line) is not None:
            starts = [line.index(name) for name in _COLUMNS]
        elif starts and line.strip() and not line.lstrip().startswith("----"):
            cells = [line[begin:end].strip() for begin, end in zip(starts, (*starts[1:], None), strict=True)]
            times = _TIMES_SEEN.search(cells[1])
            yield {
                "kind": "Event",
                "involvedObject": {"kind": "Pod"},
                "reason": cells[0],
                "message": cells[3],
                "count": int(times[1]) if times is not None else 1,
            }


def _tree(lines: Sequence[str]) -> _Node:
    """The lines by their indentation; a line of no key is kept with the key above it."""
    root = _Node(below={}, lines=[])
    open_: list[tuple[int, _Node]] = [(-1, root)]
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip(" "))
        while open_[-1][0] >= depth:
            open_.pop()
        above = open_[-1][1]
        above.lines.append(line.strip())
        found = _KEY.fullmatch(line)
        if found is not None:
            made = _Node((found[3] or "").strip(), {}, [])
            above.below[found[2].strip()] = made
            open_.append((depth, made))
    return root


def _pod(lines: Sequence[str]) -> dict[str, object]:
    told = _tree(lines)
    kind, _, owner = told.at("Controlled By").value.partition("/")
    labels = dict(_pairs([told.at("Labels").value, *told.at("Labels").lines]))
    status: dict[str, object] = {"reason": told.at("Reason").value, "message": told.at("Message").value}
    spec: dict[str, object] = {"volumes": list(_volumes(told.at("Volumes")))}
    for place, listed, states in (
        ("Containers", "containers", "containerStatuses"),
        ("Init Containers", "initContainers", "initContainerStatuses"),
    ):
        each = told.at(place).below
        spec[listed] = [_container(name, node) for name, node in each.items()]
        status[states] = [_status(name, node) for name, node in each.items() if node.at("State").value]
    node = told.at("Node").value.partition("/")[0]
    placed = [line.split() for line in told.at("Conditions").lines]
    status["conditions"] = [{"type": row[0], "status": row[1]} for row in placed if len(row) == 2]
    return {
        "kind": "Pod",
        "metadata": {
            "name": told.at("Name").value,
            "namespace": told.at("Namespace").value,
            "labels": labels,
            "ownerReferences": [{"kind": kind, "name": owner}] if owner else [],
        },
        "spec": {**spec, "nodeName": node if node not in {"", "<none>"} else None},
        "status": status,
    }


def _pairs(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if equals:
            yield name, value


def _container(name: str, told: _Node) -> dict[str, object]:
    arguments = [*told.at("Args").lines]
    command = [*told.at("Command").lines]
    if command[-1:] == ["-c"]:
        arguments = ["\n".join(arguments)] if arguments else []  # one argument: the shell's script
    given = {"limits": told.at("Limits").texts(), "requests": told.at("Requests").texts()}
    whole: dict[str, object] = {
        "name": name,
        "image": told.at("Image").value,
        "command": command,
        "args": arguments,
        "resources": given,
        "env": [{"name": key, "value": value} for key, value in told.at("Environment").texts().items()
                if not value.startswith("<")],
        "volumeMounts": [
            {"mountPath": found[1], "name": found[2]}
            for line in told.at("Mounts").lines
            if (found := _MOUNT.match(line)) is not None
        ],
    }  # fmt: skip
    return whole | {field: _probe(told.at(key).value) for key, field in _PROBES.items() if told.at(key).value}


def _probe(told: str) -> dict[str, object]:
    """`http-get http://:8000/health delay=60s timeout=1s period=10s #success=1 #failure=3`."""
    fields: dict[str, object] = {}
    if (asks := _PROBE.match(told)) is not None:
        port = asks["port"]
        fields["httpGet"] = {"path": asks["path"], "port": int(port) if port.isdigit() else port}  # 0: not given
    for found in _NUMBER.finditer(told):
        fields[_TIMES[found[1]] if found[1] else "failureThreshold"] = int(found[2] or found[4])
    return fields


def _status(name: str, told: _Node) -> dict[str, object]:
    restarts = told.at("Restart Count").value
    return {
        "name": name,
        "restartCount": int(restarts) if restarts.isdecimal() and len(restarts) < 10 else None,
        "ready": told.at("Ready").value == "True",
        "state": _state(told.at("State")),
        "lastState": _state(told.at("Last State")),
    }


def _state(told: _Node) -> dict[str, object]:
    code = told.at("Exit Code").value
    fields = {
        "reason": told.at("Reason").value,
        "message": told.at("Message").value,
        "exitCode": int(code) if code.isdecimal() and len(code) < 10 else None,
        "startedAt": _moment(told.at("Started").value),
        "finishedAt": _moment(told.at("Finished").value),
    }
    return {told.value.lower(): fields} if told.value else {}


def _moment(told: str) -> str | None:
    """`Tue, 25 Nov 2025 09:00:00 +0000` as ISO 8601."""
    try:
        return parsedate_to_datetime(told).isoformat()
    except (OverflowError, TypeError, ValueError):
        return None


def _volumes(told: _Node) -> Iterator[dict[str, object]]:
    for name, node in told.below.items():
        if node.at("Type").value.startswith("EmptyDir"):
            size = node.at("SizeLimit").value
            limit = {"sizeLimit": size} if size not in {"", "<unset>"} else {}
            yield {"name": name, "emptyDir": {"medium": node.at("Medium").value, **limit}}
