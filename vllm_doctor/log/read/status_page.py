"""What `systemctl status` shows of a unit's end, in the words that systemd writes into the journal for it."""

import signal

from vllm_doctor.knowledge.pattern import Pattern

# systemctl-show.c: the dot, then the unit; each process that ended by its code and status, or its signal's name.
_UNIT = Pattern(r"[●○×↻*x] (?P<unit>[\w@.\\:-]{1,255}\.service)(?: - |$)")
_ENDED = Pattern(
    r" {3,20}(?:Main PID|(?P<other>Process)): \d{1,10}(?: Exec\w{4,20}=[^\n]{0,4000}?| \([^)]{1,64}\))? "
    r"\(code=(?P<code>exited|killed|dumped), (?:status=(?P<status>(?!0\b)\d{1,3}(?:/[A-Z_]{2,40})?)"
    r"|signal=(?P<signal>[A-Z0-9]{2,9}))\)"
)
_RESULT = Pattern(r" {3,20}Active: (?:failed|activating \(auto-restart\)) \(Result: (?P<result>[a-z-]{3,40})\)")
# Both lines tell of the main process; of one that is run before or after it (ExecStartPre) the first alone does.
_MAIN = "ExecStart="


class StatusPage:
    """Rewords the lines of the page; remembers the unit that it is of."""

    def __init__(self) -> None:
        self._unit: str | None = None

    def reworded(self, text: str) -> str | None:
        """What systemd writes into the journal for such a line; None for any other line."""
        if text[:1] in "●○×↻*x" and (head := _UNIT.match(text)) is not None:
            self._unit = head["unit"]
        if self._unit is None or text[:3] != "   ":
            return None
        if (result := _RESULT.match(text)) is not None:
            return f"{self._unit}: Failed with result '{result['result']}'."
        ended = _ENDED.match(text)
        if ended is None or (ended["other"] and _MAIN in text):
            return None
        which = "Control" if ended["other"] else "Main"
        killed = signal.Signals.__members__.get(f"SIG{ended['signal']}")
        if ended["signal"] and killed is None:
            return None  # a name that only another system has
        status = ended["status"] if killed is None else f"{killed.value}/{ended['signal']}"
        return f"{self._unit}: {which} process exited, code={ended['code']}, status={status}"
