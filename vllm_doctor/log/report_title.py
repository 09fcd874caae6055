"""The title of a report: what its writer says that failed, where the log below it does not say it."""

from collections.abc import Sequence
from typing import NamedTuple

from vllm_doctor.log.match import read, says
from vllm_doctor.records.log import LogLine

# A title stands above everything else; a blank line or a mark of a page may stand above it.
_FIRST = 3


class ReportTitle(NamedTuple):
    """Where it stands in the run, and its words without the tracker's marks; `bug`: one of these calls it a bug."""

    at: int
    words: str
    bug: bool = False


def report_title(lines: Sequence[LogLine]) -> ReportTitle | None:
    """The title that a text begins with; None of a log, and of a heading that only parts a form."""
    for index, line in enumerate(lines[:_FIRST]):
        if line.module or line.level or line.process or not line.text.strip():
            continue
        told = read("heading-of-report", line.text)
        if told is None or says(told["what"], "heading-of-a-form"):
            return None
        words = told["what"].strip()
        return ReportTitle(index, words, not words.endswith("?") and says(line.text, "tag-of-a-bug"))
    return None


def failing_title(lines: Sequence[LogLine]) -> ReportTitle | None:
    """The same, where it says that something fails."""
    title = report_title(lines)
    return title if title is not None and (title.bug or says(title.words, "title-that-fails")) else None
