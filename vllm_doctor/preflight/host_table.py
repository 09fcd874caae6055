"""The rows of all hosts as one table of text."""

import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence

from vllm_doctor.preflight.judged import Checked, Result

RELEASE, BUILD, EXTRA_ARGUMENT = "vLLM release", "wheel's CUDA x driver", "extra argument"
_HEAD = ("host", "what", "found", "needed", "do this")
_WIDTHS = (20, 22, 34, 34, 48)
_SPACE = "\N{NO-BREAK SPACE}"
# A command, and a line of the inventory with all of its value: {…}, […], "…" or one word.
_TO_COPY = re.compile(r"""`[^`]*`|\b[a-z]+_[a-z_]+: (?:\{[^{}]*\}|\[[^][]*\]|"[^"]*"|\S+)""")
_ORDER = (Result.FAIL, Result.WARN, Result.UNKNOWN)


def failures(rows: Mapping[str, Sequence[Checked]]) -> int:
    """How many hosts have at least one failed check."""
    return sum(any(row.verdict is Result.FAIL for row in of_host) for of_host in rows.values())


def others(rows: Sequence[Checked], told: Sequence[Checked]) -> tuple[Checked, ...]:
    """Those of another role's rows that are not among what was told: the same check of the same word."""
    refused = [row for row in told if row.verdict is Result.FAIL]
    return tuple(row for row in rows if not any(_same(row, one) for one in refused))


def _same(row: Checked, told: Checked) -> bool:
    """Whether both refuse one thing: the build that is to be installed, or one extra argument."""
    if row.check == RELEASE:
        return told.check in {RELEASE, BUILD}
    words = [word.strip(":,") for word in row.found.split()]
    return row.check == told.check == EXTRA_ARGUMENT and told.found.split()[0].lstrip("-") in words


def table(rows: Mapping[str, Sequence[Checked]], verdicts: Sequence[Result] = _ORDER) -> str:
    """The table of these verdicts, failures first; hosts with the same row share it. Empty text where there is none."""
    merged: dict[Checked, list[str]] = {}
    for verdict in verdicts:
        for host, of_host in rows.items():
            for row in of_host:
                if row.verdict is verdict:
                    merged.setdefault(row, []).append(host)
    if not merged:
        return ""
    lines = [_line(_HEAD), _line(tuple("-" * width for width in _WIDTHS))]
    for row, hosts in merged.items():
        mark = "" if row.verdict is Result.FAIL else f" ({row.verdict})"
        cells = (", ".join(hosts), row.check + mark, row.found, row.needed, row.action)
        wrapped = [_wrapped(cell, width) for cell, width in zip(cells, _WIDTHS, strict=True)]
        lines += [_line(parts) for parts in itertools.zip_longest(*wrapped, fillvalue="")]
    return "\n".join(lines)


def _wrapped(cell: str, width: int) -> list[str]:
    """The lines of a cell. Paths, names, `commands` and lines of an inventory are whole, so that they can be copied."""
    whole = _TO_COPY.sub(lambda copied: copied[0].replace(" ", _SPACE), cell)
    lines = textwrap.wrap(whole, width, break_on_hyphens=False, break_long_words=False)
    return [line.replace(_SPACE, " ") for line in lines] or [""]


def _line(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
