"""A plan as JSON (the contract) and as text for a person at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card, template_for
from vllm_doctor.launch import quote
from vllm_doctor.launch.parse import LaunchLine
from vllm_doctor.launch.write import option, serve_words
from vllm_doctor.plan.advice.recommendation import Choice, Reason
from vllm_doctor.plan.advice.remedies import Remedy
from vllm_doctor.plan.advice.under_load import remedy_under_load
from vllm_doctor.plan.prediction.points import TOO_FEW_STATES, UNDER_LOAD
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.history import Difference
from vllm_doctor.plan.question.planner import Planner
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.plan_host import host_dict, host_lines

SCHEMA_VERSION = 1
_BAR = 56
# The share of the range's low end that one request must fill before its length is called the longest.
_FILLED = 0.95
_OUTCOMES = {
    "ok": "starts",
    "kv-too-small": "does not start: the KV cache cannot hold one request",
    TOO_FEW_STATES: "does not start: the KV cache has fewer blocks than --max-num-seqs, and each sequence takes one",
    "oom-profile": "does not start: out of memory in the profile run",
    "oom-weights": "does not start: the weights do not fit",
    "oom-cudagraph": "does not start: out of memory in graph capture or sampler warm-up",
    UNDER_LOAD: "starts, and runs out of memory in its first full step",
    "oom-host": "does not start: it needs more host memory than the host has",
    "rejected": "does not start: vLLM refuses the launch",
    "unknown": "cannot be predicted",
}


class Plan(msgspec.Struct, frozen=True):
    """All that a plan says. `remedies` and `hardware` are filled when the launch does not fit; `left` is what the
    choice does not touch."""

    planner: Planner
    predicted: Prediction
    choice: Choice | None
    remedies: Sequence[Remedy] = ()
    hardware: Sequence[tuple[Card, int, Prediction]] = ()
    left: Sequence[Reason] = ()
    four_bits: Prediction | None = None  # the recommended launch of such a checkpoint, where this one has none


def _round(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def predicted_figures(p: Prediction) -> dict[str, object]:
    """The `predicted` object: per GPU, GiB, in the words of vLLM's start-up log."""
    asked = p.outcome == "kv-too-small" or p.settings.auto_length
    return {
        "outcome": p.outcome,
        "verdict": p.verdict,
        "odds": _round(p.odds),
        "doubtful": p.doubtful,
        "under_load_lacks_gib": _round(p.lacking_gib),
        "weights_gib": _round(p.weights_gib, 3),
        "non_torch_gib": None if p.sizes_only else _round(p.non_torch_gib),
        "activation_gib": None if p.sizes_only else _round(p.activation_gib, 3),
        "cudagraph_gib": None if p.sizes_only else _round(p.cudagraph_gib),
        "cudagraph_budget_gib": None if p.sizes_only else _round(p.cudagraph_budget_gib),
        "available_kv_gib": _round(p.available_kv_gib) if p.pool is not None else None,
        "kv_tokens": p.kv_tokens,
        "gpu_blocks": p.gpu_blocks,
        "max_concurrency": None if p.concurrency is None else {"len": p.length, "x": _round(p.concurrency)},
        "estimated_max_len": p.longest if asked else None,
        "needed_kv_gib": _round(p.needed_kv_gib, 3),
    }


def _taken(p: Prediction) -> list[dict[str, object]]:
    """Each term of the sum: what it may be less and more by, and where the figure is from."""
    return [
        {
            "name": t.name,
            "value": _round(t.value, 3),
            "less": _round(t.below, 3),
            "more": _round(t.above, 3),
            "unit": t.unit,
            "source": t.source,
        }
        for t in p.taken
        if t.name == "weights" or not p.sizes_only
    ]


def _card(planner: Planner) -> dict[str, object]:
    """What the plan was made for, and the unit template that belongs to it."""
    name = None if planner.gpu is None else planner.gpu.name
    return {
        "name": name,
        "gpus": planner.gpus,
        "total_gib": _round(planner.total_gib, 3),
        "template": template_for(name),
    }


def _sums(reason: Reason) -> list[dict[str, object]]:
    return [
        {"name": s.name, "value": _round(s.value, 3), "unit": s.unit, "formula": s.formula, "source": s.source}
        for s in reason.arithmetic
    ]


def as_dict(plan: Plan) -> dict[str, object]:
    """The JSON of the contract."""
    p, c = plan.predicted, plan.choice
    margin = None if p.margin_gib is None else [_round(p.margin_gib[0]), _round(p.margin_gib[1])]
    return {
        "schema_version": SCHEMA_VERSION,
        "card": _card(plan.planner),
        "predicted": predicted_figures(p),
        "margin": {"available_kv_gib": margin},
        "under_load": _cured(plan),
        "host": host_dict(p, plan.planner.known.host_gib),
        "least_sure": None
        if p.widest is None
        else {
            "term": p.widest.term,
            "pool_less_gib": _round(p.widest.below),
            "pool_more_gib": _round(p.widest.above),
            "told_by": p.widest.told_by,
        },
        "terms": _taken(p),
        "refused": [
            {"flag": r.flag.removeprefix("--"), "found": r.found, "needed": r.needed} for r in p.settings.refusals
        ],
        "unknown": list(p.settings.doubts),
        "recommended": None
        if c is None
        else {
            "launch": c.launch,
            "env": {},
            "predicted": predicted_figures(c.predicted),
            "margin": {
                "available_kv_gib": None
                if c.predicted.margin_gib is None
                else [_round(x) for x in c.predicted.margin_gib]
            },
        },
        "because": []
        if c is None
        else [
            {
                "flag": r.flag,
                "why": r.why,
                "arithmetic": _sums(r),
            }
            for r in c.because
        ],
        "left": [{"flag": r.flag, "why": r.why, "arithmetic": _sums(r)} for r in plan.left],
        "remedies": [
            {
                "flag": r.flag,
                "to": r.value,
                "available_kv_gib": _round(r.pool_gib),
                "cost": r.cost,
                "with_max_model_len": r.length,
                "with_tensor_parallel_size": r.cards,
            }
            for r in plan.remedies
        ],
        "hardware": [
            {"gpu": g.name, "gpus": n, "available_kv_gib": _round(q.available_kv_gib)} for g, n, q in plan.hardware[:8]
        ],
        "notes": [*plan.planner.notes, *p.settings.notes],
    }


def _bars(planner: Planner, *, whole: bool) -> list[str]:
    """One bar for all GPUs that hold the same; the first stage, the heaviest one between and the last one where they
    differ. `whole` gives each part a line of its own."""
    bars = [_bar(p, _whose(p), whole=whole) for p in planner.stages()]
    lines = [line for bar in bars for line in bar]
    return ["", *lines] if lines else []


def _whose(p: Prediction) -> str:
    count, stages = p.settings.parallel.tp * p.settings.parallel.local, p.settings.parallel.pp
    each = "one GPU" if count == 1 else f"each of {count} GPUs"
    return each if stages == 1 else f"{each} of stage {p.stage + 1} of {stages}"


def _bar(p: Prediction, whose: str, *, whole: bool) -> list[str]:
    if p.total_gib is None or p.available_kv_gib is None:
        return []
    parts = [
        ("weights", p.weights_gib, "█"),
        ("non-torch", p.non_torch_gib or 0.0, "▓"),
        ("activation", p.activation_gib, "▒"),
        ("graphs", p.cudagraph_gib, "▞"),
        *([("KV cache", max(p.available_kv_gib, 0.0), "░")] if p.pool is not None else []),
    ]
    rest = p.total_gib - sum(size for _, size, _ in parts)
    parts.append(("free" if rest >= 0 else "missing", abs(rest), "·" if rest >= 0 else "!"))
    scale = _BAR / max(p.total_gib, sum(size for _, size, _ in parts[:-1]))
    drawn = "".join(mark * round(size * scale) for _, size, mark in parts)
    out = [f"  {whose}, {p.total_gib:.2f} GiB", f"  {drawn}"]
    if not whole:
        return [*out, "  " + "   ".join(f"{mark} {name} {size:.2f}" for name, size, mark in parts if size)]
    spans = {t.name: (t.value - t.below, t.value + t.above) for t in p.taken}
    spans["KV cache"] = p.margin_gib or (0.0, 0.0)
    for name, size, mark in parts:
        told = f"    {mark} {name:<12} {size:8.2f} GiB  {100 * size / p.total_gib:5.1f} %"
        out.append(told + (_span(*spans[name]) if name in spans else ""))
    return out


def _span(low: float, high: float) -> str:
    """From what to what a term may be, where that shows."""
    return f"   {max(low, 0.0):.2f} to {max(high, 0.0):.2f}" if high - low >= 0.01 else ""


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
    lines = ["", f"  each of these alone lets it start{with_}:"]
    options = [f"--{r.flag} {r.value}" for r in remedies]
    wide = max(map(len, options))
    told = zip(options, remedies, strict=True)
    return lines + [f"    {option:<{wide}}   KV cache {r.pool_gib:.2f} GiB; {r.cost}" for option, r in told]


def _instead(plan: Plan) -> str:
    """What to take where no launch of this checkpoint on these cards is good."""
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
        return ["", f"  no launch is recommended on these cards: {_instead(plan)}"]
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


def _held(p: Prediction) -> str:
    held = f"  holds    {p.concurrency or 0.0:.1f} requests of {p.length} tokens at once, {p.kv_tokens or 0:,} tokens"
    return held + _of_ranks(p)


def _of_ranks(p: Prediction) -> str:
    """Each data-parallel rank has a pool of its own."""
    count = p.settings.parallel.dp
    return f", in each of {count} data-parallel ranks" if count > 1 else ""


def _to_run(plan: Plan) -> list[str]:
    """The recommended launch as a line to paste, what it holds, and what is left of the pool at the low end."""
    c, planner = plan.choice, plan.planner
    if c is None or c.predicted.available_kv_gib is None:
        return []
    p, line = c.predicted, _line(planner, c)
    low = p.margin_gib[0] if p.margin_gib is not None else c.predicted.available_kv_gib
    each = " on each GPU" if p.settings.parallel.cards > 1 else ""
    return [
        *pasted(line, planner),
        *([_held(p)] if p.pool is not None else []),
        f"  spare    {low - p.needed_kv_gib:.2f} GiB{each} at the low end of the range",
        *_longest(plan, low),
    ]


def _differs(plan: Plan) -> bool:
    """Does the launch to paste stand above figures of another one?"""
    return plan.choice is not None and bool(_to_run(plan)) and _line(plan.planner, plan.choice) != plan.planner.line


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


def _line(planner: Planner, choice: Choice) -> LaunchLine:
    flags = {n: v if isinstance(v, bool) else str(v) for n, v in choice.launch.items()}
    kept = {n: v for n, v in planner.line.flags.items() if n not in choice.dropped}
    return replace(planner.line, flags={**kept, **flags})


def chosen(planner: Planner, bare: Prediction, choice: Choice) -> Planner:
    """The plan of the recommended launch, with a note of what the launch without its options does."""
    note = f"vllm serve {planner.line.model} alone {_verdict(bare)}"
    return replace(planner, line=_line(planner, choice), notes=(*planner.notes, note))


_MORE = "  more     --explain: every term of the memory with its range, and the reason for each option"
_LINE = 76  # with a backslash behind it, a line stands whole on 80 columns


def pasted(line: LaunchLine, planner: Planner) -> list[str]:
    """The launch in lines that a shell joins, an option never apart from its value."""
    set_, start = [f"{k}={v}" for k, v in line.env.items()], serve_words(replace(line, flags={}), planner.version)
    parts = [quote.words((*set_, *start)), *(quote.words(option(n, v, planner.version)) for n, v in line.flags.items())]
    out = [f"  run      {parts[0]}"]
    for part in parts[1:]:
        if len(out[-1]) + 1 + len(part) <= _LINE:
            out[-1] += f" {part}"
        else:
            out.append(f"             {part}")
    return [*(f"{each} \\" for each in out[:-1]), out[-1]]


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


# What may be missing, of each point at which a start ends.
_DOUBTS = {
    "oom-weights": "the weights may be larger than what is free",
    "oom-profile": "a full step may be larger than what is free beside the weights",
    UNDER_LOAD: "a full step may be larger than what is free beside the KV cache",
    "kv-too-small": "the memory that one request needs lies inside the range",
    TOO_FEW_STATES: "the blocks that --max-num-seqs sequences need for their states lie inside the range",
    "oom-cudagraph": "CUDA graphs, or the sampler's warm-up, may be larger than what the KV cache leaves free",
}


def _verdict(p: Prediction) -> str:
    if p.verdict == "uncertain":
        open_ = (
            "starts, and may end under load" if p.doubtful == UNDER_LOAD and p.outcome == "ok" else "may start or not"
        )
        return f"{open_}: {_DOUBTS[p.doubtful or 'kv-too-small']}"
    return _OUTCOMES[p.outcome]


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


def _cured(plan: Plan) -> dict[str, object] | None:
    """The same for programs."""
    if plan.predicted.lacking_gib is None:
        return None
    found = remedy_under_load(plan.planner, plan.predicted)
    return {
        "lacks_gib": _round(plan.predicted.lacking_gib),
        "flag": None if found is None else found.flag,
        "to": None if found is None else found.value,
        "available_kv_gib": None if found is None else _round(found.pool_gib),
    }


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
        return [f"  lacks    {-p.available_kv_gib:.2f} GiB before any KV cache{span}; {needs} of that cache"]
    span = "" if low == high else f"  (range {low:.2f} to {high:.2f})"
    return [f"  KV cache {p.available_kv_gib:.2f} GiB{span}; {needs}", *_next_start(p)]


# From what part of the pool on a second start's gain is told.
_TOLD_FROM = 0.02


def _next_start(p: Prediction) -> list[str]:
    """What the next start of this launch has more, which finds its code compiled."""
    if p.compiling_gib < _TOLD_FROM * (p.available_kv_gib or 0.0) or p.compiling_gib < 0.1:
        return []
    return [f"           the first start compiles; the next one has {p.compiling_gib:.2f} GiB more"]


def text(plan: Plan, *, explain: bool = False) -> str:
    """The plan for a person: outcome first, then figures, range, what to change, and the recommended launch with its
    reasons."""
    p, s = plan.predicted, plan.predicted.settings
    who = plan.planner.gpu.name if plan.planner.gpu is not None else "a card"
    lines = [
        f"vLLM {s.version} on {who}" + (f" × {plan.planner.gpus}" if plan.planner.gpus > 1 else "") + f": {_verdict(p)}"
    ]
    lines += _under_load(plan)
    lines += [f"  refused  {r}" for r in s.refusals]
    lines += [f"  unknown  {d}" for d in s.doubts]
    lines += _to_run(plan)
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
    lines += _bars(plan.planner, whole=explain)
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


def differences(found: Sequence[Difference], kept_in: str) -> str:
    """Planned beside logged, one term a line."""
    lines = [f"  {'term':<12} {'planned':>9} {'logged':>9} {'off':>8}   GiB"]
    lines += [f"  {d.term:<12} {d.planned:>9.2f} {d.logged:>9.2f} {d.off:>+8.2f}" for d in found]
    return (
        "\n".join([*lines, f"  kept in {kept_in}: the next plan of this launch on this host uses the logged terms"])
        + "\n"
    )


def _rank(row: tuple[str, int, Prediction | str]) -> tuple[int, float]:
    p = row[2]
    if isinstance(p, str):
        return 2, 0.0
    return (0, p.total_gib or 0.0) if p.verdict == "starts" else (1, -(p.available_kv_gib or 0.0))


def sweep(rows: Sequence[tuple[str, int, Prediction | str]]) -> str:
    """A table: one line for each card or model. A text instead of a prediction says why there is none."""
    head = f"{'':<44} {'cards':>5} {'outcome':<14} {'weights':>8} {'KV GiB':>8} {'range':>15} {'tokens':>11}"
    lines = [f"{head} {'× length':>9}"]
    # What starts comes first, the smallest card of them at the top.
    for name, count, p in sorted(rows, key=_rank):
        if isinstance(p, str):
            lines.append(f"{visible(name[:44]):<44} {count:>5} {visible(p)}")
            continue
        span = "" if p.margin_gib is None else f"{p.margin_gib[0]:.1f}..{p.margin_gib[1]:.1f}"
        pool = "" if p.available_kv_gib is None else f"{p.available_kv_gib:.2f}"
        shown = "uncertain" if p.verdict == "uncertain" else p.outcome
        lines.append(
            f"{visible(name[:44]):<44} {count:>5} {shown:<14} {p.weights_gib:>8.2f} {pool:>8} {span:>15} "
            f"{p.kv_tokens or 0:>11,} {p.concurrency or 0:>9.2f}"
        )
    return "\n".join(lines) + "\n"
