"""What the failing code runs for, by the release's own source: the option or variable that must be on for its calls.

A test above a failing line, and those above all calls of its function, held when it failed; what they ask for is
turned off, where the launch can do without it. The call next to the failure says most, so its tests come first.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from vllm_doctor.knowledge.behind import behind
from vllm_doctor.knowledge.functions import CodePlace, in_function, standing
from vllm_doctor.knowledge.guards import Decider
from vllm_doctor.knowledge.layers import features
from vllm_doctor.knowledge.layers.switches import switches
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.remedies.compilation import NAME as COMPILATION
from vllm_doctor.rules.remedies.compilation import with_keys_off, with_passes_off
from vllm_doctor.rules.remedies.requested_change import is_option
from vllm_doctor.rules.say import environment, set_flag

_CHANGES = 2
# What a model needs to be served at all, and which engine and processes serve it: no feature of either.
NEEDED = frozenset(
    {"tensor-parallel-size", "data-parallel-size", "nnodes", "trust-remote-code", "max-model-len", "worker-cls"}
    | {"quantization", "runner", "task", "api-server-count", "structured-outputs-config", "pooler-config"}
    | {"disable-frontend-multiprocessing", "distributed-executor-backend", "VLLM_USE_V1"}
)
_PASSES = "pass_config."
_OFF = (None, False, "False", "None", "0")
_ON = (True, "True", "1")
_ONLY_WITH = "in vLLM's source the failing line of `{name}` runs only with this"
_WITHOUT = "; without it this code does not run"
_ONLY_WITHOUT = "in vLLM's source the failing line of `{name}` runs only where this is off"


def without_its_feature(case: Case, fault: Fault, *, calls: int | None = None) -> tuple[Change, ...]:
    """The changes that turn off what the failing calls run for, or the last so many of them; none of another build, or
    where the GPU failed, whose errors stand at a later call."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or says(text(case, fault), "names-late-error"):
        return ()
    found: dict[str, Change] = {}
    for name, one in _conditions(case, fault, calls):
        change = _off(case, one, _why(one, name))
        if change is not None:
            found.setdefault(change.name, change)
    return tuple(found.values())[:_CHANGES]


def _why(one: Decider, function: str) -> str:
    """What the change costs, where that is known of its option or variable, and where it is read from."""
    known = next((answer.why for answer in (*features(), *switches()) if answer.options[0] == one.name), "")
    told, without = (_ONLY_WITHOUT, "") if one.sign == "off" else (_ONLY_WITH, _WITHOUT)
    told = told.format(name=function)
    return f"{known} ({told})" if known and not one.key else told + without


def with_its_feature(case: Case, fault: Fault, changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes; where none is of the launch, with what turns off that for which the failing code ran."""
    of_launch = any(one.kind is not ChangeKind.PACKAGE for one in changes)
    return tuple(changes) if of_launch else (*changes, *without_its_feature(case, fault))


def _conditions(case: Case, fault: Fault, calls: int | None) -> Iterator[tuple[str, Decider]]:
    """What is on at each of vLLM's own calls, the innermost first, with the function that it stands in."""
    frames = reversed(fault.crash.root.frames if fault.crash is not None else ())
    for frame in islice((one for one in frames if one.line and says(one.file, "call-of-vllm")), calls):
        for one in _on_at(case, CodePlace(frame.file, frame.line, frame.function)):
            yield frame.function, one


def _on_at(case: Case, place: CodePlace) -> tuple[Decider, ...]:
    """What is on there in each release that the lines of the log agree with; where they agree with none, another build
    may have written it, and that counts which is on in all releases that have such a line."""
    by_code = [as_version(one) for one in (case.run.releases_by_code if case.run is not None else ())]
    releases = [case.version] if case.version in by_code else by_code or [as_version(one) for one in standing(place)]
    told = [behind(within, one) for one in releases if (within := in_function(place, one)) is not None]
    return tuple(one for one in told[-1] if all(one in each for each in told)) if told else ()


def _off(case: Case, one: Decider, why: str) -> Change | None:
    if one.name in NEEDED:
        return None
    if one.kind == "variable":
        return _variable_off(case, one, why)
    if one.kind != "option" or not is_option(case, one.name):
        return None
    if one.key:
        return _key_off(case, one, why)
    given = case.effective(one.name)
    fact = case.has_flag(one.name)
    default = fact.default if fact is not None else None
    match one.sign:
        case "off":
            return set_flag(case, one.name, True, Direction.ADD, why)
        case "on" if given not in _OFF or default is not False or not case.shows_launch:
            return set_flag(case, one.name, False, Direction.SET, why)
        case "is not" if given not in _OFF or not case.launched:
            return set_flag(case, one.name, None, Direction.REMOVE, why) if default is None else None
        case ">" | ">=" if one.value.isdecimal() and (given not in _OFF or not case.launched):
            least = int(one.value) - (one.sign == ">=")
            return set_flag(case, one.name, least, Direction.LOWER, why) if least > 0 else None
        case "==" | "in" if given not in _OFF and str(given) in one.value:
            return set_flag(case, one.name, None, Direction.CHANGE, why)
    return None


def _key_off(case: Case, one: Decider, why: str) -> Change | None:
    """A key of an option that takes several: of the compiler's settings the key, of a feature's own the feature."""
    if one.name != COMPILATION:
        fact = case.has_flag(one.name)
        whole = fact is not None and fact.default is None
        return set_flag(case, one.name, None, Direction.REMOVE, why) if whole and case.effective(one.name) else None
    if one.sign != "on":
        return None
    if one.key.startswith(_PASSES):
        return with_passes_off(case, (one.key.removeprefix(_PASSES),), why)
    return with_keys_off(case, (one.key,), why)


def _variable_off(case: Case, one: Decider, why: str) -> Change | None:
    fact = case.has_env(one.name)
    if fact is None or fact.default not in (True, False):
        return None
    if one.sign == "off":
        return environment(one.name, Direction.SET, why, to="1") if case.env(one.name) not in _ON else None
    return environment(one.name, Direction.SET, why, to="0") if one.sign == "on" and case.env(one.name) != "0" else None
