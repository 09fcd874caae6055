"""What the guard may do and from when on: a JSON file that role vllm_doctor writes. Nothing of it is needed."""

import re
from pathlib import Path
from typing import Annotated

import msgspec

from vllm_doctor.gather.bounded import whole
from vllm_doctor.records.reading import Absent, Known

FILE = Path("/etc/vllm-doctor/guard.json")
STOP = Path("/etc/vllm-doctor/guard.stop")
_MOST = 1 << 16
_PLAIN = {"Expected": "needed:", "got": "found", "`float`": "a number", "`int`": "a whole number", "`str`": "text",
          "`bool`": "true or false", "`object`": "a mapping", "`array`": "a list"}  # fmt: skip
_UNIT = re.compile(r"(?!vllm-doctor)[A-Za-z0-9:_.\\@-]{1,200}\.service")

Part = Annotated[float, msgspec.Meta(gt=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(ge=1, le=31 * 86400)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class Pressure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A full pool or a long queue: said when seen `times` times in `within_s`, and over when below the `_off` marks.

    `restart` is off: a restart throws the queue and the prefix cache away, every client asks again at once, and the
    pool is as small as before.
    """

    kv: Part = 0.95
    kv_off: Part = 0.85
    queue_factor: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 2.0
    times: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    within_s: Seconds = 300.0
    restart: bool = False


class Growth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory that grows without end: judged over `hours` of records, acted on where the limit is `hours_left` away and
    more than `used` of it is used."""

    hours: Annotated[float, msgspec.Meta(ge=1, le=31 * 24)] = 12.0
    hours_left: Annotated[float, msgspec.Meta(gt=0, le=31 * 24)] = 6.0
    used: Part = 0.85
    quiet_s: Seconds = 900.0
    restart: bool = True


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole policy; times in seconds. `units` is who may be restarted; nobody, where it is empty.

    An engine that makes no token is dead after `engine_silent_s` where its processes do not compute, and after
    `engine_busy_silent_s` where they do (one long step, or a collective operation that spins), if a completion does not
    come either.
    """

    units: tuple[str, ...] = ()
    act: bool = False
    every_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 30.0
    beat_s: Annotated[float, msgspec.Meta(ge=0.5, le=3600)] = 10.0
    engine_silent_s: Seconds = 45.0
    engine_busy_silent_s: Seconds = 600.0
    canary_s: Annotated[float, msgspec.Meta(ge=1, le=600)] = 15.0
    canary_every_s: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 300.0
    start_s: Seconds = 3600.0
    start_silent_s: Seconds = 1800.0
    ready_s: Seconds = 1800.0
    restarts_a_day: Count = 3
    cool_down_s: Seconds = 1800.0
    flapping: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 3
    flapping_s: Seconds = 3600.0
    pressure: Pressure = Pressure()
    growth: Growth = Growth()
    keep_days: Annotated[float, msgspec.Meta(gt=0, le=3650)] = 35.0
    keep_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 100


class PolicyProblem(Exception):  # noqa: N818 - it names what the operator meets
    """The policy cannot be taken: what, where, what is needed."""


def load(path: Path = FILE) -> Policy:
    """The policy of `path`; the defaults, which never act, where there is none. Raises PolicyProblem."""
    read = whole(path, _MOST)
    if isinstance(read, Absent) and path == FILE:
        return Policy()
    if not isinstance(read, Known):
        raise PolicyProblem(f"--policy {read.reason}")
    try:
        policy = msgspec.json.decode(read.value, type=Policy)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise PolicyProblem(f"--policy {path}: {_told(str(wrong))}") from None
    for unit in policy.units:
        if not _UNIT.fullmatch(unit):
            raise PolicyProblem(
                f"--policy {path}: units: found {unit[:100]!r}; needed: a unit such as vllm@main.service"
            )
    if policy.pressure.kv_off >= policy.pressure.kv:
        raise PolicyProblem(
            f"--policy {path}: pressure: found kv_off {policy.pressure.kv_off:g} and kv {policy.pressure.kv:g}; "
            "needed: kv_off below kv, or it is said again and again"
        )
    return policy


def _told(wrong: str) -> str:
    """What msgspec says, in the words of who wrote the policy."""
    said, _, at = wrong.partition(" - at `$")
    place = at.strip("`.") or "the policy"
    unknown = re.search(r"unknown field `(.*)`", said)
    if unknown is None:
        for word, plain in _PLAIN.items():
            said = said.replace(word, plain)
        return f"{place}: {said}"
    kinds: dict[str, type[msgspec.Struct]] = {"pressure": Pressure, "growth": Growth}
    words = [field.name for field in msgspec.structs.fields(kinds.get(place, Policy))]
    return f"{place}: found {unknown[1]}; needed: one of {', '.join(sorted(words))}"
