"""What a value tells by itself: a secret, a word, a number, a path, a name of code."""

import re

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.redact.names import ValueKind, value_kind, word_list, words_of

_PLAIN = re.compile(
    r"[\[\"'({]*(?:None|null|true|false|\d{1,6}(?:\.\d{1,6})?(?: ?[KMGT]?i?B)?|<[\w -]{1,30}>|\[hidden\]?|hidden|\*+"
    r"|x{3,}|\.{2,}|…)?[\]\"')}]*",
    re.IGNORECASE,
)
# Where a shell, a template or a reader puts the value; a header has its scheme before it.
_REFERENCE = Pattern(
    r"[\"']?(?:(?:Bearer|Basic|Token) )?(?:\$\w+|\$\{[^}]{1,80}\}|\{\{.{1,160}\}\}|\$\(.{1,80}|<[^>]{1,60}>)[\"']?"
)
# What goes on with a command, where its last option takes no value: `-p | grep`, `"$PWD" 2>/dev/null`.
_OPERATOR = Pattern(r"[|&;<>]{1,2}|\d?>{1,2}(?:&\d|/dev/null)")
_WORDS = re.compile(
    r"[a-z_]{1,40}|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?:\.\d+|\.[A-Za-z_]\w*)*|[\d.,]+[a-zA-Z%]{0,4}|[A-Z]{1,8}"
)
LONGEST_PLAIN = 200
FOLDER = ("/", "~", "./", "../")
# What signs a request or names a session has a digit; the same names in code have a class, a call or a word.
_RANDOM = re.compile(r"(?=[^\d]{0,80}\d)[\w.%+/=~:!?-]{12,}")
_IN_ANGLES = re.compile(r"<(?=[^\d]{0,80}\d)[^<>\s]{8,200}>")
_MARK = re.compile(r"\[?<[a-z]{2,12}-\d{1,9}>\]?|\[hidden\]")
_ONE_WORD = re.compile(r"[A-Za-z][A-Za-z_-]{3,39}")


def secret_under(name: str, value: str) -> bool:
    """Is `value` a secret, by the name of the key, option or label beside it?"""
    what = value_kind(name)
    if what is ValueKind.PERHAPS:
        return opaque_under(name, value) or is_plain_word(name, value)
    return what in {ValueKind.SECRET, ValueKind.HEADER} and not tells_nothing(value)


def tells(name: str, value: str) -> bool:
    """`secret_under` for a value that a person or a program wrote beside its name: words of prose tell nothing."""
    return secret_under(name, value) and not prose(value)


def opaque_under(name: str, value: str) -> bool:
    """`opaque`, and random where only random values under this name are secret."""
    if words_of(name)[-1:] and words_of(name)[-1] in word_list("random_alone"):
        return len(value) > LONGEST_PLAIN or bool(_RANDOM.fullmatch(value))
    return opaque(value)


def is_plain_word(name: str, value: str) -> bool:
    """Is it a plain word that a weak name has for its whole value, `pass: hunter`, and none of those that names like
    these have where they guard nothing?"""
    bare = value.strip("\"'")
    if (
        not _ONE_WORD.fullmatch(bare)
        or value_kind(name) is not ValueKind.PERHAPS
        or words_of(name)[-1] in word_list("mode")
    ):
        return False
    known = (
        word_list("prose")
        | word_list("placeholders")
        | word_list("outcome")
        | word_list("pass_of_work")
        | word_list("key_of_no_lock")
    )
    return not known.intersection([bare.lower(), *words_of(bare)])


def tells_nothing(value: str) -> bool:
    """Values that tell nothing: None, booleans, small numbers, references, placeholders, our own marks."""
    if len(value) > LONGEST_PLAIN:
        return False
    bare = value.strip("\"'[](){}, ")
    if _IN_ANGLES.fullmatch(bare) and not marked(bare) and opaque(bare[1:-1]):
        return False  # what stands for a value, as `<your-key>`, is made of words
    return (
        not bare
        or bool(_PLAIN.fullmatch(value))
        or marked(value.strip("\"'"))
        or bool(_REFERENCE.fullmatch(value))
        or bool(_OPERATOR.fullmatch(value))
        or bare.lower() in word_list("placeholders")
    )


def opaque(value: str) -> bool:
    """Is it neither a number nor a word, a name of code or a path?"""
    if len(value) > LONGEST_PLAIN:
        return True
    bare = value.strip("\"'[](){}, ")
    if len(bare) < 5 or tells_nothing(value) or " " in bare or bare.startswith(FOLDER) or bare.startswith("torch."):
        return False
    return not _WORDS.fullmatch(bare)


def marked(what: str) -> bool:
    """Is it one of our own marks for what is hidden?"""
    return len(what) < 30 and bool(_MARK.fullmatch(what))


def prose(word: str) -> bool:
    """Is it a word that sentences have behind the name of a secret (`is`, `not`, `expired`)?"""
    return len(word) < 30 and word.lower().strip(".,;:") in word_list("prose")


def spoken_secret(word: str) -> bool:
    """Has it what the words of a sentence lack, a digit or a capital?"""
    return any(c.isdigit() for c in word) or not word.islower()
