#!/usr/bin/env python3
"""Take README's pictures of a page: docs/pictures/report-light.png and report-dark.png.

tools/page_pictures.py PAGE.html, where PAGE.html is what `vllm-doctor report --output PAGE.html` wrote of real
services. It needs a Chromium; no page of this repository is fetched from anywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from tests.browser import browser  # noqa: E402 - the checkout's own, whatever is installed

FOLDER = REPO / "docs" / "pictures"
WIDTH, HEIGHT = 1000, 860


def main(page: str) -> None:
    """Take both."""
    shown = browser()
    for name in ("light", "dark"):
        shown.show(Path(page).resolve(), width=WIDTH, height=HEIGHT, dark=name == "dark")
        (FOLDER / f"report-{name}.png").write_bytes(shown.picture())
    shown.close()


if __name__ == "__main__":
    main(sys.argv[1])
