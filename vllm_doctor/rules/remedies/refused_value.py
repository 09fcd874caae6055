"""What to write in place of a value that vLLM's message refuses."""

import string

from vllm_doctor.knowledge.compat import table
from vllm_doctor.knowledge.parser import option_of
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.remedies.allowed_value import replacement
from vllm_doctor.rules.remedies.container_words import before_the_image, published
from vllm_doctor.rules.remedies.mentioned import mentioned
from vllm_doctor.rules.remedies.prompt_items import limit
from vllm_doctor.rules.remedies.refusal import asked, by_place
from vllm_doctor.rules.say import environment, set_flag, thing, upgrade, upgrade_to

_OPTION_OF = {
    "chat-template-path": "chat-template",
    "quantization-unknown": "quantization",
    "tool-parser-unknown": "tool-call-parser",
    "tool-parser-not-found": "tool-call-parser",
    "tool-parser-needed": "tool-call-parser",
    "reasoning-parser-unknown": "reasoning-parser",
}


# As pydantic writes the field alone in a line: small letters and underscores.
_OF_A_FIELD = frozenset(f"{string.ascii_lowercase}_")


# What each release's command calls the model.
_MODEL = frozenset({"model_tag", "model", "--model"})


def accepted_value(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """The changes after which vLLM accepts the launch: by what the message itself says, else by the option it names."""
    length, tokens = fault.fields("length-above-model"), fault.fields("tokens-below-length")
    split = _split(case, fault) or _quantized(case, fault) or _of_model(case, fault) or _of_words(case, fault)
    split = (before_the_image(),) if published(fault) else split
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
        return (visible_devices(case, why), _reads_uuids(case) if "device-uuid" in fault.ids else None)
    if "capability-required" in fault.ids:
        why = "the GPU has no bfloat16 arithmetic"
        return (set_flag(case, "dtype", "half", Direction.CHANGE, why),)
    name = _named_option(case, fault)
    if name is None:
        return asked(case, fault) or tuple(filter(None, (by_place(case, fault),))) or mentioned(case, fault)
    if says(told := _with_what_follows(case, fault), "object-wanted"):
        return (_as_object(case, name, told),)
    if name == "gpu-memory-utilization" and says(text(case, fault), "at-most-one"):
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


def visible_devices(case: Case, why: str) -> Change:
    """As many indices as the launch has ranks, where the number of cards says that they are there."""
    ranks = case.count("tensor-parallel-size") or 1
    here = len(case.gpus) if case.gpus else None
    to = ",".join(map(str, range(ranks))) if here is not None and here >= ranks else None
    return environment("CUDA_VISIBLE_DEVICES", Direction.CHANGE, why, to=to, command="nvidia-smi -L")


def _reads_uuids(case: Case) -> Change | None:
    since = as_version(table().device_uuids_from)
    return upgrade_to(case, since, "the first release that reads UUIDs of cards and MIG slices")


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
    checked = fault.fields("validation-error").get("what", "")
    for line in lines:
        if (renamed := option_of(f"{checked}.{line}")) is not None and case.has_flag(renamed) is not None:
            return renamed
        if 3 <= len(line) <= 60 and _OF_A_FIELD.issuperset(line) and case.has_flag(line) is not None:
            return line.replace("_", "-")
    return None
