"""VD503: an option's value is refused while the configuration is checked."""

from vllm_doctor.knowledge import api
from vllm_doctor.launch import devices
from vllm_doctor.launch.command import refusals
from vllm_doctor.launch.parse import LaunchError, Refusal, Why
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says, without
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import exception_line, named, shown
from vllm_doctor.rules.gates.refusals_with_rules import ARCHITECTURE, HUB, ITEM_POOLS
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.allowed_value import replacement
from vllm_doctor.rules.remedies.container_words import published
from vllm_doctor.rules.remedies.decided import decided
from vllm_doctor.rules.remedies.layer import answer_of, layer
from vllm_doctor.rules.remedies.own_words import own_words
from vllm_doctor.rules.remedies.refusal import asked, asks_by_name, packages
from vllm_doctor.rules.remedies.refused_value import accepted_value, visible_devices
from vllm_doctor.rules.remedies.refused_value_title import named_by_message, refused_option
from vllm_doctor.rules.remedies.sentence import problem
from vllm_doctor.rules.say import environment, finding, set_flag

_IDS = (
    "length-above-model",
    "tokens-below-length",
    "utilization-range",
    "world-size",
    "parallel-size",
    "ray-gpus",
    "heads-divisible",
    "tp-plan",
    "quant-config-missing",
    "chat-template-path",
    "argument-invalid",
    "arguments-required",
    "capability-required",
    "lora-rank",
    "validation-error",
    "option-ambiguous",
    "quantization-differs",
    "quantization-unknown",
    "tool-parser-unknown",
    "tool-parser-not-found",
    "tool-parser-needed",
    "reasoning-parser-unknown",
    "device-ordinal",
    "device-uuid",
    "remote-code-needed",
    "dtype-of-quantization",
    "item-above-step",
    "block-above-step",
)
# Where vLLM checks what it was given, before any engine is made.
_REFUSING = frozenset({"ValueError", "TypeError", "AssertionError", "NotImplementedError", "KeyError"})
# Messages that say more than "a value was refused", and are answered by rules of their own.
_OTHERS = frozenset(
    {
        *ARCHITECTURE,
        *HUB,
        "module-missing",
        "import-name",
        "driver-old",
        "no-gpus",
        "no-device-detected",
        "swap-too-large",
    }
)
_NAMED = "vLLM names the failed part, and its message asks for no option"


def judge(case: Case) -> Outcome:
    """Was a value refused?"""
    fault = named(case, *_IDS)
    if isinstance(fault, Unseen):
        return _of_launch(case) or fault
    known = not isinstance(fault, NotHere)
    if isinstance(fault, NotHere):
        root = case.root
        if root is None or root.ids or not (_while_checking(root) or asked(case, root)):
            return fault
        fault = root
    elsewhere = _answered_elsewhere(case, fault) if not known else _of_a_check(case, fault) if _bare(fault) else ""
    return Clear(elsewhere) if elsewhere else _refused(case, fault, known=known)


def _bare(fault: Fault) -> bool:
    """Does only pydantic's heading tell that a value was refused?"""
    return fault.ids & frozenset(_IDS) == {"validation-error"}


def _answered_elsewhere(case: Case, fault: Fault) -> str:
    """Why a refusal in words that no row knows is not about a value of the launch; empty where it is."""
    message = fault.crash.root.message if fault.crash is not None else ""
    if says(message, "no-kernel-of-several"):
        return "each kernel says why it cannot serve these weights, and no option is refused"
    if any(says(message, pool) for pool in ITEM_POOLS):
        return "an item of a prompt is larger than a pool, and VD207 says by how much"
    if own_words(case, fault, None) and not asked(case, fault):
        return "an assertion without a message failed, and the asserted expression names the failure"
    if packages(case, fault):
        return "the message asks for a package that an option needs"
    if _of_a_kernel(case, fault):
        return "a kernel's check failed, and its part of vLLM names the failure"
    return _NAMED if _of_its_part(case, fault) else ""


def _of_a_check(case: Case, fault: Fault) -> str:
    """The same of a check of pydantic's."""
    if _of_its_part(case, fault):
        return _NAMED
    if fault.ids & _OTHERS:
        return "the message in that line says what vLLM refuses"
    if _of_another(fault):
        return "another program checked its own value with pydantic"
    return "the value belongs to a request or to an answer, not to the launch" if _of_a_request(fault) else ""


def _refused(case: Case, fault: Fault, *, known: bool) -> Finding:
    run = case.run
    at = next((h.index for h in fault.hits if h.id in _IDS and h.id != "validation-error"), None)
    said = _said(fault) if at is None else run.lines[at].text.strip() if run is not None else ""
    message = excerpt.said(without("exception-head", without("pydantic-tail", said)))
    # Words that only say that things do not go together tell less than the test that refused them.
    plainly = bool(fault.ids & frozenset(_IDS) - {"validation-error"}) or asks_by_name(case, fault)
    by_test = () if plainly else decided(case, fault)
    changes = by_test or accepted_value(case, fault)
    changes = changes if any(changes) or named_by_message(fault) else decided(case, fault)
    # A check of the configuration that names no option may be about the model's files as well.
    certain = known and (any(changes) or not _bare(fault))
    return finding(
        RULE,
        title=_title(case, fault, message, changes),
        detail=message,
        confidence=Confidence.CONFIRMED if certain else Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS) if fault.ids & frozenset(_IDS) else (exception_line(case, fault),),
        changes=changes,
        refute="vLLM accepts the same value when started by hand in the same environment",
    )


def _of_a_request(fault: Fault) -> bool:
    """Is what pydantic checked of a request or of its answer, by its class or by the calls?"""
    checked = fault.fields("validation-error").get("what", "")
    return says(checked, "class-of-a-request") or any(says(f, "call-of-a-request") for f in fault.files)


def _of_its_part(case: Case, fault: Fault) -> bool:
    """Does the part that failed name it, while the sentence asks for no option by its name?"""
    return answer_of(case, fault) is not None and not asks_by_name(case, fault)


def _of_a_kernel(case: Case, fault: Fault) -> bool:
    """Did a kernel's own check fail, where no smaller split is computed from its message?"""
    part = layer(case, fault)
    if part is None or not part.kernels or answer_of(case, fault) is None:
        return False
    return not any(change.name == "tensor-parallel-size" for change in asked(case, fault))


def _of_another(fault: Fault) -> bool:
    """Is the innermost call that is not pydantic's own of another program than vLLM; or, without calls, the class that
    was checked none of vLLM's?"""
    own = [file for file in fault.files if not says(file, "call-of-pydantic")]
    if not own:
        checked = fault.fields("validation-error").get("what", "")
        return bool(checked) and not api.is_class(checked)
    return says(own[-1], "call-of-a-package") and not says(own[-1], "call-of-vllm")


def _title(case: Case, fault: Fault, message: str, changes: tuple[Change | None, ...]) -> str:
    """Which value meets which limit, else the option and vLLM's sentence on it; else what the sentence refuses."""
    made = tuple(change for change in changes if change is not None)
    if published(fault):
        return "A published port stands behind the image's name, where vLLM reads it"
    split = next((c for c in made if c.name == "tensor-parallel-size" and c.direction is Direction.LOWER), None)
    if not named_by_message(fault) and split is not None and split.before and says(message, "split-too-fine"):
        return f"The weights cannot be split over {split.before} ranks in whole parts"
    told = named_by_message(fault) or refused_option(case, fault, message, made)
    part = layer(case, fault)
    return told or (problem(case, fault, part, definite=True) if part is not None else "") or RULE.title


def _of_launch(case: Case) -> Finding | None:
    """Without a log: the first value of the launch that the release (where it is not known: any) would refuse."""
    launch, version = case.launch, case.version
    if launch is None:
        return None
    try:
        said = next((r for r in refusals(launch, version) if r.why is Why.VALUE), None)
    except LaunchError:
        return None
    if said is None:
        return None
    return finding(
        RULE,
        title=f"{said.flag} is {said.found}; vLLM needs {said.needed}",
        confidence=Confidence.LIKELY,
        evidence=(Evidence("launch", f"vLLM {version}" if version else "any release", f"{said.flag} {said.found}"),),
        changes=_for_launch(case, said),
        refute="vLLM accepts the same value when started by hand in the same environment",
    )


def _for_launch(case: Case, said: Refusal) -> tuple[Change | None, ...]:
    """What to write instead: another text of a variable, the value that would do, or what the option takes."""
    why, name = f"vLLM needs {said.needed}", said.flag.lstrip("-")
    if said.flag == name:
        if name == devices.NAME:
            return (visible_devices(case, why),)
        return (environment(name, Direction.CHANGE, why, before=case.env(name)),)
    if said.to:
        return (set_flag(case, name, int(said.to), Direction.CHANGE, why),)
    return replacement(case, name, "", why)


def _while_checking(fault: Fault) -> bool:
    """Did vLLM's own check of its configuration raise it? What a module of the model asks of it later is none."""
    if fault.crash is None or not fault.crash.root.frames:
        return False
    root = fault.crash.root
    files = [frame.file for frame in reversed(root.frames)]
    asking = next((file for file in files if not says(file, "call-of-configuration")), "")
    return root.kind in _REFUSING and asking != files[0] and not says(asking, "call-of-module")


def _said(fault: Fault) -> str:
    """The first line of the exception that says something of its own."""
    lines = [line.strip() for line in fault.crash.root.message.splitlines()] if fault.crash is not None else []
    told = next((line for line in lines if says(line, "pydantic-value-error")), None)
    return told or (
        f"{lines[1]}: {lines[2]}" if len(lines) > 2 and says(lines[0], "validation-error") else "".join(lines[:1])
    )


RULE = rule("VD503", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
