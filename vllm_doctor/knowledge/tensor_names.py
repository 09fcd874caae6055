"""What the name of a tensor tells of the checkpoint that holds it: tensor_names.json, the more telling first.

PEFT, the quantizers and the wrappers of training each write names of their own, whatever the model. So a name that the
model's code does not know says which of them wrote it, and with that what is to be done.
"""

from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.pattern import compiled


class TensorName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`said` matches what a failure says of the tensor; `title` is the problem, `answers` what cures it where a file
    holds the tensor, and `sent` where a trainer sends it."""

    said: str
    title: str
    source: str
    answers: tuple[Answer, ...]
    sent: tuple[Answer, ...] = ()


@cache
def _names() -> tuple[TensorName, ...]:
    path = Path(__file__).with_name("tensor_names.json")
    return msgspec.json.decode(path.read_bytes(), type=tuple[TensorName, ...])


def tensor_name(said: str) -> TensorName | None:
    """Who writes such a name; None of one that could be anybody's."""
    return next((one for one in _names() if compiled(one.said).search(said)), None)
