"""Secrets of which neither a name nor their own shape tells, but the words or the tag around them. Every expression is
bounded and begins where a word does, so that no text costs more than its bytes."""

from collections.abc import Iterator

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.redact.shapes import Place
from vllm_doctor.redact.values import opaque

AROUND = "the words around the value"
_MARK = r"[\"']?"
# A field of a form that shows no characters (HTML's `type=password`); its value stands before or behind the type.
_FIELD = Pattern(
    r"<input\s[^<>]{1,600}>",
)
_SHOWS_NOTHING = Pattern(r"(?<![\w-])type[ ]{0,4}=[ ]{0,4}[\"']?password\b")
_VALUE = Pattern(
    r"(?<![\w-])value[ ]{0,4}=[ ]{0,4}(?:\"(?P<a>[^\"]{1,400})|'(?P<b>[^']{1,400})|(?P<c>[^\s\"'>]{1,400}))"
)
# `NAME_USER=user:V`, as curl, pip and many clients write a login in one.
_LOGIN = Pattern(
    rf"(?<![\w.-])(?:[\w.-]{{0,60}}[_.-])?(?:user|username|login|userpwd){_MARK}[ ]{{0,3}}[:=][ ]{{0,3}}{_MARK}"
    r"[\w.@-]{1,64}:(?P<value>[^\s:/\"',;]{6,200})"
)
# `credentials: user : V`.
_CREDENTIALS = Pattern(
    rf"\bcredentials?{_MARK}[ ]{{0,3}}[:=][ ]{{0,3}}[^\s:\"']{{1,64}}[ ]{{0,3}}[:/][ ]{{0,3}}"
    r"(?P<value>[^\s\"',;]{4,200})"
)
# `PIN: 4711`, `card_pin=4711`: digits alone, which are otherwise a number like any other.
_PIN = Pattern(
    rf"(?<![\w.-])(?:[\w-]{{0,60}}_)?pin(?:[ _-]?code)?{_MARK}[ ]{{0,3}}[:=][ ]{{0,3}}{_MARK}"
    r"(?P<value>\d{4,12})(?![\w.])"
)
# The seed of one-time passwords is base32 (RFC 4648), at least 16 of its characters (RFC 4226 asks for 128 bits, many
# have 80): all capitals, or with a digit, as no word is.
_SEED = Pattern(r"\b(?:t?otp|2fa|mfa|seed)\b[^\n]{0,20}?\b(?P<value>[a-z2-7]{16,128})(?:={1,6})?(?![\w=])")
# `key "sk" → V`: a label of somebody's, and what it stands for.
_LABELLED = Pattern(
    r"\b(?:key|token|secret|credential)s?[ ]{1,2}[\"'][\w-]{1,30}[\"'][ ]{0,3}(?:->|→|=|:)[ ]{0,3}[\"']?"
    r"(?P<value>(?=[^\s\d]{0,80}\d)[\w+/=-]{8,200})(?![\w.])"
)
# `"V" == token`: a comparison that was quoted with the code that failed, and has its value first.
_COMPARED = Pattern(
    r"[\"'](?P<value>[^\s\"']{4,200})[\"'][ ]{0,3}[!=]=[ ]{0,3}(?:[\w.]{0,60}[_.])?"
    r"(?:key|token|secret|password|passwd|passphrase|credential)s?(?!\w|\.\w)"
)
# systemd.exec(5): what follows the name of a credential is its text, or its ciphertext.
_CREDENTIAL = Pattern(
    r"\bsetcredential(?:encrypted)?=[^\s:]{1,255}:[ ]{0,4}(?:\\\n[ \t]{0,40})?(?P<value>[^\s\\]{1,2000})"
)


def _no_word(value: str) -> bool:
    return value.isupper() or any(c.isdigit() for c in value)


def around(text: str, lower: str) -> Iterator[Place]:
    """The places of such values. `lower` is the text in small letters, as long as the text itself."""
    if len(lower) != len(text):
        return
    found: list[Place] = []
    if "<input" in lower and "password" in lower:
        for field in _FIELD.finditer(lower):
            if _SHOWS_NOTHING.search(field[0]) and (value := _VALUE.search(field[0])) is not None:
                begin, end = value.span(value.lastgroup or "c")
                found.append((field.start() + begin, field.start() + end, AROUND))
    for hints, pattern, tells in (
        (("user", "login"), _LOGIN, opaque),
        (("credential",), _CREDENTIALS, bool),
        (("pin",), _PIN, bool),
        (("otp", "2fa", "mfa", "seed"), _SEED, _no_word),
        (("key", "token", "secret", "credential"), _LABELLED, opaque),
        (("== ", "!= "), _COMPARED, opaque),
        (("setcredential",), _CREDENTIAL, bool),
    ):
        if any(hint in lower for hint in hints):
            places = (m.span("value") for m in pattern.finditer(lower))
            found += [(begin, end, AROUND) for begin, end in places if tells(text[begin:end])]
    yield from sorted(found)
