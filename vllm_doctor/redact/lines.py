"""Lines that follow each other: what one begins, the next may hold."""

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.redact import next_line, scan
from vllm_doctor.redact.named import NAMED
from vllm_doctor.redact.shapes import PRIVATE_KEY
from vllm_doctor.redact.text import Replace, hide, replaced, scrub

_KEY_BODY = Pattern(r"(?<![\w+/=])(?:[A-Za-z0-9+/]{16,}+={0,2}+|[A-Za-z0-9+/]{2,}+={1,2}+)(?=\\n|\s|\Z)")
_KEY_END = "-----END"
# An RSA key of 16384 bits has 200 lines.
_LONGEST_KEY = 250


class Lines:
    """Scrubs lines that follow each other: the body of a private key has no mark but the line that began it, and a
    value may stand on the line behind its name."""

    def __init__(self) -> None:
        self._left = 0
        self._name = ""
        self._block: int | None = None  # how far the name of a text is indented, whose lines stand further in
        self._alone = False

    @property
    def waits(self) -> bool:
        """Does it look for the rest of something on the next line?"""
        return bool(self._left or self._name or self._alone) or self._block is not None

    def scrub(self, text: str, replace: Replace = hide) -> str:
        """The next line without secrets."""
        if self._left:
            self._left -= 1
            head, end, rest = text.partition(_KEY_END)
            body = [(found.start(), found.end(), "private key") for found in _KEY_BODY.finditer(head)]
            text = replaced(head, body, replace) + end + rest
        begun = max((found.end() for found in PRIVATE_KEY.finditer(text)), default=-1) if "PRIVATE" in text else -1
        if begun > text.rfind(_KEY_END):
            self._left = _LONGEST_KEY
        elif _KEY_END in text:
            self._left = 0
        if self._name:
            text = replaced(text, next_line.value_of(self._name, text), replace)
        self._name = next_line.name_at_the_end(text)
        if self._block is not None and text.strip():
            inside = len(text) - len(text.lstrip())
            if inside > self._block:
                text = replaced(text, [(inside, len(text), NAMED)], replace)
            else:
                self._block = None
        elif self._alone and (given := text.find("input_value=")) >= 0:
            told = scan.value(text, given + len("input_value="))
            text = replaced(text, [(told[0], told[1], NAMED)], replace)
        if self._block is None:
            self._block = next_line.block_begins(text)
        self._alone = next_line.is_secret_alone(text)
        return scrub(text, replace)
