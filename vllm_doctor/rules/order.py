"""Where each rule stands, from the table in ORDER.md: nothing of a rule's own module is imported for it."""

from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.records.verdict import Cause, Phase

# The finding that a rule itself failed; it is about us and has no row.
INTERNAL = "VD0001"
TABLE = Path(__file__).with_name("ORDER.md")
# The folder of each hundred of codes.
FAMILIES = {
    "0": "container",
    "1": "startup",
    "2": "burst",
    "3": "pressure",
    "4": "prefix",
    "5": "launch",
    "6": "host",
    "7": "platform",
    "8": "multigpu",
    "9": "live",
}
_LAST_RESORT, _PREVIEW = "last resort", "preview"


class OrderRow(msgspec.Struct, frozen=True):
    """One rule's row. Of two findings the one of the smaller `position` is the cause.

    `node` is the box of the flowchart, `also` are further phases in which the same cause is found. `refines` names the
    codes that this rule is the more exact answer to. A `fallback` counts only where no other rule fires; a `preview` is
    asked only where somebody asks for previews.
    """

    position: int
    code: str
    name: str
    node: str
    cause: Cause
    phase: Phase
    also: frozenset[Phase]
    refines: frozenset[str]
    fallback: bool
    preview: bool
    title: str

    @property
    def module(self) -> str:
        """The module that judges, where no row of by_message.toml does."""
        return f"vllm_doctor.rules.{self._family}.{self._stem}"

    @property
    def page(self) -> Path:
        """The file of its page."""
        return TABLE.parent / self._family / f"{self._stem}.md"

    @property
    def _family(self) -> str:
        return FAMILIES[self.code[2]]

    @property
    def _stem(self) -> str:
        return f"{self.code.lower()}_{self.name.replace('-', '_')}"


@cache
def rows() -> tuple[OrderRow, ...]:
    """Every rule's row, causes before what they explain. Raises ValueError for a row that the table may not hold."""
    return tuple(_row(position, row) for position, row in enumerate(_written(retired=False)))


class Retired(msgspec.Struct, frozen=True):
    """A code that no rule has any more, and the code that answers in its place (empty: none does)."""

    code: str
    release: str
    replaced_by: str
    title: str


@cache
def retired() -> dict[str, Retired]:
    """The codes that were given out once; none is ever given to another rule."""
    found = [Retired(*(cell.strip() for cell in row.strip("|").split("|"))) for row in _written(retired=True)]
    return {one.code: one for one in found}


def _written(*, retired: bool) -> list[str]:
    head, mark, below = TABLE.read_text(encoding="utf-8").partition("## Retired codes")
    return [row for row in (below if retired else head).splitlines() if mark and row.startswith("| VD")]


def _row(position: int, written: str) -> OrderRow:
    code, name, node, cause, phases, refines, asked, title = (cell.strip() for cell in written.strip("|").split("|"))
    if asked not in {"", _LAST_RESORT, _PREVIEW}:
        raise ValueError(f"{TABLE.name}: {code}: asked {asked!r}; needed: nothing, {_LAST_RESORT} or {_PREVIEW}")
    first, *others = phases.split(", ")
    return OrderRow(
        position=position,
        code=code,
        name=name,
        node=node,
        cause=Cause(cause),
        phase=Phase(first),
        also=frozenset(Phase(phase) for phase in others),
        refines=frozenset(filter(None, refines.split(", "))),
        fallback=asked == _LAST_RESORT,
        preview=asked == _PREVIEW,
        title=title,
    )


@cache
def by_code() -> dict[str, OrderRow]:
    """The rows by their codes."""
    return {row.code: row for row in sorted(rows(), key=lambda row: row.code)}
