"""What a start takes of the card, in the order of the log: each term with its unit, its source and its spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.prediction.spreads import OF_PASS, OF_WEIGHTS, OUTSIDE, Spread, range_of
from vllm_doctor.plan.terms.outside_torch import Estimate

_GIVEN = "given with the question"


class StartTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One term on one GPU: the predicted value, and how far below and above it the real one may lie."""

    name: str
    value: float
    below: float = 0.0
    above: float = 0.0
    unit: str = "GiB"
    source: str


def start_terms(
    *,
    weights: float,
    outside: float,
    activation: float,
    graphs: Estimate,
    winner: str,
    spreads: Sequence[Spread],
    known: KnownTerms,
) -> tuple[StartTerm, ...]:
    """The four terms, in GiB; `winner` is the step whose tensors are the peak."""
    return (
        _term(
            "weights",
            weights,
            (x for x in spreads if x.term in OF_WEIGHTS),
            "every tensor of the checkpoint as vLLM splits it (model_executor/layers)",
            given=known.weights_gib,
        ),
        _term(
            "non-torch",
            outside,
            (x for x in spreads if x.term == OUTSIDE),
            "published starts of this kind (plan/calibration/outside_torch.json)",
            given=known.non_torch_gib,
        ),
        _term(
            "activation",
            activation,
            (x for x in spreads if x.term in OF_PASS),
            f"{winner}: the largest tensors of the profile run (v1/worker/gpu_model_runner.py)",
            given=known.activation_gib,
        ),
        StartTerm(
            name="graphs",
            value=graphs.gib,
            below=graphs.below,
            above=graphs.above,
            source=_GIVEN
            if known.graphs_gib is not None
            else "measured starts: the number of captured sizes and layers (plan/terms/outside_torch.py)",
        ),
    )


def _term(name: str, value: float, spreads: Iterable[Spread], source: str, *, given: float | None) -> StartTerm:
    """What makes the pool smaller makes the term larger."""
    above, below = range_of(list(spreads))
    return StartTerm(name=name, value=value, below=below, above=above, source=source if given is None else _GIVEN)
