"""What a person's figures say by themselves: log/falls_short.py."""

import pytest

from vllm_doctor.log.falls_short import falls_short


@pytest.mark.parametrize(
    ("text", "free", "wanted", "total"),
    [
        ("only 2.6 GiB are free and it wants 9.7, of 121 GiB", 2.6, 9.7, 121.0),
        ("tried to allocate 512 MiB, 256 MiB are free", 0.25, 0.5, None),
        ("4.38 GiB \u5fc5\u8981\u3060\u304c 4.00 GiB \u3057\u304b\u306a\u3044", 4.0, 4.38, None),
        ("il reste 3,5 Gio libres et il en demande 21,5", 3.5, 21.5, None),
    ],
)
def test_each_size_has_the_part_of_the_word_beside_it(
    text: str, free: float, wanted: float, total: float | None
) -> None:
    short = falls_short(text)
    assert short is not None
    assert (short.free, short.wanted, short.total) == (free, wanted, total)


@pytest.mark.parametrize(
    "text",
    [
        "it needs 9 GiB and 20 GiB are free",
        "it uses 18 GiB, 6 GiB are free",
        "0.85 of 16 GB are free",
        "it needs 9 requests and 2 are free",
    ],
)
def test_room_that_suffices_and_what_is_no_size_tell_nothing(text: str) -> None:
    assert falls_short(text) is None
