#!/usr/bin/env python3
"""Count the refusals of a release that a start may meet, by what the plan makes of them (releases/raises.py):

tools/raises.py WHEEL              # a .whl, or a folder with one unpacked
tools/raises.py WHEEL unread       # each of one kind, with its place and its message
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from releases import options, raises
from releases.fields import Fields
from releases.wheel import WheelError
from releases.wheel import read as read_wheel


def main(words: list[str]) -> int:
    """The counts, or the sites of one kind; 2 for what is no wheel."""
    if not words or (words[1:] and words[1] not in raises.KINDS):
        print(__doc__)
        return 2
    try:
        wheel = read_wheel(Path(words[0]))
    except WheelError as problem:
        print(f"raises: {problem}", file=sys.stderr)
        return 2
    found = [(site, *raises.kind(site)) for site in raises.sites(wheel, options.read(wheel, Fields(wheel)))]
    if words[1:]:
        for site, kind, by in found:
            if kind == words[1]:
                print(f"{site.where}:{site.line} [{by}] {site.says[:400]}")
        return 0
    counts = Counter(kind for _, kind, _ in found)
    print(f"{wheel.version}: {len(found)} raise; " + ", ".join(f"{kind} {counts[kind]}" for kind in raises.KINDS))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
