"""Which messages of the catalogue a release's source still has, and in which wording (a hash of the templates)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from releases import texts
from releases.wheel import Wheel

_FILES = 8  # further files with the same text are not looked at


class Sought(NamedTuple):
    """A message of the catalogue: its id, the literal text that it is found by, and lines in its wordings."""

    id: str
    anchor: str
    lines: tuple[str, ...]


def read(wheel: Wheel, catalogue: Iterable[Sought]) -> dict[str, dict[str, str]]:
    """Message id → the file that says it and the hash of its templates. A message that is not here is another
    program's, made of pieces, or gone."""
    reading = _Reading(wheel)
    made: dict[str, dict[str, str]] = {}
    for message in catalogue:
        bare = message.anchor.rstrip(" :.,(=")
        found = (
            reading.literal(message.anchor) or reading.literal(bare) or reading.by_lines(message) or reading.error(bare)
        )
        if found is not None:
            made[message.id] = {"in": found[0], "as": texts.digest(found[1])}
    return {name: made[name] for name in sorted(made)}


class _Reading:
    def __init__(self, wheel: Wheel) -> None:
        self.wheel = wheel
        self.outlines = texts.outlines(wheel)
        self.whole = "\n".join(self.outlines.values())
        self.said: dict[str, list[str]] = {}

    def literal(self, anchor: str) -> tuple[str, list[str]] | None:
        """(file, templates) that hold the text as it is."""
        for path in self._files(anchor) if len(anchor) > 5 else ():
            found = [t for t in self._templates(path) if anchor in t]
            if found:
                return path, found
        return None

    def by_lines(self, message: Sought) -> tuple[str, list[str]] | None:
        """(file, templates) that make one of the message's lines, where a value stands inside its literal text."""
        words = sorted(re.findall(r"[A-Za-z_]{4,}", message.anchor), key=len, reverse=True)[:3]
        files = self._with_all(words)
        for path in files if len(files) <= _FILES else ():
            found = [
                t
                for t in self._templates(path)
                if words[0] in t and any(_makes(t, message.anchor, line) for line in message.lines)
            ]
            if found:
                return path, found
        return None

    def error(self, name: str) -> tuple[str, list[str]] | None:
        """(file, the name) of an exception of vLLM's own, which its traceback names."""
        if not name.isidentifier() or not name.endswith(("Error", "Exception")):
            return None
        own = [path for path, text in self.wheel.files.items() if f"\nclass {name}(" in text]
        return (own[0], [name]) if own else None

    def _with_all(self, words: list[str]) -> list[str]:
        if sum(map(len, words)) < 7 or any(word not in self.whole for word in words):
            return []
        return [path for path, outline in self.outlines.items() if all(word in outline for word in words)]

    def _files(self, text: str) -> list[str]:
        if text not in self.whole:
            return []
        files = [path for path, outline in self.outlines.items() if text in outline]
        return files[:_FILES]

    def _templates(self, path: str) -> list[str]:
        if path not in self.said:
            self.said[path] = list(texts.templates(self.wheel.tree(path)))
        return self.said[path]


def _makes(template: str, anchor: str, line: str) -> bool:
    """Does the template, with something in its holes, make the part of the line where the anchor stands?"""
    parts = [p for p in template.split(texts.HOLE) if p.strip()]
    at = line.find(anchor)
    place = end = -1
    for part in parts:
        place = line.find(part.strip(), max(end, 0))
        if place < 0:
            return False
        end = place + len(part.strip())
    begin = line.find(parts[0].strip()) if parts else -1
    said = sum(len(p.strip()) for p in parts)
    return bool(parts) and at >= 0 and begin <= at + len(anchor) and end >= at and said >= max(8, len(anchor) // 2)
