"""Which cards, and how many, reach a goal: for each card the fewest that start for certain and hold the requests, even
at the low end of the range; fewer still where weights or cache are kept in 8 bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card, find, names
from vllm_doctor.knowledge.versions import batch_defaults, flag
from vllm_doctor.launch.parse import LaunchLine
from vllm_doctor.plan.advice.formats import FormatOptions, computes_fp8_cache, formats
from vllm_doctor.plan.advice.recommendation import requests_held
from vllm_doctor.plan.launch.flags import SettingError
from vllm_doctor.plan.prediction.before_start import held_before_start
from vllm_doctor.plan.prediction.points import UNDER_LOAD
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.prediction.stage import quantizes_late
from vllm_doctor.plan.question.goal import Goal
from vllm_doctor.plan.question.planner import Planner, PlanProblem

# Parts of the card that are tried where the release's own leaves too little for what lies outside it.
_LESS = ("0.9", "0.87", "0.84", "0.8")
# Where no card does, so many of the largest are looked at.
_NEAR = 4


class SetUp(msgspec.Struct, frozen=True):
    """Some cards of one kind with a launch: what it predicts, the requests that the pool holds at the low end and in
    the middle of the range, and the price an hour of all cards where one was given."""

    card: Card
    count: int
    format: FormatOptions
    planner: Planner
    predicted: Prediction
    holds: tuple[float, float] | None  # None for a model without a cache
    missing_gib: float  # of one GPU, at the low end; 0 where the goal is reached
    price: float | None = None

    @property
    def memory_gib(self) -> float:
        """All cards' memory."""
        return self.count * (self.planner.total_gib or 0.0)

    @property
    def reaches(self) -> bool:
        """Does it start, and does it hold all requests of the goal?"""
        return self.predicted.verdict == "starts" and self.missing_gib <= 0.0


class SetUpAnswer(msgspec.Struct, frozen=True):
    """What reaches the goal, the cheapest first; else the nearest of all that was tried."""

    rows: tuple[SetUp, ...]
    nearest: SetUp | None


def set_ups(planner: Planner, goal: Goal, cards: tuple[Card, ...], prices: Mapping[str, float]) -> SetUpAnswer:
    """The answer for these cards, with at most `planner.gpus` of each. Raises PlanProblem for a request that the model
    does not take."""
    _refuse_longer(planner, goal)
    planner = _allowed(planner)
    found: list[SetUp] = []
    needs: dict[tuple[object, ...], float] = {}  # most cards are ruled out by what others of their kind needed
    ways = tuple(formats(planner))
    doubtful = planner.predict().settings.doubts  # of the model, whatever the card
    for card in () if doubtful else cards:
        rows = _fewest(planner, goal, card, ways, needs)
        found += [replace(x, price=None if card.name not in prices else prices[card.name] * x.count) for x in rows]
    if found:
        return SetUpAnswer(tuple(sorted(found, key=_cost)), None)
    nearest = [row for fmt in ways for row in _near(planner, goal, cards, fmt)]
    return SetUpAnswer((), max(nearest, key=_nearness, default=None))


def _near(planner: Planner, goal: Goal, cards: tuple[Card, ...], fmt: FormatOptions) -> Iterator[SetUp]:
    """The largest cards on which vLLM would run it, and those that are larger still."""
    runs = 0
    for card in sorted(cards, key=lambda c: -c.total_gib):
        row = _largest(planner, goal, card, fmt)
        if row is not None:
            yield row
            runs += row.predicted.outcome != "rejected"
        if runs == _NEAR:
            return


def cards_with_own_memory() -> tuple[Card, ...]:
    """All cards that have memory of their own."""
    found = (find(name) for name in names())
    return tuple(card for card in found if card is not None and not card.unified)


def _cost(row: SetUp) -> tuple[float, float, int, int, str]:
    paid = row.price if row.price is not None else 0.0
    return paid, row.memory_gib, row.count, len(row.format.options), row.card.name


def _nearness(row: SetUp) -> tuple[int, float]:
    """What vLLM would run comes before what it refuses; of those, what lacks least in all."""
    return {"rejected": 0, "unknown": 1}.get(row.predicted.outcome, 2), -row.missing_gib * row.count


def _allowed(planner: Planner) -> Planner:
    """The launch with the options beside which alone the release takes what is asked."""
    needed: dict[str, str | bool] = {one.beside: True for one in planner.settings().refusals if one.beside}
    return replace(planner, line=replace(planner.line, flags={**planner.line.flags, **needed}))


def _refuse_longer(planner: Planner, goal: Goal) -> None:
    asked = planner.settings({"max-model-len": str(goal.context)})
    for refusal in asked.refusals:
        if refusal.flag == "--max-model-len":
            raise PlanProblem(f"--goal: context is {goal.context}; needed: {refusal.needed}")


def _fewest(
    planner: Planner, goal: Goal, card: Card, ways: tuple[FormatOptions, ...], needs: dict[tuple[object, ...], float]
) -> list[SetUp]:
    """The fewest of these cards for each format; one that changes more than another has to save cards."""
    found: list[SetUp] = []
    for fmt in ways:
        if fmt.cache is not None and not computes_fp8_cache(planner.arch, card):
            continue
        below = min((row.count for row in found if row.format.plainer(fmt)), default=None)
        counts = [n for n in _counts(planner, card) if below is None or n < below]
        tried = (row for n in counts if (row := _tried(planner, goal, card, n, fmt=fmt, needs=needs)) is not None)
        row = next((x for x in tried if x.reaches), None)
        if row is not None:
            found.append(row)
    return found


def _counts(planner: Planner, card: Card) -> list[int]:
    """Numbers of cards that are tried: NCCL does not join MIG slices, and a notebook has one."""
    most = 1 if card.slice or card.alone else planner.gpus
    return sorted({most, *(n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most)})


def _tried(
    planner: Planner, goal: Goal, card: Card, count: int, *, fmt: FormatOptions, needs: dict[tuple[object, ...], float]
) -> SetUp | None:
    """The set-up of so many cards; None where their memory is less than weights and requests need."""
    step = batch_defaults(planner.version, card.total_gib, card.name, use_v1=True).tokens
    kind = (fmt, count, card.capability, step)  # a window keeps a step beside it
    row = _set_up(planner, goal, card, count, fmt) if needs.get(kind, 0.0) <= card.total_gib else None
    if row is None:
        return None
    latent = count > 1 and _keeps_latents(planner)
    if not latent:
        needs[kind] = _least(row, goal)
        return row
    if row.reaches:
        return row
    ranks = _set_up(planner, goal, card, count, fmt, data=True)
    if ranks is None:
        return row
    needs[kind] = min(_least(row, goal), _least(ranks, goal))
    return ranks if ranks.reaches else row


def _least(row: SetUp, goal: Goal) -> float:
    """GiB of one GPU without which no card of its kind reaches the goal: weights, and the requests of one rank."""
    p = row.predicted
    if p.pool is None:
        return p.weights_gib
    return p.weights_gib + goal.concurrency // p.settings.parallel.dp * p.needed_kv_gib


def _keeps_latents(planner: Planner) -> bool:
    """Does every tensor-parallel rank keep the same latents, so that data-parallel ranks, which share the experts, hold
    more requests?"""
    if planner.arch.mla is None or planner.arch.moe is None:
        return False
    fact = flag("enable-expert-parallel", planner.version)
    drafts = {"speculative-config", "speculative-model"} & planner.line.flags.keys()
    return fact is not None and fact.exists is True and not (drafts and planner.settings().speculative)


def _largest(planner: Planner, goal: Goal, card: Card, fmt: FormatOptions) -> SetUp | None:
    """The most of these cards on which vLLM would run it, else the most."""
    rows = (_set_up(planner, goal, card, count, fmt) for count in reversed(_counts(planner, card)))
    there = [row for row in rows if row is not None]
    return next((row for row in there if row.predicted.outcome != "rejected"), there[0] if there else None)


def _set_up(
    planner: Planner, goal: Goal, card: Card, count: int, fmt: FormatOptions, *, data: bool = False
) -> SetUp | None:
    """On so many cards, as tensor-parallel ranks or as data-parallel ones that share the experts; None where an option
    of the launch has no such value."""
    on = _on(planner, card, count)
    try:
        return _one(replace(on, line=_with(on.line, goal, count, fmt, data=data)), goal, card, fmt)
    except SettingError:
        return None


def _on(planner: Planner, card: Card, count: int) -> Planner:
    """The same launch there; where the card is the one that was asked about, with the memory that was given for it."""
    same = planner.gpu is not None and planner.gpu.name == card.name
    return replace(planner, gpus=count) if same else planner.on(card, count)


_SPREADS = frozenset(f"{kind}-parallel-size" for kind in ("tensor", "pipeline", "data"))


def _with(line: LaunchLine, goal: Goal, count: int, fmt: FormatOptions, *, data: bool) -> LaunchLine:
    flags = {n: v for n, v in line.flags.items() if n not in _SPREADS}
    each = ceil(goal.concurrency / count) if data else goal.concurrency
    flags |= {"max-model-len": str(goal.context), "max-num-seqs": str(each)}
    if count > 1:
        flags["data-parallel-size" if data else "tensor-parallel-size"] = str(count)
    if data:
        flags["enable-expert-parallel"] = True
    return replace(line, flags=flags | fmt.options)


def _one(planner: Planner, goal: Goal, card: Card, fmt: FormatOptions) -> SetUp:
    """The launch on these cards: as the release would run it, else with narrower or wider steps or less of the card."""
    planner, predicted = _split_otherwise(planner, planner.predict())
    refused = {r.flag for r in predicted.settings.refusals}
    if "--max-num-batched-tokens" in refused and "max-num-batched-tokens" not in planner.line.flags:
        planner = _flagged(planner, "max-num-batched-tokens", str(goal.concurrency))
        predicted = planner.predict()
        refused = {r.flag for r in predicted.settings.refusals}
    if "--dtype" in refused and "dtype" not in planner.line.flags:
        planner = _flagged(planner, "dtype", predicted.settings.dtype)
        predicted = planner.predict()
        refused = {r.flag for r in predicted.settings.refusals}
    outside = refused == {"--gpu-memory-utilization"} or predicted.outcome in {"oom-cudagraph", UNDER_LOAD}
    if outside and "gpu-memory-utilization" not in planner.line.flags:
        for less in _LESS:
            tried = _flagged(planner, "gpu-memory-utilization", less)
            then = tried.predict()
            if then.outcome == "ok":
                planner, predicted = tried, then
                break
    return _judged(planner, predicted, goal, card, fmt)


def _split_otherwise(planner: Planner, p: Prediction) -> tuple[Planner, Prediction]:
    """Where tensor parallelism does not divide the model among the cards: experts whole on each, else as few stages as
    there must be. No stages with a drafter: which releases take both was not looked up."""
    if not any(r.flag == "--tensor-parallel-size" for r in p.settings.refusals):
        return planner, p
    fact = flag("enable-expert-parallel", planner.version)
    if planner.arch.moe is not None and fact is not None and fact.exists and not p.settings.parallel.expert:
        whole = replace(
            planner, line=replace(planner.line, flags={**planner.line.flags, "enable-expert-parallel": True})
        )
        then = whole.predict()
        if not any("parallel" in r.flag for r in then.settings.refusals):
            return whole, then
    if p.settings.speculative:
        return planner, p
    for tp in (n for n in range(planner.gpus // 2, 0, -1) if planner.gpus % n == 0):
        flags = {**planner.line.flags, "pipeline-parallel-size": str(planner.gpus // tp)}
        flags |= {"tensor-parallel-size": str(tp)}
        staged = replace(planner, line=replace(planner.line, flags=flags))
        then = staged.predict()
        if not any("parallel-size" in r.flag for r in then.settings.refusals):
            return staged, then
    return planner, p


def _flagged(planner: Planner, name: str, value: str) -> Planner:
    return replace(planner, line=replace(planner.line, flags={**planner.line.flags, name: value}))


def _judged(planner: Planner, p: Prediction, goal: Goal, card: Card, fmt: FormatOptions) -> SetUp:
    low = p.margin_gib[0] if p.margin_gib is not None else p.available_kv_gib or 0.0
    held, missing = requests_held(p, goal.context), 0.0
    if held is not None:
        each = ceil(goal.concurrency / p.settings.parallel.dp)
        missing = 0.0 if held[0] >= goal.concurrency else max(0.01, each * p.needed_kv_gib - low)
    if quantizes_late(planner.arch, p.settings):
        missing = max(missing, _while_loading(planner, p))
    return SetUp(card, planner.gpus, fmt, planner, p, held, missing)


def _while_loading(planner: Planner, p: Prediction) -> float:
    """GiB that are missing where all weights lie on the GPU as they are stored before they are quantized."""
    stored = planner.predict({"quantization": None}).weights_gib
    free = (planner.total_gib or 0.0) - held_before_start(p.settings, planner.gpu) - (p.non_torch_gib or 0.0)
    return max(0.0, stored - free)
