"""VD403: prefix caching of the first V0 releases made kernels read a wrong address."""

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.log.match import says
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import exception_line
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag, thing

# Reported for 0.4 and 0.5 with prefix caching on and never with it off (issues 5537, 6833, 7900, 8230).
_MENDED = Version((0, 6))


def judge(case: Case) -> Outcome:
    """Is it an illegal access, in a release where prefix caching was known for it, with prefix caching on?"""
    run, root = case.run, case.root
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if root is None or not any(says(run.lines[i].text, "illegal-access") for i in range(root.index, root.last + 1)):
        return NotHere("no illegal memory access ended it")
    if case.effective("enable-prefix-caching") is not True:
        return Clear("prefix caching is off")
    if case.version is None or case.version >= _MENDED:
        return Clear(f"not known of vLLM {case.version_text or 'of an unknown version'}")
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        evidence=(exception_line(case, root),),
        changes=(
            set_flag(
                case,
                "enable-prefix-caching",
                False,
                Direction.REMOVE,
                "nobody reported this failure with prefix caching off",
                applicability=Applicability.SAFE,
            ),
            thing(
                ChangeKind.PACKAGE,
                "vllm-version",
                Direction.UPGRADE,
                "0.6 and later",
                to="0.6.0",
                before=case.version_text,
                inventory="vllm_version",
            ),
        ),
        refute="the same failure happens with prefix caching off",
    )


RULE = rule("VD403", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
