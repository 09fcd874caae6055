"""Of which releases of vLLM a name is: what a finding says of it, and the two ways to one of them."""

import msgspec

from vllm_doctor.knowledge.api import Came
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import thing


class OfAnotherVllm(msgspec.Struct, frozen=True):
    """What the program takes, the releases that have it, and the change to one of them."""

    title: str
    changes: tuple[Change, ...]
    place: str = ""  # where this release, or a later one, has it


def another_copy(case: Case, has: str) -> Change:
    """What failed is not of the installed release: files of two lie in one folder, or another copy runs."""
    why = (
        f"vLLM {case.version_text} has {has}: another copy of vLLM runs, or files of two releases lie in one folder "
        "(an upgrade that was cut off): the command shows which runs; install that again"
    )
    command = "python -c 'import vllm; print(vllm.__version__, vllm.__file__)'; pip list | grep -i vllm"
    return thing(ChangeKind.PACKAGE, "vllm", Direction.REPAIR, why, to=case.version_text, command=command)


def release_before(case: Case, came: Came) -> Change:
    """The last one that did not ask for it."""
    return thing(
        ChangeKind.PACKAGE,
        "vllm-version",
        Direction.CHANGE,
        "the last release that does not ask for it; or take the program's release for the installed vLLM",
        to=came.before,
        before=case.version_text,
        command="pip show vllm",
    )
