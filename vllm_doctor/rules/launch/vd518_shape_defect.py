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
    return finding(
        RULE,
        title="An adapter's matrices do not fit the layer that they belong to" if adapter else "",
        severity=severity(case, fault),
        # Two shapes tell that something does not fit, not what: the code, the checkpoint, an adapter, a split.
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=(
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
            _of_plugin(fault) or upgrade(case, "its release notes say whether the newest release fixes this"),
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


def _of_plugin(fault: Fault) -> Change | None:
    """A platform's plugin brings its own runner and operators, and asks for one release of vLLM beside it."""
    told = next((found for file in fault.files if (found := read("call-of-plugin", file)) is not None), None)
    if told is None:
        return None
    name = told["package"].replace("_", "-")
    why = f"the calls run in {name}, which brings its own code for this device: its next release may fix this"
    command = f"pip show vllm {name} | grep -E '^(Name|Version)'; pip index versions {name}"
    return thing(ChangeKind.PACKAGE, name, Direction.UPGRADE, why, command=command)


def _own_code(case: Case, fault: Fault) -> Change | None:
    """Where Transformers' code of the model ran: vLLM's own, which a release may have beside it."""
    if case.effective("model-impl") == "vllm" or not any(says(f, "call-transformers-adapter") for f in fault.files):
        return None
    why = "runs vLLM's own code of the model, where this release has one, and not that of Transformers"
    return set_flag(case, "model-impl", "vllm", Direction.SET, why)


def _drafts(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """As many draft tokens as were made, where the shapes name that number beside the one asked for; else none."""
    given = case.effective("speculative-config")
    if given is None:
        return ()
    said, shapes = str(given), read("shapes-apart", text(case, fault))
    asked = read("draft-number", said)
    off = set_flag(
        case,
        "speculative-config",
        None,
        Direction.REMOVE,
        "turns off speculative decoding: these shapes no longer occur; decoding becomes slower",
    )
    if shapes is None or asked is None or shapes["kept"] != asked["number"]:
        return (off,)
    fields: dict[str, object] = {m["name"]: m["value"] for m in each("draft-field", said)}
    why = f"{shapes['made']} draft tokens were made where --speculative-config asks for {asked['number']}"
    to = json.dumps({**fields, "num_speculative_tokens": int(shapes["made"])})
    return (set_flag(case, "speculative-config", to, Direction.CHANGE, why), off)


RULE = rule("VD518", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
