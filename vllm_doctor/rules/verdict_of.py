"""What is said of a snapshot as a whole: a finding, ok because something was seen, or unknown and why."""

from collections.abc import Sequence

from vllm_doctor.log import silence
from vllm_doctor.log.another_server import another_server
from vllm_doctor.log.client import Saw, failed_answer
from vllm_doctor.log.last_figures import against_an_ok
from vllm_doctor.log.last_words import (
    ended_before,
    last_error,
    last_words,
    run_together,
    said_again,
    strange_end,
    torn_traceback,
)
from vllm_doctor.log.match import anchors, catalogue, says
from vllm_doctor.log.report_title import report_title
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.state_above import state_above
from vllm_doctor.log.unanswered import unanswered
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import NOT_GIVEN, Absent, Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules import placed
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.pace import in_doubt
from vllm_doctor.rules.order import INTERNAL
from vllm_doctor.rules.strays import unjudged as strays_of

# Ends without a word that are no chance.
_AGAIN = 2
_BATCH_BEGINS = (
    "the log ends before the first answer of a batch, without an error: its first step is still computed, the program "
    "was killed from outside, or the log is not complete; if the bar stands for minutes: "
)


def verdict_of(case: Case, snapshot: Snapshot, findings: Sequence[Finding]) -> tuple[Verdict, str]:
    """The verdict, and why: a finding, else what the log, the live server or the launch alone lets be said."""
    real = [f for f in findings if f.code != INTERNAL]
    if real:
        return Verdict.FINDING, f"{real[0].code}: {real[0].title}"
    if findings:
        return Verdict.UNKNOWN, "a rule of vllm-doctor failed, so the answer is not complete"
    if snapshot.unread:
        return (
            Verdict.UNKNOWN,
            f"a file that was named could not be read: {'; '.join(m.reason for m in snapshot.unread)}",
        )
    if (told := placed.verdict(snapshot)) is not None:
        return told
    if snapshot.live and snapshot.subject.place is None:
        return _live_verdict(case, snapshot)
    run = case.run
    if run is None:
        reason = snapshot.log.reason if not isinstance(snapshot.log, Known) else ""
        given = (snapshot.metrics, snapshot.kernel, snapshot.gpus, snapshot.unit, snapshot.container)
        others = [s for s in given if isinstance(s, Known)]
        if others and reason == "not given":
            return Verdict.OK, "the given input shows no problem; no log was given"
        if reason == "not given" and isinstance(snapshot.launch, Known):
            return Verdict.UNKNOWN, f"{_of_the_launch(case)}; no log was given, so the server's state is not known"
        return Verdict.UNKNOWN, reason or "no log was read"
    verdict, because = _log_verdict(run)
    if verdict is Verdict.OK and (slow := in_doubt(case, run)) is not None:
        return Verdict.UNKNOWN, (
            f"the server answers, and at last each request got {slow:.1f} tokens a second at most: whether that is "
            f"slow, the card tells, which this log does not name (--gpu NAME){_eager(case)}"
        )
    if snapshot.live and verdict is Verdict.OK:
        because += "; no completion was tried, because the server cannot be asked from here"
    return verdict, because


def _eager(case: Case) -> str:
    if case.effective("enforce-eager") is not True:
        return ""
    return "; --enforce-eager starts each kernel of a step by itself: without it few requests get several times as many"


def _of_the_launch(case: Case) -> str:
    if case.version is None:
        return "no release was given to judge the launch by (--vllm-version V)"
    return f"vLLM {case.version_text} refuses no part of this launch that the doctor checks"


def _unsure(run: AnalysedRun) -> str | None:
    """What stands against an ok: something failed, or somebody unknown had the last word."""
    if run.unsettled is not None:
        number = run.lines[run.unsettled.index].number
        return f"line {number} reports a failure, and nothing shows that the server answered after it"
    if (another := run.of_another) is not None:
        number = run.lines[another.index].number
        return (
            f"line {number} reports a failure that no request brings about, and a server goes on below it: two "
            "processes write into this text, and one failed; give the log of each alone"
        )
    if (told := last_words(run)) is not None:
        still = f" (its last statistics: {run.stalled} requests run, and no token)" if run.stalled else ""
        return (
            f"line {told.number} says that something ended or failed, and nothing after it shows that the engine "
            f"works{still}: {excerpt.said(told.text.strip())}"
        )
    if (told := state_above(run)) is not None:
        return (
            f"line {told.number}, above the log, says that its container fails or is started again and again, and this "
            f"log does not show why: {excerpt.said(told.text.strip())}"
        )
    if (again := said_again(run)) is not None:
        told, often = again
        return (
            f"the engine has reported this error {often} times, the last time in line {told.number}, and hardly a "
            f"request was answered after it: {excerpt.said(told.text.strip())}"
        )
    if (told := ended_before(run)) is not None:
        return (
            f"line {told.number} says that a server which had served ended, and the one that was started after it has "
            f"answered no request: {excerpt.said(told.text.strip())}"
        )
    if (torn := torn_traceback(run)) is not None:
        return (
            f"line {torn.number} holds calls of a traceback, whose lines were joined; give the log with its own lines"
        )
    if (together := run_together(run)) is not None:
        return f"line {together.number} is many lines of a server in one; give the log with one line for each"
    if run.log.silent_ends >= _AGAIN and run.stopped is None:
        return (
            f"{run.log.silent_ends} earlier runs of this launch served and ended without a word, and the last one has "
            "answered no request: who starts it again knows why (kubectl describe pod, docker inspect, journalctl -u "
            "UNIT)"
        )
    ended = run.served() or run.answered or run.stopped is not None
    if ended and (told := strange_end(run)) is not None:
        if told.level is not None:
            return (
                f"the log ends with an error that no rule knows, perhaps cut short: {excerpt.said(told.text.strip())}"
            )
        return (
            "after the server's last line stands a line of another program, which may know why the server ended: "
            f"{excerpt.said(told.text.strip())}"
        )
    return unanswered(run) or another_server(run) or against_an_ok(run) or _first_step(run) or _titled(run)


def _titled(run: AnalysedRun) -> str | None:
    """Who reports that a thing fails knows more than a piece of its log shows."""
    title = report_title(run.lines)
    if title is None or not (title.bug or says(title.words, "title-that-fails", "title-of-memory")):
        return None
    return f"the text reports that something fails, which this log does not show: {excerpt.said(title.words)}"


def _first_step(run: AnalysedRun) -> str | None:
    """A script whose last batch has no answer yet, though one before it had all of its own."""
    bar = run.last("offline-progress") if run.is_script and run.stopped is None else None
    if bar is None or bar.fields.get("done") != "0" or any(line.text.strip() for line in run.lines[bar.index + 1 :]):
        return None
    return _BATCH_BEGINS + silence.usual(run).look


# Where the cause of a failed request stands, by what a log that is not the server's tells of it.
_ASK = {
    Saw.SERVER_ERROR: "the server wrote the cause into its own log of that minute: vllm-doctor diagnose SERVER-LOG",
    Saw.REFUSED_REQUEST: "the answer's body says what the server refuses: send the same request by hand (curl -s "
    "http://HOST:PORT/v1/chat/completions -H 'Content-Type: application/json' -d @request.json)",
    Saw.NO_PATH: "compare the path with the server's own (curl -s http://HOST:PORT/openapi.json)",
}


def _of_a_client(run: AnalysedRun) -> str | None:
    """Where to look for the cause of a request that failed, in a log of which no line is the server's."""
    told = failed_answer(line.text for line in run.lines)
    if told is None or told[1] not in _ASK:
        return None
    index, saw = told
    return f"line {run.lines[index].number} tells of a request, and {saw.value}: {_ASK[saw]}"


def _then(told: str | None) -> str:
    return f"; {told}" if told is not None else ""


def _of_no_name(run: AnalysedRun) -> tuple[Verdict, str]:
    """No line is vLLM's: a server's lines of access may still tell how it fares (`docker logs --tail 20`), where there
    is nothing else: each line ends with its 200."""
    answers = tuple(anchors("request-ok"))
    told = [text for line in run.lines if (text := line.text.rstrip())]
    if run.first("request-ok") is not None and all(text.endswith(answers) for text in told) and _unsure(run) is None:
        return Verdict.OK, (
            "a server answered requests to a model, and the given input shows no failure; no line says that it is vLLM"
        )
    if run.last("health-ok") is not None and run.first("request-ok") is None:
        return Verdict.UNKNOWN, (
            "a server answers GET /health with 200 here, and no line says that it is vLLM or answers a request to a "
            "model: give its log from the start, or ask it (vllm-doctor diagnose http://HOST:PORT)"
        )
    return Verdict.UNKNOWN, "no line of this log comes from vLLM" + _then(_of_a_client(run))


def _log_verdict(run: AnalysedRun) -> tuple[Verdict, str]:
    if run.client is not None:
        if run.client.succeeded and run.client.failed == 0 and not run.client.saw:
            return Verdict.OK, (
                f"a client's measure of the server ({run.client.name}): {run.client.answers}; of its speed the doctor "
                "judges nothing here: give the server's own log"
            )
        return Verdict.UNKNOWN, (
            f"this is a client's log ({run.client.name}): {run.client.answers}; "
            "a client's log says nothing more about the server: give the server's own log"
        )
    if run.another is not None:
        return (
            Verdict.UNKNOWN,
            f"this is a log of {run.another}, and no line in it is vLLM's; the doctor judges vLLM only",
        )
    if not run.is_vllm:
        return _of_no_name(run)
    if run.deaths and (run.stopped is None or run.stopped > run.deaths[0].index) and not run.is_script:
        return Verdict.UNKNOWN, f"a process died, and the log does not contain what failed before it{_own_log(run)}"
    if not run.by_vllm:
        look = _then(_of_a_client(run)) or f": give the server's own log{_own_log(run)}"
        return Verdict.UNKNOWN, f"this log mentions vLLM, but vLLM wrote no line of it{look}"
    if (against := _unsure(run)) is not None:
        return Verdict.UNKNOWN, against
    if run.served(least=StartupPhase.SERVING) or (run.served() and run.answered):
        end = _by_whom(run) if run.stopped is not None else "the log shows no failure after that line"
        return Verdict.OK, f"the server became ready, and {end}{_refusals(run)}"
    if run.answered and (run.reached() is None or run.stopped is not None):
        return Verdict.OK, f"the server answered requests, and the given input shows no failure{_refusals(run)}"
    if run.exited:
        return Verdict.OK, "the program ended by itself after its engine was made, and nothing failed"
    if run.stopped is not None:
        return _stopped_start(run)
    alone = run.made_by_a_program or not run.announced
    below = run.lines[max((i for i, _ in run.miles), default=0) :]  # of a program, whatever the level of a wait
    waits = any(says(line.text, "broadcast-wait", "broadcast-wait-of-old") for line in below)
    if run.reached() is StartupPhase.READY and alone and last_error(run) is None and not waits:
        # a piece of a log: where the server's beginning is there, too, its next lines would be
        return Verdict.OK, "the engine became ready, and the log ends there, without a failure"
    return Verdict.UNKNOWN, _unfinished(run)


def _refusals(run: AnalysedRun) -> str:
    """Requests that the server refused after the last that it answered: nothing failed, but its client has no answer.
    uvicorn writes the status alone."""
    ok = max((i for i, line in enumerate(run.lines) if any(a in line.text for a in anchors("request-ok"))), default=-1)
    refused = [hit for hit in run.all("request-refused") if hit.index > ok]
    if not refused:
        return ""
    first = run.lines[refused[0].index].number
    return f"; from line {first} on it refuses requests (400): the answer's body says why, which the client has"


def _own_log(run: AnalysedRun) -> str:
    """The command for the log of the process, where who tells of its end is one that keeps such logs."""
    kept = catalogue()
    return next((f" ({kept[hit.id].own_log})" for hit in run.deaths if kept[hit.id].own_log), "")


# Who waits for a start and ends it by hand may have seen that it stands still.
_BY_A_PERSON = frozenset({"keyboard-interrupt", "control-c"})
# uvicorn ends what it had begun to serve (its Server.shutdown).
_SERVED_UNTIL_NOW = frozenset({"app-stopped", "uvicorn-shutdown", "uvicorn-finished"})


def _by_whom(run: AnalysedRun) -> str:
    """A stop of a server that nothing was wrong with: whoever runs it knows why."""
    told = "the server was stopped from outside"
    if any(h.index == run.stopped and h.id in _BY_A_PERSON for h in run.hits):
        return told
    return f"{told}; if nobody meant that, what runs it says why (systemctl status, docker events, kubectl describe)"


def _stopped_start(run: AnalysedRun) -> tuple[Verdict, str]:
    """A start that somebody or something ended before it was complete."""
    if (minutes := silence.before_the_stop(run)) >= silence.WORTH_TELLING:
        return Verdict.UNKNOWN, (
            f"the start said nothing for {minutes:.0f} minutes before it was stopped, so it may have stood still: "
            f"{silence.usual(run).look}"
        )
    if any(h.id in _SERVED_UNTIL_NOW for h in run.hits):
        return Verdict.OK, "the server had begun to serve, and was stopped from outside; nothing had failed"
    if any(h.index == run.stopped and h.id in _BY_A_PERSON for h in run.hits):
        return Verdict.OK, (
            "a person ended the start before it was complete, and nothing had failed by then; if it stood still: "
            f"{silence.usual(run).look}"
        )
    return Verdict.OK, "the start was stopped from outside before it was complete; nothing had failed"


def _unfinished(run: AnalysedRun) -> str:
    """How far a run came whose log ends without an error, and where to look if it goes no further."""
    passed = next((c for c in run.crashes if says(c.root.message, "error-as-answer")), None)
    if passed is not None:
        return (
            f"line {run.lines[passed.first].number} and the next pass a failure of the engine on to a client; its own "
            "error is not in this log: give the log from the server's start"
        )
    reached = run.reached()
    late = silence.behind(run)
    if late is not None:
        where = f"line {run.lines[late.index].number}"
        return (
            f"the log ends during the start, and {late} ({where}): look at that rank's own lines and at its GPU; "
            f"{silence.usual(run).look}"
        )
    ends = f"the log ends during the start (last step seen: {reached.value if reached else 'none'})"
    if run.is_script and reached is StartupPhase.SERVING:
        return _BATCH_BEGINS + silence.usual(run).look
    if (told := last_error(run)) is not None:
        said = excerpt.said(told.text.strip())
        return f"{ends}, and line {told.number} is an error that no rule knows: {said}"
    if reached is None and not run.announced and run.launch is None:
        return (
            "vLLM's lines in this log show no step of a start, no answer and no failure: give the log from the start "
            "of the server"
        )
    return (
        f"{ends} without an error: the server is still starting, was killed from outside, or the log is not complete; "
        f"if the log stays silent for minutes: {silence.usual(run).look}"
    )


def _bare_host(snapshot: Snapshot, unit: Absent) -> tuple[Verdict, str]:
    """A host without a unit to judge: nothing to do, unless vLLM runs there all the same or its cards do not answer."""
    strays = strays_of(snapshot)
    if strays:
        return Verdict.UNKNOWN, "; ".join(f"{one.reason}: {one.remedy}" for one in strays[:3])
    if isinstance(snapshot.gpus, Unknown) and snapshot.gpus != NOT_GIVEN:
        return Verdict.UNKNOWN, f"{unit.reason}, and its GPUs could not be read: {snapshot.gpus.reason}"
    if isinstance(snapshot.machine, Unknown) and snapshot.machine != NOT_GIVEN:
        return Verdict.UNKNOWN, f"{unit.reason}, and its processes could not be read: {snapshot.machine.reason}"
    return Verdict.NOT_APPLICABLE, unit.reason


def _live_verdict(case: Case, snapshot: Snapshot) -> tuple[Verdict, str]:
    if isinstance(snapshot.unit, Absent):
        return _bare_host(snapshot, snapshot.unit)
    for name in ("unit", "log", "metrics", "gpus"):
        reading = getattr(snapshot, name)
        if isinstance(reading, Unknown) and (name != "metrics" or _serving(snapshot)):
            return Verdict.UNKNOWN, f"the {name} could not be read: {reading.reason}"
    if isinstance(snapshot.probe, Known) and snapshot.probe.value.completion_unknown:
        return Verdict.UNKNOWN, snapshot.probe.value.completion_unknown
    if _serving(snapshot):
        return Verdict.OK, f"{_answered(snapshot)}, and no rule found a problem"
    unit = snapshot.unit.value if isinstance(snapshot.unit, Known) else None
    if unit is not None and unit.active_state == "inactive" and unit.result == "success":
        return Verdict.OK, "the unit was stopped on purpose, and nothing had failed"
    state = f"{unit.active_state} ({unit.sub_state})" if unit is not None else "unknown"
    run = case.run
    silent = silence.minutes(run, case.taken_at) if run is not None else 0
    probe = snapshot.probe.value if isinstance(snapshot.probe, Known) else None
    if run is not None and run.served() and probe is not None and probe.health_error and not probe.refused:
        return Verdict.UNKNOWN, (
            f"the server had become ready, and /health did not answer this time ({probe.health_error}): run diagnose "
            "again; where the host has no processor to spare, answers come late"
        )
    if silent >= silence.WORTH_TELLING:
        reached = run.reached() if run is not None else None
        where = (silence.usual(run) if run is not None else silence.step(None)).look
        return Verdict.UNKNOWN, (
            f"the unit is {state} and does not serve; its last line is {silent:.0f} minutes old (last step seen: "
            f"{reached.value if reached else 'none'}), and the log shows no error: {where}"
        )
    return (
        Verdict.UNKNOWN,
        f"the unit is {state} and does not serve; no sign of a failure yet: run diagnose again when it has started",
    )


def _answered(snapshot: Snapshot) -> str:
    """How far the server was tried. /health may answer while no token comes."""
    if not isinstance(snapshot.probe, Known):
        return (
            "systemd reports the unit as running (the server listens on a Unix socket, and the doctor did not ask it)"
        )
    return f"/health answers, {placed.tried(snapshot.probe.value)}"


def _serving(snapshot: Snapshot) -> bool:
    """Does the server answer as a server in order does?"""
    if isinstance(snapshot.probe, Known):
        return snapshot.probe.value.health_status == 200
    # A server on a Unix socket is not asked; systemd's word has to do.
    return (
        isinstance(snapshot.unit, Known)
        and isinstance(snapshot.probe, Absent)
        and snapshot.unit.value.sub_state == "running"
    )
