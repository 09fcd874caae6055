"""VD307: most requests are refused because prompt and answer together are longer than a request may be."""

from collections.abc import Sequence
from typing import NamedTuple

from vllm_doctor.log.match import Hit, first, read
from vllm_doctor.records.finding import Arithmetic, Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag, thing

# Fewer say nothing of the clients: anybody tries the limit once.
_ENOUGH = 3
# How the releases word it: to 0.10, 0.11 to 0.18, from 0.19 on, and a prompt that is too long by itself.
_ASKED = ("request-asked-0.10", "request-asked-0.11", "request-asked-0.19", "request-asked-prompt")


class RefusedTokens(NamedTuple):
    """Tokens of one refused request; `answer` is what it asked for at most, 0 where the prompt alone is too long."""

    limit: int
    prompt: int
    answer: int


def judge(case: Case) -> Outcome:
    """Were more requests refused for their length than answered, by a server that is well?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if run.root is not None:
        return NotHere("the log shows a failure that ended the run")
    if cut := run.all("prompt-over-limit"):
        return _unsplit(case, cut)
    refused, answered = run.all("request-too-long"), len(run.all("request-ok"))
    # One refusal may be told on several lines; uvicorn writes one a request, where its access log is on.
    count = min(len(refused), len(run.all("request-refused")) or len(refused))
    if count < _ENOUGH or count <= answered:
        return Clear(f"{count} requests were too long and refused; {answered} were answered")
    read = [asked for hit in refused if (asked := _asked(run.lines[hit.index].text)) is not None]
    return finding(
        RULE,
        severity=Severity.ADVICE,
        confidence=Confidence.CONFIRMED if read else Confidence.POSSIBLE,
        evidence=tuple(case.line(hit.index) for hit in refused[:2]),
        arithmetic=(
            Arithmetic("refused", count, "requests", f"{answered} were answered", run.log.source),
            *(
                Arithmetic("longest request", a.prompt + a.answer, "tokens", _sum(a), run.log.source)
                for a in sorted(read, key=lambda a: -a.prompt - a.answer)[:1]
            ),
        ),
        changes=_changes(case, read),
        refute="vLLM refuses the same requests when they ask for fewer tokens",
    )


def _unsplit(case: Case, cut: Sequence[Hit]) -> Finding:
    """V0 answers a prompt with nothing that is longer than a step where prompts are not split, or than a request."""
    longest = max(int(h.fields["prompt"]) for h in cut)
    limit = int(cut[-1].fields["limit"])
    allowed = case.count("max-model-len") or 0
    change = None
    if allowed > limit:
        why = (
            f"V0 does not split this prompt, so one step must hold all of it: the longest request has {allowed} tokens"
        )
        change = set_flag(case, "max-num-batched-tokens", allowed, Direction.RAISE, why)
    return finding(
        RULE,
        title=f"vLLM answered a prompt of {longest} tokens with no text: the limit is {limit}",
        severity=Severity.DEGRADED,
        evidence=(case.line(cut[0].index),),
        arithmetic=(Arithmetic("cut off", len(cut), "requests", "in what was read", "the log"),),
        changes=(change,),
        refute="the same prompt is answered",
    )


def _asked(text: str) -> RefusedTokens | None:
    limit = read("context-limit", text)
    told = first([text], *_ASKED)
    if limit is None or told is None:
        return None
    return RefusedTokens(int(limit["limit"]), int(told["prompt"]), int(told.get("answer", 0)))


def _sum(asked: RefusedTokens) -> str:
    return f"{asked.prompt} in the prompt + {asked.answer} asked for, of {asked.limit}"


def _changes(case: Case, read: list[RefusedTokens]) -> tuple[Change | None, ...]:
    """The client's limit where the prompts fit; a longer maximum where pool and model are known to hold it."""
    fitting = [a for a in read if a.answer and a.prompt < a.limit]
    tightest = min(fitting, key=lambda a: a.limit - a.prompt, default=None)
    client = tightest and thing(
        ChangeKind.OS,
        "max-tokens",
        Direction.LOWER,
        (
            f"lower max_tokens in the client: {tightest.limit} - {tightest.prompt} tokens of the prompt "
            "are left for the answer"
        ),
        before=tightest.answer,
        to=tightest.limit - tightest.prompt,
    )
    return (client, _longer(case, read))


def _longer(case: Case, read: list[RefusedTokens]) -> Change | None:
    needed = max((a.prompt + a.answer for a in read), default=0)
    pool = case.run.number("kv-size", "tokens") if case.run is not None else None
    context = _context(case)
    if context is None or pool is None or not (case.number("max-model-len") or 0) < needed <= min(context, pool):
        return None
    return set_flag(
        case,
        "max-model-len",
        needed,
        Direction.RAISE,
        f"the KV cache holds {pool:.0f} tokens, and the model's config allows {context} positions",
    )


def _context(case: Case) -> int | None:
    """The longest request of the model; None where its config is not known, or cannot be read."""
    if case.model_config is None:
        return None
    from vllm_doctor.plan.model.config_json import ConfigError, Section
    from vllm_doctor.plan.model.describe import describe

    try:
        return describe(Section(case.model_config)).context
    except ConfigError:
        return None


RULE = rule("VD307", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.MODEL_CONFIG}), judge=judge)
