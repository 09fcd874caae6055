"""VD518: shapes that do not fit one another: a defect, not a shortage."""

import json

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import each, read, says
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.loading_weights import tensor_too_small
from vllm_doctor.rules.gates.named_fault import named, severity, shown, text
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.other_release import newer, or_another_release
from vllm_doctor.rules.say import finding, set_flag, thing, upgrade

_IDS = (
    "shape-invalid",
    "shape-mismatch",
    "size-mismatch",
    "size-of-dimension",
    "hybrid-specs",
    "shapes-multiply",
)

_ADAPTER = thing(
    ChangeKind.OS,
    "adapter",
    Direction.CHANGE,
    "use an adapter that was made for this model (its size, its release): the message compares two widths",
    command="grep -E 'base_model|target_modules|\"r\"' ADAPTER/adapter_config.json",
)


# Calls of torch below the draft's own.
_INNER = 4
_SPECULATIVE = ("speculative-config", "speculative-model")


def judge(case: Case) -> Outcome:
    """Did shapes not fit?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    if tensor_too_small(fault):
        return Clear("a tensor of the checkpoint is smaller than the layer that takes it")
    if "hybrid-specs" in fault.ids:
        return _not_one_type(case, fault)
    version = case.version_text or ""
    own = ".dev" in version or "+" in version
    own_code = _own_code(case, fault)
    adapter = any(says(file, "call-of-adapters") for file in fault.files)
    inner = fault.files[-_INNER:]
    drafted = any(says(file, "call-of-drafts") and not says(file, "call-of-own-drafts") for file in inner)
    return finding(
        RULE,
        title="An adapter's matrices do not fit the layer that they belong to"
        if adapter
        else "The draft's matrices do not fit the model that it drafts for"
        if drafted
        else "",
        severity=severity(case, fault),
        # Two shapes tell that something does not fit, not what: the code, the checkpoint, an adapter, a split.
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=or_another_release(
            case,
            fault,
            (
                _another_draft(case) if drafted else None,
                *_drafts(case, fault),
                _ADAPTER if adapter else None,
                own_code,
                thing(
                    ChangeKind.PACKAGE,
                    "code",
                    Direction.REPAIR,
                    "this is not a released build: try the release, to see whether local changes cause the failure",
                    to=f"vllm=={case.version}" if case.version is not None else None,
                    command=f"pip install vllm=={case.version}" if case.version is not None else None,
                )
                if own
                else None,
                newer(case, fault, "its release notes say whether the newest release fixes this"),
            ),
        ),
        refute="the newest release fails with the same options",
    )


def _not_one_type(case: Case, fault: Fault) -> Finding:
    """Layers of several kinds, and the manager that keeps each kind apart is off: asked for, or for a connector."""
    why = "the manager keeps separate pages for each kind of layer"
    connector = case.effective("kv-transfer-config") is not None
    return finding(
        RULE,
        title="Layers of several kinds cannot share one kind of KV cache",
        severity=severity(case, fault),
        evidence=shown(case, fault, "hybrid-specs"),
        changes=(
            set_flag(case, "disable-hybrid-kv-cache-manager", False, Direction.SET, why),
            set_flag(
                case,
                "kv-transfer-config",
                None,
                Direction.CHANGE,
                "this connector switches the manager off: use a connector that supports the manager, or no connector",
            )
            if connector
            else None,
            upgrade(case, "its release notes say whether the newest release fixes this"),
        ),
        refute="the same model starts with the manager off and without a connector",
    )


def _own_code(case: Case, fault: Fault) -> Change | None:
    """Where Transformers' code of the model ran: vLLM's own, which a release may have beside it."""
    if case.effective("model-impl") == "vllm" or not any(says(f, "call-transformers-adapter") for f in fault.files):
        return None
    why = "runs vLLM's own code of the model, where this release has one, and not that of Transformers"
    return set_flag(case, "model-impl", "vllm", Direction.SET, why)


def _another_draft(case: Case) -> Change | None:
    """A draft's heads and layers read what the model hands them: they are of one width, and of one pair of models."""
    name = _option_of_drafts(case) or _SPECULATIVE[0]
    why = "a draft reads the model's own states: take one that was trained for this model (hidden_size in both configs)"
    return set_flag(case, name, None, Direction.CHANGE, why)


def _option_of_drafts(case: Case) -> str | None:
    """The option of the launch that asks for drafts."""
    return next((name for name in _SPECULATIVE if case.effective(name) is not None), None)


def _drafts(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """As many draft tokens as were made, where the shapes name that number beside the one asked for; else none."""
    name = _option_of_drafts(case)
    if name is None:
        return ()
    given = case.effective(name)
    said, shapes = str(given), read("shapes-apart", text(case, fault))
    asked = read("draft-number", said)
    off = set_flag(
        case,
        name,
        None,
        Direction.REMOVE,
        "turns off speculative decoding: these shapes no longer occur; decoding becomes slower",
    )
    if shapes is None or asked is None or shapes["kept"] != asked["number"]:
        return (off,)
    fields: dict[str, object] = {m["name"]: m["value"] for m in each("draft-field", said)}
    why = f"{shapes['made']} draft tokens were made where --speculative-config asks for {asked['number']}"
    to = json.dumps({**fields, "num_speculative_tokens": int(shapes["made"])})
    return (set_flag(case, name, to, Direction.CHANGE, why), off)


RULE = rule("VD518", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
