"""VD511: files of the model could not be fetched."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import environment, finding, set_flag, thing

# Where the vocabulary of gpt-oss's prompts is looked for when it cannot be fetched (openai-harmony's README).
_ENCODINGS = "/etc/vllm/encodings"
_O200K = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_IDS = (
    "hub-gated",
    "hub-status",
    "hub-unreachable",
    "hub-offline",
    "repo-id-invalid",
    "hub-unknown-model",
    "hub-folder-missing",
    "hub-server-error",
    "hub-cas",
    "name-unresolved",
    "name-unknown",
    "harmony-vocab",
)
# Whose exceptions mean the network whatever they say.
_CLIENTS = ("requests.exceptions.", "huggingface_hub.", "httpx.", "httpcore.", "urllib3.exceptions.", "modelscope.hub.")


def judge(case: Case) -> Outcome:
    """Did the hub refuse, or not answer?"""
    fault = named(case, *_IDS)
    if isinstance(fault, Unseen):
        return fault
    if isinstance(fault, NotHere):
        root = case.root
        if root is None or root.crash is None or not any(k.name.startswith(_CLIENTS) for k in root.crash.links):
            return fault
        fault = root
    missing = fault.ids & {"repo-id-invalid", "hub-unknown-model", "hub-folder-missing"}
    refused = "hub-gated" in fault.ids or fault.fields("hub-status").get("status") in {"401", "403"}
    return finding(
        RULE,
        title=_title(refused=refused, missing=bool(missing)),
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            environment(
                "HF_TOKEN",
                Direction.CHANGE,
                "use a token whose account has access to this repository: vllm_secrets, in the vault",
                command="hf auth whoami   # as the service's user: whose token it is",
            )
            if refused
            else None,
            thing(
                ChangeKind.OS,
                "network",
                Direction.REPAIR,
                ("give the host a route to the hub (DNS, proxy), or put the model on disk and set HF_HUB_OFFLINE=1"),
                command="curl -sSI https://huggingface.co   # as the service's user, with its proxy variables",
            )
            if not refused
            else None,
            environment(
                "TIKTOKEN_ENCODINGS_BASE",
                Direction.SET,
                "name a folder with o200k_base.tiktoken, which gpt-oss needs beside its weights",
                to=_ENCODINGS,
                command=f"mkdir -p {_ENCODINGS} && curl -fo {_ENCODINGS}/o200k_base.tiktoken {_O200K}",
            )
            if "harmony-vocab" in fault.ids
            else None,
            set_flag(case, "model", None, Direction.CHANGE, "name a repository or a folder that exists")
            if missing
            else None,
        ),
        refute="the same files are fetched with the same token by `hf download`",
    )


def _title(*, refused: bool, missing: bool) -> str:
    if refused:
        return "The hub refused access to the model"
    return "No folder and no repository of this name exists" if missing else RULE.title


RULE = rule("VD511", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
