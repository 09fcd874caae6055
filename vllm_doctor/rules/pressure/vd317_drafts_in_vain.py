"""VD317: the tokens that a draft proposes are hardly ever taken, by the server's own count."""

from vllm_doctor.log.match import Hit, says
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, json_with, set_flag

# Each line counts an interval of ten seconds; V0 counts since the start, so its last line is all.
_LINES, _OLD = 3, 1
# So many proposed tokens tell a rate of a tenth from one of a fifth.
_ENOUGH = 200
# Below a tenth a draft costs more than it saves: each proposed token is computed by the draft, and by the model again.
_TENTH = 0.1
_OPTION = "speculative-config"


def judge(case: Case) -> Outcome:
    """Did the model take less than a tenth of what was proposed to it at last?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    told, old = run.all("drafts")[-_LINES:], run.all("drafts-of-old")[-_OLD:]
    counted = told or old
    if not counted:
        return NotHere("the log counts no drafts")
    if run.root is not None or run.stopped is not None:
        return Clear("the service was ended")
    if any(line.level == "ERROR" and says(line.module or "", "module-of-connector") for line in run.lines):
        return Clear("a KV connector failed before, so the cache that the drafts read may be incomplete")
    accepted, drafted = (sum(int(hit.fields[name]) for hit in counted) for name in ("accepted", "drafted"))
    if drafted < _ENOUGH or any(_rate(hit) >= _TENTH for hit in counted):
        return Clear(f"{accepted} of {drafted} proposed tokens were taken")
    useful = _useful(counted[-1])
    return finding(
        RULE,
        title=f"Of {drafted:,} tokens that the draft proposed {accepted:,} were taken",
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=tuple(map(case.line, dict.fromkeys(hit.index for hit in counted))),
        arithmetic=(
            Arithmetic("taken", round(accepted / drafted * 100, 1), "%", f"{accepted} / {drafted}", run.log.source),
        ),
        changes=(_fewer(case, counted[-1], useful), _without(case, old=not told)),
        refute="the same load gets fewer tokens a second without a draft",
    )


def _rate(hit: Hit) -> float:
    return int(hit.fields["accepted"]) / max(int(hit.fields["drafted"]), 1)


def _useful(hit: Hit) -> int:
    """The first positions of a proposal that are taken often enough; a position is taken only after those before it."""
    rates = [float(rate) for rate in hit.fields.get("rates", "").split(", ") if rate]
    return sum(rate >= _TENTH for rate in rates)


def _fewer(case: Case, hit: Hit, useful: int) -> Change | None:
    if not useful:
        return None
    places = hit.fields["rates"].count(",") + 1
    why = (
        f"of {places} proposed tokens those after number {useful} are hardly ever taken, and the model computes all of "
        f"them: set num_speculative_tokens to {useful}"
    )
    to = json_with(case, _OPTION, {"num_speculative_tokens": useful}) if case.flag(_OPTION) is not None else None
    return set_flag(case, _OPTION, to, Direction.CHANGE, why)


def _without(case: Case, *, old: bool) -> Change | None:
    """V0's releases had the draft's model as an option of its own."""
    why = (
        "each step pays for the draft and gains nothing: serve without it, or with one that was trained for this very "
        "checkpoint; with hardly a token taken the draft is another model's, or this release computes it wrong"
    )
    return set_flag(case, "speculative-model" if old and _is_old(case) else _OPTION, None, Direction.REMOVE, why)


def _is_old(case: Case) -> bool:
    return case.has_flag(_OPTION) is None or case.flag("speculative-model") is not None


RULE = rule("VD317", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
