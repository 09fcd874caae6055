"""Rows of the embedding: the fewest that 64 divides, and then the number of ranks."""

from itertools import pairwise

import pytest

from vllm_doctor.plan.question.ask import _farther
from vllm_doctor.plan.terms.matrices import padded_vocab


@pytest.mark.parametrize("tp", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 127, 128, 32_000, 50_257, 128_256, 151_936])
def test_no_row_fewer_and_none_more_than_needed(vocab: int, tp: int) -> None:
    by_64 = next(rows for rows in range(vocab, vocab + 64) if rows % 64 == 0)
    assert padded_vocab(vocab, tp) == next(rows for rows in range(by_64, by_64 + tp) if rows % tp == 0)


@pytest.mark.parametrize(("rises", "first", "last"), [(True, 0.91, 0.97), (False, 0.89, 0.31)])
def test_another_budget_is_looked_for_from_the_next_hundredth_on(*, rises: bool, first: float, last: float) -> None:
    steps = list(_farther("gpu-memory-utilization", 0.9, rises=rises, gpus=1))
    assert (steps[0], steps[-1]) == (first, last)
    assert all(abs(abs(b - a) - 0.01) < 1e-9 for a, b in pairwise(steps))
