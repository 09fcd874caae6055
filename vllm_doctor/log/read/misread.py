"""The text of a picture: a reader of letters takes `l` for `1` and `o` for `0`, and digits for letters.

Programs write their own words right: a word with a digit in it is put right where that makes one of the words that the
catalogue's messages have, and where the text is as short as one screen. In a text of which two words were so misread,
short words, the parts of paths and numbers are, too.
"""

from functools import cache

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import messages

# Letters of one screen, with some to spare: nobody takes a picture of more.
_SCREEN = 12_000
_SHORTEST, _SHORT = 5, 3
_CAPITALS = str.maketrans("01", "OI")
_LETTERS, _FIGURES = str.maketrans("01", "ol"), str.maketrans("OolI", "0011")
_WORD = Pattern(
    r"(?<![\w./-])[A-Za-z_]{0,30}[01][A-Za-z_01]{3,30}(?![\w/])|(?<![\w./-])[A-Za-z_]{4,30}[01][A-Za-z_01]{0,30}(?![\w/])"
)
_ANY_WORD = Pattern(r"[A-Za-z_]{3,30}")
# In a line of which a word was misread: the letter before a point or at the end of a device, and the sign of a class.
_ZERO = Pattern(r"(?<=[\s(:=])O(?=[.,)\s]|$)")
_COLON = Pattern(r"(?<=Error|ption);(?= )")
# In a misread text: any word with a digit that is no amount (`10G`), a word in capitals, and a number with a letter
# among its digits.
_ANY = Pattern(
    r"(?<![A-Za-z\d])(?!\d{1,9}[KMGT]i?B?(?![A-Za-z\d]))"
    r"(?:[A-Za-z]{0,30}[01][A-Za-z01]{1,30}|[A-Za-z]{3,30}[01])(?![A-Za-z\d])"
)
_BYTES = Pattern(r"(?<=[\d ][KMGT])[lI1|](?=B(?![A-Za-z]))")
_CAPITAL = Pattern(r"(?<![A-Za-z\d])l(?=[A-Z]{1,20}(?![A-Za-z\d])|f\b|t\b|n\b)")
_NUMBER = Pattern(
    r"(?<![A-Za-z\d])(?:\d[\dOolI]{0,20}[OolI][\dOolI]{0,20}|[OolI]{1,4}\d[\dOolI]{0,20})(?=(?:[A-Z]?i?B)?(?![A-Za-z\d]))"
)
_LETTERS_ALONE = Pattern(r"(?<=[\d.,:/ -])[Ol]{1,4}(?=[.,:/)\d]|$| [KMG]i?B\b)|(?<=[.:])[Ol]{1,4}(?= )")
# In a misread text: two letters that stand so near each other that they are read as one.
_PAIR = Pattern(r"(?<![A-Za-z])[A-Za-z]{0,30}(?:rn|vv|cl)[A-Za-z]{0,30}(?![A-Za-z])")
_NEAR = (("rn", "m"), ("vv", "w"), ("cl", "d"))
_MISREAD = 2


def well_read(text: str) -> str:
    """The text with its misread words put right; as it was where none is."""
    if len(text) > _SCREEN:
        return text
    misread = {found[0] for found in _ANY.finditer(text) if _word(found[0], least=_SHORT) != found[0]}
    if len(misread) < _MISREAD and _WORD.search(text) is None:
        return text
    better = map(_line, text.split("\n"))
    return "\n".join(map(_again, better) if len(misread) >= _MISREAD else better)


def _line(line: str) -> str:
    better = _WORD.compiled.sub(lambda found: _word(found[0]), line)
    if better == line:
        return line
    return _COLON.compiled.sub(":", _ZERO.compiled.sub("0", better))


def _again(line: str) -> str:
    """A line of a text that is known to be misread: what is in doubt elsewhere is not here."""
    line = _ANY.compiled.sub(lambda found: _word(found[0], least=_SHORT), line)
    line = _PAIR.compiled.sub(lambda found: _of_pairs(found[0]), line)
    line = _BYTES.compiled.sub("i", line)
    line = _CAPITAL.compiled.sub("I", line)
    line = _NUMBER.compiled.sub(lambda found: found[0].translate(_FIGURES), line)
    line = _LETTERS_ALONE.compiled.sub(lambda found: found[0].translate(_FIGURES), line)
    return _COLON.compiled.sub(":", _ZERO.compiled.sub("0", line))


def _word(word: str, least: int = _SHORTEST) -> str:
    meant = word.translate(_CAPITALS if word.translate(_CAPITALS).isupper() else _LETTERS)
    known = _words()
    return meant if len(word) >= least and meant.lower() in known and word.lower() not in known else word


def _of_pairs(word: str) -> str:
    known = _words()
    meant = (word.replace(two, one) for two, one in _NEAR) if word.lower() not in known else ()
    return next((better for better in meant if better.lower() in known), word)


@cache
def _words() -> frozenset[str]:
    """The words of all wordings, without digits, whole and by their parts; and those of a path."""
    lines = (sample.line for message in messages() for sample in message.samples)
    whole = {found[0].lower() for line in lines for found in _ANY_WORD.finditer(line)}
    return frozenset({*whole, *(part for word in whole for part in word.split("_")), *_OF_PATHS})


# Folders and words of a frame that no message has.
_OF_PATHS = ("file", "line", "lib", "models", "model", "executor", "layers", "packages", "site", "dist", "local", "usr")
