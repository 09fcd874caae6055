"""VD514: a module is missing, of another version, or built for another one."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, ChangeKind, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.launch._asked import packages
from vllm_doctor.rules.launch._fault import severity, shown
from vllm_doctor.rules.platform.libraries import CUDA_LIBRARIES
from vllm_doctor.rules.registry import Clear, NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding, thing
from vllm_doctor.rules.startup._gate import EXHAUSTED
from vllm_doctor.rules.story import Fault

_IDS = (
    "module-missing",
    "import-name",
    "symbol-undefined",
    "binary-incompatible",
    "ops-missing",
    "transformers-attribute",
    "libstdcxx",
    "operator-missing",
    "compiler-missing",
    "headers-missing",
    "nvcc-missing",
    "nvcc-not-there",
    "ninja-missing",
)
# What compiles kernels while the server starts is no Python package.
_TOOLS = {
    "compiler-missing": "a C compiler (gcc, or CC set)",
    "headers-missing": "the headers of this Python (python3-dev)",
    "nvcc-not-there": "the CUDA toolkit (nvcc, CUDA_HOME)",
    "nvcc-missing": "the CUDA toolkit (nvcc, CUDA_HOME)",
    "ninja-missing": "ninja",
}
# What a module of the wrong version raises while it is being imported.
_AT_IMPORT = frozenset(
    {"TypeError", "AttributeError", "NameError", "SyntaxError", "ImportError", "ModuleNotFoundError"}
)


def judge(case: Case) -> Outcome:
    """Did an import fail?"""
    if case.story is None:
        return Unseen(frozenset({Signal.LOG}))
    fault = case.root
    if fault is None:
        return NotHere("nothing failed for good")
    missing = packages(case, fault) if not fault.ids - frozenset(_IDS) else ()
    known = fault.ids & frozenset((*_IDS, "cudart-missing"))
    if fault.ids & EXHAUSTED or not (known or missing or _while_importing(fault)):
        return NotHere("no import failed")
    library = fault.fields("cudart-missing").get("library")
    if "libcuda-assert" in fault.ids or (library is not None and library.startswith(CUDA_LIBRARIES)):
        return Clear("a library of CUDA or of the driver is missing, not a package")
    tool = next((_TOOLS[h.id] for h in fault.hits if h.id in _TOOLS), None)
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS) if fault.ids & frozenset(_IDS) else (case.line(fault.last),),
        title=_title(fault, tool),
        changes=(
            *missing,
            thing(ChangeKind.OS, "build-tools", Direction.ADD, tool) if tool else None,
            thing(
                ChangeKind.PACKAGE,
                "transformers",
                Direction.CHANGE,
                "the release that this vLLM was made for: `pip show -v vllm` names the range",
            )
            if "transformers-attribute" in fault.ids
            else None,
            None
            if missing and not fault.ids
            else thing(
                ChangeKind.PACKAGE,
                "python-env",
                Direction.REPAIR,
                "install the release into a fresh environment from its lock, with nothing added by hand",
            ),
        ),
        refute="`python -m vllm.collect_env` works in the environment of the unit",
    )


def _title(fault: Fault, tool: str | None) -> str:
    if tool:
        return f"Needed to compile kernels at start, and not there: {tool}"
    lacks = fault.fields("transformers-attribute")
    if lacks:
        return f"transformers and this vLLM do not fit each other: {lacks['kind']} has no {lacks['name']}"
    return RULE.title


def _while_importing(fault: Fault) -> bool:
    """Did a module raise while its top level ran?"""
    if fault.crash is None or not fault.crash.root.frames:
        return False
    root = fault.crash.root
    inner = root.frames[-1]
    return root.kind in _AT_IMPORT and inner.function == "<module>" and "site-packages" in inner.file


RULE = Rule(
    code="VD514",
    slug="python-environment",
    title="The Python environment is broken",
    node="not-memory",
    cause=Cause.BROKEN_PYTHON_ENV,
    phase=Phase.NOT_MEMORY,
    reads=frozenset({Signal.LOG}),
    judge=judge,
    rank=25,
)
