"""VD523: the checkpoint lacks a file, or has a tensor, that this release does not read."""

from vllm_doctor.knowledge.tensor_names import TensorName, tensor_name
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says, without
from vllm_doctor.log.traceback import Link
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.loading_weights import NARROWED, tensor_too_small
from vllm_doctor.rules.gates.named_fault import exception_line, named, severity, shown
from vllm_doctor.rules.gates.shared_memory import of_mapped_weights
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.other_release import newer
from vllm_doctor.rules.remedies.prompt_items import limit
from vllm_doctor.rules.say import finding, set_flag, thing, upgrade

_TENSORS = "The checkpoint has a tensor that this model's code does not read"
_SHAPES = "A tensor of the checkpoint has a shape that the code does not expect"
_SENT = "A trainer sends a weight that this model's code does not read"
_OF_OTHER_SIZE = "tensor-of-other-size"
_WITHOUT_PLACE = "tensor-without-place"
_NAMED = "pip show -v vllm | grep -i transformers; pip check"
_TITLES = {
    "processor-missing": "The checkpoint lacks the processor files for images or audio",
    "feature-extractor-missing": "The checkpoint lacks the processor files for images or audio",
    "model-type-missing": "The model's config.json names no model_type",
    "tokenizer-unknown": "The installed transformers lacks this checkpoint's tokenizer class",
    _WITHOUT_PLACE: _TENSORS,
    _OF_OTHER_SIZE: _SHAPES,
}


def judge(case: Case) -> Outcome:
    """Did it fail on what the checkpoint holds?"""
    fault = named(case, *_TITLES)
    known = next((i for i in _TITLES if isinstance(fault, Fault) and i in fault.ids), None)
    if isinstance(fault, Unseen):
        return fault
    if isinstance(fault, NotHere):
        root = case.root
        if root is not None and of_mapped_weights(case, root):
            return _page_lost(case, root)
        if root is None or root.ids - {NARROWED} or root.crash is None:
            return fault
        if _compares_shapes(root.crash.root) or tensor_too_small(root):
            known = _OF_OTHER_SIZE
        # Code that looks a tensor up by its name says no more than the name.
        elif root.crash.root.kind != "KeyError" or not _looks_a_tensor_up(root, root.crash.root):
            return fault
        fault = root
    return finding(
        RULE,
        title=_title(case, fault, known),
        detail=_said(case, fault, known) if _writer(case, fault, known) is not None else "",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_TITLES) if fault.ids else (exception_line(case, fault),),
        changes=_changes(case, fault, known),
        refute="another checkpoint of the same architecture fails in the same way",
    )


def _looks_a_tensor_up(fault: Fault, root: Link) -> bool:
    """Does the code that reads weights look for it? Where no call is left, the name tells of one that somebody else
    than the model's author wrote into a layer."""
    if "load_weights" in fault.functions[-3:]:
        return True
    bare = fault.crash is not None and not any(link.frames for link in fault.crash.links)
    return bare and says(root.message, "name-of-layers-tensor") and tensor_name(root.message) is not None


def _title(case: Case, fault: Fault, known: str | None) -> str:
    """Who wrote the tensor's name, else that the code does not know it."""
    writer = _writer(case, fault, known)
    if writer is not None:
        return writer.title
    if known:
        return _TITLES[known]
    return f"{_SENT if _sent_by_a_trainer(fault) else _TENSORS}: {_said(case, fault, None)}"


def _writer(case: Case, fault: Fault, known: str | None) -> TensorName | None:
    """Who writes such a name; None where the failure is about no name, or the name could be anybody's."""
    return tensor_name(_words(case, fault, known)) if known in {None, _WITHOUT_PLACE} else None


def _page_lost(case: Case, fault: Fault) -> Finding:
    """A file system that cannot give a page of a mapped file: a network's that lost the server, a disk that fails."""
    why = "reads each file whole, with an error that is told; a mapped page that cannot be read kills the process"
    there = "on a local disk, not on a network's; the kernel's lines of that minute say what the file system lost"
    look = "df -hT PATH; journalctl -k --since -1h | grep -iE 'nfs|lustre|I/O error|fuse|ceph'; ls -l PATH"
    return finding(
        RULE,
        title="A page of a mapped weights' file could not be read (SIGBUS)",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=(case.line(fault.index),),
        changes=(
            set_flag(case, "safetensors-load-strategy", "eager", Direction.SET, why),
            thing(ChangeKind.OS, "model-files", Direction.CHANGE, there, command=look),
        ),
        refute="`df /dev/shm` shows it full at the moment of the failure",
    )


def _compares_shapes(raised: Link) -> bool:
    """Is it a bare assertion that compares the shape of a weight that was read with that of the model's own?"""
    return raised.kind == "AssertionError" and bool(raised.frames) and says(raised.frames[-1].code, "compares-a-weight")


def _changes(case: Case, fault: Fault, known: str | None) -> tuple[Change | None, ...]:
    match known:
        case "processor-missing" | "feature-extractor-missing":
            return _without_processor(case)
        case "model-type-missing":
            why = "use a folder whose config.json names the model type; an adapter's config.json does not"
            return (set_flag(case, "model", None, Direction.CHANGE, why),)
        case "tokenizer-unknown":
            return (upgrade(case, "this release brings a transformers that has this tokenizer"),)
        case "tensor-of-other-size":
            why = (
                "the checkpoint's files disagree with its config.json, or with this release's code, on a shape: "
                "use a checkpoint that was saved or merged completely, in a quantization that this release reads"
            )
            return (
                set_flag(case, "model", None, Direction.CHANGE, why),
                upgrade(case, "a newer release may read this kind of checkpoint"),
            )
    said = _said(case, fault, known)
    writer = _writer(case, fault, known)
    sent = _sent_by_a_trainer(fault)
    if writer is not None and (told := writer.sent if sent else writer.answers):
        return changes_of(case, told, said)
    if sent:
        why = (
            f"the trainer sends a weight ({said}) under a name that vLLM's code of this model does not have: both take "
            "the names from Transformers, so use the release of it that this vLLM names"
        )
        return (
            thing(ChangeKind.PACKAGE, "transformers", Direction.CHANGE, why, command=_NAMED),
            upgrade(case, "a newer release may read the names that the trainer sends"),
        )
    if any(says(file, "call-of-drafts") for file in fault.files):
        why = f"the tensor is the draft's ({said}): use another draft model, saved for this release, or no draft model"
        return (
            set_flag(case, "speculative-config", None, Direction.CHANGE, why),
            upgrade(case, "this release may read this draft"),
        )
    why = f"use a checkpoint saved for this release: the model's code does not read a tensor of this one ({said})"
    # Checkpoints are published with the release that reads them: an older one is what is met most often.
    return (
        newer(case, fault, "a newer release may read the layout"),
        set_flag(case, "model", None, Direction.CHANGE, why),
    )


def _sent_by_a_trainer(fault: Fault) -> bool:
    """Did another program call the model's load_weights itself, with weights that are in no file?"""
    frames = fault.crash.root.frames if fault.crash is not None else ()
    others = [frame for frame in frames if not says(frame.file, "call-of-vllm")]
    return 0 < len(others) < len(frames) and says(others[-1].code, "code-gives-weights")


def _said(case: Case, fault: Fault, known: str | None) -> str:
    """The message's own words, or the name of the tensor that was looked up, as short as they are shown."""
    return excerpt.word(_words(case, fault, known))


def _words(case: Case, fault: Fault, known: str | None) -> str:
    """The same, whole: the class that has no place for a tensor stands behind the tensor's name."""
    hit = next((h for h in fault.hits if h.id == known), None)
    if hit is None or case.run is None:
        told = fault.crash.root.message.strip() if fault.crash is not None else ""
        return told.splitlines()[0].rstrip("`") if told else ""
    return without("exception-head", case.run.lines[hit.index].text)


def _without_processor(case: Case) -> tuple[Change | None, ...]:
    """A checkpoint of the text part alone lacks what its images would be read with; one for them all has it."""
    text_only = set_flag(
        case, "language-model-only", True, Direction.ADD, "vLLM then loads no image, video or audio processor"
    ) or set_flag(
        case, "limit-mm-per-prompt", limit(case, image=0, video=0), Direction.CHANGE, "if clients send only text"
    )
    why = "use a checkpoint with preprocessor_config.json: copy the file from the base model"
    return (text_only, set_flag(case, "model", None, Direction.CHANGE, why))


RULE = rule("VD523", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
