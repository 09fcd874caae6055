"""What a host said to `diagnose --format json`, as `vllm-doctor fleet` takes it, and in a line."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_LARGEST = 4 << 20  # characters


def answer(said: Mapping[str, Any], host: str) -> str:
    """Give the JSON of one host: its answer, or why it has none."""
    told: dict[str, Any] = {"host": host}
    if said.get("unreachable"):
        told |= {"state": "unreachable", "said": str(said.get("msg", ""))[:500]}
    elif str(said.get("stdout", "")).startswith("skipped, since"):
        told |= {"state": "drained", "said": "drained: playbooks/undrain.yml puts it into service again"}
    else:
        found = _read(said)
        told |= {"answer": found} if found is not None else {"state": "failed", "said": _why(said)}
    return json.dumps(told)


def answers(hosts: Iterable[str], variables: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Give the JSON of each of these hosts that was asked, by the variables of all: {host: answer}."""
    asked = {host: variables[host] for host in hosts}
    return {host: answer(told["vllm_doctor_said"], host) for host, told in asked.items() if "vllm_doctor_said" in told}


def verdicts(said: Mapping[str, Any]) -> str:
    """Give each unit's verdict in a line."""
    found = _read(said)
    if found is None:
        return _why(said)
    rows = [found, *(one for one in found.get("others") or () if isinstance(one, dict))]
    return "; ".join(f"{_unit(row)}: {row.get('verdict')}{_first(row)}" for row in rows)


def _first(row: Mapping[str, Any]) -> str:
    """Give the first finding, which may be an advice that fails nothing."""
    found = next(iter(row.get("findings") or ()), None)
    return f", {found.get('code')} {found.get('title')}" if isinstance(found, dict) else ""


def _unit(row: Mapping[str, Any]) -> str:
    subject = row.get("subject") or {}
    return str(subject.get("unit") or subject.get("place") or "vLLM")


def _read(said: Mapping[str, Any]) -> dict[str, Any] | None:
    text = str(said.get("stdout", ""))
    if len(text) > _LARGEST:  # no host with a doctor says so much, and the page would not take it
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _why(said: Mapping[str, Any]) -> str:
    # Ansible's module command: the system's own number for a program that is not there, and no word of a program.
    if said.get("rc") == errno.ENOENT and not said.get("stdout") and not said.get("stderr"):
        return "the host has no vllm-doctor: play site.yml, or its stage doctor (--tags doctor)"
    return str(said.get("stderr") or said.get("msg") or said.get("stdout") or "no answer")[:500]


class FilterModule:
    """The filters, as Ansible looks for them."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name the filters."""
        return {"vllm_doctor_answers": answers, "vllm_doctor_verdicts": verdicts}
