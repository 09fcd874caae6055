"""Words of one thing stand near each other in any order, in any language that the lists have."""

from pathlib import Path

import pytest

from vllm_doctor.log import spoken
from vllm_doctor.log.spoken import spoken_near

LOG = Path(spoken.__file__).parent
# What the lists of words have, by language (spoken.json) and by row (catalogue/told.json).
_BYTES = 65_500

LACK = (("vram", "lack"), ("memory", "device", "lack"), ("memory-gone", "device"))


def _said(text: str, *rows: tuple[str, ...], before: str = "", behind: str = "", among: str = "") -> list[str]:
    return [text[first:last] for first, last in spoken_near(rows, text, before=before, behind=behind, among=among)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("der GPU-Speicher reicht nicht", "GPU-Speicher reicht nicht"),
        ("es reicht beim Laden der GPU-Speicher nicht", "reicht beim Laden der GPU-Speicher nicht"),
        ("mémoire insuffisante sur le GPU", "mémoire insuffisante sur le GPU"),
        ("brak pamięci na GPU", "brak pamięci na GPU"),
        ("нехватка видеопамяти", "нехватка видеопамяти"),
        ("加载时显存不足", "显存不足"),
        ("GPUのメモリが足りません", "GPUのメモリが足りませ"),
        ("GPU 메모리가 부족", "GPU 메모리가 부족"),
        ("onvoldoende GPU-geheugen", "onvoldoende GPU-geheugen"),
    ],
)
def test_a_lack_of_memory_is_told_in_any_order(text: str, said: str) -> None:
    assert said in _said(text, *LACK)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("die GPU ist neu, und der Speicher der Festplatte, die im Keller steht, reicht nicht", id="far"),
        pytest.param("GPU-Speicher\nreicht nicht", id="in two lines"),
        pytest.param("sinvram unvollständig", id="a part of a word"),
        pytest.param("VRAM: 24 GB", id="nothing lacks"),
    ],
)
def test_what_is_no_lack_of_memory_is_not_told(text: str) -> None:
    assert _said(text, *LACK) == []


@pytest.mark.parametrize(("text", "told"), [("40 users", True), ("at 3:40 users", False), ("0.40 users", False)])
def test_a_number_stands_alone(text: str, told: bool) -> None:
    assert bool(_said(text, ("request", "many"))) is told


def test_what_takes_it_back_stands_right_beside() -> None:
    rows = (("process", "other", "hold"),)
    assert _said("another process uses it", *rows, before="no")
    assert not _said("there is no other process that uses it", *rows, before="no")
    assert not _said("the model loads fine", ("load", "weights"), behind="well")
    assert _said("the model loads, and then all is fine", ("load", "weights"), behind="well")
    assert not _said("GPU \uba54\ubaa8\ub9ac 24GB, \ub514\uc2a4\ud06c \ubd80\uc871", *LACK, among="another-thing")


def test_the_lists_of_words_do_not_grow() -> None:
    """A miss is mended by what a sentence is made of; a word that comes in pays for itself with one that goes."""
    lists = (LOG / "spoken.json", LOG / "catalogue" / "told.json")
    assert sum(len(path.read_bytes()) for path in lists) <= _BYTES
