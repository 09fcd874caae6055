"""Which run of a unit is judged, from its journal; and what of the kernel's log belongs to it."""

import datetime
import os
import shlex
import time
from collections.abc import Sequence
from functools import partial

from vllm_doctor.gather import journal, kernel, procfs
from vllm_doctor.gather.concurrently import Task
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.gather.systemd import Found
from vllm_doctor.log.match import anchors, says
from vllm_doctor.log.read.assemble import earlier_kv, log_of_lines
from vllm_doctor.records.host import Kernel
from vllm_doctor.records.log import EARLIER_RUN, Log, RunLines
from vllm_doctor.records.reading import Known, Reading, Unknown

# Two runs before this one are the fewest that show a trend; more than this many add nothing to it.
FEWEST = 2
MOST = 7
HEADS_S = 1.0


def judged_log(
    found: Found,
    runs: Reading[tuple[journal.Invocation, ...]],
    *,
    healthy: bool,
    deadline_s: float,
) -> Reading[Log]:
    """The run that is judged: this one; but the failed one before it while this one is still starting."""
    if found.output_file is not None:
        file = found.output_file or (procfs.output_of(found.unit.main_pid) if found.unit.main_pid else None)
        if not file:
            name = shlex.quote(found.unit.name)
            how = f"systemctl cat {name}, and then: vllm-doctor diagnose FILE"
            return Unknown(f"{name} writes to a file whose name systemd does not show", how)
        return read_logs([file], theirs=True)
    if isinstance(runs, Unknown):
        return runs
    known = runs.value if isinstance(runs, Known) else ()
    unit = found.unit
    invocation = unit.invocation_id or (known[-1].invocation if known else None)
    if invocation is None:
        return Unknown(
            f"the journal of this boot has no line of {unit.name}", f"journalctl -u {shlex.quote(unit.name)}"
        )
    got = journal.entries(invocation, deadline_s)
    note: tuple[str, ...] = ()
    before = [run for run in known if run.invocation != invocation]
    starting = unit.active_state in {"activating", "active"} and not healthy
    if starting and before and before[-1].failed and (unit.restarts or 0) > 0 and _only_starting(got):
        note = (
            f"the doctor judged the run before: it failed, and the present one ({invocation[:8]}) is still starting",
        )
        invocation = before[-1].invocation
        got = journal.entries(invocation, deadline_s)
    if not isinstance(got, Known):
        return got
    if not got.value.lines:
        return Unknown(
            f"the journal has no line of {unit.name}'s invocation {invocation[:8]}",
            journal.remedy()
            if os.geteuid() != 0
            else f"journalctl -u {shlex.quote(unit.name)}; journalctl --disk-usage",
        )
    earlier = next((at for at, run in enumerate(known) if run.invocation == invocation), len(known))
    log = log_of_lines(list(got.value.lines), f"journal of {unit.name}")
    last = RunLines(log.last.lines, log.last.complete_head, log.last.skipped_bytes + (1 if got.value.gap else 0))
    scope = f"invocation {invocation}, boot {kernel.boot_id() or 'unknown'}"
    notes = (*log.notes, scope, *note, *_before(known[:earlier]))
    kv = _kv_before([run.invocation for run in known[:earlier]], last, min(deadline_s, HEADS_S))
    return Known(Log(log.source, last, max(earlier, log.earlier_runs), notes, (*kv, *log.earlier_kv_gib)), "journal")


def _kv_before(invocations: Sequence[str], last: RunLines, deadline_s: float) -> tuple[float, ...]:
    """What earlier runs of this boot had for their KV cache, read from their first lines, all at the same time."""
    if len(invocations) < FEWEST or not any(a in line.text for line in last.lines for a in anchors("kv-available")):
        return ()
    reading = [Task(partial(journal.head, one, deadline_s)) for one in invocations[-MOST:]]
    until = time.monotonic() + deadline_s + 0.2
    runs = [log_of_lines(task.result(until, ()), "journal").last.lines for task in reading]
    return earlier_kv([*runs, last.lines])


def _only_starting(got: Reading[journal.Entries]) -> bool:
    """Has this run neither served nor failed so far?"""
    lines = got.value.lines if isinstance(got, Known) else ()
    return not any(says(line, "run-has-spoken") for line in lines)


def _before(runs: tuple[journal.Invocation, ...]) -> tuple[str, ...]:
    """How the earlier runs of this boot ended, in systemd's words, the newest first."""
    told: list[str] = []
    for run in reversed(runs[-5:]):
        ends = [line for line in run.said if says(line, "systemd-run-end")]
        told.append(f"{EARLIER_RUN} {run.invocation[:8]}: {'; '.join(ends) if ends else 'no end was recorded'}")
    return tuple(told)


def since_start(kernel_log: Reading[Kernel], log: Reading[Log]) -> Reading[Kernel]:
    """Without out-of-memory kills of earlier runs: they say nothing of this one. A GPU's faults outlive a service."""
    began = next((line.at for line in log.value.last.lines if line.at), None) if isinstance(log, Known) else None
    if not isinstance(kernel_log, Known) or began is None:
        return kernel_log
    start = _moment(began)
    kept = tuple(
        event
        for event in kernel_log.value.events
        if not says(event.text, "kernel-oom-any") or start is None or (at := _moment(event.at)) is None or at >= start
    )
    return Known(Kernel(kept, kernel_log.value.boot_id), kernel_log.source)


def _moment(text: str | None) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat((text or "").replace(",", "."))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
