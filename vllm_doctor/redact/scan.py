"""Where the value that stands behind a name begins and ends. Every scan goes forward once, so none costs more than what
it takes: a quote or a bracket that never closes reaches to the end."""

import re

# `"`, `\"` inside JSON, `b'` of Python, and what stands for a quote in HTML.
_OPEN = re.compile(r"(?P<kind>[bBrRuUfF]{0,2}+)(?P<escape>\\{0,64}+)(?P<quote>[\"'])")
_ENTITY = re.compile(r"&(?:quot|apos|#34|#39|#x27|#x22);")
_CALL = re.compile(r"[A-Za-z_][\w.]{0,60}+(?=\()")
_BRACKET = re.compile(r"[\[\](){}\"']")
# A comma, a closing bracket or a quote ends it where something else follows.
_BARE = re.compile(
    r"(?:[^\s,;)}\]\"'&]++|&(?:amp;)?+(?![A-Za-z_][\w.-]{0,60}+=)|[,;)}\]\"'](?![\s,;:.)}\]\"'\\]|\Z|[A-Za-z_][\w.-]{0,60}+[=:]))++"
)
_PARAMETER = re.compile(r"[^\s&#\"'<>]++")


def quoted(text: str, at: int) -> tuple[int, int, int] | None:
    """A quoted text at `at`: where it begins, where it ends, and where what follows its closing quote begins."""
    entity = _ENTITY.match(text, at)
    if entity is not None:
        end = text.find(entity[0], entity.end())
        return (entity.end(), len(text), len(text)) if end < 0 else (entity.end(), end, end + len(entity[0]))
    opened = _OPEN.match(text, at)
    if opened is None:
        return None
    depth, quote = len(opened["escape"]), opened["quote"]
    begin = look = opened.end()
    if not depth and text.startswith(quote * 2, begin):  # of Python and TOML
        end = text.find(quote * 3, begin + 2)
        return (begin + 2, len(text), len(text)) if end < 0 else (begin + 2, end, end + 3)
    while (found := text.find(quote, look)) >= 0:
        escapes = 0
        while found - escapes - 1 >= begin and text[found - escapes - 1] == "\\":
            escapes += 1
        inside = text[found + 1 : found + 2]
        if (escapes <= depth or (depth == 0 and escapes % 2 == 0)) and not (inside.isalnum() or inside == "_"):
            return begin, found - (min(depth, escapes)), found + 1
        look = found + 1
    return begin, len(text), len(text)


def bracketed(text: str, at: int) -> int:
    """Where what is opened at `at` closes, quotes and brackets inside minded."""
    depth = 0
    while (found := _BRACKET.search(text, at)) is not None:
        at = found.end()
        if found[0] in "([{":
            depth += 1
        elif found[0] in ")]}":
            depth -= 1
            if depth <= 0:
                return at
        else:
            escapes = 0
            while found.start() - escapes > 0 and escapes < 64 and text[found.start() - escapes - 1] == "\\":
                escapes += 1
            inner = quoted(text, found.start() - escapes)
            at = inner[2] if inner is not None else at
    return len(text)


def value(text: str, at: int, *, parameter: bool = False) -> tuple[int, int, int]:
    """Where the value at `at` begins and ends, and where what follows it begins."""
    if parameter:
        found = _PARAMETER.match(text, at)
        end = at if found is None else found.end()
        return at, end, end
    if (inner := quoted(text, at)) is not None:
        return inner
    if text[at : at + 1] in {"[", "(", "{"}:
        end = bracketed(text, at)
        return at, end, end
    call = _CALL.match(text, at)
    if call is not None:
        end = bracketed(text, call.end())
        return at, end, end
    bare = _BARE.match(text, at)
    end = at if bare is None else bare.end()
    return at, end, end
