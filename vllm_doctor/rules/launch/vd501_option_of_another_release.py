"""VD501: the launch uses an option that other releases have and this one has not."""

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.claims import replacements
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.refused_options import hints, instead, note, option_history, refused, remove, together
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, inventory_var, set_flag, thing


def judge(case: Case) -> Outcome:
    """Was an option refused that an earlier or a later release has?"""
    got = refused(case)
    if isinstance(got, NotHere | Unseen):
        return got
    known = got.known
    if not known:
        return Clear("no release has the refused options")
    at = f"vLLM {case.version_text}" if case.version_text else "This release"
    newer = [_upgrade(case, o) for o in known[:1]]
    by_program = _by_program(case, known[0])
    return finding(
        RULE,
        title=f"{at} has no --{known[0]}: {option_history(case, known[0])}",
        confidence=got.confidence,
        evidence=got.evidence,
        changes=(
            *(newer if by_program else ()),
            *together(
                (
                    *_follow(case, known),
                    *(remove(option, why) for option, why in hints(case, got.unknown).items()),
                )
            ),
            *(newer if not by_program else ()),
        ),
        refute="`vllm serve --help=all` of this very environment lists the option",
    )


def _by_program(case: Case, option: str) -> bool:
    """Does a program's own code give the argument? Who runs the program can take another vLLM, not the argument out."""
    return case.root is not None and "engine-argument-unknown" in case.root.ids and case.flag(option) is None


def _follow(case: Case, options: tuple[str, ...]) -> list[Change | None]:
    """Each option out; and where another does its work in this release, that one in."""
    gone = replacements()[0]
    found: list[Change | None] = []
    for option in options:
        why = instead(option) or note(case, option)
        found.append(
            Change(
                ChangeKind.FLAG,
                option,
                case.flag(option),
                None,
                Direction.REMOVE,
                Applicability.SAFE,
                inventory_var(option),
                {},
                why,
            )
        )
        new = gone.get(versions.canonical(option))
        if new is not None and new.use is not None and not _earlier(case, option):
            to = new.value_for(case.flag(option))
            found.append(set_flag(case, new.use, to, Direction.SET, new.why) if to is not None else None)
    return found


def _earlier(case: Case, option: str) -> bool:
    """Is this release older than the option, so that its successor is not to be had either?"""
    fact = versions.flag(option, case.release)
    first = versions.parse_version(fact.first) if fact is not None and fact.first else None
    return first is not None and case.version is not None and case.version < first


def _upgrade(case: Case, option: str) -> Change | None:
    """Where the option came later than this release, the release that has it."""
    fact = versions.flag(option, case.release)
    first = versions.parse_version(fact.first) if fact is not None and fact.first else None
    now: Version | None = case.version
    if first is None or now is None or first <= now:
        return None
    return thing(
        ChangeKind.PACKAGE,
        "vllm-version",
        Direction.UPGRADE,
        f"the first sampled release that has --{option}",
        to=str(first),
        before=case.version_text,
        inventory="vllm_version",
    )


RULE = rule("VD501", reads=frozenset({Signal.LOG, Signal.VERSION, Signal.LAUNCH}), judge=judge)
