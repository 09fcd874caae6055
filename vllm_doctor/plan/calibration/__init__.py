"""What drivers and libraries take outside torch's own memory: fitted to published starts, never the size of a tensor.

outside_torch.json has one cell for each kind of start, first match wins, with its fit; starts.json has the starts that
it was fitted to, with their addresses. `tools/refit.py` fits the cells anew and says how far a host was off that a
fit had not seen.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version

STARTS = Path(__file__).with_name("starts.json")
CELLS = Path(__file__).with_name("outside_torch.json")


class PublishedStart(msgspec.Struct, frozen=True, kw_only=True):
    """Memory outside torch of one published start, per GPU in GiB, without what the second runner keeps by design;
    of `starts` alike on one host the median. `derived`: the budget less the other terms, of which not all were logged.
    `link` and `capability` are None where the source does not say which card it was."""

    host: str
    release: str
    engine: str
    runner: str | None
    card: str | None
    link: str | None
    capability: float | None
    tp: int
    pp: int
    starts: int
    gib: float
    derived: bool
    source: str
    eager: bool = False

    @property
    def ranks(self) -> str:
        """How the model is split: the kind of cell that this start belongs to."""
        return split_starts(self.tp, self.pp)


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """`middle`, and `each` more for every tensor-parallel rank beyond two; `below` and `above` are how far a host that
    was not seen may lie from it, in nine of ten cases. `hosts` and `starts` it was fitted to, `error` the median of
    what it was off on hosts left out, None where there is one host."""

    middle: float
    each: float
    below: float
    above: float
    hosts: int
    starts: int
    error: float | None


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of start. None asks nothing: of `since` (first release) and `until` (first no longer), of the link, of
    `capability` (least, and first beyond), of the runner, of whether the launch is eager. `unit` is GiB, or a part of
    the card's memory."""

    name: str
    engine: str
    since: str | None
    until: str | None
    ranks: str
    link: str | None
    capability: tuple[float | None, float | None] | None
    runner: str | None
    by_ranks: bool
    unit: str
    fit: Fit | None
    eager: bool | None = None

    def of(  # noqa: PLR0917
        self,
        version: Version,
        engine: str,
        runner: str | None,
        ranks: str,
        link: str | None,
        capability: float | None,
        *,
        eager: bool,
    ) -> bool:
        """Is such a start of this kind?"""
        if self.eager not in {None, eager}:
            return False
        if (engine, ranks) != (self.engine, self.ranks):
            return False
        if self.since is not None and version < as_version(self.since):
            return False
        if self.until is not None and version >= as_version(self.until):
            return False
        if self.link not in {None, link} or self.runner not in {None, runner}:
            return False
        if self.capability is None:
            return True
        least, beyond = self.capability
        return (
            capability is not None
            and (least is None or capability >= least)
            and (beyond is None or capability < beyond)
        )


def split_starts(tp: int, pp: int) -> str:
    """Tensor parallel ranks, pipeline stages alone, or one card."""
    return "tensor" if tp > 1 else "stages" if pp > 1 else "one"


@cache
def cells() -> tuple[Cell, ...]:
    """The kinds of starts, the first that matches wins."""
    return tuple(msgspec.convert(json.loads(CELLS.read_text(encoding="utf-8")), list[Cell]))


def starts() -> tuple[PublishedStart, ...]:
    """The published starts that the cells are fitted to."""
    return tuple(msgspec.convert(json.loads(STARTS.read_text(encoding="utf-8")), list[PublishedStart]))
