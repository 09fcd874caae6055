"""What the guard may do and from when on: a JSON file that role vllm_doctor writes. Nothing of it is needed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from vllm_doctor.gather.bounded import whole_file
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Absent, Known
from vllm_doctor.records.unit_name import is_service

FILE = Path("/etc/vllm-doctor/guard.json")
STOP = Path("/etc/vllm-doctor/guard.stop")
_MOST = 1 << 16
_PLAIN = {
    "Input data was truncated": "is empty, or ends in the middle of its JSON",
    "Expected": "needed:", "got": "found", "`float`": "a number", "`int`": "a whole number", "`str`": "text",
    "`bool`": "true or false", "`object`": "a mapping", "`array`": "a list",
}  # fmt: skip

Portion = Annotated[float, msgspec.Meta(gt=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(ge=1, le=31 * 86400)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class Pressure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A full pool or a long queue: said when seen `times` times in `within_s`, and over when below the `_off` marks.

    `restart` is off: a restart throws the queue and the prefix cache away, every client asks again at once, and the
    pool is as small as before.
    """

    kv: Portion = 0.95
    kv_off: Portion = 0.85
    queue_factor: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 2.0
    times: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    within_s: Seconds = 300.0
    restart: bool = False


class GrowthPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory that grows without end: judged over `hours` of records, acted on where the limit is `hours_left` away and
    more than `used` of it is used."""

    hours: Annotated[float, msgspec.Meta(ge=1, le=31 * 24)] = 12.0
    hours_left: Annotated[float, msgspec.Meta(gt=0, le=31 * 24)] = 6.0
    used: Portion = 0.85
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
    growth: GrowthPolicy = GrowthPolicy()
    keep_days: Annotated[float, msgspec.Meta(gt=0, le=3650)] = 35.0
    keep_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 100


class PolicyProblem(Exception):  # noqa: N818 - it names what the operator meets
    """The policy cannot be taken: what, where, what is needed."""


def load(path: Path = FILE) -> Policy:
    """The policy of `path`; the defaults, which never act, where there is none. Raises PolicyProblem."""
    read = whole_file(path, _MOST)
    if isinstance(read, Absent) and path == FILE:
        return Policy()
    if not isinstance(read, Known):
        raise PolicyProblem(f"--policy {read.reason}")
    try:
        policy = msgspec.json.decode(read.value, type=Policy)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise PolicyProblem(f"--policy {path}: {_told(str(wrong), read.value)}") from None
    for unit in policy.units:
        if not is_service(unit) or unit.startswith("vllm-doctor"):
            raise PolicyProblem(
                f"--policy {path}: units: found {excerpt.value(unit)}; needed: a unit such as vllm@main.service"
            )
    for place, found, needed in _at_odds(policy):
        raise PolicyProblem(f"--policy {path}: {place}: found {found}; needed: {needed}")
    return policy


def _at_odds(policy: Policy) -> Iterator[tuple[str, str, str]]:
    """Values that are right one by one and together make the guard blind: where, what was found, what is needed."""
    pressure, growth = policy.pressure, policy.growth
    if pressure.kv_off >= pressure.kv:
        found = f"kv_off {pressure.kv_off:g} and kv {pressure.kv:g}"
        yield "pressure", found, "kv_off below kv; otherwise the warning comes back endlessly"
    if policy.beat_s > policy.every_s:
        found = f"beat_s {policy.beat_s:g} and every_s {policy.every_s:g}"
        yield (
            "beat_s",
            found,
            "beat_s at most every_s: the guard reads the GPUs when it reads the services, never more often",
        )
    if policy.engine_silent_s > policy.engine_busy_silent_s:
        found = f"engine_silent_s {policy.engine_silent_s:g} and engine_busy_silent_s {policy.engine_busy_silent_s:g}"
        yield (
            "engine_silent_s",
            found,
            "engine_silent_s at most engine_busy_silent_s: an engine that computes needs at least as much time",
        )
    if (pressure.times - 1) * policy.beat_s >= pressure.within_s:
        found = f"times {pressure.times} and within_s {pressure.within_s:g}, with a look every {policy.beat_s:g} s"
        yield "pressure", found, "fewer times or a longer within_s: that many looks do not fit into that time"
    if growth.hours > policy.keep_days * 24:
        found = f"hours {growth.hours:g}, and keep_days {policy.keep_days:g}"
        yield "growth", found, "hours of records that are kept"


def _found(written: bytes, place: str) -> str:
    """`found 0; `: the value that stands at this place."""
    try:
        value = json.loads(written)
        for word in place.split("."):
            value = value[word]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return f"found {excerpt.word(json.dumps(value))}; "


def _told(wrong: str, written: bytes) -> str:
    """What msgspec says, in the words of who wrote the policy."""
    said, _, at = wrong.partition(" - at `$")
    place = at.strip("`.") or "the policy"
    unknown = re.search(r"unknown field `(.*)`", said)
    if unknown is None:
        for word, plain in _PLAIN.items():
            said = said.replace(word, plain)
        found = "" if "found" in said else _found(written, place)
        return f"{place}: {found}{said}"
    kinds: dict[str, type[msgspec.Struct]] = {"pressure": Pressure, "growth": GrowthPolicy}
    words = [field.name for field in msgspec.structs.fields(kinds.get(place, Policy))]
    return f"{place}: found {unknown[1]}; needed: one of {', '.join(sorted(words))}"
