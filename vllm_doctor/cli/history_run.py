"""What `history` does with its options."""

import datetime
import time

import msgspec

from vllm_doctor.cli import terminal
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.span import seconds, stamp
from vllm_doctor.cli.streams import say
from vllm_doctor.operate.history.timeline import timeline
from vllm_doctor.records import excerpt
from vllm_doctor.redact.text import without_secrets
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.machine import line


def run(unit: str | None, since: str, *, json: bool) -> int:
    """Print it; the exit code."""
    begin = _begin(since)
    told = timeline(unit, begin)
    events = [msgspec.structs.replace(e, text=without_secrets(e.text)) for e in told.events]
    if json:
        answer = {
            "schema_version": 1,
            "since": stamp(begin),
            "events": [{"at": stamp(e.at), "unit": e.unit, "kind": e.kind, "text": e.text} for e in events],
            "unread": list(told.unread),
            "absent": list(told.absent),
        }
        say(line(answer))
    else:
        lines = [f"{_written(e.at)}  {visible(e.unit)}  {visible(e.kind)}\n  {visible(e.text)}\n" for e in events]
        lines = lines or [f"nothing is recorded since {_written(begin)}\n"]
        notes = [f"not read: {visible(why)}\n" for why in told.unread] + [f"{visible(why)}\n" for why in told.absent]
        terminal.told("".join(lines + notes))
    return Exit.INCOMPLETE if told.unread or (told.absent and not events) else Exit.OK


def _begin(since: str) -> float:
    """The time that `--since` names, seconds since the epoch."""
    span = seconds(since)
    if span is not None:
        return max(0.0, time.time() - span)
    try:
        moment = datetime.datetime.fromisoformat(since)
        return moment.timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageProblem(
            f"--since: found {excerpt.value(since)}; needed: a span (90m, 12h, 7d) or a date (2026-11-20)"
        ) from None


def _written(at: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(at, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "at no time"
