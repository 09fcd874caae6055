"""Turn debug variables of a unit on and off. Which there are, and what each costs, is data; which of them a release
reads is in its history."""

import datetime
import json
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vllm_doctor import knowledge
from vllm_doctor.knowledge import versions
from vllm_doctor.operate.announce import announced
from vllm_doctor.operate.guard.restart import alone
from vllm_doctor.operate.history import deeds
from vllm_doctor.operate.recover.steps import answers
from vllm_doctor.operate.temporary import NotDone, Temporary, systemctl
from vllm_doctor.records.temporary import until

_FILE = Path(knowledge.__file__).with_name("debug.json")


class DebugSwitch(msgspec.Struct, frozen=True):
    """One thing that can be turned on: the variable, its value, who reads it and what it costs."""

    variable: str
    value: str
    owner: Literal["vllm", "nccl", "cuda"]
    cost: str
    source: str


@cache
def switches() -> dict[str, DebugSwitch]:
    """All of them, by the word that a person types."""
    return msgspec.convert(json.loads(_FILE.read_text(encoding="utf-8")), dict[str, DebugSwitch])


def unread(switch: DebugSwitch, version: str | None) -> str | None:
    """Why this release would not hear it, or None. A release that is not known is not said to hear it."""
    if switch.owner != "vllm":
        return None
    if version is None:
        return None
    fact = versions.env(switch.variable, version)
    return None if fact is not None and fact.exists is not False else f"vLLM {version} does not read {switch.variable}"


def text(chosen: Sequence[DebugSwitch]) -> str:
    """The drop-in's text."""
    lines = "".join(f"Environment={one.variable}={one.value}\n" for one in chosen)
    return f"# `vllm-doctor debug`: until the time in this file's name or the next reboot.\n[Service]\n{lines}"


def on(unit: str, chosen: Sequence[DebugSwitch], seconds: int, ready_s: float, now: datetime.datetime) -> str | None:
    """Write the drop-in, restart, wait for a completion; why none came, and then the drop-in is taken away again.

    Raises NotDone, NotPermitted where another changes a service, OSError.
    """
    drop_in = Temporary(unit, "debug", restart=True)
    with alone(), announced(f"vllm-doctor debug on --unit {unit}", unit):
        deeds.record(unit, "debug", f"on for {seconds} s: {' '.join(f'{one.variable}={one.value}' for one in chosen)}")
        began = time.monotonic()
        # Should nobody be there any more after the start, it ends all the same.
        drop_in.put(text(chosen), seconds + int(ready_s), now)
        try:
            systemctl("reset-failed", "--", unit)
            systemctl("restart", "--", unit, deadline_s=900)
            why = answers(unit, ready_s)
            if why is None:  # the time begins when it serves
                took = datetime.timedelta(seconds=time.monotonic() - began)
                file = drop_in.put(text(chosen), seconds, now + took)
                deeds.record(unit, "debug", f"{deeds.UNTIL} {_end(file)}")
        except NotDone as refused:
            why = str(refused)
        if why is not None:
            drop_in.take_away()
            systemctl("reset-failed", "--", unit)
            systemctl("restart", "--", unit, deadline_s=900)
            deeds.record(unit, "debug", f"off again: {why}")
        return why


def _end(file: Path) -> str:
    end = until(str(file))
    return end.isoformat(timespec="seconds") if end is not None else ""


def off(unit: str) -> bool:
    """Take it away and restart; False where nothing was on. Raises as `on`."""
    drop_in = Temporary(unit, "debug", restart=True)
    with alone(), announced(f"vllm-doctor debug off --unit {unit}", unit):
        if not drop_in.take_away():
            return False
        deeds.record(unit, "debug", "off")
        systemctl("reset-failed", "--", unit)
        systemctl("try-restart", "--", unit, deadline_s=900)
        return True
