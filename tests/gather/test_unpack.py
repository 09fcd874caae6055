"""What was packed comes out as it was, in each format, at sizes around each buffer; a cut file says so."""

import bz2
import gzip
import io
import lzma
import random
from collections.abc import Callable

import pytest

from vllm_doctor.gather.unpack import PIECE, compression, unpacked
from vllm_doctor.log.read.pieces import DamagedData

PACKED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
# That hardly packs (many reads of the packed text), and that packs to nothing (many pieces of one read).
DENSE = random.Random(1).randbytes(100_000)
TEXTS = {"empty": b"", "dense": DENSE, "sparse": b"a" * (3 * PIECE + 7), "a piece": b"b" * PIECE,
         "both": DENSE + b"c" * (2 * PIECE) + DENSE}  # fmt: skip


class _Source(io.BytesIO):
    """Bytes as a file that was opened gives them."""


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("text", TEXTS)
def test_it_comes_out_as_it_went_in(kind: str, text: str) -> None:
    data = PACKED[kind](TEXTS[text])
    assert compression(data) == kind
    for whole in (data, data * 2):  # `cat a.gz b.gz` is a file of both
        pieces = list(unpacked(_Source(whole), kind))
        assert b"".join(pieces) == TEXTS[text] * (len(whole) // len(data))
        assert all(len(piece) <= PIECE for piece in pieces)


@pytest.mark.parametrize("kind", PACKED)
def test_one_that_was_cut_is_damaged_behind_what_it_has(kind: str) -> None:
    data = PACKED[kind](TEXTS["both"])
    with pytest.raises(DamagedData):
        list(unpacked(_Source(data[:-20]), kind))
