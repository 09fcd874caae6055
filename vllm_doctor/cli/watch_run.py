"""What `watch` does with its options: look, show, again."""

import datetime
import os
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from vllm_doctor.cli import terminal
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.span import stamp
from vllm_doctor.cli.streams import reader_left, say
from vllm_doctor.gather import journal, look
from vllm_doctor.gather.concurrently import Task
from vllm_doctor.gather.http import Pass
from vllm_doctor.operate.guard.first_finding import explained
from vllm_doctor.operate.history.timeline import memory
from vllm_doctor.operate.watch.current import ServiceFigures, figures
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Known
from vllm_doctor.records.sample import Look
from vllm_doctor.redact.text import without_secrets

_FINDINGS_EVERY_S = 30.0
_ONCE_S = 1.0


def run(unit: str | None, urls: tuple[str, ...], *, once: bool, every_s: float, json: bool) -> int:
    """Show until Ctrl-C, or once; the exit code."""
    if unit is not None and urls:
        raise UsageProblem("--unit names a service of this host and --url one anywhere: give one or the other")
    see = _of_urls(tuple(map(_base, urls))) if urls else _of_host(unit)
    view = View(see, of_host=not urls)
    view.take()
    if once:
        time.sleep(_ONCE_S)
        seen = view.take(findings=True)
        _show(seen, json=json)
        if any(one.finding for one in seen):
            return Exit.FINDINGS
        return Exit.INCOMPLETE if any(one.running is None or not one.answers for one in seen) else Exit.OK
    try:
        return _live(view, every_s, json=json)
    except KeyboardInterrupt:
        return Exit.OK


def _live(view: "View", every_s: float, *, json: bool) -> int:
    live = terminal.obeys() and not json
    while not reader_left(every_s):
        seen = view.take(findings=True, wait=False)
        if live:
            say("\x1b[H\x1b[J")
        _show(seen, json=json)
    return Exit.OK


class View:
    """Looks, the ones before them, and what changes seldom: a start's memory and the findings."""

    def __init__(self, see: Callable[[], tuple[Look, ...]], *, of_host: bool) -> None:
        """`see` gives the services as they are now."""
        self._see, self._of_host = see, of_host
        self._before: dict[str, Look] = {}
        self._starts: dict[str, dict[str, float]] = {}
        self._asked: dict[str, tuple[float, Task[str]]] = {}
        self._found: dict[str, str] = {}

    def take(self, *, findings: bool = False, wait: bool = True) -> tuple[ServiceFigures, ...]:
        """One more look, as figures."""
        shown: list[ServiceFigures] = []
        for now in self._see():
            if findings and self._of_host:
                self._finding(now.unit, wait=wait)
            shown.append(figures(self._before.get(now.unit), now, self._start(now), self._found.get(now.unit, "")))
            self._before[now.unit] = now
        return tuple(shown)

    def _start(self, now: Look) -> dict[str, float]:
        """What the present run logged of its memory; asked again until it has logged it."""
        if not self._of_host or not now.invocation or now.health != 200:
            return {}
        if now.invocation not in self._starts:
            self._starts[now.invocation] = memory(journal.head(now.invocation, 3.0))
        return self._starts[now.invocation]

    def _finding(self, unit: str, *, wait: bool) -> None:
        """The doctor's first finding, from a process of its own."""
        at = time.monotonic()
        asked, task = self._asked.get(unit, (0.0, None))
        if task is None or (at - asked > _FINDINGS_EVERY_S and unit in self._found):
            task = Task(lambda: explained(unit).finding)
            self._asked[unit] = (at, task)
        told: str | None = task.within(60.0 if wait else 0.0, None)  # type: ignore[arg-type]
        if told is not None:
            self._found[unit] = told


def _of_host(unit: str | None) -> Callable[[], tuple[Look, ...]]:
    names = (unit,) if unit is not None else ()

    def see() -> tuple[Look, ...]:
        found = look.looks(names, cards=True, canaries={})
        if not isinstance(found, Known):
            raise UsageProblem(f"watch: {found.reason}; needed: a vLLM unit here, or --url http://HOST:8000")
        if unit is not None and not found.value:
            raise UsageProblem(f"watch: --unit {unit}: there is no such vLLM unit on this host")
        return found.value

    return see


def _of_urls(bases: tuple[str, ...]) -> Callable[[], tuple[Look, ...]]:
    given = Pass(os.environ.get("VLLM_API_KEY") or None)

    def see(base: str) -> Look:
        seen = look.look_at(base, given)
        if seen.health not in {401, 403}:
            return seen
        more = "VLLM_API_KEY=… in the environment gives a key"
        if given.key is not None and base.startswith("https:"):
            more = "a key goes over https only to a server whose certificate file is known: watch it on its host"
        elif given.key is not None:
            more = "the server refuses the key in VLLM_API_KEY"
        return msgspec.structs.replace(seen, why=f"{seen.why}; {more}")

    return lambda: tuple(see(base) for base in bases)


def _base(url: str) -> str:
    """The address as others continue it. Raises UsageProblem for what is none."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or "@" in url or "?" in url:
        raise UsageProblem(
            f"--url: found {without_secrets(excerpt.word(url))!r}; needed: an address such as http://gpu04:8000"
        )
    return url.rstrip("/").removesuffix("/metrics").removesuffix("/v1")


def _show(seen: tuple[ServiceFigures, ...], *, json: bool) -> None:
    if json:
        from vllm_doctor.render.machine import line

        say(line({"schema_version": 1, "at": stamp(time.time()), "services": seen}))
        return
    from vllm_doctor.render.watch import page

    at = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    say(page(seen, at, width=terminal.width(), color=terminal.colored()))
