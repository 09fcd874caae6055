"""Which messages of the catalogue a release's source still has, and in which wording (a hash of the templates)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from releases import texts
from releases.wheel import Wheel

_FILES = 8  # words that stand in more files than these tell no message
_OWN = 16  # characters of a text that no other message has


class Sought(NamedTuple):
    """A message of the catalogue: its id, the literal text that it is found by, lines in its wordings, and the file
    that the row names, without `vllm/`; a remark may follow it."""

    id: str
    anchor: str
    lines: tuple[str, ...]
    source: str = ""


def read(wheel: Wheel, catalogue: Iterable[Sought]) -> dict[str, dict[str, str]]:
    """Message id → the file that says it and the hash of its templates. A message that is not here is another
    program's, made of pieces, or gone."""
    reading = _Reading(wheel)
    made: dict[str, dict[str, str]] = {}
    for message in catalogue:
        bare = message.anchor.rstrip(" :.,(=")
        found = (
            reading.literal(message, message.anchor)
            or reading.literal(message, bare)
            or reading.by_lines(message)
            or reading.only_home(bare)
            or reading.raised(message)
            or reading.error(bare)
            or reading.at_home(message)
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

    def literal(self, message: Sought, anchor: str) -> tuple[str, list[str]] | None:
        """(file, templates) that hold the text as it is and make one of the message's lines: a short text stands in
        many sentences. What several files say is one message."""
        homes = {
            path: [t for t in self._templates(path) if anchor in t and self._says(t, message)]
            for path in (self._likeliest(self._files(anchor), message) if len(anchor) > 5 else ())
        }
        said = [template for found in homes.values() for template in found]
        return (next(path for path, found in homes.items() if found), said) if said else None

    def only_home(self, anchor: str) -> tuple[str, list[str]] | None:
        """(file, templates) of a text so long that it is nobody else's, though no line of ours is made by it."""
        files = self._files(anchor) if len(anchor) >= _OWN else []
        found = [t for t in self._templates(files[0]) if anchor in t] if len(files) == 1 else []
        return (files[0], found) if found else None

    def by_lines(self, message: Sought) -> tuple[str, list[str]] | None:
        """(file, templates) that make one of the message's lines, where a value stands inside its literal text."""
        words = sorted(re.findall(r"[A-Za-z_]{4,}", message.anchor), key=len, reverse=True)[:3]
        files = self._with_all(words)
        for path in files if len(files) <= _FILES else ():
            found = [t for t in self._templates(path) if words[0] in t and self._says(t, message)]
            if found:
                return path, found
        return None

    def raised(self, message: Sought) -> tuple[str, list[str]] | None:
        """(file, templates) of the text that an exception of this name is raised with; a traceback joins the two."""
        kind = message.anchor
        said = [line.removeprefix(f"{kind}: ") for line in message.lines if line.startswith(f"{kind}: ")]
        for path, text in self.wheel.files.items() if said and kind.isidentifier() else ():
            found = [t for t in self._templates(path) if t in said] if f"{kind}(" in text else []
            if found:
                return path, found
        return None

    def error(self, name: str) -> tuple[str, list[str]] | None:
        """(file, the name) of an exception of vLLM's own, which its traceback names."""
        if not name.isidentifier() or not name.endswith(("Error", "Exception")):
            return None
        own = [path for path, text in self.wheel.files.items() if f"\nclass {name}(" in text]
        return (own[0], [name]) if own else None

    def at_home(self, message: Sought) -> tuple[str, list[str]] | None:
        """(file, templates) that make a whole line of the message in the file that its row names: an anchor may be too
        short to be looked for everywhere, or reach into a value."""
        named = re.match(r"[\w/]+\.py\b", message.source)
        path = f"vllm/{named[0]}" if named else ""
        if path not in self.wheel.files:
            return None
        found = [t for t in self._templates(path) if any(_is(t, line) for line in message.lines)]
        return (path, found) if found else None

    def _with_all(self, words: list[str]) -> list[str]:
        if sum(map(len, words)) < 7 or any(word not in self.whole for word in words):
            return []
        return [path for path, outline in self.outlines.items() if all(word in outline for word in words)]

    def _files(self, text: str) -> list[str]:
        if text not in self.whole:
            return []
        return [path for path, outline in self.outlines.items() if text in outline]

    @staticmethod
    def _says(template: str, message: Sought) -> bool:
        """Does a line of the template make one of the message's?"""
        pieces = [piece for piece in template.split("\n") if piece.strip()]
        return any(_makes(piece, message.anchor, line) for piece in pieces for line in message.lines)

    def _likeliest(self, paths: list[str], message: Sought) -> list[str]:
        """Of the files, those that have most of the words of one of the message's lines: to parse all is slow."""
        lines = [set(re.findall(r"[A-Za-z_]{4,}|[^\x00-\x7f]{2,}", line)) for line in message.lines]
        told = {
            path: max((sum(w in self.outlines[path] for w in words) for words in lines), default=0) for path in paths
        }
        return sorted(paths, key=lambda path: (-told[path], path))[:_FILES]

    def _templates(self, path: str) -> list[str]:
        if path not in self.said:
            self.said[path] = list(texts.templates(self.wheel.tree(path)))
        return self.said[path]


def _is(template: str, line: str) -> bool:
    """Is the line, without the exception's name, the template with something in its holes?"""
    parts = template.split(texts.HOLE)
    whole = ".+".join(re.escape(part) for part in parts)
    bare = re.sub(r"^\w+(?:Error|Exception): ", "", line)
    return sum(len(part.strip()) for part in parts) >= 8 and re.fullmatch(whole, bare) is not None


def _makes(template: str, anchor: str, line: str) -> bool:
    """Does the template, with something in its holes, make the part of the line where the anchor stands?"""
    parts = [p for p in template.split(texts.HOLE) if p.strip()]
    at = line.find(anchor)
    place = end = -1
    said, found = 0, 0
    for part in parts:
        place = line.find(part.strip(), max(end, 0))
        if place < 0 and found > 1:
            break  # the line was cut there
        if place < 0:
            return False
        end = place + len(part.strip())
        said, found = said + len(part.strip()), found + 1
    begin = line.find(parts[0].strip()) if parts else -1
    return bool(parts) and at >= 0 and begin <= at + len(anchor) and end >= at and said >= max(8, len(anchor) // 2)
