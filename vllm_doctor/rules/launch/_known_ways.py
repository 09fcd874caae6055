"""What other libraries say while a server starts, in words that no message of ours stands for, and what answers it."""

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules._items import limit
from vllm_doctor.rules._kernel import kind, other_kernel
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import set_flag, upgrade

# transformers, of the files beside the weights that a model with images, sound or video is read with.
_PROCESSOR = Pattern(
    r"(?:Can't load|Unrecognized) (?:(?:image |video )?processor|feature extractor)|preprocessor_config\.json"
)
# vLLM's loader of weights, of a tensor that its model has no place of that name or size for.
_TENSORS = Pattern(r"There is no module or parameter named|Attempted to load weight")
# transformers, of a folder and of a class that this release of it does not have.
_NO_TYPE = Pattern(r"Unrecognized model in .{0,1000}Should have a `model_type`")
_NO_TOKENIZER = Pattern(r"Tokenizer class \S+ does not exist or is not currently imported")
_CARD = Pattern(r"FlashInfer requires GPUs with")
_METRICS = Pattern(r"Duplicated timeseries in CollectorRegistry")
# Layers whose blocks differ in bytes: vLLM can lengthen a block, but only by whole multiples.
_PAGES = Pattern(r"page size of the layer is not divisible by the maximum page size")


def ways(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """The changes; empty where nothing follows from what was said."""
    if fault.crash is None:
        return ()
    said = fault.crash.root.message
    if _PROCESSOR.search(said):
        return _without_processor(case)
    if _METRICS.search(said):
        return _metrics_twice(case)
    if _PAGES.search(said):
        return _pages(case)
    if _NO_TYPE.search(said):
        why = "a folder whose config.json names its type: an adapter alone, or a folder of another format, has none"
        return (set_flag(case, "model", None, Direction.CHANGE, why),)
    if _NO_TOKENIZER.search(said):
        return (upgrade(case, "a release whose transformers has this tokenizer; it comes with vLLM"),)
    if _CARD.search(said):
        return other_kernel(case, fault) if kind(case, fault) is not None else ()
    if _TENSORS.search(said) or (fault.crash.root.kind == "KeyError" and "load_weights" in fault.functions[-3:]):
        why = f"the checkpoint has a tensor that this model's code has no place for ({said[:80]}): saved by another "
        why += "tool or in another layout; one that was made for this release"
        return (set_flag(case, "model", None, Direction.CHANGE, why), upgrade(case, "a release that reads this layout"))
    return ()


def _without_processor(case: Case) -> tuple[Change | None, ...]:
    """A checkpoint of the text part alone lacks what its images would be read with; one for them all has it."""
    text_only = set_flag(
        case, "language-model-only", True, Direction.ADD, "no image, video or sound is read then, and nothing for them"
    ) or set_flag(
        case, "limit-mm-per-prompt", limit(case, image=0, video=0), Direction.CHANGE, "where only text is sent"
    )
    why = "or a checkpoint with preprocessor_config.json: copy it from the model that this one was made of"
    return (text_only, set_flag(case, "model", None, Direction.CHANGE, why))


def _pages(case: Case) -> tuple[Change | None, ...]:
    """A cache type that packs some layers and not others, beside windows or states, makes such pages."""
    packed = case.effective("kv-cache-dtype") not in {None, "auto"}
    why = "this type makes blocks of the layers that it packs no multiple of the others'"
    return (
        set_flag(case, "kv-cache-dtype", None, Direction.REMOVE, why) if packed else None,
        upgrade(case, "a release that brings pages of such layers to one size"),
    )


def _metrics_twice(case: Case) -> tuple[Change | None, ...]:
    """Two parts of one process register the same name: two connectors of a kind, or two engines."""
    parts = case.effective("kv-transfer-config") is not None or "kv_" in str(case.flags)
    return (
        set_flag(
            case, "kv-transfer-config", None, Direction.CHANGE, "one connector of a kind: two count under one name"
        )
        if parts or case.launch is None
        else None,
        set_flag(case, "disable-log-stats", True, Direction.ADD, "no statistics, so nothing is registered"),
        upgrade(case, "a release in which each part has names of its own"),
    )
