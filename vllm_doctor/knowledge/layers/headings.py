"""The part that people name in the title of a report: headings.json, one row a part, asked in its order.

A title has a person's words ("EAGLE3 not working with TP=2"), where a layer's `said` has those of programs. A feature
that somebody turned on comes before what every server has, because a report that names it names it for a reason.
"""

from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.layers import Layer, layer_of, layers
from vllm_doctor.knowledge.pattern import compiled


class NamedPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part: `words` as people write them, the layer, its name where the layer's says too much, and for a component
    with a switch the path by which `switches.json` knows its calls. `told` is what goes wrong, where nothing ends."""

    words: str
    layer: str
    name: str = ""
    calls: str = ""
    told: str = ""

    @property
    def part(self) -> Layer:
        """The layer that it is of."""
        return next(one for one in layers() if one.id == self.layer)


def part_of_title(title: str) -> Layer | None:
    """The layer that a title names, in a person's words or in a program's."""
    named = named_in(title)
    return named.part if named is not None else layer_of((title,), ())


def named_in(title: str) -> NamedPart | None:
    """The part that a title names; None where it names none that is known. A name of code is several words."""
    words = f"{title}\n{title.replace('_', ' ')}"
    return next((row for row in named_parts() if compiled(f"(?ai){row.words}").search(words)), None)


@cache
def named_parts() -> tuple[NamedPart, ...]:
    """All of them, in the order in which they are asked."""
    return msgspec.json.decode(Path(__file__).with_name("headings.json").read_bytes(), type=tuple[NamedPart, ...])
