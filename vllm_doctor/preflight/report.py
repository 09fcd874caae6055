"""The rows of all hosts as one table of text."""

import itertools
import textwrap
from collections.abc import Mapping, Sequence

from vllm_doctor.preflight.records import Row, Verdict

_HEAD = ("host", "what", "found", "needed", "do this")
_WIDTHS = (20, 22, 34, 34, 48)
_ORDER = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)


def failures(rows: Mapping[str, Sequence[Row]]) -> int:
    """How many hosts have at least one failed check."""
    return sum(any(row.verdict is Verdict.FAIL for row in of_host) for of_host in rows.values())


def table(rows: Mapping[str, Sequence[Row]], verdicts: Sequence[Verdict] = _ORDER) -> str:
    """The table of these verdicts, failures first; hosts with the same row share it. Empty text where there is none."""
    merged: dict[Row, list[str]] = {}
    for verdict in verdicts:
        for host, of_host in rows.items():
            for row in of_host:
                if row.verdict is verdict:
                    merged.setdefault(row, []).append(host)
    if not merged:
        return ""
    lines = [_line(_HEAD), _line(tuple("-" * width for width in _WIDTHS))]
    for row, hosts in merged.items():
        mark = "" if row.verdict is Verdict.FAIL else f" ({row.verdict})"
        cells = (", ".join(hosts), row.check + mark, row.found, row.needed, row.action)
        wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, _WIDTHS, strict=True)]
        lines += [_line(parts) for parts in itertools.zip_longest(*wrapped, fillvalue="")]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
