"""How much of what others wrote is shown: one length for each kind of text. Nothing of theirs may fill a screen.

What is longer than any honest one is cut; a reader who needs the rest looks at its source, which is named beside it.
"""

from __future__ import annotations

VALUE = 80  # what a user typed: enough to find it again
SAID = 200  # a message of a program, a server or an exception
NAME = 300  # of a unit (255 at most), a pod (253), an image, a file

TITLE = 70
SHORT = 12  # of an identifier: as docker ps shortens its own


def value(given: object) -> str:
    """A value as it was given, text in quotes."""
    return repr(given[:VALUE]) if isinstance(given, str) else repr(given)[:VALUE]


def word(text: str) -> str:
    """A value without quotes."""
    return text[:VALUE]


def said(text: str) -> str:
    """What a program, a server or an exception said."""
    return text[:SAID]


def last_said(text: str, otherwise: str) -> str:
    """The last line that a program wrote, which is its reason; `otherwise` where it wrote nothing."""
    return said((text.strip().splitlines() or [otherwise])[-1])


def name(text: str) -> str:
    """The name of a thing of the user's."""
    return text[:NAME]


def title(text: str) -> str:
    """A title with a name in it that may be long."""
    return text[:TITLE]


def short(identifier: str) -> str:
    """The start of an identifier, enough to tell it from others of its kind."""
    return identifier[:SHORT]
