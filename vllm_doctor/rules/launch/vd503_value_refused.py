"""VD503: an option's value is refused while the configuration is checked."""

import string

from vllm_doctor.knowledge.compat import table
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch import devices
from vllm_doctor.launch.command import refusals
from vllm_doctor.launch.parse import LaunchError, Refusal, Why
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says, without
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import exception_line, named, shown, text
from vllm_doctor.rules.gates.refusals_with_rules import ARCHITECTURE, HUB, ITEM_POOLS
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.allowed_value import replacement
from vllm_doctor.rules.remedies.layer import answer_of, layer
from vllm_doctor.rules.remedies.mentioned import mentioned
from vllm_doctor.rules.remedies.prompt_items import limit
from vllm_doctor.rules.remedies.refusal import asked, asks_by_name, by_place
from vllm_doctor.rules.remedies.sentence import problem
from vllm_doctor.rules.say import environment, finding, set_flag, thing, upgrade, upgrade_to

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
_OPTION_OF = {
    "chat-template-path": "chat-template",
    "quantization-unknown": "quantization",
    "tool-parser-unknown": "tool-call-parser",
    "tool-parser-needed": "tool-call-parser",
    "reasoning-parser-unknown": "reasoning-parser",
}
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
# As pydantic writes the field alone in a line: small letters and underscores.
_OF_A_FIELD = frozenset(f"{string.ascii_lowercase}_")


# What each release's command calls the model.
_MODEL = frozenset({"model_tag", "model", "--model"})
_NO_SUCH_GPU = "A rank asks for a GPU that is not there"


def judge(case: Case) -> Outcome:
    """Was a value refused?"""
    fault = named(case, *_IDS)
    if isinstance(fault, Unseen):
        return _of_launch(case) or fault
    likely = isinstance(fault, NotHere)
    if isinstance(fault, NotHere):
        root = case.root
        if root is None or root.ids or not (_while_checking(root) or asked(case, root)):
            return fault
        if root.crash is not None and says(root.crash.root.message, "no-kernel-of-several"):
            return Clear("each kernel says why it cannot serve these weights, and no option is refused")
        if root.crash is not None and any(says(root.crash.root.message, pool) for pool in ITEM_POOLS):
            return Clear("an item of a prompt is larger than a pool, and VD207 says by how much")
        fault = root
    if likely and _of_a_kernel(case, fault):
        return Clear("a kernel's own check failed, and its part names it")
    if (likely or fault.ids & frozenset(_IDS) == {"validation-error"}) and _of_its_part(case, fault):
        return Clear("vLLM names the failed part, and its message asks for no option")
    if not likely and fault.ids & frozenset(_IDS) == {"validation-error"} and fault.ids & _OTHERS:
        return Clear("the message in that line says what vLLM refuses")
    if fault.ids & frozenset(_IDS) == {"validation-error"} and _of_another(fault):
        return Clear("another program checked its own value with pydantic")
    if fault.ids & frozenset(_IDS) == {"validation-error"} and any(says(f, "call-of-a-request") for f in fault.files):
        return Clear("the value is of a request or of its answer, not of the launch")
    run = case.run
    at = next((h.index for h in fault.hits if h.id in _IDS and h.id != "validation-error"), None)
    said = _said(fault) if at is None else run.lines[at].text.strip() if run is not None else ""
    message = excerpt.said(without("exception-head", without("pydantic-tail", said)))
    changes = _changes(case, fault)
    # A check of the configuration that names no option may be about the model's files as well.
    likely = likely or (fault.ids & frozenset(_IDS) == {"validation-error"} and not any(changes))
    return finding(
        RULE,
        title=_NO_SUCH_GPU if "device-ordinal" in fault.ids else _title(case, fault, message, changes),
        detail=message,
        confidence=Confidence.LIKELY if likely else Confidence.CONFIRMED,
        evidence=shown(case, fault, *_IDS) if fault.ids & frozenset(_IDS) else (exception_line(case, fault),),
        changes=changes,
        refute="vLLM accepts the same value when started by hand in the same environment",
    )


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
    """Is the innermost call that is not pydantic's own of another program than vLLM?"""
    own = [file for file in fault.files if not says(file, "call-of-pydantic")]
    return bool(own) and says(own[-1], "call-of-a-package") and not says(own[-1], "call-of-vllm")


def _title(case: Case, fault: Fault, message: str, changes: tuple[Change | None, ...]) -> str:
    """Names the option, where the message names the one that a change is made to; else what the sentence refuses."""
    names = [c.name for c in changes if c is not None and c.kind is ChangeKind.FLAG]
    plain = message.lower().replace("_", "-").replace(" ", "-")
    named = next((name for name in names if name in plain), None)
    if named is not None:
        return f"vLLM refuses the value of --{named}"
    variable = next((c.name for c in changes if c is not None and c.kind is ChangeKind.ENV), None)
    if variable is not None and variable in message:
        return f"vLLM asks for another value of {variable}"
    if names:
        return f"vLLM refuses what --{names[0]} asks for"
    part = layer(case, fault)
    return (problem(case, fault, part, definite=True) if part is not None else "") or RULE.title


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
            return (_devices(case, why),)
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


def _changes(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    length, tokens = fault.fields("length-above-model"), fault.fields("tokens-below-length")
    split = _split(case, fault) or _quantized(case, fault) or _of_model(case, fault) or _of_words(case, fault)
    if split:
        return split
    if length:
        why = "the model's config has this many positions; more gives wrong output or a CUDA error"
        return (set_flag(case, "max-model-len", int(length["derived"]), Direction.LOWER, why),)
    if tokens and tokens["other"] == "max_model_len":
        why = "without chunked prefill a whole prompt must fit into one step"
        return (
            set_flag(case, "max-num-batched-tokens", int(tokens["limit"]), Direction.RAISE, why),
            set_flag(
                case,
                "enable-chunked-prefill",
                True,
                Direction.ADD,
                "lets vLLM split a long prompt over several steps instead",
            ),
        )
    if tokens:
        why = "each running sequence needs one token of a step"
        return (
            set_flag(case, "max-num-batched-tokens", int(tokens["limit"]), Direction.RAISE, why),
            set_flag(case, "max-num-seqs", int(tokens["tokens"]), Direction.LOWER, "runs fewer sequences instead"),
        )
    if "utilization-range" in fault.ids:
        return (set_flag(case, "gpu-memory-utilization", 0.9, Direction.LOWER, "a fraction from 0 to 1, not percent"),)
    if "lora-rank" in fault.ids:
        why = "the adapter that you serve has this rank"
        return (set_flag(case, "max-lora-rank", int(fault.fields("lora-rank")["rank"]), Direction.RAISE, why),)
    if fault.ids & {"device-ordinal", "device-uuid"}:
        why = (
            "the value names a GPU that does not exist; every rank needs its own GPU"
            if "device-ordinal" in fault.ids
            else "this release reads only indices; the only MIG slice of a container is 0"
        )
        return (_devices(case, why), _reads_uuids(case) if "device-uuid" in fault.ids else None)
    if "capability-required" in fault.ids:
        why = "the GPU has no bfloat16 arithmetic"
        return (set_flag(case, "dtype", "half", Direction.CHANGE, why),)
    name = _named_option(case, fault)
    if name is None:
        return asked(case, fault) or tuple(filter(None, (by_place(case, fault),))) or mentioned(case, fault)
    if says(told := _with_what_follows(case, fault), "object-wanted"):
        return (_as_object(case, name, told),)
    if name == "gpu-memory-utilization" and _AT_MOST in text(case, fault):
        return (set_flag(case, name, 0.9, Direction.LOWER, "a fraction from 0 to 1, not percent"),)
    if name == "chat-template":
        why = "name a template that the service's user can read"
        return (
            set_flag(case, name, None, Direction.CHANGE, why),
            set_flag(case, name, None, Direction.REMOVE, "without the option vLLM uses the model's template"),
        )
    return replacement(case, name, told)


def _of_words(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """The command line itself is wrong: it lacks the model, or has the beginning of several options' names."""
    names = fault.fields("option-ambiguous").get("names", "").split(", ")
    if any(names):
        why = f"several options begin with these letters: write the full name, {' or '.join(names[:6])}"
        return (thing(ChangeKind.OS, "command", Direction.REPAIR, why, command="vllm serve --help"),)
    if not _MODEL & set(fault.fields("arguments-required").get("names", "").split(", ")):
        return ()
    why = "name the model first, or as `model` in the file of --config: vllm serve ORGANISATION/MODEL"
    return (set_flag(case, "model", None, Direction.ADD, why),)


def _as_object(case: Case, name: str, told: str) -> Change | None:
    """An option of settings takes a JSON object; a level of compilation stood there alone in older releases."""
    given = (read("object-wanted", told) or {}).get("given", "")
    why = "this release takes a JSON object here, in single quotes"
    if name != "compilation-config" or not given.isdigit():
        return set_flag(case, name, None, Direction.CHANGE, why)
    key = "level" if case.version is not None and case.version < as_version(_MODE) else "mode"
    why += f"; -O{given} says the same"
    return set_flag(case, name, f'{{"{key}": {given}}}', Direction.CHANGE, why)


def _with_what_follows(case: Case, fault: Fault) -> str:
    """pydantic's list of values stands on the lines after the one that names the option."""
    run = case.run
    after = run.lines[fault.last + 1 : fault.last + 4] if run is not None else ()
    return "\n".join([text(case, fault), *(line.text for line in after)])


def _devices(case: Case, why: str) -> Change:
    """As many indices as the launch has ranks, where the number of cards says that they are there."""
    ranks = case.count("tensor-parallel-size") or 1
    here = len(case.gpus) if case.gpus else None
    to = ",".join(map(str, range(ranks))) if here is not None and here >= ranks else None
    return environment("CUDA_VISIBLE_DEVICES", Direction.CHANGE, why, to=to, command="nvidia-smi -L")


def _reads_uuids(case: Case) -> Change | None:
    since = as_version(table().device_uuids_from)
    return upgrade_to(case, since, "the first release that reads UUIDs of cards and MIG slices")


# pydantic's words, from 0.11.1 on, where vLLM itself had a sentence of its own before.
_AT_MOST = "Input should be less than or equal to 1"


def _of_model(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """What this model asks of the launch: its own code, another type, a step that holds its largest image or block."""
    if "remote-code-needed" in fault.ids:
        why = "the checkpoint contains Python code, which runs as the server's user: read it first"
        return (set_flag(case, "trust-remote-code", True, Direction.ADD, why),)
    types = [
        word.rpartition(".")[2] for word in fault.fields("dtype-of-quantization").get("types", "").split(", ") if word
    ]
    if types:
        why = f"the kernels of this quantization compute in {' or '.join(types)}"
        return (set_flag(case, "dtype", types[-1], Direction.CHANGE, why),)
    item = fault.fields("item-above-step").get("item")
    if item is not None:
        why = "this model processes an image, video or audio clip as a whole, so the largest one must fit into one step"
        return (
            set_flag(case, "max-num-batched-tokens", int(item), Direction.RAISE, why),
            set_flag(
                case, "limit-mm-per-prompt", limit(case, image=0, video=0), Direction.CHANGE, "allows text only instead"
            ),
        )
    block = fault.fields("block-above-step").get("block")
    if block is not None:
        why = "prefix caching keeps whole blocks of this model's state, so one block must fit into one step"
        return (set_flag(case, "max-num-batched-tokens", int(block), Direction.RAISE, why),)
    return ()


# The first release whose `level` of compilation is called `mode` (config/compilation.py).
_MODE = "0.11.1"
# More ranks than any model is split over.
_RANKS = 4096


def _split(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """Over how many GPUs the model may be split."""
    sizes = fault.fields("world-size") or fault.fields("parallel-size")
    if sizes:
        why = "as many as there are GPUs here"
        return (set_flag(case, "tensor-parallel-size", int(sizes["gpus"]), Direction.LOWER, why),)
    if "ray-gpus" in fault.ids:
        why = "at most as many ranks as the cluster has GPUs: `ray status`"
        return (set_flag(case, "tensor-parallel-size", len(case.gpus) if case.gpus else None, Direction.LOWER, why),)
    if "heads-divisible" in fault.ids:
        heads, size = (int(fault.fields("heads-divisible")[k]) for k in ("heads", "size"))
        # The KV heads must be divided, or a multiple, too, and they come in powers of two, as GPUs do.
        less = [n for n in range(min(size - 1, heads, _RANKS), 0, -1) if heads % n == 0] or [1]
        to = next((n for n in less if n > 1 and n & (n - 1) == 0), less[0])
        why = f"divides {heads} attention heads"
        return (set_flag(case, "tensor-parallel-size", to, Direction.LOWER, why),)
    if "tp-plan" in fault.ids:
        why = (
            "the Transformers code of this model does not say how to split it; vLLM's implementations of "
            "models can be split"
        )
        return (
            set_flag(case, "tensor-parallel-size", 1, Direction.LOWER, why),
            upgrade(case, "this release has vLLM's own implementation of the model"),
        )
    return ()


def _quantized(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """What the checkpoint says of its own quantization."""
    differs = fault.fields("quantization-differs")
    if differs:
        why = f"the checkpoint is quantized with {differs['model']}; without the option vLLM reads that itself"
        return (set_flag(case, "quantization", None, Direction.REMOVE, why),)
    method = fault.fields("quant-config-missing").get("method")
    if method:
        why = f"the checkpoint has no configuration for {method}"
        return (
            set_flag(case, "quantization", None, Direction.REMOVE, why),
            set_flag(
                case, "model", None, Direction.CHANGE, f"take a checkpoint that was quantized with {method} instead"
            ),
        )
    return ()


def _named_option(case: Case, fault: Fault) -> str | None:
    """The option that the message names."""
    for message, named_by_it in _OPTION_OF.items():
        if message in fault.ids:
            return named_by_it
    option = fault.fields("argument-invalid").get("option")
    if option:
        # argparse names every spelling of it: the long one is the option, `-cc` and `-tp` are short for it.
        spelt = [o.strip() for o in option.split("/")]
        return max(spelt, key=len).lstrip("-").replace("_", "-")
    run = case.run
    lines = [run.lines[i].text.strip() for i in range(fault.index, fault.last + 1)] if run is not None else []
    for line in lines:
        if 3 <= len(line) <= 60 and _OF_A_FIELD.issuperset(line) and case.has_flag(line) is not None:
            return line.replace("_", "-")
    return None


RULE = rule("VD503", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
