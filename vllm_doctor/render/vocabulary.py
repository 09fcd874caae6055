"""The words of an answer for the closed vocabularies of a diagnosis."""

from vllm_doctor.records.finding import Change, Diagnosis, Finding
from vllm_doctor.records.verdict import Applicability, ChangeKind, Confidence, Phase, Severity, Verdict

STYLES = {
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
EFFECTS = {
    Severity.BLOCKS_START: "does not start",
    Severity.WILL_FAIL_UNDER_LOAD: "fails under load",
    Severity.DEGRADED: "runs below what it could",
    Severity.ADVICE: "runs; one thing could be better",
}
# What these mean is not of some later load: nobody is answered now.
_NOW = {
    "VD901": "does not answer",
    "VD905": "does not answer",
    "VD909": "does not answer",
    "VD911": "runs, but not what its unit says",
}


def effect(finding: Finding, *, served: bool = False, undated: bool = False) -> str:
    """What the finding does to the service, after its name. `served`: the run that failed had become ready; `undated`:
    neither the lines nor the calls tell whether it had."""
    if undated and not served and finding.severity is Severity.BLOCKS_START:
        return "failed"
    if served and (
        finding.severity is Severity.BLOCKS_START
        or (finding.severity is Severity.WILL_FAIL_UNDER_LOAD and finding.phase is Phase.NOT_MEMORY)
    ):
        return "failed while it served"
    if served and finding.severity is Severity.DEGRADED and finding.phase is Phase.NOT_MEMORY:
        return "serves, and fails requests"
    return _NOW.get(finding.code) or EFFECTS[finding.severity]


def time_unseen(diagnosis: Diagnosis) -> bool:
    """Does neither a line nor a call tell whether it failed at its start?"""
    return diagnosis.facts.get("time_of_failure_unseen") is True


def failed_while_serving(diagnosis: Diagnosis) -> bool:
    """Had the run become ready before it failed?"""
    return diagnosis.facts.get("failed_while_serving") is True


CERTAINTIES = {
    Confidence.CONFIRMED: "confirmed",
    Confidence.LIKELY: "likely",
    Confidence.POSSIBLE: "possible, not proved",
}
HEADLINES = {
    Verdict.OK: "no fault found in what could be seen",
    Verdict.FINDING: "",
    Verdict.NOT_APPLICABLE: "there is nothing here to diagnose",
    Verdict.UNKNOWN: "there is not enough evidence for an answer",
}
HINTS = {
    Verdict.NOT_APPLICABLE: "Name what to diagnose: --unit NAME, docker:NAME, podman:NAME, pod/NAME, pid:N, "
    "http://HOST:PORT or --log FILE.",
}
_MEDIA = {
    "command": "The whole command",
    "unit": "The unit's drop-in",
    "docker": "The container",
    "compose": "In the compose file",
    "pod": "In the pod's spec",
    "slurm": "In the batch script",
    "python": "In Python",
    "inventory": "In the inventory",
}
# How a reader calls what was not read.
SIGNALS = {
    "kernel": "kernel log", "gpus": "GPUs", "unit": "systemd unit", "machine": "host", "probe": "the server's answer",
    "model_config": "the model's config.json", "version": "vLLM's version", "launch": "the launch",
    "container": "the container",
}  # fmt: skip
# Columns of what stands before an answer's words.
FIELD = 6


def place(medium: str, *, whole: bool) -> str:
    """Where lines to paste belong; a command is whole where the launch was known, else what goes before or into it."""
    return "With the command that starts it" if medium == "command" and not whole else _MEDIA[medium]


def by_whom(change: Change) -> str:
    """Who applies a change, where its own line does not show that: a variable or an option is simply typed."""
    typed = change.kind in {ChangeKind.FLAG, ChangeKind.ENV} and change.after is not None
    if change.applicability is Applicability.MANUAL:
        return "" if typed else "by hand"
    return "safe" if change.applicability is Applicability.SAFE else ""
