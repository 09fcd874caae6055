"""What to type first where a change is a decision: the command that shows what has to be known for it."""

import shlex
from collections.abc import Callable, Sequence

import msgspec

from vllm_doctor.knowledge import hub, versions
from vllm_doctor.knowledge.versions import default_port
from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.container import shell_word

# Options whose value is a text of a form of its own, by an example of it.
_FORMS = {
    "compilation-config": """'{"cudagraph_mode": "PIECEWISE"}'""",
    "kv-transfer-config": """'{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'""",
    "lora-modules": "sql=/srv/adapters/sql",
    "mm-processor-kwargs": """'{"max_pixels": 1003520}'""",
    "speculative-config": """'{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'""",
}
# The first release that explains one option alone.
_HELP_OF_ONE = versions.parse_version("0.9.2")
_SHOWN = '| grep -o \'"modelId":"[^"]*"\''


def with_commands(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """The findings; what none of their own lines says how to do has its first command."""
    return [_of_finding(case, one) for one in findings]


def _of_finding(case: Case, found: Finding) -> Finding:
    changes = tuple(
        change
        if change.command is not None or _is_typed(change)
        else msgspec.structs.replace(change, command=_first(case, found, change))
        for change in found.changes
    )
    return found if changes == found.changes else msgspec.structs.replace(found, changes=changes)


def _is_typed(change: Change) -> bool:
    """Does its own line say what to write?"""
    if change.kind in {ChangeKind.FLAG, ChangeKind.ENV}:
        return change.direction is Direction.REMOVE or change.after is not None or change.unset is not None
    return change.after is not None


def _first(case: Case, found: Finding, change: Change) -> str | None:
    make = _BY_NAME.get(change.name)
    if make is not None:
        return make(case, found, change)
    return _help(case, change) if change.kind is ChangeKind.FLAG else None


def _help(case: Case, change: Change) -> str:
    form = _FORMS.get(change.name)
    if form is not None:
        return f"vllm serve … --{change.name} {form}   # the form; the values are yours"
    if case.version is not None and _HELP_OF_ONE is not None and case.version < _HELP_OF_ONE:
        return f"vllm serve --help | grep -A9 -e --{change.name}   # what this release takes"
    return f"vllm serve --help={change.name}   # what this release takes"


def _model(case: Case, found: Finding, change: Change) -> str:
    """Which checkpoint is the owner's choice: those that were made of this one, or whether the chosen one fits."""
    model = case.model or ""
    smaller = change.direction is Direction.SMALLER
    if _is_hub(model) and smaller and not hub.names_quantization(model):
        of = f"filter=base_model:quantized:{model}&sort=downloads&limit=9"
        return f"curl -s 'https://huggingface.co/api/models?{of}' {_SHOWN}   # its quantized checkpoints"
    if smaller:
        return _plan(case)
    if _is_hub(model):
        of = f"search={hub.family(model)}&sort=downloads&limit=9"
        return f"curl -s 'https://huggingface.co/api/models?{of}' {_SHOWN}   # repositories of such a name"
    if model.startswith("/"):
        return f"ls -ld {shlex.quote(model)} {shlex.quote(model.rstrip('/').rpartition('/')[0] or '/')}/*"
    if found.code == "VD511":
        return "hf download ORG/MODEL config.json   # is the name right, and may this host have it?"
    return _plan(case)


def _is_hub(model: str) -> bool:
    return "/" in model and hub.is_name(model)


def _plan(case: Case) -> str:
    """Whether the checkpoint that is chosen will fit."""
    told = ["vllm-doctor plan ORG/MODEL"]
    if case.gpu_name:
        told.append(f"--gpu {shlex.quote(case.gpu_name)}")
    elif case.total_gib is not None:
        told.append(f"--gpu-memory-gib {case.total_gib:.2f}")
    else:
        told.append("--gpu CARD")
    ranks = (case.count("tensor-parallel-size") or 1) * (case.count("pipeline-parallel-size") or 1)
    told += [f"--gpus {ranks}"] * (ranks > 1)
    told += [f"--vllm-version {case.version}"] * (case.version is not None)
    return f"{' '.join(told)}   # does the one that you choose fit?"


def _revision(case: Case, _: Finding, change: Change) -> str:
    model = case.model or ""
    if not _is_hub(model):
        return _help(case, change)
    return f"git ls-remote https://huggingface.co/{model}   # its branches and tags"


def _ranks(case: Case, found: Finding, change: Change) -> str:
    of_ray = found.code == "VD805" or (case.root is not None and "ray-gpus" in case.root.ids)
    return "ray status" if of_ray else _help(case, change)


def _template(case: Case, found: Finding, change: Change) -> str:
    given, model = case.flag("chat-template"), case.model or ""
    if isinstance(given, str) and given.startswith("/"):
        # A file that vLLM read is there; what it writes for each kind of item is the question.
        look = "namei -l" if found.code == "VD503" else "grep -nE 'image|video|audio|tool|role'"
        return f"{look} {shlex.quote(given)}"
    if model.startswith("/"):
        return f"ls {shlex.quote(model)}; grep -il template {shlex.quote(model)}/*.md"
    if _is_hub(model):
        return f"curl -sL https://huggingface.co/{model}/raw/main/README.md | grep -i -n -A5 template"
    return _help(case, change)


def _batch(case: Case, *_: object) -> str:
    """The part of what it is that the change names; the whole log says what that is."""
    return f"{_log(case, 'max_num_batched_tokens=')} | grep -o -m1 'max_num_batched_tokens=[0-9]*'   # what it is now"


def _length(case: Case, *_: object) -> str:
    """As `_batch`, of the longest prompt."""
    return f"{_log(case, 'max_seq_len=')} | grep -o -m1 'max_seq_len=[0-9]*'   # what it is now"


def _sender(case: Case, *_: object) -> str | None:
    if case.run is not None and case.run.is_script:
        return None  # no client: the program itself asks
    return f"{_log(case, 'POST /')} | grep 'POST /' | tail   # from which address it comes"


def _log(case: Case, wanted: str) -> str:
    """What prints the server's log; of a file that was read and has not what is wanted the whole is another file."""
    container = case.container
    if container is not None and container.runtime in {"docker", "podman"}:
        return f"{container.runtime} logs {shell_word(container.name)} 2>&1"
    if container is not None and container.is_pod:
        space, pod, own = _parts(container)
        return f"kubectl logs -n {space} {pod} -c {own}"
    if case.unit is not None:
        return f"journalctl -b -o cat -u {shlex.quote(case.unit.name)}"
    run = case.run
    if run is None or "/" not in run.log.source or not any(wanted in line.text for line in run.lines):
        return "cat WHOLE-LOG"
    return f"cat {shlex.quote(run.log.source)}"


def _parts(container: Container) -> tuple[str, str, str]:
    space, _, rest = container.name.partition("/")
    pod, _, own = rest.partition("/")
    return shell_word(space), shell_word(pod), shell_word(own)


def _memory(case: Case, *_: object) -> str:
    """Who takes the host's memory."""
    container = case.container
    if container is not None and container.is_pod:
        space, pod, _own = _parts(container)
        node = shell_word(container.node or "NODE")
        return f"kubectl top pod -n {space} {pod} --containers; kubectl describe node {node}"
    if container is not None and container.runtime in {"docker", "podman"}:
        return f"{container.runtime} stats --no-stream; free -g"
    return "free -g; ps -eo rss,pid,comm --sort=-rss | head"


def _of_container(*_: object) -> str:
    return "kubectl top pod --containers   # what it takes; docker: docker stats --no-stream"


def _restart(case: Case, *_: object) -> str:
    """Only what started the server can start it again; without knowing that, what proves that it is dead."""
    container = case.container
    if container is not None and container.runtime in {"docker", "podman"}:
        return f"{container.runtime} restart {shell_word(container.name)}"
    if container is not None and container.is_pod:
        space, pod, _own = _parts(container)
        return f"kubectl delete pod -n {space} {pod}   # its owner makes a new one"
    if case.unit is not None:
        return f"systemctl restart {shlex.quote(case.unit.name)}"
    return f"vllm-doctor diagnose {_url(case)}   # asks it for one token"


def _url(case: Case) -> str:
    return f"http://127.0.0.1:{case.count('port') or default_port()}"


def _guarded(case: Case, *_: object) -> str:
    return f"curl -s -o /dev/null -D - -X POST {_url(case)}/invocations | head -1   # 401 once it is guarded"


def _replicas(case: Case, *_: object) -> str | None:
    place = (case.subject.place or "").rpartition(" by ")[2]
    return f"vllm-doctor diagnose {shlex.quote(place)}   # all replicas side by side" if "://" in place else None


def _certificate(case: Case, *_: object) -> str:
    cert, key = case.flag("ssl-certfile"), case.flag("ssl-keyfile")
    words = [shlex.quote(one) if isinstance(one, str) else other for one, other in ((cert, "CERT"), (key, "KEY"))]
    return f"openssl x509 -noout -subject -enddate -in {words[0]}; openssl pkey -noout -check -in {words[1]}"


_BY_NAME: dict[str, Callable[[Case, Finding, Change], str | None]] = {
    "model": _model,
    "revision": _revision,
    "tensor-parallel-size": _ranks,
    "chat-template": _template,
    "max-num-batched-tokens": _batch,
    "max-model-len": _length,
    "ssl-certfile": _certificate,
    "port": lambda *_: "ss -ltn   # the ports that are taken",
    "cpu-offload-gb": _memory,
    "VLLM_CPU_KVCACHE_SPACE": _memory,
    "host-ram": _memory,
    "limits.memory": _of_container,
    "checkpoint": _model,
    "client-input": _sender,
    "client-messages": _sender,
    "client-retry": _sender,
    "wsl": lambda *_: "wsl --install   # then run the server inside WSL",
    "prompt_logprobs": _sender,
    "server": _restart,
    "guard": _guarded,
    "vllm_api_key": lambda *_: "openssl rand -hex 32   # a key; give it as VLLM_API_KEY in the server's environment",
    "load-balancer": _replicas,
}
