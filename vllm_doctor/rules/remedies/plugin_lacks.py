"""What vLLM asks of a class of another package (a plugin, a trainer, a platform) and that class does not have.

vLLM calls such a class by what its own release says of it: a method, an argument, an abstract method. The table knows
since which release it does (knowledge/api).
"""

from vllm_doctor.knowledge import api
from vllm_doctor.knowledge.api import Came
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.log.match import says
from vllm_doctor.log.traceback import Link
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.another_release import OfAnotherVllm, release_before
from vllm_doctor.rules.remedies.unfit_package import beside_vllm, of_this_vllm
from vllm_doctor.rules.say import thing


def lacks_by_name(root: Link, owner: str, name: str) -> OfAnotherVllm:
    """A method that a program brings to vLLM's workers, and calls there by its name."""
    who = beside_vllm(root)
    why = (
        f"the program calls {name} by its name on vLLM's workers (collective_rpc). This vLLM did not take the class "
        "that brings the method (worker_extension_cls, worker_cls): the program's release for this vLLM names one "
        "that it takes"
    )
    command = f"pip show vllm {who or ''}".strip()
    change = thing(ChangeKind.PACKAGE, who or "foreign-package", Direction.CHANGE, why, command=command)
    return OfAnotherVllm(f"{owner} has no method {name}, which a program calls by name on vLLM's workers", (change,))


def asks_more(root: Link, owner: str) -> OfAnotherVllm | None:
    """A plugin's own method, which vLLM calls with other arguments than it was written for."""
    who, (cls, _, method) = beside_vllm(root), owner.partition(".")
    if who is None or not method or api.is_class(cls):
        return None
    return OfAnotherVllm(f"{owner} takes other arguments than this vLLM gives", (of_this_vllm(who),))


def lacks_abstract(case: Case, root: Link, owner: str, names: list[str]) -> OfAnotherVllm | None:
    """A plugin's class without a method that vLLM's own base class leaves to it."""
    found = [(name, one) for name in names if (one := api.abstract(name, case.version)) is not None]
    if not found or api.is_class(owner):
        return None
    name, came = max(found, key=lambda one: as_version(one[1].since))
    return subclass_lacks(case, beside_vllm(root), owner, f"the method {name}", came)


def subclass_lacks(case: Case, who: str | None, owner: str, what: str, came: Came | None) -> OfAnotherVllm | None:
    """A plugin's class lacks what vLLM asks of it."""
    if came is None:
        return None
    why = "its class was written for an older vLLM: take the release of the package that has the class for this vLLM"
    newer = of_this_vllm(who) if who is not None else _package_of(owner, why)
    title = f"{owner} lacks {what}, which vLLM has since {came.since}"
    return OfAnotherVllm(title, (newer, release_before(case, came)))


def of_no_vllm(root: Link, owner: str, name: str) -> OfAnotherVllm | None:
    """Two parts of a program are of different releases: a class that is not vLLM's, where no call tells whose it is."""
    if root.frames or api.is_class(owner) or not says(owner, "name-of-a-class"):
        return None
    why = (
        "the class and the code that uses it are of different releases: the command names the package, or the "
        "checkout, that has the class; install the one that its caller was written for"
    )
    return OfAnotherVllm(f"{owner} has no {name}", (_package_of(owner, why),))


def _package_of(owner: str, why: str) -> Change:
    """The release of whatever package has the class: a search names it."""
    folder_of_packages = "$(python -c 'import site; print(site.getsitepackages()[0])')"
    return thing(
        ChangeKind.PACKAGE,
        "foreign-package",
        Direction.UPGRADE,
        why,
        to=f"the package that has {owner}",
        command=f'grep -rln "class {owner}" "{folder_of_packages}" --include=*.py',
    )
