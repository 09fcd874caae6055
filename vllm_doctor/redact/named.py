"""What stands behind a name: `name=value`, `--name value`, `('name', 'value')`, `?name=value`, a header, and what
prose says of a key."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.redact import fields, scan, users
from vllm_doctor.redact.fields import QUOTE
from vllm_doctor.redact.names import ValueKind, in_a_query, value_kind, word_list
from vllm_doctor.redact.shapes import Place, Taken
from vllm_doctor.redact.values import (
    FOLDER,
    LONGEST_PLAIN,
    is_plain_word,
    opaque,
    opaque_under,
    prose,
    spoken_secret,
    tells_nothing,
)

NAMED, HEADER, OPTION = "name before the value", "authorization or cookie header", "secret option"
# A letter, digit, `_`, `-` or `.` as an address may write it behind its `%`: whoever serves it reads the same name.
_WRITTEN = r"(?:3\d|[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff]|2[DdEe])"
# A name and what joins it with its value: `=`, `:`, `%3D`, as JSON and HTML may write them; a comma in
# `('name', 'value')` and in `['--name', 'value']`; a space behind an option.
_NAMED = re.compile(
    rf"(?<![\w.-])(?:(?<!%)|(?!{_WRITTEN}))(?P<name>(?:[\w.-]|%{_WRITTEN})++)(?:(?P<joint>{QUOTE}?+\]?+\s*+"
    rf"(?:%20)?+(?:[:=]{{1,3}}+>?+|%3[DdAa]|\\{{1,8}}+u003[DdAa]|&#(?:61|58|[xX]3[DdAa]);)(?:%20)?+\s*+(?:!\w{{1,20}}+\s++)?+)"
    rf"|(?P<comma>{QUOTE}\s*+,\s*+(?=[bBrRuU]{{0,2}}{QUOTE}))|(?P<space>(?<=[\w.]){QUOTE}?+\s++(?=[^\s|&;<>])))"
)
_PHRASE = re.compile(
    r"\b(?P<what>(?:api|access|secret|private|account|auth)[ _-]?key|password|pass[ _-]?phrase|passwd"
    r"|passcode|pwd|secret|token"
    r"|credentials?|(?-i:[A-Z][A-Z0-9_]{1,60}_(?:TOKEN|KEY|SECRET|PASSWORD|PASS|PWD))(?= is | was | set |[ ]{1,4}[(]))"
    r"[\"']?(?: (?:provided|supplied|used|given|received|value|for [^\s:]{1,60}))?"
    r"(?:(?: is set to:?| set to:?| is:?| was:?|:| =)[ ]{1,4}(?=\S)|[ ]{1,4}(?=[\"'])"
    r"|[ ]{1,4}(?:\u2192|->)[ ]{1,4}(?=\S)|[ ]{1,4}\((?=[^\s()]{6,200}\)))",
    re.IGNORECASE,
)
_BEARER = Pattern(
    r"\b(?:Bearer|Basic|ApiKey|Token)(?:[ ]{1,4}|%20)(?!--)(?P<credential>[\w.~+/=-]{8,}+)", re.IGNORECASE
)
# What is left and is looked into again is bounded, or a text full of names would be read once for each.
_LONGEST_LEFT = 1000
_WRAPPED = re.compile(r"[\[({]|[bBrRuUfF]{0,2}+\\{0,64}+[\"']|&(?:quot|apos|#34|#39|#x27);")
# What was hidden before, perhaps behind a quote that never closes, is not looked into again.
_DONE = re.compile(r"[bBrRuUfF]{0,2}\\{0,8}[\"'(\[{]{0,3}(?:&#?\w{1,6};)?\[hidden\]")
# A word of a command line that ends an option's values.
_NEXT_WORD = re.compile(r"[ \t]++(?=[^\s|&;<>)\]-])")


def behind_names(text: str, *, users: bool) -> Iterator[Place]:
    """What stands behind names."""
    at = 0
    while (found := _NAMED.search(text, at)) is not None:
        at = found.end()
        if _DONE.match(text, at):
            continue
        name = unquote(found["name"])
        what = value_kind(name)
        query = text[found.start() - 1 : found.start()] in {"?", "&", "#"} or text.startswith(
            "&amp;", found.start() - 5
        )
        if query and in_a_query(name):
            what = ValueKind.SECRET
        if what is ValueKind.OPEN or (what is ValueKind.TEXT and not users):
            continue
        if found["joint"] is None:
            behind = _behind_a_space if found["comma"] is None else _behind_a_comma
        else:
            behind = _in_a_query if query else _joined
        for begin, end, why, after in behind(text, found, what):
            yield begin, end, why
            at = after


def _joined(text: str, found: re.Match[str], what: ValueKind) -> Taken:
    """`name=value`, `name: value` and, behind an option, what else it was given."""
    at = found.end()
    wrapped = _WRAPPED.match(text, at) is not None
    if what is ValueKind.TEXT and not wrapped and not found["name"].endswith("input_value"):
        yield from users.unquoted(text, found)
        return
    if what is ValueKind.SECRET and found["name"].startswith("-") and found["joint"].strip() == ":":
        yield from _refused(text, at)
        return
    begin, end, after = scan.value(text, at)
    if what is ValueKind.HEADER and not wrapped:
        end = after = _header_end(text, found.start(), at)
    quoted = begin > at or after > end
    entry = what is ValueKind.PERHAPS and (
        quoted
        or found["joint"][-1:] == "="
        or (
            not _PHRASE_BEFORE.search(text, max(0, found.start() - 2), found.start())
            and bool(_ENTRY_ENDS.match(text, after))
        )
    )
    if not (
        _taken(what, found["name"], text[begin:end], quoted=quoted)
        or (entry and is_plain_word(found["name"], text[begin:end]))
    ):
        return
    yield begin, end, {ValueKind.HEADER: HEADER, ValueKind.TEXT: users.ASKED}.get(what, NAMED), after
    if found["name"].startswith("-") and found["joint"].strip() == "=":
        yield from _more_words(text, after)


# Behind the value of an entry nothing goes on: the line ends, or another entry or a bracket follows.
_ENTRY_ENDS = Pattern(r"\s*+(?:\Z|[,;)}\]\n])|[ \t]++[\w.-]{1,60}+=")
# `warm-up pass: logits` is a phrase, and no entry.
_PHRASE_BEFORE = re.compile(r"\w[ ]")
_REFUSED = re.compile(r"[^\n'\"]{0,80}?(?:value|choice|got)\b[: ]{0,3}+(?=['\"])")


def _refused(text: str, at: int) -> Taken:
    """`argument --api-key: invalid … value: 'X'`: the sentence of a parser, which quotes what it was given."""
    said = _REFUSED.match(text, at)
    begin, end, after = scan.value(text, at if said is None else said.end())
    if said is not None or not prose(text[begin:end]):
        yield begin, end, OPTION, after


def _in_a_query(text: str, found: re.Match[str], what: ValueKind) -> Taken:
    """`?name=value&`."""
    begin, end, after = scan.value(text, found.end(), parameter=True)
    if what is not ValueKind.TEXT and _taken(what, found["name"], text[begin:end], quoted=False):
        yield begin, end, "parameter of an address", after


def _behind_a_space(text: str, found: re.Match[str], what: ValueKind) -> Taken:
    """`--name value value`."""
    if found["name"].startswith("-") and what in {ValueKind.SECRET, ValueKind.PERHAPS}:
        begin, end, _ = scan.value(text, found.end())
        yield from _words(
            text, found.end(), sure=what is ValueKind.SECRET or is_plain_word(found["name"], text[begin:end])
        )
    elif what is ValueKind.SECRET:
        yield from fields.behind(text, found.span("name"), found.end())


def _behind_a_comma(text: str, found: re.Match[str], what: ValueKind) -> Taken:
    """`('name', 'value')`, `['--name', 'value', 'value']`."""
    option = found["name"].startswith("-")
    if what in {ValueKind.SECRET, ValueKind.HEADER} and (option or _first_of_pair(text, found.start())):
        yield from _items(text, found.end(), many=option)


def _taken(what: ValueKind, name: str, value: str, *, quoted: bool) -> bool:
    if tells_nothing(value):
        return False
    if len(value) > _LONGEST_LEFT:
        return True
    if what is ValueKind.TEXT:
        return users.are_users_own(name.rsplit(".", 1)[-1].lower(), value, quoted=quoted)
    if what is ValueKind.PERHAPS:
        return opaque_under(name, value)
    if "pwd" in name.lower() and value.strip("\"'").startswith((*FOLDER, ".")):
        return False
    return value.lower() not in word_list("prose")


def _words(text: str, at: int, *, sure: bool) -> Taken:
    """The values behind an option, up to what is no value: another option, or a sentence that goes on."""
    begin, end, after = scan.value(text, at)
    word = text[begin:end]
    if not (prose(word) or tells_nothing(word)) and (sure or opaque(word)):
        yield begin, end, OPTION, after
        yield from _more_words(text, after)


def _more_words(text: str, at: int) -> Taken:
    while (gap := _NEXT_WORD.match(text, at)) is not None:
        begin, end, at = scan.value(text, gap.end())
        if begin >= end or prose(text[begin:end]) or _NO_KEY.match(text, begin):
            return
        if not tells_nothing(text[begin:end]):
            yield begin, end, OPTION, at


# An assignment, an address, a folder or a card is no further value of an option for keys.
_NO_KEY = re.compile(r"[A-Za-z_]\w{0,60}=|[a-z][\w+.-]{0,20}://|[~.]{0,2}/|GPU-|MIG-")
_COMMA = re.compile(r"\s*+,\s*+")


def _items(text: str, at: int, *, many: bool) -> Taken:
    """The next texts of a list, up to one that is an option."""
    while (inner := scan.quoted(text, at)) is not None:
        begin, end, at = inner
        if many and text[begin : begin + 1] == "-":
            return
        if begin < end and not tells_nothing(text[begin:end]):
            yield begin, end, OPTION if many else NAMED, at
        comma = _COMMA.match(text, at)
        if comma is None or not many:
            return
        at = comma.end()


_PAIR = Pattern(r"[(\[][bBrRuU]{0,2}(?:\\{0,9}[\"']|&(?:quot|apos|#34|#39|#x27);)\Z")


def _first_of_pair(text: str, at: int) -> bool:
    return bool(_PAIR.search(text[max(0, at - 16) : at]))


def _header_end(text: str, name: int, at: int) -> int:
    """A header goes to the end of its line, or of the quotes in which it stands."""
    line = text.find("\n", at)
    end = len(text) if line < 0 else line
    mark = text[name - 1 : name]
    if mark in {'"', "'"} and mark:
        close = text.find(mark, at, end)
        end = end if close < 0 else close
    return end


def spoken(text: str) -> Iterator[Place]:
    """`Invalid API key: X`, `the password is X`."""
    at = 0
    while (found := _PHRASE.search(text, at)) is not None:
        if _DONE.match(text, at := found.end()):
            continue
        begin, end, after = scan.value(text, found.end())
        word, told = text[begin:end], after > end or found[0].rstrip().endswith((":", "="))
        at = found.end()
        if (
            not tells_nothing(word)
            and not prose(word)
            and (told or len(word) > LONGEST_PLAIN or spoken_secret(word) or found["what"].lower().startswith("pass"))
        ):
            yield begin, end, NAMED
            at = max(at, after)


def borne(text: str) -> Iterator[Place]:
    """`Bearer X`, `Basic X`."""
    for found in _BEARER.finditer(text):
        if opaque(found["credential"]):
            yield found.start("credential"), found.end(), "authorization header"
