"""The public report that a failure looks like: by its exception, its message and its calls."""

from vllm_doctor.knowledge.known_issues import Issue, matching
from vllm_doctor.knowledge.version import Version, as_version
from vllm_doctor.log.traceback import Crash
from vllm_doctor.rules.case import Case


def issue_of(case: Case, crash: Crash) -> Issue | None:
    """The entry that names most of it, of the exceptions of a traceback the first raised first."""
    for link in crash.links:
        calls = [f"{f.file}:{f.function}" for f in link.frames]
        code = link.frames[-1].code if link.frames else ""
        for version in _possible(case):
            found = matching(link.kind, link.message, code, calls, version)
            if found:
                return found[0]
    return None


def _possible(case: Case) -> tuple[Version | None, ...]:
    """The release; each that it can be where the lines of the code alone tell it."""
    return tuple(map(as_version, reversed(case.version_by_code))) or (case.version,)
