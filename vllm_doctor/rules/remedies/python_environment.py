"""How a Python environment that lacks a package, or a file of one, becomes whole again."""

import shlex
from pathlib import PurePosixPath
from typing import NamedTuple

from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.distributions import listed
from vllm_doctor.knowledge.programs import steps
from vllm_doctor.log.another_program import refused_install
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Change, Evidence
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.say import environment, thing

# Lines above a failure in which an installation belongs to it.
_INSTALLS = 400
# Lines below an installer's error in which it names the causes of that.
CAUSES = 6
ACTIVATE = thing(
    ChangeKind.PACKAGE,
    "python-env",
    Direction.REPAIR,
    ("no folder of PATH contains vLLM: activate its environment, or use the full path of the program"),
    command="ls -d /opt/*/bin/vllm ~/*/bin/vllm 2>/dev/null; systemctl cat UNIT | grep ExecStart",
)
IN_IMAGE = thing(
    ChangeKind.OS,
    "container-command",
    Direction.CHANGE,
    "the image has no such program in its PATH: give the program's full path there, or "
    "python3 -m vllm.entrypoints.openai.api_server, or an image that has it, as vllm/vllm-openai",
    command="docker run --rm --entrypoint sh IMAGE -c 'command -v vllm python3; ls -d /opt/*/bin/vllm'",
)
MAY_RUN = thing(
    ChangeKind.OS,
    "service-user",
    Direction.CHANGE,
    "run it as a user who may enter each folder of its path and run the file: in a pod the image's own user "
    "(securityContext.runAsUser, on OpenShift a constraint that allows it), on a host the owner of the environment",
    command="id; namei -l /opt/venv/bin/vllm   # every folder needs x for this user",
)
ON_LINUX = thing(
    ChangeKind.OS,
    "operating-system",
    Direction.CHANGE,
    "vLLM is built for Linux: its compiled operators do not exist for Windows itself",
    command="wsl --install # then run the server inside WSL; or use a Linux host",
)


def program_of_unit(case: Case) -> Change:
    """Of a unit on its host the program's own path, part by part; of a log alone where vLLM may be."""
    unit, launch = case.unit, case.launch
    program = launch.argv[0] if launch is not None and launch.argv else ""
    if unit is None or not program.startswith("/"):
        return ACTIVATE
    above = PurePosixPath(program).parents
    return thing(
        ChangeKind.PACKAGE,
        "program",
        Direction.REPAIR,
        f"the unit starts {program}: the last lines show the missing part of that path, and the names beside it",
        command=f"namei -l {shlex.quote(program)}; ls -l {shlex.quote(str(above[min(2, len(above) - 1)]))}",
    )


def fresh_environment(case: Case) -> Change:
    """A new environment with the release that runs now."""
    return thing(
        ChangeKind.PACKAGE,
        "python-env",
        Direction.REPAIR,
        "install the release from its lock file into a new environment, and add nothing by hand",
        to=f"vllm=={case.version}" if case.version is not None else None,
        command=_fresh(case),
    )


def _fresh(case: Case) -> str:
    wanted = f"vllm=={case.version}" if case.version is not None else "vllm==VERSION"
    return f"python3 -m venv /opt/vllm-new && /opt/vllm-new/bin/pip install {wanted}"


def newer_system(fault: Fault) -> Change | None:
    """Nothing that is installed beside it makes a distribution's C library newer."""
    needed = fault.fields("glibc-old").get("version")
    if needed is None:
        return None
    why = f"this build runs where glibc is {needed} or newer: a newer distribution, or an image, which has its own"
    return thing(ChangeKind.OS, "distribution", Direction.UPGRADE, why, command="ldd --version | head -1")


def loaded_first(fault: Fault) -> Change | None:
    """glibc sets a fixed room apart for the thread-local data of libraries; what is loaded late may find it full."""
    file = fault.fields("static-tls").get("file")
    if file is None:
        return None
    why = "loaded before all others, the library still finds room for its thread-local data"
    return environment("LD_PRELOAD", Direction.SET, why, to=file)


def xformers_of_cuda(fault: Fault) -> Change | None:
    """xFormers' wheels of the plain index are built for one release of torch and CUDA."""
    if "xformers-no-cuda" not in fault.ids:
        return None
    why = "this xFormers was built without CUDA: install the wheel for the installed torch and its CUDA"
    wheel = (
        "pip install --force-reinstall --no-deps xformers==VERSION --index-url https://download.pytorch.org/whl/CUDA"
    )
    return thing(ChangeKind.OS, "xformers", Direction.REPAIR, why, command=f"python -m xformers.info; {wheel}")


def whole_again(package: str) -> Change:
    """The package once more, of which a file is missing."""
    why = (
        "the wheel was unpacked incompletely, or published without the file: install the package again, or "
        "another release of it"
    )
    known = listed(package)
    command = f"pip install --force-reinstall --no-deps {shlex.quote(package)}" if known is not None else "pip check"
    return thing(ChangeKind.PACKAGE, package, Direction.REPAIR, why, command=command)


class Refused(NamedTuple):
    """The line by which an installer refused, the title where its step has one, and what makes it go through."""

    line: Evidence
    title: str
    changes: tuple[Change, ...]


def install_before(case: Case, fault: Fault, within: int = _INSTALLS) -> Refused | None:
    """An installer says above that it did not install, or made no environment the one in use: what is missing then is
    what it left out."""
    if case.run is None:
        return None
    told = refused_install(case.run, range(max(0, fault.index - within), fault.index))
    if told is None:
        return None
    index, said = told
    step = next((one for one in steps() if applies(one, said)), None)
    changes = changes_of(case, (step,), said) if step is not None else (_installed_again(),)
    title = step.title if step is not None and step.title else "The installation before the start failed"
    return Refused(case.line(index), title, changes)


def _installed_again() -> Change:
    """What lacks because an installer failed is there when that has run again."""
    why = (
        "an installer says above that it did not install: do what that line asks, then start again. An option that uv "
        "does not know needs a newer uv; a package that is not found needs another Python, index or release"
    )
    see = "uv self update || pip install -U uv; uv pip install vllm; python -I -c 'import vllm'"
    return thing(ChangeKind.PACKAGE, "installation", Direction.REPAIR, why, command=see)
