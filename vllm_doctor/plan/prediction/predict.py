"""The prediction: each term of vLLM's start-up, in its order, and the outcome."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.families import LOADED, WEIGHED
from vllm_doctor.plan.model.quantization import Scheme
from vllm_doctor.plan.prediction.before_start import held_before_start, held_off, too_little_free
from vllm_doctor.plan.prediction.figures import Figures, Held, counts_all, figures_of, full, held_by
from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.prediction.points import UNDER_LOAD, doubtful, first_end
from vllm_doctor.plan.prediction.record import GIB, Prediction
from vllm_doctor.plan.prediction.run_out import points_of
from vllm_doctor.plan.prediction.stage import Stage, quantization
from vllm_doctor.plan.prediction.sums import start_terms
from vllm_doctor.plan.support import judge
from vllm_doctor.plan.terms.compiling import left_by_compiling
from vllm_doctor.plan.terms.host import host_use
from vllm_doctor.plan.terms.term import Term


def predict(
    a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None, known: KnownTerms | None = None
) -> Prediction:
    """Predict one start on equal cards. Raises as `stages`."""
    return whole_start(stages(a, s, gpu, total_gib, known))


def whole_start(results: Sequence[Prediction]) -> Prediction:
    """Of a start's stages the one that decides, with the range of them all."""
    binding = min(results, key=_room_of)
    ranges = [p.margin_gib for p in results if p.margin_gib is not None]
    if len(ranges) < 2:
        return binding
    # Each stage logs a pool of its own; the claimed range holds them all.
    return replace(binding, margin_gib=(min(r[0] for r in ranges), max(r[1] for r in ranges)))


def _room_of(stage: Prediction) -> tuple[bool, bool, float, float]:
    """The stage that decides comes first: one that fails, one in doubt, then the one whose memory holds the fewest
    blocks (v1/core/kv_cache_utils.py get_kv_cache_configs takes the least of all ranks)."""
    blocks = stage.gpu_blocks if stage.gpu_blocks is not None else 0
    return stage.outcome == "ok", stage.odds is None, blocks, stage.available_kv_gib or 0.0


def _asked_stages(a: Architecture, par: Parallel) -> list[int]:
    """The first stage, the last one, and of those between, which have neither embedding nor head, the one with most
    layers where it has more: what remains of an equal division goes to them (distributed/utils.py get_pp_indices)."""
    layers = par.stages(len(a.layers))
    between = max(range(par.pp), key=lambda i: layers[i])
    more = layers[between] > min(layers[0], layers[-1])
    return sorted({0, par.pp - 1, *([between] if more else [])})


def stages(  # noqa: PLR0917
    a: Architecture,
    s: Settings,
    gpu: Card | None,
    total_gib: float | None,
    known: KnownTerms | None = None,
    cards: tuple[Card, ...] = (),
) -> list[Prediction]:
    """The prediction of the first and of the last pipeline stage, and of the heaviest one between: one where there is
    one. `total_gib` is the card's memory as torch reports it; without it only the cache arithmetic of a known pool is
    given. `cards` are those of the stages where they differ, of which all are predicted then, and `gpu` is the least of
    them. Raises ConfigError for a broken quantization_config."""
    known, fmt = known or KnownTerms(), quantization(a, s)
    if len(cards) == s.parallel.pp:
        return [_one(a, _judged(a, s, card), card, card.total_gib, known, fmt, i) for i, card in enumerate(cards)]
    told = _judged(a, s, gpu)
    return [_one(a, told, gpu, total_gib, known, fmt, i) for i in _asked_stages(a, s.parallel)]


def _judged(a: Architecture, s: Settings, gpu: Card | None) -> Settings:
    """The launch with what the release refuses of it on this card."""
    told = judge(a, s, gpu)
    # What is said of a method here says more than that the option's table lacks it.
    judged = {"--quantization"} & {refusal.flag for refusal in told.refusals}
    return replace(
        s,
        refusals=(*(r for r in s.refusals if r.flag not in judged), *told.refusals),
        doubts=(*s.doubts, *told.doubts),
        depends=told.depends,
    )


def _outcome(  # noqa: PLR0917
    s: Settings, gpu: Card | None, total_gib: float | None, known: KnownTerms, f: Figures, held: Held, stage: Stage
) -> str:
    """What vLLM would end with before memory decides, or where nothing but the pool is known."""
    outcome = "rejected" if s.refusals else "unknown" if s.doubts else "ok"
    if outcome == "ok" and stage.pool is not None and f.available is not None and full(held):
        outcome = "kv-too-small"
    if total_gib is None or known.available_kv_gib is not None or counts_all(gpu):
        return outcome
    return "oom-weights" if outcome == "unknown" and f.weights > total_gib else outcome


# How much less the weights of a model type may be that is not known: experts without a gate have a third less.
_STRANGE_WEIGHTS = 0.35


def _unknown(  # noqa: PLR0917
    a: Architecture, s: Settings, gpu: Card | None, total: float, known: KnownTerms, f: Figures
) -> str:
    """What cannot be said, unless the weights alone are more than the card has."""
    strange = not a.known and a.model_type not in WEIGHED | LOADED and known.weights_gib is None
    off = _STRANGE_WEIGHTS if strange else 0.02
    least = f.weights * (1 - off)
    return "oom-weights" if least > total - held_before_start(s, gpu) + held_off(s, gpu) else "unknown"


def _one(  # noqa: PLR0917
    a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None, known: KnownTerms, fmt: Scheme, index: int
) -> Prediction:
    f, stage = figures_of(a, s, gpu, total_gib, known, fmt, index)
    if f.budget is not None and known.available_kv_gib is None:
        short = too_little_free(s, gpu, total_gib)
        s = s if short is None else replace(s, refusals=(*s.refusals, short))
    held = held_by(s, stage, f.available)
    host = host_use(s, gpu, stage.pool, stage.offloaded, f.available)
    outcome = _outcome(s, gpu, total_gib, known, f, held, stage)
    if outcome in {"ok", "kv-too-small"} and known.host_gib is not None and host.total_gib > known.host_gib:
        outcome = "oom-host"
    if outcome == "unknown" and total_gib is not None and known.available_kv_gib is None and f.budget is not None:
        outcome = _unknown(a, s, gpu, total_gib, known, f)
    checked = stage.checked
    needed = checked.needed(held.length) / GIB if checked is not None else 0.0
    odds: float | None = None
    doubt: str | None = None
    lacking: float | None = None
    if outcome in {"ok", "kv-too-small"} and total_gib is not None and known.available_kv_gib is None:
        points = points_of(s, gpu, total_gib, f, held, stage, needed)
        ends, odds = first_end(points)
        outcome, doubt = ends or "ok", doubtful(points) if odds is not None else None
        step = next((p for p in points if p.outcome == UNDER_LOAD), None)
        if step is not None and UNDER_LOAD in {outcome, doubt}:
            lacking = step.below - step.left
    return Prediction(
        outcome=outcome,
        odds=odds,
        doubtful=doubt,
        widest=max(f.spreads, key=lambda x: x.below + x.above, default=None),
        taken=start_terms(
            weights=f.weights,
            outside=f.rest,
            activation=f.active,
            graphs=f.captured,
            winner=stage.activation.winner,
            spreads=f.spreads,
            known=known,
        ),
        weights_gib=f.weights,
        non_torch_gib=f.rest,
        activation_gib=f.active,
        cudagraph_gib=f.captured.gib,
        cudagraph_budget_gib=f.charged,
        available_kv_gib=f.available,
        margin_gib=f.margin,
        kv_tokens=held.tokens,
        gpu_blocks=held.blocks,
        length=held.length,
        concurrency=held.concurrency,
        longest=held.longest,
        needed_kv_gib=needed,
        budget_gib=f.budget,
        total_gib=total_gib,
        terms=_terms(stage),
        pool=stage.pool,
        checked=checked,
        activation=stage.activation,
        settings=s,
        host=host,
        stage=index,
        staying_gib=stage.staying / GIB,
        lacking_gib=lacking,
    )


def _terms(stage: Stage) -> tuple[Term, ...]:
    more: list[Term] = []
    if stage.stranded:
        more.append(
            Term(
                "stranded while loading",
                stage.stranded,
                "gate and up minus down, of each layer's experts; missing once pool and graphs are there",
                "vLLM pull request 41268",
            )
        )
    if stage.staying:
        more.append(left_by_compiling(stage.staying))
    return (*stage.activation.terms, *more)
