"""Secrets whose name stands in a field beside them, as `name: N` and `value: V`, an element of XML or a word before a
word. Every expression begins where a run of its characters does and is bounded, so that no text costs more than its
bytes."""

import re
from collections.abc import Iterator

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.redact import scan
from vllm_doctor.redact.names import word_list
from vllm_doctor.redact.shapes import Place
from vllm_doctor.redact.values import tells

FIELD, ELEMENT = "name in the field before", "name of the element"
QUOTE = r"(?:\\{0,64}+[\"']|&(?:quot|apos|\#34|\#39|\#x27);)"
# What names a name, and what names its value: an environment variable of a pod, a property, a header, a tag of a cloud.
NAMES = "name|key|variable|header|property|option|setting|field"
VALUES = "value|val|content"
GAP = r"[ \t]{0,4}[:=][ \t]{0,4}"
_PAIR = Pattern(
    rf"(?<![\w.-])(?:{NAMES}){QUOTE}?{GAP}{QUOTE}?(?P<name>[A-Za-z_][\w.-]{{1,120}}+){QUOTE}?"
    rf"(?:[,;]|\\{{1,8}}[nrt]|[\s+-]){{1,60}}+{QUOTE}?(?:{VALUES}){QUOTE}?{GAP}(?=\S)",
    re.IGNORECASE,
)
# The same the other way round: `{"value": V, "name": N}`.
_PAIR_TURNED = Pattern(
    rf"(?<![\w.-])(?:{VALUES}){QUOTE}{GAP}(?P<open>{QUOTE})(?P<value>[^\"'\\]{{1,400}}+)(?P=open)"
    rf"[ \t]{{0,4}},[ \t]{{0,4}}{QUOTE}(?:{NAMES}){QUOTE}{GAP}{QUOTE}(?P<name>[A-Za-z_][\w.-]{{1,120}}+){QUOTE}",
    re.IGNORECASE,
)
_ELEMENT = Pattern(r"<(?P<name>[A-Za-z_][\w.:-]{1,80}+)(?:\s[^<>]{0,200}+)?>(?P<value>[^<>]{1,1000}+)</")


# A value that is asked for elsewhere.
REFERENCE = re.compile(r"\$\{[^}]{1,80}\}|\$\(|\{\{")


def pairs(text: str) -> Iterator[Place]:
    """`{"name": N, "value": V}`, `<add key="N" value="V"/>`, `<N>V</N>`."""
    places = []
    lower = text.lower()
    if "val" in lower or "content" in lower:
        at = 0
        while (found := _PAIR.search(text, at)) is not None:
            at = found.end()
            begin, end, after = _value(text, at)
            if not REFERENCE.match(text, begin) and tells(found["name"], text[begin:end]):
                if after - at >= _WINDOW:
                    begin, end, after = scan.value(text, at)
                places.append((begin, end, FIELD))
                at = after
        turned = _PAIR_TURNED.finditer(text) if "name" in lower or "key" in lower else ()
        places += [(*f.span("value"), FIELD) for f in turned if tells(f["name"], f["value"])]
    if "</" in text:
        places += [(*f.span("value"), ELEMENT) for f in _ELEMENT.finditer(text) if tells(f["name"], f["value"])]
    yield from sorted(places)


_WINDOW = 4000


def _value(text: str, at: int) -> tuple[int, int, int]:
    """`scan.value` of the next characters: what turns out to be no secret is not read to the end of the text."""
    begin, end, after = scan.value(text[at : at + _WINDOW], 0)
    return at + begin, at + end, at + after


_ARROW = re.compile(r"(?:->|\u2192)[ \t]{0,4}")
# netrc(5): the password of a machine is whatever stands behind the word.
_NETRC = Pattern(r"(?:machine[ \t]{1,4}\S{1,200}|default)[ \t]{1,4}login[ \t]{1,4}\S{1,100}[ \t]{1,4}\Z")
_PASSWORDS = frozenset({"password", "passwd", "passphrase", "passcode", "pwd"})
_NO_VALUE = re.compile(
    r"[-\[({<]|[A-Z][A-Z0-9]{0,60}(?:_[A-Z0-9]{1,60}){1,9}(?![\w-])|[A-Za-z_]\w{0,60}=|[a-z][\w+.-]{0,20}://"
)
_LONGEST_WORD = 200
_USER_PASSWORD = re.compile(r"[\w.@-]{2,64}:[^\s:/]{6,200}")


def behind(text: str, name: tuple[int, int], at: int) -> Iterator[tuple[int, int, str, int]]:
    """`NAME value`, `NAME -> value`, `password value`: a word with digits or capitals inside, as no sentence has it."""
    begins, ends = name
    if "\n" in text[ends:at]:
        return
    told = text[begins:ends]
    arrow = _ARROW.match(text, at)
    at = at if arrow is None else arrow.end()
    password = told.lower() in _PASSWORDS
    netrc = password and _NETRC.search(text[max(0, begins - 320) : begins]) is not None
    named = password or "_" in told or arrow is not None or _USER_PASSWORD.match(text, at)
    if not (netrc or (named and not _NO_VALUE.match(text, at))):
        return
    # What is long is taken, so nothing is read twice.
    begin, end, after = scan.value(text, at)
    if (netrc or _mixed(text[begin:end])) and tells(told, text[begin:end]):
        yield begin, end, FIELD, after


# No sentence has a word with a digit and a letter, or with a capital behind a small letter.
_MIXED = re.compile(r"(?=[^\d]{0,200}\d)(?=[\d\W_]{0,200}[^\W\d_])|\S{0,200}?[a-z][\w-]{0,20}?[A-Z]")


def _mixed(word: str) -> bool:
    return len(word) > _LONGEST_WORD or bool(_MIXED.match(word.rstrip(".,;:!?)")))


# Words for a secret in the languages of vLLM's users, and what joins them with it.
_COPULA = (
    r"[ \t]{0,4}(?:[:=\uff1a\uff1d]|->|\u2192|\u662f|\u4e3a|\u70ba|\u306f|\ub294|\uc740"
    r"|(?:est|es|ist|\u00e9|\u00e8|\u2014)(?!\w)|[ \t](?=[^\s:=\d]{0,80}\d))[ \t]{0,4}(?=\S)"
)


def elsewhere(text: str, lower: str) -> Iterator[Place]:
    """`mot de passe : V`, `contraseña: V`, `пароль V`, and those of Chinese, Japanese and Korean, also without a
    space."""
    known = [word for word in word_list("secret_in_other_languages") if word in lower]
    if not known:
        return
    form = rf"(?:{'|'.join(map(re.escape, sorted(known, key=len, reverse=True)))})s?[\"'\u300d\u300f\u201d]?{_COPULA}"
    at = 0
    said = re.compile(form, re.IGNORECASE)
    while (found := said.search(text, at)) is not None:
        begin, end, after = scan.value(text, found.end())
        at = max(found.end(), after)
        if tells("password", text[begin:end]):
            yield begin, end, "name before the value"


_SECRET_STR = Pattern(r"\bSecret(?:Str|Bytes)\((?=[bB]?[\"'])")


# What a client logs in with: `auth=('user', 'V')`, `HTTPBasicAuth('user', 'V')`.
_TWO = Pattern(
    r"(?:(?<![\w.-])auth[\"']?[ \t]{0,4}[=:][ \t]{0,4}[(\[]|\w{0,30}BasicAuth\(|\w{0,30}DigestAuth\()"
    r"[ \t]{0,4}(?:\"[^\"]{0,100}\"|'[^']{0,100}')[ \t]{0,4},[ \t]{0,4}(?=[bBrRuU]{0,2}[\"'])"
)


def wrapped(text: str) -> Iterator[Place]:
    """`SecretStr('V')`, `auth=('user', 'V')`."""
    yield from sorted([*_wrapped(text), *_in_twos(text)])


def _in_twos(text: str) -> Iterator[Place]:
    at = 0
    while (found := _TWO.search(text, at)) is not None:
        begin, end, at = scan.value(text, found.end())
        if tells("password", text[begin:end]):
            yield begin, end, "name before the value"


def _wrapped(text: str) -> Iterator[Place]:
    at = 0
    while (found := _SECRET_STR.search(text, at)) is not None:
        begin, end, at = scan.value(text, found.end())
        if tells("secret", text[begin:end]):
            yield begin, end, "name before the value"
