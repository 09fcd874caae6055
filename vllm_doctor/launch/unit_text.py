"""The text of a unit's file or drop-in as systemd reads it: directives, the words of a command, what is assigned.

systemd.syntax(7); systemd.service(5), "COMMAND LINES"; systemd.exec(5), Environment=; src/basic/extract-word.c.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

COMMAND, ENVIRONMENT = "ExecStart", "Environment"
_DIRECTIVE = re.compile(r"\s*([A-Za-z]\w{0,60})\s*=\s*(.*)", re.ASCII)
_COMMENTS = ("#", ";")
# What may stand before the program: how it is started, and not a part of its path.
_PREFIXES = "@-:+!|"
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
# A byte or a character by its number, and any other sign behind a backslash.
_ESCAPED = re.compile(
    r"(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})"
    r"|(?P<sign>.))",
    re.DOTALL,
)


class UnitPiece(msgspec.Struct, frozen=True):
    """What a line of the file holds of a directive's value. A backslash at its end, which makes the value go on in the
    next line, is not in `text`; `begins` is False for a line that goes on."""

    number: int
    directive: str
    text: str
    begins: bool


class UnitText(msgspec.Struct, frozen=True):
    """What a unit starts, and with which variables; specifiers (`%i`) and references (`$NAME`) stay."""

    words: tuple[str, ...]
    env: dict[str, str]


def pieces(lines: Iterable[str]) -> Iterator[UnitPiece]:
    """The lines of a file that belong to a directive; a comment between two of them is none."""
    directive = ""
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(_COMMENTS):
            continue
        found = _DIRECTIVE.match(line) if not directive else None
        directive = found[1] if found is not None else directive
        goes_on = _goes_on(line)
        if directive:
            text = found[2] if found is not None else line.strip()
            yield UnitPiece(
                number, directive, (text.removesuffix("\\") if goes_on else text).strip(), found is not None
            )
        if not goes_on:
            directive = ""


def values(text: str, directive: str) -> list[str]:
    """Each value of a directive, in order; an empty one takes back those of a list that stand before it."""
    found: list[str] = []
    for piece in pieces(text.splitlines()):
        if piece.directive == directive:
            if piece.begins:
                found.append(piece.text)
            else:
                found[-1] += f" {piece.text}"
    return found


def read_unit(text: str) -> UnitText:
    """The command and the variables of a unit. Raises ValueError on an unclosed quote."""
    words: tuple[str, ...] = ()
    for value in values(text, COMMAND):
        words = tuple(words_of(value))
    env: dict[str, str] = {}
    for value in values(text, ENVIRONMENT):
        assigned = [word.partition("=") for word in words_of(value)]
        env = {**env, **{name: said for name, equals, said in assigned if equals}} if value else {}
    return UnitText((words[0].lstrip(_PREFIXES), *words[1:]) if words else (), env)


def words_of(value: str) -> Iterator[str]:
    """The words of a value, without quotes and escapes; `%%` is a percent sign. Raises ValueError on a quote that is
    open at the end."""
    at = 0
    while (at := _after_blanks(value, at)) < len(value):
        word, at = _word(value, at)
        yield word.replace("%%", "%")


def _goes_on(line: str) -> bool:
    """Does a backslash that no other one escapes end the line?"""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _after_blanks(value: str, at: int) -> int:
    while at < len(value) and value[at].isspace():
        at += 1
    return at


def _word(value: str, at: int) -> tuple[str, int]:
    """A word and where it ends: a quote may begin within it, and joins what follows."""
    made, quote = bytearray(), ""
    while at < len(value):
        sign = value[at]
        if sign == "\\" and at + 1 < len(value):
            said, at = _escaped(value, at + 1)
            made += said
            continue
        at += 1
        if quote and sign == quote:
            quote = ""
        elif not quote and sign in "\"'":
            quote = sign
        elif not quote and sign.isspace():
            break
        else:
            made += sign.encode(errors="surrogateescape")
    if quote:
        raise ValueError(f"a quote that does not close: {quote}")
    return made.decode(errors="surrogateescape"), at


def _escaped(value: str, at: int) -> tuple[bytes, int]:
    """What stands behind a backslash, and where it ends; a sign that needs no backslash keeps it."""
    found = next(_ESCAPED.finditer(value, at))  # the last alternative takes any sign
    if (byte := found["hex"] or found["octal"]) is not None:
        said = bytes([int(byte, 16 if found["hex"] else 8)])
    elif (number := found["short"] or found["long"]) is not None:
        said = chr(int(number, 16)).encode()
    else:
        sign = found["sign"]
        said = _ESCAPES.get(sign, sign if sign in "\\\"';" else f"\\{sign}").encode(errors="surrogateescape")
    return said, found.end()
