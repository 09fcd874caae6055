#!/usr/bin/env python3
"""Fit the memory outside torch anew, and say how far the fit is off on a host that it has not seen.

    tools/refit.py            print each cell's fit and its errors with one host left out
    tools/refit.py --write    also keep the fits in vllm_doctor/plan/calibration/outside_torch.json

The middle is the median of the hosts' medians, so a host with many starts counts once; where a cell goes by ranks it
is a line through them. A host that is left out shows how far an unseen one may be off; where a cell has few hosts the
range takes its width from all cells: a part of the root of the middle, over the number of hosts. That part is the
least one with which nine of ten left-out hosts lie inside the range, without the first engine before 0.6.4, whose
figures hold blocks that torch keeps and say nothing of how hosts differ elsewhere. One host alone says nothing of how
hosts differ: its range reaches to what the same ranks and link take in other releases.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import median

import msgspec

from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.plan.calibration import CELLS, Cell, Fit, PublishedStart, cells, starts
from vllm_doctor.plan.terms.outside_torch import COUNTS_APART

# A figure in a log has two decimals, and ranks of one start differ by some hundredths.
_ROUNDING = 0.03
# A kernel more or less that is loaded: what separates hosts even where the middle is next to nothing.
_LEAST = 0.1
_QUARTER = 0.25
_COVERED = 0.9
_PARTS = tuple(n / 20 for n in range(61))


def _matches(cell: Cell, row: PublishedStart) -> bool:
    runner = row.runner or cell.runner
    release = as_version(row.release)
    return cell.of(release, row.engine, runner, row.ranks, row.link or "?", row.capability, eager=row.eager)


def of_cell(cell: Cell, rows: Iterable[PublishedStart]) -> list[PublishedStart]:
    """The starts that this cell is the first to take; where it is the first for none, as with a link that is not
    known, all that it would take. A part of the card is known only of a card that is."""
    took = [r for r in rows if _matches(cell, r) and (cell.unit == "GiB" or find(r.card or "") is not None)]
    return [r for r in took if next(c for c in cells() if _matches(c, r)).name == cell.name] or took


def owns(cell: Cell, rows: Sequence[PublishedStart]) -> bool:
    """Has the cell starts of its own? Those that only join others are no measure of an unseen host."""
    return any(next((c.name for c in cells() if _matches(c, r)), "") == cell.name for r in rows)


def figure(cell: Cell, row: PublishedStart) -> float:
    """The start's figure in the cell's unit."""
    if cell.unit == "GiB":
        return row.gib
    card = find(row.card or "")
    return row.gib / (card.total_gib if card is not None else 1.0)


def by_host(cell: Cell, rows: Sequence[PublishedStart]) -> dict[str, list[tuple[int, float]]]:
    """Of each host (ranks, median figure), one for each number of ranks."""
    grouped: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        grouped[row.host][row.tp] += [figure(cell, row)] * row.starts
    return {host: [(tp, median(values)) for tp, values in sizes.items()] for host, sizes in grouped.items()}


def line(cell: Cell, hosts: dict[str, list[tuple[int, float]]]) -> tuple[float, float]:
    """(middle at two ranks, more for each further rank)."""
    points = [(tp, median(v for t, v in sizes if t == tp)) for sizes in hosts.values() for tp in {t for t, _ in sizes}]
    if cell.by_ranks and len({tp for tp, _ in points}) > 1:
        mean_x, mean_y = sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
        return mean_y + slope * (2 - mean_x), slope
    return median(median(v for _, v in sizes) for sizes in hosts.values()), 0.0


def _spare(cell: Cell, middle: float, hosts: dict[str, list[tuple[int, float]]], part: float) -> float:
    """What each side gets beyond the hosts seen: hosts differ by more where there is more, but not in proportion. A
    line takes one host more than a middle, but where a host shows by itself what a further rank takes."""
    sloped = cell.by_ranks and not any(len(sizes) > 1 for sizes in hosts.values())
    count = max(len(hosts) - sloped, 1)
    if cell.unit != "GiB":
        return part * middle / count
    return part * sqrt(max(middle, _LEAST) * _QUARTER) / count + _ROUNDING


def fitted(cell: Cell, rows: Sequence[PublishedStart], part: float) -> Fit | None:
    """The fit to these starts; None where there is none. `part` of the middle, over the number of hosts, is added to
    each side."""
    hosts = by_host(cell, rows)
    if not hosts:
        return None
    middle, each = line(cell, hosts)
    off = [figure(cell, row) - (middle + each * (row.tp - 2)) for row in rows]
    spare = _spare(cell, middle, hosts, part)
    left_out = [abs(e) for e, _ in errors(cell, rows, part)] if len(hosts) > 1 else []
    return Fit(
        middle=round(middle, 3),
        each=round(each, 3),
        below=round(min(max(0.0, -min(off)) + spare, max(middle, _ROUNDING)), 3),
        above=round(max(0.0, *off) + spare, 3),
        hosts=len(hosts),
        starts=sum(r.starts for r in rows),
        error=round(median(left_out), 3) if left_out else None,
    )


def errors(cell: Cell, rows: Sequence[PublishedStart], part: float) -> list[tuple[float, bool]]:
    """Of each host left out (its median less what the others' fit says, whether that lies inside their range)."""
    told = []
    for host in dict.fromkeys(r.host for r in rows):
        rest = [r for r in rows if r.host != host]
        hosts = by_host(cell, rest)
        if not hosts or (cell.by_ranks and len({tp for sizes in hosts.values() for tp, _ in sizes}) < 2):
            continue  # nothing is left to fit
        middle, each = line(cell, hosts)
        off = [figure(cell, row) - (middle + each * (row.tp - 2)) for row in rest]
        spare = _spare(cell, middle, hosts, part)
        low, high = min(0.0, *off) - spare, max(0.0, *off) + spare
        own = by_host(cell, [r for r in rows if r.host == host])[host]
        error = median(v - (middle + each * (tp - 2)) for tp, v in own)
        told.append((error, low <= error <= high))
    return told


def counts_torch(cell: Cell) -> bool:
    """Do its figures hold what torch keeps, and not only what lies outside it (behaviours.json counts_used_memory)?"""
    return cell.until is not None and as_version(cell.until) <= COUNTS_APART


def spare_part(rows: Sequence[PublishedStart]) -> tuple[float, float, int]:
    """(the part of the middle that each side needs, the share of left-out hosts inside, hosts left out), of the cells
    whose figures hold only what lies outside torch."""
    told: list[bool] = []
    own = [cell for cell in cells() if owns(cell, rows) and not counts_torch(cell)]
    for part in _PARTS:
        told = [inside for cell in own for _, inside in errors(cell, of_cell(cell, rows), part)]
        if sum(told) >= _COVERED * len(told):
            return part, sum(told) / len(told), len(told)
    return _PARTS[-1], sum(told) / len(told), len(told)


def refit() -> tuple[list[Cell], float, float, int]:
    """(the cells with their fits, the part, the share of left-out hosts inside, hosts left out)."""
    rows = starts()
    part, covered, count = spare_part(rows)
    new = [msgspec.structs.replace(c, fit=fitted(c, of_cell(c, rows), part)) for c in cells()]
    return [_beside(cell, new) for cell in new], part, covered, count


def _beside(cell: Cell, others: Sequence[Cell]) -> Cell:
    """A cell of one host, with a range that reaches to the middles of its kind in other releases."""
    if cell.fit is None or cell.fit.hosts > 1 or cell.unit != "GiB" or cell.link is None:
        return cell
    alike = [c for c in others if _kind(c) == _kind(cell)]
    fits = [c.fit for c in alike if c.fit is not None and c.fit.hosts > 1]
    middle = cell.fit.middle
    below = max([cell.fit.below, *(middle - fit.middle for fit in fits)])
    above = max([cell.fit.above, *(fit.middle - middle for fit in fits)])
    return msgspec.structs.replace(
        cell, fit=msgspec.structs.replace(cell.fit, below=round(below, 3), above=round(above, 3))
    )


def _kind(cell: Cell) -> tuple[object, ...]:
    return cell.engine, cell.ranks, cell.link, cell.unit, cell.capability


def main(args: list[str]) -> int:
    """Print the fits, and keep them where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(args)
    new, part, covered, count = refit()
    print(f"{'cell':58} {'middle':>7} {'each':>6} {'below':>6} {'above':>6} {'hosts':>5} {'starts':>6} {'off':>6}")
    for cell in new:
        fit = cell.fit
        if fit is None:
            print(f"{cell.name:58} no start")
            continue
        off = "" if fit.error is None else f"{fit.error:.3f}"
        print(
            f"{cell.name:58} {fit.middle:7.3f} {fit.each:6.3f} {fit.below:6.3f} {fit.above:6.3f} {fit.hosts:5} "
            f"{fit.starts:6} {off:>6}"
        )
    print(f"hosts left out: {count}; inside the range that the others give: {100 * covered:.0f} %; part {part:g}")
    if asked.write:
        text = ",\n".join("  " + json.dumps(msgspec.to_builtins(cell)) for cell in new)
        CELLS.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
