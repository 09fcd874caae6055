"""A shared library that somebody named by its path, and that is not there.

The dynamic linker looks for the libraries that a file needs by their names; a message with a folder in it is about a
file that was asked for by that path (dlopen(3)): by a variable, or by a package that has it in its own folder.
"""

import shlex

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.python_environment import whole_again
from vllm_doctor.rules.remedies.unfit_package import folder
from vllm_doctor.rules.say import environment, thing

# Lines above the failure in which its program may have said which variable names the file.
_ABOVE = 400


def named_library(case: Case, fault: Fault) -> Change | None:
    """What named the file, put right; None where no path was named."""
    file = fault.fields("library-not-there").get("file")
    if file is None:
        return None
    if package := folder(file):
        return whole_again(package)
    see = f"ls -l {shlex.quote(file)}; env | grep -F {shlex.quote(file)}"
    variable = _variable(case, fault, file)
    if variable is not None:
        why = (
            "it names a file that is not there, or not in this container or on this node: without it the library that "
            "was installed with torch is taken"
        )
        return environment(variable, Direction.REMOVE, why, before=file, command=see)
    why = "a variable, or a setting of the program, names this file: take it out, or put the file there"
    return thing(ChangeKind.OS, "program-settings", Direction.CHANGE, why, to=file, command=see)


def _variable(case: Case, fault: Fault, file: str) -> str | None:
    """The variable with this value: of the launch, or as a line above tells it."""
    given = next((name for name, value in case.variables.items() if value == file), None)
    lines = case.run.lines[max(0, fault.index - _ABOVE) : fault.last + 1] if case.run is not None else ()
    told = (read("variable-names-file", line.text) for line in lines)
    return given or next((one["variable"] for one in told if one is not None and one["file"] == file), None)
