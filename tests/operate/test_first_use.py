"""Memory that a server set aside becomes resident as it is first used: no leak, however steadily that goes."""

import pytest

from vllm_doctor.operate.history.slope import GIB, slope


def grown(hours: float, pace: float, limit: float) -> bool:
    """Whether that is told as growth: `pace` and `limit` in GiB, from 2 GiB on, a look a minute."""
    series = [(60.0 * at, (2 + pace * at / 60) * GIB) for at in range(int(hours * 60) + 1)]
    found = slope("host memory", series, limit * GIB)
    assert found is not None
    return found.sure


@pytest.mark.parametrize(
    ("hours", "pace", "limit", "sure"),
    [
        (1.1, 0.32, 19.7, False),  # the KV cache of a CPU build in its first hour of light load: two days are left
        (5.0, 0.32, 19.7, False),
        (6.5, 0.32, 19.7, True),  # by then it would have been used whole
        (1.1, 3.5, 19.7, True),  # full within five hours: nothing to wait for
    ],
)
def test_a_first_use_is_no_leak_and_what_is_urgent_does_not_wait(
    hours: float, pace: float, limit: float, sure: bool
) -> None:
    assert grown(hours, pace, limit) is sure
