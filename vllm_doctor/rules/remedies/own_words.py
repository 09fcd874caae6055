"""What Python and torch say by themselves where code meets a state that it was not written for, as a problem.

Nobody wrote a sentence for such a failure, so its part alone ("the worker's step failed") says less than the exception
does. The words are those that a finding may show: what a client sent is hidden there, and no title is made of it.
"""

from math import gcd

from vllm_doctor.knowledge.layers import Layer
from vllm_doctor.knowledge.pattern import compiled
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.traceback import in_packages
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.library import innermost
from vllm_doctor.rules.remedies.other_release import newer
from vllm_doctor.rules.remedies.runs_behind import without_its_feature
from vllm_doctor.rules.remedies.sentence import first_words
from vllm_doctor.rules.say import environment, set_flag, thing, upgrade

# Each by its id in the catalogue, with the titles that it may have, the fullest first: the first that fits is taken.
_STATES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("torch-devices-meet", ("Tensors on {a} and {b} meet in one operation",)),
    ("torch-types-meet", ("Tensors of {a} and {b} meet in one operation",)),
    ("torch-not-implemented", ("torch has no {what} for {b} on this device", "torch has no such operation for {b}")),
    ("torch-no-operator", ("This build has no {what} for the {b} backend", "This build lacks an operator for {b}")),
    ("kernel-operand-device", ("A kernel's operand {what} is not on the GPU", "A kernel's operand is not on the GPU")),
    ("kernel-operand-layout", ("A kernel's operand {what} is not contiguous", "A kernel's operand is not contiguous")),
    ("torch-not-finite", ("The model's output holds inf or NaN, and no token can be drawn",)),
    ("torch-nothing-to-join", ("{part} joins a list of tensors that is empty",)),
    ("torch-dimension", ("{part} gets a tensor with fewer dimensions than it reads",)),
    ("torch-in-capture", ("{part} does what a graph's capture does not allow",)),
    ("numpy-sizes", ("{part} puts {a} values where {b} fit", "{part} puts values where another number fits")),
    ("not-divided-over-ranks", ("{a} of the model's parts cannot be split over {b} ranks",)),
    ("python-none-attribute", ("{part} gets None where it reads .{what}", "A value is None where .{what} is read")),
    ("python-attribute", ("{part} reads .{what}, which {owner} lacks", "{owner} has no attribute {what}")),
    ("python-keyword", ("{what}() does not take the argument {key}", "A function does not take the argument {key}")),
    ("python-argument-missing", ("{what}() is called without its argument {key}", "A call lacks the argument {key}")),
    ("python-argument-twice", ("{what}() gets its argument {key} twice", "A call gives the argument {key} twice")),
    (
        "python-argument-count",
        ("{what}() takes {a} arguments, not {b}", "A call takes {a} arguments, not {b}"),
    ),
    ("python-none-value", ("{part} gets None where it needs a value",)),
    ("python-not-json", ("A value of type {what} cannot be written as JSON",)),
    ("engine-not-pickled", ("A program copies vLLM's engine, or sends it to another process",)),
    ("python-not-pickled", ("{what} cannot be sent to another process", "A value cannot be sent to another process")),
    ("python-types", ("{part} gets values of {a} and {b} where one type is needed",)),
    ("python-key", ("{part} finds no entry {what}", "There is no entry {what}")),
    ("python-division", ("{part} divides by zero",)),
    ("python-past-list", ("{part} reads past the end of a list",)),
    ("python-past-rows", ("{part} reads row {a} of a table that has {b}",)),
    ("python-unbound", ("{part} reads {what} before it is set",)),
    ("python-undefined", ("{part} uses the name {what}, which nothing defines",)),
    ("python-changed-while-read", ("{part} changes a table while it reads it",)),
    ("python-unpacked", ("{part} unpacks another number of values than it gets",)),
    ("python-recursion", ("{part} calls itself without an end",)),
)
_SOMEBODY = "The code"
_UNWRITTEN = ("This release has no {what}() for this engine, model or device", "This release has no {what}() here")
_CHECK = ("{part}: the check `{what}` fails", "The check `{what}` fails")


def state(case: Case, fault: Fault) -> str:
    """The id of what Python or torch said; empty where they did not speak for themselves."""
    found = _told(case, fault)
    return found[0] if found is not None else ""


def own_words(case: Case, fault: Fault, part: Layer | None) -> str:
    """The problem as Python or torch tells it; empty where somebody wrote a sentence, or the text is a client's."""
    voice = (part.voice if part is not None and _speaks(part, fault) else "") or _SOMEBODY
    found = _told(case, fault)
    if found is None:
        return ""
    name, fields = found
    bare = {"python-check": _CHECK, "raises-not-implemented": _UNWRITTEN}
    titles = bare[name] if name in bare else next(t for shape, t in _STATES if shape == name)
    made = (title.format(part=voice, **fields) for title in titles)
    return next((title for title in made if len(title) <= excerpt.TITLE), "")


def _speaks(part: Layer, fault: Fault) -> bool:
    """Is the failing line the part's own? One of vLLM's is none of a program that called vLLM."""
    inner = innermost(fault)
    if inner is None or not part.files or not says(inner.file, "call-of-vllm"):
        return True
    files = [in_packages(frame.file) for frame in (fault.crash.root.frames if fault.crash is not None else ())]
    own = [file for file in files if compiled(part.files).search(file)]
    return not own or any(says(file, "call-of-vllm") for file in own)


def _told(case: Case, fault: Fault) -> tuple[str, dict[str, str]] | None:
    if fault.crash is None:
        return None
    root, words = fault.crash.root, first_words(case, fault)
    if root.kind == "AssertionError" and not root.message.strip():
        code = root.frames[-1].code if root.frames else ""
        checked = read("python-check", code)
        return ("python-check", checked) if checked is not None else None
    if root.kind == "NotImplementedError" and not root.message.strip():
        inner = innermost(fault)
        own = inner is not None and says(inner.file, "call-of-vllm") and says(inner.code, "raises-not-implemented")
        return ("raises-not-implemented", {"what": inner.function}) if own and inner is not None else None
    if HIDDEN in words:
        return None
    said = f"{root.kind}: {words}"
    for shape, _ in _STATES:
        found = read(shape, said)
        if found is not None:
            return shape, _merged(found)
    return None


def _merged(found: dict[str, str]) -> dict[str, str]:
    """Fields of one thing under one name, whichever wording gave them: `a2` is `a`."""
    kept = {key: value for key, value in found.items() if value}
    fields = {key.rstrip("23"): value.strip(" ,'").removeprefix("type object '") for key, value in kept.items()}
    return {"a": "other", "b": "others", "what": "it", **fields}


def changes_of_state(case: Case, fault: Fault) -> tuple[Change, ...]:
    """What cures such a state by its kind, before what its part has."""
    found = _told(case, fault)
    if found is None:
        return ()
    made = _cure(case, *found)
    if made is not None:
        return (made,)
    inner = innermost(fault)
    own = inner is not None and says(inner.file, "call-of-vllm") and found[0].startswith(("torch-", "numpy-"))
    why = "vLLM's own code did not expect these tensors: a newer release may handle them"
    later = newer(case, fault, why) if own and found[0] != "torch-not-finite" else None
    return (*without_its_feature(case, fault), *((later,) if later is not None else ())) if own else ()


def _cure(case: Case, name: str, fields: dict[str, str]) -> Change | None:
    match name:
        case "torch-types-meet" | "torch-not-implemented":
            given = case.flags.get("dtype")
            why = "the type of weights and activations: one that this operation takes; auto is the checkpoint's own"
            to = "auto" if given not in {None, "auto"} else None
            return set_flag(case, "dtype", to, Direction.CHANGE, why)
        case "torch-no-operator" if says(fields["what"], "operator-of-vllm"):
            why = "vLLM's own operators are compiled for one kind of device: the wheel or image of this device has them"
            see = "python -c 'import vllm; print(vllm.__version__)'; pip list | grep -iE 'vllm|torch'"
            return thing(ChangeKind.PACKAGE, "wheel", Direction.CHANGE, why, command=see)
        case "torch-not-finite" if str(case.effective("dtype")).removeprefix("torch.") in {"float16", "half"}:
            why = "float16 ends at 65,504, and larger activations become inf; bfloat16 has the range of float32"
            return set_flag(case, "dtype", "bfloat16", Direction.CHANGE, why)
        case "torch-devices-meet" if {fields["a"], fields["b"]} & {"cpu"} and case.flags.get("cpu-offload-gb"):
            why = "a part of the weights stays in host memory; without it all of them lie on the card"
            return set_flag(case, "cpu-offload-gb", None, Direction.REMOVE, why)
        case "engine-not-pickled":
            why = (
                "the engine cannot be copied: a trainer copies a model that holds it for its reference (deepcopy), "
                "unless it trains an adapter (LoRA) or keeps no reference (beta=0); other programs make the engine "
                "where they use it"
            )
            see = "grep -rnE 'deepcopy|pickle|spawn|create_reference_model' PROGRAM.py"
            return thing(ChangeKind.OS, "program-settings", Direction.CHANGE, why, command=see)
        case "python-not-pickled" if not (case.run is not None and case.run.is_server):
            why = "the engine then runs in the program's own process, and nothing is sent to another one"
            return environment("VLLM_ENABLE_V1_MULTIPROCESSING", Direction.SET, why, to="0")
        case "python-keyword" | "python-argument-missing" if says(fields["what"], "class-that-others-write"):
            owner = fields["what"].partition(".")[0]
            why = (
                "vLLM calls this class as its own release has it: if the file that grep names is not vLLM's, install "
                "the release of that package that names this vLLM; if it is vLLM's, a newer vLLM may agree with itself"
            )
            see = f"grep -rl 'class {owner}\\b' $(python -c 'import site; print(*site.getsitepackages())')"
            to = f"the package that has the class {owner}"
            return thing(ChangeKind.PACKAGE, "foreign-package", Direction.CHANGE, why, to=to, command=see)
        case "raises-not-implemented":
            why = "vLLM's own code leaves this call unwritten: another release may have it, on V1's engine above all"
            return upgrade(case, why)
        case "kernel-operand-device" | "kernel-operand-layout" | "python-argument-twice":
            why = "no setting makes this call: it is a defect of the release or build; a newer one may not have it"
            return upgrade(case, why)
        case "torch-in-capture" if case.effective("enforce-eager") is not True:
            why = "vLLM then captures no graphs; decoding of small batches becomes slower"
            return set_flag(case, "enforce-eager", True, Direction.ADD, why)
        case "not-divided-over-ranks":
            whole, ranks = int(fields["a"]), int(fields["b"])
            fewer = max(gcd(whole, ranks), gcd(whole, 1 << (max(ranks, 1).bit_length() - 1)))
            why = f"that many ranks divide {whole} evenly; split the rest with --pipeline-parallel-size"
            return set_flag(case, "tensor-parallel-size", fewer, Direction.LOWER, why)
    return None
