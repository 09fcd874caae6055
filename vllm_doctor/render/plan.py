"""A plan as text for a person at a terminal."""

from __future__ import annotations

from vllm_doctor.launch import quote
from vllm_doctor.launch.write import option
from vllm_doctor.plan.advice.formats import FP8_BOTH
from vllm_doctor.plan.advice.recommendation import Choice
from vllm_doctor.plan.advice.under_load import remedy_under_load
from vllm_doctor.plan.prediction.points import TOO_FEW_STATES, UNDER_LOAD
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.plan_bars import bars_of
from vllm_doctor.render.plan_host import host_lines
from vllm_doctor.render.plan_launch import advised_launch, pasted
from vllm_doctor.render.plan_record import Plan
from vllm_doctor.render.plan_verdict import verdict_in_words
from vllm_doctor.render.speed import speed_lines

# The share of the range's low end that one request must fill before its length is called the longest.
_FILLED = 0.95


def _remedies(plan: Plan) -> list[str]:
    remedies = [r for r in plan.remedies if r.flag != "max-model-len" or not _shortened(plan)]
    if not remedies:
        return []
    first = remedies[0]
    beside = [
        *([] if first.cards is None else [f"--tensor-parallel-size {first.cards}"]),
        *([] if first.length is None else [f"--max-model-len {first.length}"]),
    ]
    with_ = f", each with {' '.join(beside)}" if beside else ""
    if first.length is not None and plan.work.context is not None and first.length < plan.work.context:
        with_ += f", less than the workload's {plan.work.context} tokens"
    lines = ["", f"  each of these alone lets it start{with_}:"]
    version = plan.planner.version
    options = [quote.words(option(r.flag, r.value == "true" or r.value, version)) for r in remedies]
    wide = max(map(len, options))
    told = zip(options, remedies, strict=True)
    return lines + [f"    {option:<{wide}}   KV cache {r.pool_gib:.2f} GiB; {r.cost}" for option, r in told]


def _instead(plan: Plan) -> str:
    """What to take where no launch of this checkpoint on these cards is good."""
    refused = {r.flag for r in plan.predicted.settings.refusals}
    if "--gpu" in refused:
        return "use others"
    if "quantization_config" in refused:
        return "use others, or a checkpoint in another format"
    four = plan.four_bits
    if four is None:
        return "use others, or a smaller or more quantized checkpoint"
    length = f", for requests of up to {four.length} tokens" if four.length < plan.predicted.length else ""
    return f"use others, or a checkpoint in 4 bits, whose weights take {four.weights_gib:.2f} GiB of each{length}"


def _recommended(plan: Plan, *, explain: bool) -> list[str]:
    c = plan.choice
    if c is None:
        if plan.predicted.total_gib is None or plan.predicted.outcome in {"unknown", "oom-host"}:
            return []
        if plan.predicted.sizes_only:
            return []
        goal = [f"  {_goal(plan)} names cards and formats that hold the workload"] if plan.work.context else []
        return ["", f"  no launch is recommended on these cards: {_instead(plan)}", *goal]
    if not explain and _to_run(plan):
        return []  # the launch to paste stands above; its reasons are for who asks
    lines = ["", "  recommended"]
    for r in c.because:
        value = "" if c.launch.get(r.flag) is True else c.launch.get(r.flag)
        lines += [f"    --{r.flag} {value}".rstrip(), f"        {r.why}"]
        if explain:
            lines += [f"        {x.name} = {x.value:.2f} {x.unit}: {x.formula}  [{x.source}]" for x in r.arithmetic]
    if c.predicted.available_kv_gib is not None and c.predicted.kv_tokens is not None:
        lines.append(
            f"    gives {c.predicted.available_kv_gib:.2f} GiB of KV: {c.predicted.kv_tokens:,} tokens, "
            f"{c.predicted.concurrency or 0:.2f} × {c.predicted.length}"
        )
    if plan.left and explain:
        lines += ["", "  left as it is, because a change costs accuracy or speed"]
        lines += [f"    --{r.flag}: {r.why}" for r in plan.left]
    return lines


def _held(p: Prediction) -> list[str]:
    """Requests at once, of which the scheduler runs no more than the launch says, whatever the cache has room for."""
    fits, seqs = p.concurrency or 0.0, p.settings.seqs
    count = f"{fits:.1f}" if int(fits) <= seqs else f"{seqs}"
    held = f"  holds    {count} requests of {p.length} tokens at once, {p.kv_tokens or 0:,} tokens{_of_ranks(p)}"
    if int(fits) <= seqs:
        return [held]
    return [held, f"           --max-num-seqs runs no more; the KV cache alone has room for {fits:.1f}"]


def _too_short(plan: Plan) -> str | None:
    """What is said of a request of the workload's length, where the launch to paste takes shorter ones alone."""
    work, length = plan.work, plan.told.length
    if work.context is None or work.mean_tokens is not None or length >= work.context:
        return None
    return f"of the workload's {work.context} tokens it takes {length}: a longer request is refused"


def _too_few(plan: Plan) -> tuple[str, bool] | None:
    """What is said of the workload's requests at once, and whether the launch to paste holds them in the middle of
    the range; None where it does at the low end too."""
    held, requests = plan.requests_held, plan.work.concurrency
    if held is None or requests is None or held[0] >= requests:
        return None
    likely = held[1] >= requests
    count = f"{min(held[0] if likely else held[1], requests - 0.01):.2f}" + (" at the low end" if likely else "")
    return f"of the workload's {requests} requests at once it holds {count}: the others wait, or are preempted", likely


def _short(plan: Plan) -> list[str]:
    """What of the workload the launch to paste does not hold, and what finds cards that do."""
    few = _too_few(plan)
    lines = [line for line in (_too_short(plan), few[0] if few is not None else None) if line is not None]
    if not lines:
        return []
    return [
        *(f"  {'short' if n == 0 else '':<8} {line}" for n, line in enumerate(lines)),
        f"           {_goal(plan)} names cards that hold it all",
    ]


def _of_workload(plan: Plan) -> str:
    """The end of the first line, where the launch starts and does not hold, or may not hold, the workload."""
    few = _too_few(plan)
    if plan.predicted.verdict != "starts" or (few is None and _too_short(plan) is None):
        return ""
    return f", but {'may' if few is not None and few[1] and _too_short(plan) is None else 'does'} not hold the workload"


def _goal(plan: Plan) -> str:
    """The question that finds cards and formats for the workload."""
    work = plan.work
    return f"--goal context={work.context or work.mean_tokens},concurrency={work.concurrency or 1}"


def _of_ranks(p: Prediction) -> str:
    """Each data-parallel rank has a pool of its own."""
    count = p.settings.parallel.dp
    return f", in each of {count} data-parallel ranks" if count > 1 else ""


def _to_run(plan: Plan) -> list[str]:
    """The recommended launch as a line to paste, what it holds, and what is left of the pool at the low end."""
    c, planner = plan.choice, plan.planner
    if c is None or c.predicted.available_kv_gib is None:
        return []
    p, line = c.predicted, advised_launch(planner, c)
    low = p.margin_gib[0] if p.margin_gib is not None else c.predicted.available_kv_gib
    each = " on each GPU" if p.settings.parallel.cards > 1 else ""
    return [
        *pasted(line, planner),
        *(_held(p) if p.pool is not None else []),
        *_accuracy(c),
        *_unused(plan, p),
        *_short(plan),
        f"  spare    {low - p.needed_kv_gib:.2f} GiB{each} at the low end of the range",
        *_longest(plan, low),
    ]


def _accuracy(c: Choice) -> list[str]:
    """What the launch to paste keeps in 8 bits, and the one that was asked does not."""
    options = [f"--{name} {value}" for name, value in FP8_BOTH.options.items() if c.launch.get(name) == value]
    return [f"  costs    some accuracy: {' '.join(options)}"] if options else []


def _unused(plan: Plan, p: Prediction) -> list[str]:
    """Cards of the host that the launch to paste leaves idle."""
    gpus = plan.planner.gpus
    idle = gpus - p.settings.parallel.cards
    if idle <= 0:
        return []
    why = (
        "these hold the workload"
        if plan.work.concurrency is not None and _too_few(plan) is None
        else "--context and --concurrency say what the launch must hold"
        if plan.work.concurrency is None
        else "one copy of the model gains nothing by them; another copy (data parallel) does"
    )
    return [f"  unused   {idle} of the {gpus} GPUs: {why}"]


def _differs(plan: Plan) -> bool:
    """Does the launch to paste stand above figures of another one?"""
    return (
        plan.choice is not None
        and bool(_to_run(plan))
        and advised_launch(plan.planner, plan.choice) != plan.planner.line
    )


def _shortened(plan: Plan) -> bool:
    """Does memory alone set the recommended launch's length? Then that length is the one that is told."""
    if plan.choice is None or plan.choice.predicted.margin_gib is None:
        return False
    p, low, asked = plan.choice.predicted, plan.choice.predicted.margin_gib[0], plan.predicted
    if (p.settings.parallel, p.settings.kv_dtype) != (asked.settings.parallel, asked.settings.kv_dtype):
        return False
    return p.length < asked.length and _FILLED * low <= p.needed_kv_gib <= low < asked.needed_kv_gib


def _longest(plan: Plan, low: float) -> list[str]:
    """The longest context that these cards surely hold, and why no longer one."""
    if not _shortened(plan) or plan.choice is None:
        return []
    length, asked = plan.choice.predicted.length, plan.predicted
    why = f"one such request fills the {low:.2f} GiB of the range's low end; one of {asked.length} needs"
    return [f"  longest  {length} tokens: {why} {asked.needed_kv_gib:.2f}"]


_MORE = "  more     --explain: every term of the memory with its range, and the reason for each option"


def _sizes(p: Prediction) -> list[str]:
    """What is known of a device that runs another build: weights, what they leave, and what a request needs."""
    if not p.sizes_only or p.total_gib is None:
        return []
    each = "each" if p.settings.parallel.cards > 1 else "the"
    left = p.total_gib - p.weights_gib
    lines = [
        f"  weights  {p.weights_gib:.2f} of {each} device's {p.total_gib:g} GiB, {max(left, 0.0):.2f} left for all else"
    ]
    if p.pool is not None:
        lines.append(
            f"  KV cache one request of {p.length} tokens needs {p.needed_kv_gib:.2f} GiB of that; 1 GiB holds "
            f"{p.pool.tokens(p.pool.blocks(2**30), p.length):,} tokens"
        )
    return lines


def _uncertain(p: Prediction) -> list[str]:
    """How likely it starts, and what would tell."""
    if p.odds is None:
        return []
    does = "serves" if p.doubtful == UNDER_LOAD else "starts"
    told = f"{does}    in about {max(5, min(95, round(p.odds * 20) * 5))} of 100 such cases"
    widest = p.widest if p.doubtful in {None, "kv-too-small", TOO_FEW_STATES} else None
    if widest is not None:
        told += f"; least sure is {widest.term}, {widest.above:.2f} less to {widest.below:.2f} GiB more"
    pool = p.doubtful in {"kv-too-small", TOO_FEW_STATES}
    beside = (
        "the recommended launch starts in either case"
        if pool
        else "a lower --gpu-memory-utilization leaves more for it"
    )
    fact = [] if widest is None else [f"            {widest.told_by}"]
    return [
        f"  {told}",
        *fact,
        f"            --learn START.LOG settles it after one start; {beside}",
    ]


def _under_load(plan: Plan) -> list[str]:
    """What the first full step lacks, and the value that leaves it that."""
    p = plan.predicted
    if p.lacking_gib is None:
        return []
    lacks = f"  lacks    {p.lacking_gib:.2f} GiB for a step of {p.settings.batched} tokens beside the KV cache"
    found = remedy_under_load(plan.planner, p)
    if found is None:
        return [lacks]
    return [
        f"{lacks}:",
        f"           --{found.flag} {found.value} leaves that, with {found.pool_gib:.2f} GiB of KV cache",
    ]


def _later(p: Prediction) -> list[str]:
    """Of a launch that starts and ends later: why its start does not show that, and what is not in the sum."""
    if p.lacking_gib is None:
        return []
    scores = ", and log-probabilities of a whole batch" if p.settings.engine == "V0" else ""
    return [
        "    vLLM starts because it fills no step before the first prompts do; prompts of a whole step end it",
        f"    not in this sum: images beside that step{scores}",
    ]


def _least_sure(p: Prediction) -> list[str]:
    """The term that widens the range most, and what would tell."""
    if p.widest is None:
        return []
    wide = f"the KV cache may be {p.widest.below:.2f} GiB smaller or {p.widest.above:.2f} larger by it"
    return [f"    least sure: {p.widest.term}; {wide}", f"        settled by {p.widest.told_by}"]


def _cache(p: Prediction) -> list[str]:
    """The memory that is left for the KV cache with its range, or by how much the launch exceeds what it may take."""
    if p.available_kv_gib is None:
        return []
    if p.pool is None:
        return ["  KV cache none: the model keeps nothing between steps, and vLLM takes no memory for it"]
    low, high = p.margin_gib or (p.available_kv_gib, p.available_kv_gib)
    needs = f"one request of {p.length} tokens needs {p.needed_kv_gib:.2f} GiB"
    if p.available_kv_gib < 0:
        span = "" if low == high else f"  (range {max(-high, 0.0):.2f} to {-low:.2f})"
        lacks = f"  lacks    {-p.available_kv_gib:.2f} GiB before any KV cache{span}; {needs} of that cache"
        return [lacks, *_budget(p)]
    span = "" if low == high else f"  (range {low:.2f} to {high:.2f})"
    return [f"  KV cache {p.available_kv_gib:.2f} GiB{span}; {needs}", *_next_start(p)]


def _budget(p: Prediction) -> list[str]:
    """How much of the card the launch may take, where that is not all of it: what lacks is counted of that."""
    if p.total_gib is None or p.budget_gib is None or p.budget_gib >= p.total_gib:
        return []
    part = f"{p.budget_gib:.2f} of the card's {p.total_gib:.2f} GiB"
    return [f"           --gpu-memory-utilization {p.settings.utilization:g} lets it take {part}"]


# From what part of the pool on a second start's gain is told.
_TOLD_FROM = 0.02


def _next_start(p: Prediction) -> list[str]:
    """What the next start of this launch has more, which finds its code compiled."""
    if p.compiling_gib < _TOLD_FROM * (p.available_kv_gib or 0.0) or p.compiling_gib < 0.1:
        return []
    return [f"           the first start compiles; the next one has {p.compiling_gib:.2f} GiB more"]


def _cards(planner: Planner) -> str:
    if planner.cards:
        each = planner.gpus // len(planner.cards)
        return " and ".join(card.name + (f" × {each}" if each > 1 else "") for card in planner.cards)
    who = planner.gpu.name if planner.gpu is not None else "a card"
    return who + (f" × {planner.gpus}" if planner.gpus > 1 else "")


def text(plan: Plan, *, explain: bool = False) -> str:
    """The plan for a person: outcome first, then figures, range, what to change, and the recommended launch with its
    reasons."""
    p, s = plan.predicted, plan.predicted.settings
    lines = [
        f"vLLM {s.version} on {_cards(plan.planner)}"
        + (f" on each of {s.parallel.hosts} hosts" if s.parallel.hosts > 1 else "")
        + f": {verdict_in_words(p)}"
        + _of_workload(plan)
    ]
    lines += _under_load(plan)
    lines += [f"  refused  {r}" for r in s.refusals]
    lines += [f"  unknown  {d}" for d in s.doubts]
    lines += [f"  depends  on {d}" for d in s.depends]
    lines += _to_run(plan)
    lines += speed_lines(plan.speed)
    lines += _sizes(p)
    if p.available_kv_gib is not None:
        lines += ["  the figures below describe the launch as asked, without the recommended changes"] * _differs(plan)
        lines += _cache(p)
        # The recommended launch's are told above; where it is the one that was asked, they are these.
        if p.kv_tokens is not None and p.concurrency is not None and (_differs(plan) or not _to_run(plan)):
            lines.append(
                f"           {p.kv_tokens:,} tokens, {p.concurrency:.2f} requests of {p.length} tokens at once"
                + _of_ranks(p)
            )
        if p.outcome == "kv-too-small" and not _shortened(plan):
            lines.append(f"           the longest request that fits: {p.longest or 0} tokens")
        if TOO_FEW_STATES in {p.outcome, p.doubtful}:
            taken = f"each of --max-num-seqs {p.settings.seqs} sequences takes one for its state"
            lines.append(f"           {p.gpu_blocks} blocks; {taken}")
        lines += _uncertain(p)
    lines += host_lines(p, plan.planner.known.host_gib, explain=explain)
    lines += bars_of(plan.planner, whole=explain)
    if explain:
        lines.append("")
        lines += [f"    {t.bytes / 2**30:7.2f} GiB  {t.name}: {t.formula}  [{t.source}]" for t in p.terms]
        lines += _least_sure(p)
        lines += _later(p)
    lines += _remedies(plan)
    if plan.hardware:
        lines += ["", "  cards that hold it as asked: " + ", ".join(f"{n} × {g.name}" for g, n, _ in plan.hardware[:8])]
    lines += _recommended(plan, explain=explain)
    if not explain and p.available_kv_gib is not None:
        lines += ["", _MORE]
    notes = [*plan.planner.notes, *s.notes]
    if notes:
        lines += ["", *(f"  note: {n}" for n in notes)]
    return "\n".join(visible(line) for line in lines) + "\n"
