#!/usr/bin/env python3
"""Draw README's pictures from the real output: docs/pictures/answer-light.svg and answer-dark.svg.

The log is a scenario of the tests. No picture fetches a font or anything else. --check says which one is stale.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path

import generated
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from tests.scenarios.loading import log_text  # noqa: E402 - the checkout's own, whatever is installed
from vllm_doctor.gather.logfile import read_logs  # noqa: E402
from vllm_doctor.records.snapshot import Snapshot  # noqa: E402
from vllm_doctor.render.human import text  # noqa: E402
from vllm_doctor.rules.engine import diagnose  # noqa: E402

FOLDER = REPO / "docs" / "pictures"
SCENARIO, WIDTH = "vd140-sampler-fires", 88
# The sixteen colours of GitHub's own light and dark code, of which the page uses a few.
LIGHT = TerminalTheme(
    (255, 255, 255),
    (36, 41, 47),
    [
        (36, 41, 47),
        (164, 14, 38),
        (17, 99, 41),
        (125, 78, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (87, 96, 106),
    ],
    [
        (87, 96, 106),
        (164, 14, 38),
        (17, 99, 41),
        (125, 78, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (36, 41, 47),
    ],
)
DARK = TerminalTheme(
    (13, 17, 23),
    (230, 237, 243),
    [
        (72, 79, 88),
        (255, 123, 114),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (177, 186, 196),
    ],
    [
        (110, 118, 129),
        (255, 161, 152),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (255, 255, 255),
    ],
)
THEMES = {"light": LIGHT, "dark": DARK}
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def answer() -> str:
    """What the terminal shows, with its colours."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("server.log").write_text(log_text(SCENARIO), encoding="utf-8")
        told = diagnose(Snapshot(taken_at="2026-01-01T00:00:00+00:00", log=read_logs(["server.log"])))
    return text(told, color=True, width=WIDTH)


def drawn(shown: str, theme: TerminalTheme) -> str:
    """The terminal as an SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(f"$ vllm-doctor diagnose server.log\n{shown}"), soft_wrap=True)
    made = console.export_svg(title="", theme=theme, unique_id="answer")
    return _FONTS.sub("", made).replace("Fira Code", "ui-monospace") + "\n"


def main(arguments: list[str]) -> int:
    """Draw, or check."""
    shown = answer()
    wanted = {FOLDER / f"answer-{name}.svg": drawn(shown, theme) for name, theme in THEMES.items()}
    return generated.main(arguments, wanted, "the doctor answers")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
