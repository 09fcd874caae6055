"""A terminal's page: lines wrapped at words and never inside one, so that paths and commands can be copied whole."""

import io
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

# Narrower than this no text can be laid out; a terminal that is wraps by itself.
NARROWEST = 40


def laid(text: str, width: int) -> str:
    """A text of short lines for a terminal of this width: longer ones go on at a word, under where they began. What
    cannot be parted (a path, a bar) stays whole."""
    return "".join(f"{part}\n" for line in text.splitlines() for part in _folded(line, width))


def _folded(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    begun = len(line) - len(line.lstrip(" -"))
    indent = len(line) - len(line.lstrip())
    return textwrap.wrap(
        line.lstrip(), width, initial_indent=" " * indent,
        subsequent_indent=" " * (begun if begun > indent or not indent else indent + 2),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


class Page:
    """Collects styled lines; `width` in columns."""

    def __init__(self, width: int, *, color: bool) -> None:
        self.width = max(NARROWEST, width)
        self._out = io.StringIO()
        self._console = Console(
            file=self._out, width=self.width, force_terminal=color, no_color=not color,
            color_system="standard" if color else None, markup=False, highlight=False, emoji=False,
            legacy_windows=False,
        )  # fmt: skip

    @property
    def height(self) -> int:
        """How many lines there are."""
        return self._out.getvalue().count("\n")

    def line(self, *spans: tuple[str, str]) -> None:
        """One line of (text, style), as long as it is."""
        text = Text()
        for words, style in spans:
            text.append(words, style=style or None)
        self._console.print(text, soft_wrap=True)

    def blank(self) -> None:
        """An empty line."""
        self._console.print()

    def heading(self, words: str) -> None:
        """A heading after an empty line."""
        self.blank()
        self.line((words, "bold"))

    def text(self, words: str, style: str = "", *, indent: int = 0, most: int = 0) -> None:
        """A paragraph; with `most` no more than so many lines of it."""
        for part in self.wrapped(words, indent, most):
            self.line((" " * indent + part, style))

    def field(self, name: str, words: str, style: str = "", *, wide: int = 6, most: int = 0) -> None:
        """`name  words`, with what is wrapped standing under the words."""
        for number, part in enumerate(self.wrapped(words, wide, most)):
            self.line(((name if number == 0 else "").ljust(wide), "bold cyan"), (part, style))

    def verbatim(self, words: str, style: str = "", *, indent: int = 0) -> None:
        """A line to copy: never wrapped."""
        self.line((" " * indent + words, style))

    def table(self, rows: Sequence[Sequence[str]], *, indent: int = 2, right: int = 1, most: int = 0) -> None:
        """Columns side by side; column `right` is set flush right, the last one is wrapped at words, with `most` to no
        more than so many lines."""
        if not rows:
            return
        wide = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
        before = indent + sum(wide) + 2 * len(wide)
        if before > self.width - 20:  # no room beside them
            for row in rows:
                self.text("  ".join(cell for cell in row if cell), indent=indent, most=most)
            return
        for row in rows:
            cells = [
                c.rjust(w) if at == right else c.ljust(w) for at, (c, w) in enumerate(zip(row, wide, strict=False))
            ]
            lines = self.wrapped(row[-1], before, most) or [""]
            self.line((" " * indent + "  ".join(cells) + "  ", ""), (lines[0], "dim"))
            for more in lines[1:]:
                self.line((" " * before + more, "dim"))

    def wrapped(self, words: str, indent: int = 0, most: int = 0) -> list[str]:
        """The lines of a paragraph that starts `indent` columns in."""
        room = max(20, self.width - indent)
        lines = textwrap.wrap(words, room, break_long_words=False, break_on_hyphens=False)
        if most and len(lines) > most:
            last = textwrap.wrap(
                " ".join(lines[most - 1 :]), room, break_long_words=False, break_on_hyphens=False,
                max_lines=1, placeholder=" […]",
            )  # fmt: skip
            # A word that is longer than the line is shown whole all the same.
            return lines[: most - 1] + ([f"{lines[most - 1]} […]"] if last == ["[…]"] else last)
        return lines

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in self._out.getvalue().splitlines()) + "\n"
