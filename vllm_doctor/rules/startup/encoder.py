"""VD113: the vision or audio encoder runs out of memory, while measured or while serving."""

from vllm_doctor.knowledge.stages import Stage
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Direction, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.registry import Clear, NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding, set_flag
from vllm_doctor.rules.startup._gate import exhausted, sums, tenants
from vllm_doctor.rules.startup._levers import fewer_tokens


def judge(case: Case) -> Outcome:
    """Was it the encoder that asked?"""
    oom = exhausted(case, Stage.PROFILE_ENCODER)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if tenants(oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    serving = oom.story.served(-1, oom.fault.index)
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD if serving else Severity.BLOCKS_START,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(*sums(oom.torch), *_items(case)),
        changes=(_fewer_items(case), fewer_tokens(case, oom.torch, measuring=not serving)),
        refute="it fails in the same frame with --limit-mm-per-prompt set to 0 for every modality",
    )


def _items(case: Case) -> tuple[Arithmetic, ...]:
    story = case.story
    hit = story.last("encoder-budget") if story is not None else None
    if hit is None:
        return ()
    what = f"{hit.fields['items']} {hit.fields['modality']} items of the largest size"
    return (Arithmetic("encoder budget", float(hit.fields["tokens"]), "tokens", what, "the log"),)


def _fewer_items(case: Case) -> Change | None:
    return set_flag(
        case,
        "limit-mm-per-prompt",
        '{"image": 1, "video": 0}',
        Direction.LOWER,
        "the measuring pass takes the largest items of every modality that is allowed; 0 for what is "
        "not used; --mm-processor-kwargs caps their size",
    )


RULE = Rule(
    code="VD113",
    slug="encoder-too-large",
    title="The encoder of images, video or sound does not fit",
    node="burst-encoder",
    cause=Cause.MM_ENCODER_TOO_LARGE,
    phase=Phase.MULTIMODAL_ENCODER,
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}),
    judge=judge,
)
