"""How often drafts are taken where rejection is made up (config/speculative.py _resolve_synthetic_acceptance_rates;
read in 0.20.2 and 0.33.0, and there in each wheel from 0.20.0; a release before has no such keys)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from vllm_doctor.launch.parse import Refusal

_RATES, _LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"


def refusals(keys: Mapping[str, object]) -> Iterator[Refusal]:
    """The first thing that the release refuses of the rates, or of the length that they are made of."""
    rates, length, count = keys.get(_RATES), keys.get(_LENGTH), keys.get("num_speculative_tokens")
    if keys.get("rejection_sample_method") != "synthetic":
        return
    if (rates is None) == (length is None):
        found = "synthetic, with neither" if rates is None else f"{_RATES} beside {_LENGTH}"
        yield Refusal("--speculative-config", found, f"one of {_RATES} and {_LENGTH}")
        return
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return
    if _number(length) and not 1 <= float(str(length)) <= count + 1:
        yield Refusal("--speculative-config", f"{_LENGTH} {length}", f"from 1 to {count + 1}")
    if not isinstance(rates, list) or not all(map(_number, rates)):
        return
    given = [float(rate) for rate in rates]
    if len(given) != count:
        yield Refusal("--speculative-config", f"{_RATES} of {len(given)}", f"{count}, one for each drafted token")
    elif not all(0 <= rate <= 1 for rate in given):
        yield Refusal("--speculative-config", f"{_RATES} {rates}"[:60], "each from 0 to 1")
    elif any(later > earlier for earlier, later in pairwise(given)):
        yield Refusal("--speculative-config", f"{_RATES} {rates}"[:60], "none above the one before it")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
