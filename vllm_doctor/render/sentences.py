"""What an answer says of a finding, a subject or a change, in one line; for every way of showing it."""

import re

from vllm_doctor.log.read.client_answer import REWORDED
from vllm_doctor.log.read.prefix import Stripper
from vllm_doctor.records.finding import Arithmetic, Change, Diagnosis, Finding, Missing, Scalar, Step
from vllm_doctor.records.reading import NOT_GIVEN
from vllm_doctor.records.verdict import Direction
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.instructions import scalar
from vllm_doctor.render.text import figure
from vllm_doctor.render.vocabulary import by_whom

_EXCEPTION = re.compile(
    r"(?<![\w.])(?!Error: )(?P<what>[A-Za-z_][\w.]{0,200}+(?:(?<=Error)|(?<=Exception)|(?<=Interrupt)|(?<=Exit)): .*)",
    re.DOTALL,
)
_SUM = re.compile(r"[\d.,]+ − [\d.,]+")
# What a table is padded with.
_PADDED = re.compile(r"[ \t]{2,}")
_FACTS = {
    "vllm_version": "vLLM {}",
    "model": "model {}",
    "card": "{}",
    "reached": "last step of the start seen: {}",
    "weights_gib": "weights {} GiB",
    "available_kv_gib": "KV cache {} GiB",
    "kv_tokens": "KV cache {} tokens",
    "earlier_runs": "{} earlier run(s) in this boot or log",
    "bytes_skipped": "{} bytes in the middle of this run were not read",
}
_FIGURES = {
    "available_kv_gib": "{} GiB for the KV cache",
    "kv_tokens": "{} tokens in it",
    "budget_gib": "{} GiB for vLLM in all",
    "needed_kv_gib": "{} GiB of KV cache needed for one request",
    "max_model_len": "requests of up to {} tokens",
    "weights_gib": "weights of {} GiB a GPU",
    "weights_gib_at_most": "weights of at most {} GiB a GPU",
}
_OUTCOMES = {
    "ok": "as planned, it starts",
    "kv-too-small": "as planned, the KV cache is still too small for one request",
    "too-few-states": "as planned, the KV cache still has fewer blocks than sequences",
    "oom-weights": "as planned, the weights still do not fit",
    "oom-profile": "as planned, the profile run still runs out of memory",
    "oom-cudagraph": "as planned, graph capture still runs out of memory",
    "oom-under-load": "as planned, it starts and its first full step runs out of memory",
    "rejected": "as planned, vLLM refuses the launch",
}


def because(finding: Finding) -> str:
    """The sum in one line; where there is none the decisive words of the evidence."""
    sums = list(finding.arithmetic)
    missing = next((at for at, one in enumerate(sums) if one.name == "missing"), None)
    if missing is not None and missing:
        told = ", ".join(_figured(one) for one in sums[max(0, missing - 2) : missing])
        lacks = sums[missing]
        how = f"{lacks.formula} = " if _SUM.fullmatch(lacks.formula) else ""
        return visible(f"{told}: {how}{figure(lacks.value)} {lacks.unit} too little", 300)
    if sums:
        return visible(", ".join(_figured(one) for one in sums[:3]), 300)
    return next((visible(decisive(e.excerpt), 600) for e in finding.evidence), "") or "see the evidence"


# What stands before an exception's own sentence: its class, and what says the same twice.
_HEAD_OF_AN_EXCEPTION = 80


def detail_and_why(finding: Finding) -> tuple[str, str]:
    """What stands below the title, and why: the line of the log is not shown twice where it says both."""
    detail, why = finding.detail, because(finding)
    said, line = _bare(detail), _bare(why)
    if said in {"", HIDDEN, _bare(finding.title)} or 0 <= line.find(said) <= _HEAD_OF_AN_EXCEPTION:
        return "", why
    return ("", detail) if line and line in said else (detail, why)


def _bare(text: str) -> str:
    return " ".join(text.split()).rstrip(" .…")


def _figured(one: Arithmetic) -> str:
    return f"{one.name} {figure(one.value)} {one.unit}".rstrip()


def decisive(excerpt: str) -> str:
    """A log line from its exception on, or without the heads that loggers, journald and Ray give it."""
    told = " ".join(line.text for line in Stripper().lines(excerpt, 0)) or excerpt
    if told.startswith(REWORDED) and REWORDED not in excerpt:
        return excerpt  # the line that the user has
    whole = told if excerpt[:1] == "{" else excerpt  # an entry of JSON has more behind its words
    found = _EXCEPTION.search(whole)
    if found is not None:
        return whole[found.start("what") :]
    return _PADDED.sub(" ", told.strip())


# What the guard's records add, with the words before it.
_PAST = {"before_last_crash": "before it last ended by itself", "guard_restarted": "last restarted"}


def facts(diagnosis: Diagnosis) -> tuple[list[str], list[str]]:
    """What was read of the subject, what is nought or not known left out; and notes about the log, a line each."""
    read = {**diagnosis.facts, "vllm_version": release_told(diagnosis)}
    told = [shown.format(_read(value)) for name, shown in _FACTS.items() if (value := read.get(name))]
    notes = [str(value) for name, value in diagnosis.facts.items() if name.startswith("log_note_")]
    notes += [f"{told}: {value}" for name, told in _PAST.items() if (value := diagnosis.facts.get(name))]
    if diagnosis.facts.get("complete_head") is False:
        notes.insert(0, "the beginning of this run was not in what was read")
    return told, [visible(note, 300) for note in notes]


def release_told(diagnosis: Diagnosis) -> str:
    """`0.33.0`, or `0.18.0 or 0.18.1 (by its line numbers; …)` where nothing else tells it; empty of an unknown one."""
    by_lines = diagnosis.facts.get("vllm_version_by_lines")
    return (
        f"{by_lines} (by its line numbers; or a build near it)"
        if by_lines
        else str(diagnosis.facts.get("vllm_version") or "")
    )


def _read(value: Scalar) -> str:
    return figure(value) if isinstance(value, float) and not value.is_integer() else scalar(value)


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


def aside(change: Change) -> str:
    """`   (was 131072; then requests of up to 65,408 tokens)`."""
    was_ = f"was {scalar(change.before)}" if change.before is not None else ""
    if change.unset is not None and change.by is not None:
        way = "lower" if change.direction is Direction.LOWER else "higher"
        was_ = f"if you set another value: {change.by:g} {way} than yours"
    then = f"then {predicted(change)}" if change.predicted else ""
    told = "; ".join(filter(None, (was_, then, by_whom(change))))
    return f"   ({told})" if told else ""


def unseen(step: Step) -> bool:
    """Was what the question asks for not read? (Of the whole, the verdict, it is said that it is unknown.)"""
    return step.answer == "unknown" and step.node != "verdict"


def of_the_host_alone(missing: Missing) -> bool:
    """Was it not given, and can no file give it?"""
    return missing.reason == NOT_GIVEN.reason and not missing.remedy
