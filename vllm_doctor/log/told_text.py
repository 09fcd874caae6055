"""What a person writes, as far as it is read, and where a sentence of it ends."""

from vllm_doctor.knowledge.pattern import Pattern

# So much of a line is read.
LONGEST = 2000
# The full stop of Chinese and Japanese needs no blank behind it.
SENTENCE_END = Pattern("[.!?;]\\s|[\u3002\uff01\uff1f\uff1b]")
# A word of prose, and how many of them make the beginning of a sentence.
_PROSE, _WORDS = Pattern(r"(?<![\w./-])[^\W\d_]{2,30}(?![\w:=(/.])"), 3
# How programs begin a line: `raylet.cc:12: `, `(raylet) `, `[rank0]`, a class, an object of JSON, a time; and how a
# table sets its columns apart.
_HEADED = Pattern(r"\s{0,20}(?:[(\[{]|\d{2,4}[-:/]\d\d|[^\s:]{2,80}:\s)|.{0,80}?(?:\S {3,}\S|\t)")


def is_prose(text: str) -> bool:
    """Does a sentence begin so, and no line of a program's?"""
    return _HEADED.match(text) is None and len(_PROSE.compiled.findall(text)) >= _WORDS
