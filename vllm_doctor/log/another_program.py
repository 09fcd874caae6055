"""The error of another program beside vLLM (a container's runtime, a proxy, an installer), where vLLM wrote none.

Such programs cannot be listed by what they say. Their loggers can, by the form of a line, which tells its level.
"""

from collections.abc import Iterator

import msgspec

from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.programs import Neighbour, forms, forms_of_installers, program_of, steps
from vllm_doctor.log.match import read, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.log import LogLine

# Levels with which a program ends itself.
_FATAL = frozenset({"F", "C", "fatal", "panic", "dpanic", "critical", "emerg", "emergency"})
# With the last of them Ray Serve ends what it calls unhealthy.
_ENDS = frozenset({"form-panic", "form-rust-panic", "form-java", "form-exec", "form-serve"})
# Lines of a text that are read for the name of a program, and those of one message.
_AROUND, _MORE = 400, 6
_HARMLESS = ("calls-itself-harmless", "survived-by-design", "cut-mark")
# Who watches a server only warns when it is gone: the error is that server's.
_OF_A_SERVER = ("form-router", "form-serve")


class ForeignError(msgspec.Struct, frozen=True):
    """What another program said, whole, at this line of the run; `fatal`: it ended itself with it. `name` is what the
    line calls it, where it is known by its form alone."""

    program: Neighbour
    name: str
    index: int
    what: str
    fatal: bool


def foreign_error(run: AnalysedRun) -> ForeignError | None:
    """The error with which another program's last words begin: of the program that wrote the last error below the last
    sign that vLLM works, its first fatal one, else its first; what it quotes of a program that it ran comes before
    both. What follows is told of it by who called it."""
    end = len(run.lines) if run.stopped is None else run.stopped
    told = [one for one in _errors(run) if one.index < end]
    while len(told) > 1 and says(run.lines[told[-1].index].text, "step-ended"):
        told.pop()
    if not told:
        return None
    inner = next((one for one in told if one.program.ran_by == told[-1].program.id), None)
    own = [one for one in told if one.name == told[-1].name]
    # An installer frames what the build that it started says.
    own = [one for one in own if not says(one.what, "form-frames")] or own
    fatal = next((one for one in own if one.fatal), None)
    # of several, the first whose cure is known tells more than what stands around it
    return inner or fatal or next((one for one in own if any(applies(step, one.what) for step in steps())), own[0])


def _errors(run: AnalysedRun) -> Iterator[ForeignError]:
    around = "\n".join(line.text for line in run.lines[:_AROUND])
    number = -1
    for index in range(max(run.worked + 1, 0), len(run.lines)):
        line = run.lines[index]
        first, number = line.number != number, line.number
        by_vllm = line.module not in {None, "uvicorn"} or says(line.process or "", "process-of-vllm")
        whole = line.excerpt or line.text
        of_a_server = any(_as_form(form, line) is not None for form in _OF_A_SERVER)
        harmless = says(whole, *_HARMLESS) and not of_a_server
        if by_vllm or not first or not whole.strip() or harmless:
            continue
        for form in forms():
            found = _as_form(form, line)
            program = program_of(form, whole, around) if found is not None else None
            if found is None or program is None or (program.alone and run.by_vllm):
                continue
            said = found.get("what") or found["what2"]
            what = " ".join((_plain(said), *(one for one in (found.get("why"),) if one), *_more(run, index)))
            level = found.get("level") or found.get("level2") or ""
            name = found.get("name") or program.name
            yield ForeignError(program, name, index, what, level.lower() in _FATAL or level in _FATAL or form in _ENDS)
            break


def refused_install(run: AnalysedRun, above: range) -> tuple[int, str] | None:
    """The first of these lines by which an installer says that it refused, or a shell that it has none; and what it
    says."""
    for index in above:
        line = run.lines[index]
        for form in forms_of_installers():
            if (found := _as_form(form, line)) is not None:
                what = found.get("what") or found["what2"]
                return index, " ".join((what, *_more(run, index)))
    return None


def _as_form(form: str, line: LogLine) -> dict[str, str] | None:
    """What a form reads of a line, behind any head that a logger set before it."""
    headed = (f"{line.level}: {line.text}",) if line.module == "uvicorn" else ()  # pip heads its lines alike
    read_as = (line.excerpt or line.text, line.text, *headed)
    return next((told for text in read_as if (told := read(form, text)) is not None), None)


def speaks_of_vllm(run: AnalysedRun) -> bool:
    """Does any line, with what a logger set before and around it, name vLLM, a program that starts it, or a file of its
    source?"""
    return run.is_vllm or any(
        "vllm" in line.excerpt.lower() or says(line.excerpt or line.text, "launcher-missing", "requirements-of-vllm")
        for line in run.lines[:_AROUND]
    )


def told_of_a_request(run: AnalysedRun, told: ForeignError) -> bool:
    """Does a program in front of the server tell of a request to a path of vLLM's API?"""
    paths = (says(line.excerpt or line.text, "api-path") for line in run.lines[:_AROUND])
    return told.program.in_front and not run.by_vllm and any(paths)


def _plain(what: str) -> str:
    """Without the marks of a text that is quoted whole."""
    whole = len(what) > 1 and what[0] == what[-1] == '"' and what.count('"') == 2
    return what[1:-1] if whole else what


def _more(run: AnalysedRun, index: int) -> Iterator[str]:
    """The indented lines below, which go on with the message, up to the first call of a stack."""
    for line in run.lines[index + 1 : index + 1 + _MORE]:
        if line.level is not None or not says(line.text, "form-goes-on") or says(line.text, "form-stack"):
            return
        yield line.text.strip(" ╰├│▶─")
