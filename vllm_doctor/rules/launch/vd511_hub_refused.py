"""VD511: files of the model could not be fetched."""

import shlex
from enum import Enum

import msgspec

from vllm_doctor.knowledge.hub import is_name
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.traceback import Link
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown, text
from vllm_doctor.rules.gates.refusals_with_rules import HUB
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.python_environment import CAUSES, install_before
from vllm_doctor.rules.say import environment, finding, set_flag, thing

# Where the vocabulary of gpt-oss's prompts is looked for when it cannot be fetched (openai-harmony's README).
_ENCODINGS = "/etc/vllm/encodings"
_O200K = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
# What the hub's client raises of the disk, of a name or of a configuration, without asking anybody (its errors.py).
_OF_THE_DISK = ("Cache", "CorruptedCache", "DDUF", "StrictDataclass", "Safetensors", "NotASafetensors")
# What vLLM fetches images, audio and video with (connections.py); the hub's client never does.
_MEDIA = "aiohttp."
# Whose exceptions mean the network whatever they say: a hub's own, and those of whatever asks anything.
_HUBS = ("huggingface_hub.", "modelscope.hub.")
_ANYBODY = ("requests.exceptions.", "httpx.", "httpcore.", "urllib3.exceptions.")


class HubAnswer(Enum):
    """What the hub, or the way to it, said. The value is the title."""

    ACCESS = "The hub refused access to the model"
    NO_LOGIN = "The hub asks for a login, and no valid token was sent"
    LOGIN = "The hub refused the login: its token is not valid"
    NAME = "No folder and no repository of this name exists"
    NOT_SHOWN = "The hub shows no model of this name to this token"
    REVISION = "The model's repository has no such revision"
    FILE = "The model's repository lacks a file that vLLM needs"
    ADDRESS = "The hub has no file at an address that vLLM needs"
    LIMIT = "The hub limits the requests of this host"
    OFFLINE = "The model is not on disk, and fetching is switched off"
    CERTIFICATE = "The hub's certificate is not trusted on this host"
    NETWORK = "The model hub refused access or could not be reached"


# By the classes of huggingface_hub's exceptions (errors.py); a name that a token may not see is told as not found.
_CLASSES = {
    "GatedRepoError": HubAnswer.ACCESS,
    "LocalTokenNotFoundError": HubAnswer.ACCESS,
    "RevisionNotFoundError": HubAnswer.REVISION,
    "RepositoryNotFoundError": HubAnswer.NOT_SHOWN,
    "RemoteEntryNotFoundError": HubAnswer.FILE,
    "EntryNotFoundError": HubAnswer.FILE,
    "OfflineModeIsEnabled": HubAnswer.OFFLINE,
    "HFValidationError": HubAnswer.NAME,
}
_MESSAGES = {
    "hub-gated": HubAnswer.ACCESS,
    "hub-offline": HubAnswer.OFFLINE,
    "repo-id-invalid": HubAnswer.NAME,
    "hub-unknown-model": HubAnswer.NAME,
    "hub-folder-missing": HubAnswer.NAME,
}
_NO_LOGIN = "401"
_STATUS = {"401": HubAnswer.ACCESS, "403": HubAnswer.ACCESS, "404": HubAnswer.NOT_SHOWN, "429": HubAnswer.LIMIT}


def judge(case: Case) -> Outcome:
    """Did the hub refuse, or not answer?"""
    fault = named(case, *HUB)
    if isinstance(fault, Unseen):
        return fault
    if isinstance(fault, NotHere):
        root = case.root
        if root is None or root.crash is None or not any(_asks(link) for link in root.crash.links):
            return fault
        if not _of_a_hub(case, root):
            return NotHere("no line shows that a hub was asked")
        fault = root
    asked = fault.crash is not None and any(says(file, "call-of-an-api-client") for file in fault.crash.files)
    if asked or (case.run is not None and case.run.client is not None):
        return NotHere("a client of the server wrote this")
    if install_before(case, fault, within=CAUSES) is not None:
        return NotHere("an installer says why it could not fetch a package")
    if fault.crash is not None and fault.crash.root.name.startswith(_MEDIA):
        return NotHere("the server fetched a file that a request names")
    why = HubAnswer.LOGIN if says(text(case, fault), "hub-login-address") else _why(case, fault)
    return finding(
        RULE,
        title=why.value,
        severity=severity(case, fault),
        evidence=shown(case, fault, *HUB),
        changes=(
            _without_xet() if "hub-cas" in fault.ids else None,
            *_changes(case, why, _host(case, fault), _asked_for(case, fault)),
            _vocabulary() if "harmony-vocab" in fault.ids else None,
        ),
        refute="the same files are fetched with the same token by `hf download`",
    )


def _asks(link: Link) -> bool:
    """Is it of a client that asks the hub over the network?"""
    return link.name.startswith((*_HUBS, *_ANYBODY)) and not link.kind.startswith(_OF_THE_DISK)


def _of_a_hub(case: Case, fault: Fault) -> bool:
    """Is it a hub's exception, or does its message, a call or a start of vLLM around it say that a hub was asked? The
    packages that the hub's client asks with are anybody's."""
    crash = fault.crash
    if crash is None or any(link.name.startswith(_HUBS) for link in crash.links):
        return True
    called = any(says(file, "call-of-a-hub") for file in crash.files)
    return called or says(text(case, fault), "hub-host") or (case.run is not None and case.run.by_vllm)


def _why(case: Case, fault: Fault) -> HubAnswer:
    """The class of an exception says more than its status, and that more than what vLLM made of it."""
    links = fault.crash.links if fault.crash is not None else ()
    by_class = next((_CLASSES[link.kind] for link in links if link.kind in _CLASSES), None)
    # ModelScope has one class for a model, a revision and a file that it does not find
    if by_class is None and any(link.kind == "NotExistError" for link in links):
        by_class = HubAnswer.REVISION if says(text(case, fault), "hub-no-revision") else HubAnswer.NOT_SHOWN
    told = fault.fields("hub-status") or fault.fields("hub-status-httpx")
    by_status = _STATUS.get(told.get("status", ""))
    if by_status is HubAnswer.NOT_SHOWN and says(text(case, fault), "hub-file-address"):
        by_status = HubAnswer.ADDRESS
    by_message = next((why for said, why in _MESSAGES.items() if said in fault.ids), None)
    why = by_class or (by_message if by_message is HubAnswer.ACCESS else by_status or by_message)
    if why is HubAnswer.ACCESS and (told.get("status") == _NO_LOGIN or says(text(case, fault), "hub-log-in")):
        return HubAnswer.NO_LOGIN  # who is logged in without access is refused with 403
    if why is None and says(text(case, fault), "certificate-not-trusted"):
        return HubAnswer.CERTIFICATE
    return why or HubAnswer.NETWORK


def _host(case: Case, fault: Fault) -> str:
    """The host that was asked, as the client's message names it; the hub where it names none."""
    told = read("hub-host", text(case, fault))
    return told["host"] if told is not None else "huggingface.co"


def _asked_for(case: Case, fault: Fault) -> str:
    """The repository that was asked for, as the address in the client's message names it: a checkpoint may name another
    one for its tokenizer or its code. Else the launch's."""
    told = read("hub-repository", text(case, fault))
    name = told["name"] if told is not None else case.model
    return name if name is not None and is_name(name) else "MODEL"


def _changes(case: Case, why: HubAnswer, host: str, asked: str) -> tuple[Change | None, ...]:
    match why:
        case HubAnswer.LOGIN:
            said = f"{host} does not take the token that the program logs in with: use the account's own, or no login"
            tool = "hf auth login" if host.endswith("huggingface.co") else "modelscope login --token TOKEN"
            return (thing(ChangeKind.OS, "hub-token", Direction.CHANGE, said, command=f"{tool}   # of https://{host}"),)
        case HubAnswer.NO_LOGIN:
            said = (
                "the process that fetches did not log in, and needs it in its own environment (an init container and a "
                "worker have others): of an account that was granted access on the model's page"
            )
            return (_token(said, Direction.SET),)
        case HubAnswer.ACCESS:
            said = "use a token whose account has access to this repository (Ansible: vllm_secrets, in the vault)"
            return (_token(said),)
        case HubAnswer.NAME:
            return (_model(case, "name a repository or a folder that exists, as the service sees it"),)
        case HubAnswer.NOT_SHOWN:
            return (
                _model(case, "name the repository as the hub writes it: ORGANISATION/NAME"),
                _token("a private repository is shown to an account that may read it, and to nobody else"),
            )
        case HubAnswer.REVISION:
            wanted = "name a branch, a tag or a commit of this repository"
            return (set_flag(case, "revision", None, Direction.CHANGE, wanted),)
        case HubAnswer.FILE:
            return (_model(case, "use a repository that holds the file which the message names, in this layout"),)
        case HubAnswer.ADDRESS:
            why_not = (
                "the address names a repository, a revision and a file, and one of them is missing: list the files"
            )
            return (_model(case, why_not), set_flag(case, "revision", None, Direction.CHANGE, why_not))
        case HubAnswer.LIMIT:
            return (
                _token("an account may ask more often than a host without one"),
                _on_disk(asked, "keep the model on disk"),
            )
        case HubAnswer.OFFLINE:
            return (_on_disk(asked, "fetch it once, as the service's user, into the same HF_HOME"),)
        case HubAnswer.CERTIFICATE:
            said = "a proxy opens TLS and signs for the hub: trust the proxy's certificate authority on the host first"
            bundles = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")  # huggingface_hub before 1.0, and from then on
            each = [environment(name, Direction.SET, said, to="/etc/ssl/certs/ca-certificates.crt") for name in bundles]
            return (each[0], msgspec.structs.replace(each[1], together=True))
        case HubAnswer.NETWORK:
            said = "give the host a route to the hub (DNS, proxy), or put the model on disk and set HF_HUB_OFFLINE=1"
            command = f"curl -sSI https://{host}   # as the service's user, with its proxy variables"
            return (thing(ChangeKind.OS, "hub-access", Direction.REPAIR, said, command=command),)


def _model(case: Case, why: str) -> Change | None:
    return set_flag(case, "model", None, Direction.CHANGE, why)


def _token(why: str, direction: Direction = Direction.CHANGE) -> Change:
    whose = "hf auth whoami   # as the service's user: whose token it is"
    return environment("HF_TOKEN", direction, why, command=whose)


def _on_disk(asked: str, why: str) -> Change:
    command = f"HF_HUB_OFFLINE=0 hf download {shlex.quote(asked)}"
    return thing(ChangeKind.OS, "model-files", Direction.ADD, why, command=command)


def _without_xet() -> Change:
    """hf-xet fetches from a storage of its own (cas-server.xethub.hf.co), which a proxy may not let through."""
    why = "files then come by plain HTTPS from the hub's own addresses, without the xet storage that failed"
    return environment("HF_HUB_DISABLE_XET", Direction.SET, why, to="1")


def _vocabulary() -> Change:
    return environment(
        "TIKTOKEN_ENCODINGS_BASE",
        Direction.SET,
        "name a folder with o200k_base.tiktoken, which gpt-oss needs beside its weights",
        to=_ENCODINGS,
        command=f"mkdir -p {_ENCODINGS} && curl -fo {_ENCODINGS}/o200k_base.tiktoken {_O200K}",
    )


RULE = rule("VD511", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
