"""The calls of a failure as people retell them: a function, a file or a line of code, in the sentence that quotes the
error, or right before or behind it, where no traceback was kept.

Only names of vLLM's own steps are read, which no prose has (`create_lora_weights`), and files of Python.
"""

from collections.abc import Iterable, Iterator

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.startup_phase import names_a_step
from vllm_doctor.log.traceback import Frame, path_of
from vllm_doctor.records.log import LogLine

# Lines before and behind the error that people quote with it.
BEFORE, BEHIND = 8, 4
_LONGEST = 2000
# A file, with its line and its function where they follow in any language's words; or a word that may be a function.
_PIECE = Pattern(
    r"(?P<file>(?:[A-Za-z]:)?[\w.~+\\/-]{0,300}\w\.py)\b"
    r"(?:[\"\u201d]?(?:[:,\uff0c]?[^\w\n]{0,3}(?:[^\W\d]{1,8} ?)?(?P<line>\d{1,6})\b[^\w\n]{0,3}[^\W\d_]{0,2})?"
    r"[,\uff0c]? ?(?:in|[\u4e00-\u9fff]{1,3}) (?P<function>\w{2,120})\b)?"
    r"|(?<![\w/\\-])(?P<name>_{0,2}[a-z][a-z0-9]{1,40}_[a-z0-9_]{2,60}|[A-Za-z][a-z]{2,20}[A-Z]\w{2,40})\b(?!\.py)"
)
# A line that nobody numbered: a frame of none is one that a sentence tells by itself.
_UNNUMBERED = 1


def told_calls(lines: Iterable[LogLine]) -> tuple[Frame, ...]:
    """The calls that these lines name, in their order; a line that names none is the code of the call before it."""
    found: list[Frame] = []
    for line in lines:
        text = line.text[:_LONGEST]
        here = list(_named(text))
        if here:
            last = here[-1]
            found += [*here[:-1], Frame(last.file, last.line, last.function, text.strip())]
        elif found and text[:1] in {" ", "\t"}:
            last = found[-1]
            found[-1] = Frame(last.file, last.line, last.function, text.strip())
    return tuple(found)


def _named(text: str) -> Iterator[Frame]:
    file = ""
    for piece in _PIECE.finditer(text):
        if piece["file"]:
            path = path_of(piece["file"])
            file = f"/{path}" if path.startswith("vllm/") else path
            yield Frame(file, int(piece["line"] or _UNNUMBERED), piece["function"] or "")
        elif names_a_step(piece["name"]):
            yield Frame(file, _UNNUMBERED, piece["name"])
