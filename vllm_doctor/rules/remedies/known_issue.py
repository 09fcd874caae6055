"""The public report that a failure looks like: by its exception, its message and its calls."""

from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.known_issues import Issue, by_words, matching
from vllm_doctor.knowledge.layers import features
from vllm_doctor.knowledge.version import Version, as_version
from vllm_doctor.log.report_title import report_title
from vllm_doctor.log.traceback import Crash
from vllm_doctor.rules.case import Case


def issue_of(case: Case, crash: Crash) -> Issue | None:
    """The entry that names most of it, of the exceptions of a traceback the first raised first; of a quoted last line,
    whose calls are gone, the entry whose words it has."""
    for link in crash.links:
        calls = [f"{f.file}:{f.function}" for f in link.frames]
        code = link.frames[-1].code if link.frames else ""
        for version in _possible(case):
            found = matching(link.kind, link.message, code, calls, version)
            if found:
                return found[0]
    told = crash.root
    if told.frames or not told.message:
        return None
    on = _on(case)
    return next((one for version in _possible(case) if (one := by_words(told.kind, told.message, version, on))), None)


def _on(case: Case) -> frozenset[str]:
    """The options that the launch has, and those of the features that a report's title names."""
    title = report_title(case.run.lines) if case.run is not None else None
    words = title.words if title is not None else ""
    return frozenset(case.flags) | {answer.options[0] for answer in features() if words and applies(answer, words)}


def _possible(case: Case) -> tuple[Version | None, ...]:
    """The release; each that it can be where the lines of the code alone tell it."""
    return tuple(map(as_version, reversed(case.version_by_code))) or (case.version,)
