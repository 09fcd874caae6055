"""A regular expression that is compiled when it is first asked: of all the rules' patterns, one log needs few."""

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, cached_property


class Pattern:
    """As re.Pattern. Compiling 200 of them at import took a quarter of a diagnosis; tests/knowledge compiles each."""

    def __init__(self, text: str, flags: int = 0) -> None:
        """Keep the text and re's flags."""
        self.text, self.flags = text, flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The expression itself, made once."""
        return re.compile(self.text, self.flags)

    def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        """Find the first place."""
        return self.compiled.search(text, start, end)

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Match at the start."""
        return self.compiled.match(text, start)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Match the whole."""
        return self.compiled.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Find every place."""
        return self.compiled.finditer(text)

    def split(self, text: str) -> list[str | None]:
        """Cut the text at every place."""
        return self.compiled.split(text)

    def sub(self, replacement: str | Callable[[re.Match[str]], str], text: str) -> str:
        """Replace every place."""
        return self.compiled.sub(replacement, text)


@cache
def compiled(regex: str) -> re.Pattern[str]:
    """An expression of a data file, made once."""
    return re.compile(regex)
