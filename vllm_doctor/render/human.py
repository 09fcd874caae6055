"""The diagnosis for a person at 3 a.m.: the answer and the change on the first screen, then how it was reached."""

import io
import shlex

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vllm_doctor.records.finding import Change, Diagnosis, Finding, Missing, Scalar, Step, Subject
from vllm_doctor.records.reading import NOT_GIVEN
from vllm_doctor.records.verdict import Applicability, Direction, Severity, Verdict
from vllm_doctor.remedy import dropin, inventory
from vllm_doctor.remedy.argv import written
from vllm_doctor.render.text import figure, visible
from vllm_doctor.rules.chart import NODES

_STYLES = {
    Verdict.OK: "bold green",
    Verdict.FINDING: "bold red",
    Verdict.NOT_APPLICABLE: "bold cyan",
    Verdict.UNKNOWN: "bold yellow",
}
SEVERITIES = {
    Severity.BLOCKS_START: "blocks the start",
    Severity.WILL_FAIL_UNDER_LOAD: "will fail under load",
    Severity.DEGRADED: "degraded",
    Severity.ADVICE: "advice",
}
APPLICABILITY = {
    Applicability.SAFE: "safe",
    Applicability.NEEDS_REVIEW: "changes capacity: review it",
    Applicability.MANUAL: "by hand",
}
HEADLINES = {
    Verdict.OK: "No fault found in what could be seen.",
    Verdict.FINDING: "",
    Verdict.NOT_APPLICABLE: "There is nothing here to diagnose.",
    Verdict.UNKNOWN: "It cannot be said yet.",
}
HINTS = {
    Verdict.NOT_APPLICABLE: "A unit of another name: --unit NAME. A server in a container or elsewhere: --log FILE.",
}
_HIDDEN = "[hidden]"


def text(diagnosis: Diagnosis, *, color: bool = False, width: int = 100, argv: tuple[str, ...] = ()) -> str:
    """The whole report. `argv` is the effective command line, from which the emergency drop-in is made."""
    out = io.StringIO()
    console = Console(
        file=out, width=max(40, width), force_terminal=color, no_color=not color,
        color_system="standard" if color else None, markup=False, highlight=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    _head(console, diagnosis)
    roots = [f for f in diagnosis.findings if f.explained_by is None]
    for number, finding in enumerate(roots):
        _finding(console, diagnosis, finding, argv, first=number == 0)
    _path(console, diagnosis)
    _unseen(console, diagnosis)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _head(console: Console, diagnosis: Diagnosis) -> None:
    line = Text(diagnosis.verdict.value.upper().replace("_", " "), style=_STYLES[diagnosis.verdict])
    if diagnosis.phase is not None:
        line.append(f"  {diagnosis.phase.value}", style="bold")
    if diagnosis.findings:
        line.append(f" · {diagnosis.findings[0].cause.value}", style="bold")
    if who := subject(diagnosis.subject):
        line.append(f"  {visible(who)}", style="dim")
    console.print(line, soft_wrap=True)
    if diagnosis.findings:
        _notes(console, diagnosis)
    if not diagnosis.findings and HEADLINES[diagnosis.verdict]:
        console.print(Text(HEADLINES[diagnosis.verdict]))
        if diagnosis.path and diagnosis.path[-1].because:
            console.print(Text(f"  {visible(diagnosis.path[-1].because, 600)}"))
        if hint := HINTS.get(diagnosis.verdict):
            console.print(Text(f"  {hint}"))
        for fact in facts(diagnosis):
            console.print(Text(f"  {fact}"))


def _notes(console: Console, diagnosis: Diagnosis) -> None:
    """Which run was judged and how those before it ended, where that is not the plain case."""
    lives = diagnosis.facts.get("earlier_lives")
    if isinstance(lives, int) and lives > 0:
        console.print(Text(f"{lives} earlier run(s) in this boot or log", style="dim"))
    for name, note in diagnosis.facts.items():
        if name.startswith("log_note_") and isinstance(note, str) and note.startswith("judged"):
            console.print(Text(visible(note), style="dim"))


_FACTS = {
    "vllm_version": "vLLM {}",
    "model": "model {}",
    "reached": "last step of the start seen: {}",
    "weights_gib": "weights {} GiB",
    "available_kv_gib": "KV cache {} GiB",
    "kv_tokens": "KV cache {} tokens",
    "earlier_lives": "{} earlier run(s) in this boot or log",
    "bytes_skipped": "{} bytes in the middle of this run were not read",
}


def facts(diagnosis: Diagnosis) -> list[str]:
    """What was read of the subject, a line each; what is nought or not known is left out."""
    told = [shown.format(scalar(value)) for name, shown in _FACTS.items() if (value := diagnosis.facts.get(name))]
    if diagnosis.facts.get("complete_head") is False:
        told.append("the beginning of this run was not in what was read")
    notes = [str(value) for name, value in diagnosis.facts.items() if name.startswith("log_note_")]
    return told + [visible(note, 300) for note in notes]


def subject(who: Subject) -> str:
    """`vllm.service on gpu7 (GPU-…)`, as far as it is known."""
    text = who.unit or ""
    if who.host:
        text += f" on {who.host}" if text else who.host
    return f"{text} ({who.gpu})" if who.gpu else text


def _finding(console: Console, diagnosis: Diagnosis, finding: Finding, argv: tuple[str, ...], *, first: bool) -> None:
    console.print()
    title = Text(f"{finding.code} ", style="bold")
    title.append(visible(finding.title), style="bold")
    console.print(title)
    about = f"{SEVERITIES[finding.severity]} · {finding.confidence.value} · {finding.phase.value}"
    console.print(Text(about if first else f"{about} · {finding.cause.value}", style="dim"))
    _evidence(console, finding)
    _arithmetic(console, finding)
    _changes(console, finding, diagnosis.subject.unit or finding.subject.unit, argv)
    if finding.refute:
        _block(console, "It is not this if", [Text(visible(finding.refute))])
    follows = [f for f in diagnosis.findings if f.explained_by == finding.code]
    if follows:
        _block(console, "Explains", [Text(f"{f.code} {visible(f.title)}") for f in follows])
    console.print(Text(f"  vllm-doctor explain {finding.code}", style="dim"))


def _block(console: Console, heading: str, lines: list[Text]) -> None:
    console.print(Text(heading, style="bold"))
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 2)))


def _evidence(console: Console, finding: Finding) -> None:
    if not finding.evidence:
        return
    console.print(Text("Evidence", style="bold"))
    for item in finding.evidence:
        place = f"{item.source} {item.locator}".strip()
        when = f" at {item.observed_at}" if item.observed_at else ""
        console.print(Padding(Text(visible(place + when, 200), style="dim"), (0, 0, 0, 2)))
        console.print(Padding(Text(visible(item.excerpt, 600)), (0, 0, 0, 4)))


def _arithmetic(console: Console, finding: Finding) -> None:
    if not finding.arithmetic:
        return
    console.print(Text("Arithmetic", style="bold"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for sum_ in finding.arithmetic:
        how = f"= {visible(sum_.formula)}" if sum_.formula else ""
        source = f"  [{visible(sum_.source)}]" if sum_.source else ""
        table.add_row(Text(visible(sum_.name)), Text(f"{figure(sum_.value)} {visible(sum_.unit)}"), Text(how + source))
    console.print(Padding(table, (0, 0, 0, 2)))


def _changes(console: Console, finding: Finding, unit: str | None, argv: tuple[str, ...]) -> None:
    if not finding.changes:
        return
    console.print(Text("Change", style="bold"))
    for change in finding.changes:
        line = Text("  ")
        line.append(visible(change_line(change)), style="bold green")
        line.append(f"   {was(change)}{APPLICABILITY[change.applicability]}", style="dim")
        console.print(line, soft_wrap=True)
        if change.predicted:
            console.print(Text(f"    then {predicted(change)}"))
        if change.why:
            console.print(Padding(Text(visible(change.why)), (0, 0, 0, 4)))
        if change.command:
            console.print(Text(f"    $ {visible(change.command, 400)}", style="green"), soft_wrap=True)
    _emergency(console, finding, unit, argv)


def _emergency(console: Console, finding: Finding, unit: str | None, argv: tuple[str, ...]) -> None:
    lines = emergency(finding, unit, argv)
    if not lines:
        return
    console.print(Text("Until the next playbook run (emergency)", style="bold"))
    for line in lines:
        console.print(Text(f"  {visible(line, 8000)}"), soft_wrap=True)


def emergency(finding: Finding, unit: str | None, argv: tuple[str, ...]) -> list[str]:
    """The drop-in as lines to paste; empty where the change is none for a unit or the unit is not known."""
    if unit is None or not finding.changes:
        return []
    wanted = dropin.text(finding.code, argv, finding.changes[:1])
    if wanted is None:
        return []
    if _HIDDEN in wanted:
        return [f"systemctl edit {shlex.quote(unit)}   (the command line carries a secret, so it is not printed here)"]
    return [
        f"# {dropin.path(unit)}",
        *wanted.splitlines(),
        f"# then: systemctl daemon-reload && systemctl restart {shlex.quote(unit)}",
    ]


def change_line(change: Change) -> str:
    """The change as one writes it: the inventory's line first, otherwise what to do with the thing itself."""
    line = inventory.line(change)
    if line is not None:
        return f"inventory: {line}"
    if change.kind.value == "flag":
        return _option_line(change)
    name = change.variable or change.name
    if change.kind.value == "env":
        return _variable_line(change, name)
    to = f" to {scalar(change.after)}" if change.after is not None else ""
    return f"{change.direction.value} {name}{to}"


def _option_line(change: Change) -> str:
    if change.name == "model" and change.after is None:
        return "another model"
    if change.after is not None:
        return " ".join(shlex.quote(scalar(word)) for word in written(change))
    if change.direction is Direction.REMOVE:
        return f"take away --{change.name}"
    by = f" by {change.by:g}" if change.by is not None else ""
    return f"{change.direction.value} --{change.name}{by}"


def _variable_line(change: Change, name: str) -> str:
    if change.after is not None:
        return f"{name}={scalar(change.after)}"
    return f"unset {name}" if change.direction is Direction.REMOVE else f"{change.direction.value} {name}"


_FIGURES = {
    "available_kv_gib": "{} GiB for the KV cache",
    "kv_tokens": "{} tokens in it",
    "budget_gib": "{} GiB for vLLM in all",
    "needed_kv_gib": "{} GiB of KV cache needed for one request",
    "max_model_len": "requests of up to {} tokens",
}
_OUTCOMES = {
    "ok": "as planned, it starts",
    "kv-too-small": "as planned, the KV cache is still too small for one request",
    "oom-weights": "as planned, the weights still do not fit",
    "oom-profile": "as planned, the measuring pass still runs out of memory",
    "oom-cudagraph": "as planned, graph capture still runs out of memory",
    "rejected": "as planned, vLLM refuses the launch",
}


def predicted(change: Change) -> str:
    """`41.2 GiB for the KV cache, 514,432 tokens in it; as planned, it starts`: what the change leads to."""
    told = [
        _FIGURES.get(name, f"{visible(name)} = {{}}").format(figure(value))
        for name, value in change.predicted.items()
        if not isinstance(value, str)
    ]
    outcome = str(change.predicted.get("outcome", ""))
    return "; ".join(filter(None, [", ".join(told), _OUTCOMES.get(outcome, visible(outcome))]))


def was(change: Change) -> str:
    """`was 131072; `, or nothing where it was not set."""
    return f"was {scalar(change.before)}; " if change.before is not None else ""


def scalar(value: Scalar) -> str:
    """A value of a change or a fact as text."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return visible(str(value), 400)


def _path(console: Console, diagnosis: Diagnosis) -> None:
    if not diagnosis.path:
        return
    console.print()
    console.print(Text("Path through the flowchart", style="bold"))
    inner = {node.id for node in NODES if node.under is not None}
    for step in diagnosis.path:
        line = Text(f"{visible(step.question)} ")
        line.append("not seen" if unseen(step) else visible(step.answer), style="bold")
        if step.because:
            line.append(f" - {visible(step.because, 300)}", style="dim")
        console.print(Padding(line, (0, 0, 0, 4 if step.node in inner else 2)))


def unseen(step: Step) -> bool:
    """Was what the question asks for not read? (Of the whole, the verdict, it is said that it is unknown.)"""
    return step.answer == "unknown" and step.node != "verdict"


def of_the_host_alone(missing: Missing) -> bool:
    """Was it not given, and can no file give it?"""
    return missing.reason == NOT_GIVEN.reason and not missing.remedy


def _unseen(console: Console, diagnosis: Diagnosis) -> None:
    if not diagnosis.unknown:
        return
    console.print()
    console.print(Text("Could not be seen", style="bold yellow"))
    only_there = [m.signal for m in diagnosis.unknown if of_the_host_alone(m)]
    if only_there:
        console.print(Padding(Text(f"{', '.join(only_there)}: only the host itself tells"), (0, 0, 0, 2)))
    for missing in (m for m in diagnosis.unknown if not of_the_host_alone(m)):
        console.print(Padding(Text(f"{missing.signal}: {visible(missing.reason, 400)}"), (0, 0, 0, 2)))
        if missing.remedy:
            console.print(Padding(Text(f"-> {visible(missing.remedy, 400)}", style="dim"), (0, 0, 0, 4)))
