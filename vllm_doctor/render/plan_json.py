"""A plan as JSON: the contract."""

from __future__ import annotations

from vllm_doctor.knowledge.gpus import template_for
from vllm_doctor.launch import quote
from vllm_doctor.launch.write import serve_words
from vllm_doctor.plan.advice.recommendation import Choice, Reason
from vllm_doctor.plan.advice.under_load import remedy_under_load
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner
from vllm_doctor.render.plan_host import host_dict
from vllm_doctor.render.plan_launch import advised_launch
from vllm_doctor.render.plan_record import Plan
from vllm_doctor.render.speed import speed_dict

SCHEMA_VERSION = 1


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
        **({"by_stage": [card.name for card in planner.cards]} if planner.cards else {}),
    }


def _command(planner: Planner, choice: Choice) -> tuple[str, ...]:
    """The launch to paste, with what was asked and stays; `launch` has the options that are recommended alone."""
    line = advised_launch(planner, choice)
    return (*(f"{k}={v}" for k, v in line.env.items()), *serve_words(line, planner.version))


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
        "workload": {
            "requests": plan.work.concurrency,
            "held": _round(plan.requests_held[1]) if plan.requests_held is not None else None,
        },
        "speed": speed_dict(plan.speed),
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
        "depends_on": [str(d) for d in p.settings.depends],
        "recommended": None
        if c is None
        else {
            "launch": c.launch,
            "command": quote.words(_command(plan.planner, c)),
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
