"""The text of a picture: a reader of letters takes `l` for `1` and `o` for `0`, and digits for letters.

Programs write their own words right: a word with a digit in it is put right where that makes one of the words that the
catalogue's messages have, and where the text is as short as one screen.
"""

from functools import cache

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import messages

# Letters of one screen, with some to spare: nobody takes a picture of more.
_SCREEN = 12_000
_SHORTEST = 5
_LETTERS = str.maketrans("01", "ol")
_WORD = Pattern(
    r"(?<![\w./-])[A-Za-z_]{0,30}[01][A-Za-z_01]{3,30}(?![\w/])|(?<![\w./-])[A-Za-z_]{4,30}[01][A-Za-z_01]{0,30}(?![\w/])"
)
_ANY_WORD = Pattern(r"[A-Za-z_]{5,30}")
# In a line of which a word was misread: the letter before a point or at the end of a device, and the sign of a class.
_ZERO = Pattern(r"(?<=[\s(:])O(?=[.)\s]|$)")
_COLON = Pattern(r"(?<=Error|ption);(?= )")


def well_read(text: str) -> str:
    """The text with its misread words put right; as it was where none is."""
    if len(text) > _SCREEN or _WORD.search(text) is None:
        return text
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    better = _WORD.compiled.sub(lambda found: _word(found[0]), line)
    if better == line:
        return line
    return _COLON.compiled.sub(":", _ZERO.compiled.sub("0", better))


def _word(word: str) -> str:
    meant = word.translate(_LETTERS)
    known = _words()
    return meant if len(word) >= _SHORTEST and meant.lower() in known and word.lower() not in known else word


@cache
def _words() -> frozenset[str]:
    """The words of all wordings, without digits."""
    lines = (sample.line for message in messages() for sample in message.samples)
    return frozenset(found[0].lower() for line in lines for found in _ANY_WORD.finditer(line))
