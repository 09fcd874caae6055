"""A unit's command line word for word, asked over the bus: `systemctl show` parts words by spaces, and a word may hold
some, or a line's end, or what looks like the end of the line."""

import json

import msgspec

from vllm_doctor.gather import systemd
from vllm_doctor.gather.launch import is_vllm
from vllm_doctor.gather.processes import NotRun, run
from vllm_doctor.gather.systemd import Found

_MANAGER = "org.freedesktop.systemd1"
# What stands before the program (systemd.service(5), "COMMAND LINES").
_PREFIXES = {"ignore-failure": "-", "privileged": "+", "no-setuid": "!", "ambient": "!!", "no-env-expand": ":"}


class UnitLine(msgspec.Struct, frozen=True):
    """What ExecStart= says: specifiers are replaced in `words`, variables are not. `program` is started with them; its
    first word may be another name. `prefix` is what stands before the program."""

    program: str
    words: tuple[str, ...]
    prefix: str

    @property
    def plain(self) -> bool:
        """Can the words be written again as they are, behind the prefix?"""
        return bool(self.words) and self.words[0] == self.program and self.program.startswith("/")


def line(unit: str, deadline_s: float = 5) -> UnitLine | None:
    """The one command of ExecStart=; None where there is none or more, or systemd does not say (before release 243)."""
    asked = ["busctl", "--json=short", "get-property", _MANAGER, _place(unit), f"{_MANAGER}.Service", "ExecStartEx"]
    said = run(asked, deadline_s=deadline_s, max_bytes=1 << 20)
    if isinstance(said, NotRun) or said.code != 0:
        return None
    try:
        commands = [one[:3] for one in json.loads(said.out)["data"]]
        made = msgspec.convert(commands, list[tuple[str, list[str], list[str]]])
    except (ValueError, RecursionError, KeyError, TypeError, msgspec.ValidationError):
        return None
    if len(made) != 1 or not made[0][1]:
        return None
    program, words, flags = made[0]
    return UnitLine(program, tuple(words), "".join(_PREFIXES.get(flag, "") for flag in flags))


def exact(found: Found) -> Found:
    """The unit with its command line word for word, where that is vLLM's own."""
    said = line(found.unit.name)
    if said is None or not is_vllm(said.words):
        return found
    words = said.words
    if ":" not in said.prefix:
        words = systemd.effective(words, found.env, found.unit.properties.get("EnvironmentFiles", ""))
    return msgspec.structs.replace(found, argv=words)


def _place(unit: str) -> str:
    """The unit's object: systemd writes every byte that is no letter and no digit as `_` and two digits."""
    return "/org/freedesktop/systemd1/unit/" + "".join(
        chr(byte) if chr(byte).isalnum() and byte < 0x80 and (at or not chr(byte).isdigit()) else f"_{byte:02x}"
        for at, byte in enumerate(unit.encode())
    )
