"""Takes secrets out of text: by the name that stands before a value, then by shapes that only secrets have, and what
users of the server asked or were answered. Every step reads the text once: the time is linear in its length."""

import json
import re
from collections.abc import Callable, Iterator, Sequence

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.redact import fields, scan, shapes
from vllm_doctor.redact.folded import folded
from vllm_doctor.redact.names import Kind, in_a_query, kind, words, words_of
from vllm_doctor.redact.shapes import PRIVATE_KEY, Place

HIDDEN = shapes.HIDDEN
Replace = Callable[[str, str], str]

NAMED, HEADER, OPTION, ASKED = (
    "name before the value",
    "authorization or cookie header",
    "secret option",
    "what a user asked or was answered",
)

_QUOTE = r"(?:\\{0,64}+[\"']|&(?:quot|apos|\#34|\#39|\#x27);)"
# A name and what joins it with its value: `=`, `:`, `%3D`, as JSON and HTML may write them; a comma in
# `('name', 'value')` and in `['--name', 'value']`; a space behind an option.
_NAMED = re.compile(
    rf"(?<![\w.-])(?P<name>[\w.-]++)(?:(?P<joint>{_QUOTE}?+\]?+\s*+"
    rf"(?:[:=]{{1,3}}+>?+|%3[DdAa]|\\{{1,8}}+u003[DdAa]|&#(?:61|58|[xX]3[DdAa]);)\s*+)"
    rf"|(?P<comma>{_QUOTE}\s*+,\s*+(?=[bBrRuU]{{0,2}}{_QUOTE}))|(?P<space>(?<=[\w.]){_QUOTE}?+\s++(?=[^\s|&;<>])))"
)
_PHRASE = re.compile(
    r"\b(?P<what>(?:api|access|secret|private|account|auth)[ _-]?key|password|passphrase|passwd|secret|token"
    r"|credentials?)"
    r"[\"']?(?: (?:provided|supplied|used|given|received|value|for [^\s:]{1,60}))?"
    r"(?:(?: is| was|:| =)[ ]{1,4}(?=\S)|[ ]{1,4}(?=[\"']))",
    re.IGNORECASE,
)
_BEARER = Pattern(
    r"\b(?:Bearer|Basic|ApiKey|Token)(?:[ ]{1,4}|%20)(?!--)(?P<credential>[\w.~+/=-]{8,}+)", re.IGNORECASE
)
_OPTION_OF_PROGRAM = Pattern(
    r"(?<!\S)(?:(?:-u|-U|--user|--proxy-user)[ =]?(?=[\"']?[^\s:%\"'-][^\s:%\"']{0,100}[:%])|-p[ ]?|-a (?=\S{6})|-w )"
    r"(?=[\"']?[^\s-])"
)
# `docker run -p 8000:8000`
_PORTS = Pattern(r"[\d.:/]{1,40}(?:tcp|udp)?")
_PLAIN = re.compile(
    r"[\[\"'({]*(?:None|null|true|false|\d{1,6}(?:\.\d{1,6})?(?: ?[KMGT]?i?B)?|<[\w -]{1,30}>|\[hidden\]?|hidden|\*+"
    r"|x{3,}|\.{2,}|…)?[\]\"')}]*",
    re.IGNORECASE,
)
_REFERENCE = Pattern(r"[\"']?(?:\$\w+|\$\{[^}]{1,80}\}|\{\{.{1,160}\}\}|\$\(.{1,80}|<[^>]{1,60}>)[\"']?")
_WORDS = re.compile(
    r"[a-z_]{1,40}|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?:\.\d+|\.[A-Za-z_]\w*)*|[\d.,]+[a-zA-Z%]{0,4}|[A-Z]{1,8}"
)
_LONGEST_PLAIN = 200
# What is left and is looked into again is bounded, or a text full of names would be read once for each.
_LONGEST_LEFT = 1000
_FOLDER = ("/", "~", "./", "../")
_WRAPPED = re.compile(r"[\[({]|[bBrRuUfF]{0,2}+\\{0,64}+[\"']|&(?:quot|apos|#34|#39|#x27);")
# What was hidden before, perhaps behind a quote that never closes, is not looked into again.
_DONE = re.compile(r"[bBrRuUfF]{0,2}\\{0,8}[\"'(\[{]{0,3}(?:&#?\w{1,6};)?\[hidden\]")
# A word of a command line that ends an option's values.
_NEXT_WORD = re.compile(r"[ \t]++(?=[^\s|&;<>)\]-])")
# One word that a setting may have, where vLLM's checks name what they met.
_SETTING = re.compile(r"[\w.:+,-]{1,48}|[~.]{0,2}/[\w.:+,/@-]{1,300}")
_AMBIGUOUS = {"input_value", "chat_template", "url", "uri"}
_OWN_ROUTES = Pattern(r"https?://[^/?#\s]{1,255}(?:/|/v1(?:/[\w/.-]{0,60})?|/metrics|/health|/version|/ping)?")
_MEDIA = Pattern(r"(?<=://)[^\s\"'<>`\\/]{1,255}/[^\s\"'<>`\\]*+", re.IGNORECASE)
_MEDIA_END = Pattern(
    r"\.(?:png|jpe?g|webp|gif|bmp|tiff?|mp4|webm|mov|mkv|wav|mp3|ogg|flac|m4a|pdf)(?:[?#].*)?\Z", re.IGNORECASE
)
# Cheap first look: a line without any of these has nothing that a name tells.
_HINTS = (
    "key", "token", "secret", "passw", "pass", "passphrase", "credential", "bearer", "basic", "auth", "cookie", "pwd",
    "sig", "jwt", "_pat", "otp", "dsn", "sid", "sas", "webhook", "salt", "session", "csrf", "connectionstring",
    "--ap", "--hf",
    "pw", "psw", "clave", "parola", "mdp", "senha", "kennwort", "wachtwoord", "contrasena", "motdepasse", "palavra",
)  # fmt: skip
_TEXT_HINTS = (
    "prompt", "message", "content", "input", "output", "text", "quer", "document", "suffix", "stop", "bad_words",
    "respons", "answer", "body", "argument", "tool", "function_call", "image", "audio", "video", "url", "uri", "echo",
    "instruction", "reasoning", "delta", "complet", "guided", "structur", "grammar", "schema", "template", "transc",
    "translation", "question", "passage", "data_", "speech", "conversation", "history", "metadata", "://", "generated",
)  # fmt: skip


# `pwd=ab1`
_SHORTEST = 7


def _hide(_value: str, _why: str) -> str:
    return HIDDEN


def scrub(text: str, replace: Replace = _hide, *, users: bool = True) -> str:
    """`text` without secrets and, with `users`, without what users of the server wrote or were answered.

    `replace(what, why)` gives what stands in its place.
    """
    if len(text) < _SHORTEST:
        return text
    if not (text.isascii() and text.isprintable()) and (seen := folded(text)) != text:
        told = _scrub(seen, replace, users=users)
        return text if told == seen else told
    return _scrub(text, replace, users=users)


def _scrub(text: str, replace: Replace, *, users: bool) -> str:
    lower = text.lower()
    named = any(hint in lower for hint in _HINTS)
    asked = users and any(hint in lower for hint in _TEXT_HINTS)
    if named:
        text = _replaced(text, fields.pairs(text, _tells), replace)
    if named or asked or not text.isascii():
        text = _replaced(text, _named(text, users=users), replace)
        if named:
            text = _replaced(text, _spoken(text), replace)
            text = _replaced(text, _borne(text), replace)
            text = _replaced(text, fields.wrapped(text, _tells), replace)
    text = _replaced(text, fields.elsewhere(text, lower, _tells), replace)
    if "@" in text and ":" in text:
        text = _replaced(
            text, ((at.begin, at.end, at.why) for at in shapes.userinfo(text) if opaque(at.password)), replace
        )
    if "%40" in text:
        text = _replaced(text, shapes.passwords_in_percents(text), replace)
    if "://" in text:
        text = _replaced(text, shapes.passwords(text), replace)
        text = _replaced(text, shapes.webhooks(text, lower), replace)
        if users:
            text = _replaced(text, _media(text), replace)
    if users and ("{%" in text or "{{" in text):
        text = _replaced(text, _templates(text), replace)
    if any(program in lower for program in words("programs")):
        text = _replaced(text, _of_programs(text), replace)
    text = _replaced(text, fields.of_programs(text, lower, _tells), replace)
    return _replaced(text, sorted(shapes.places(text)), replace)


def safe(text: str) -> str:
    """Lines of an answer, of whatever format, without secrets: the last net before they leave. JSON stays JSON."""
    return "\n".join(_json(line) or scrub(line, users=False) for line in text.split("\n"))


# One that nobody closed goes to the end, so that no quotation mark of it is looked at again.
_LITERAL = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
_BETWEEN = re.compile(r"[\s{}\[\],:\d.eE+truefalsn-]*+")


def _json(line: str) -> str:
    """A line of JSON with each text of it redacted; nothing where it is none."""
    if line.lstrip()[:1] not in {'"', "{", "["} or '"' not in line or not _BETWEEN.fullmatch(_LITERAL.sub("", line)):
        return ""
    kept: list[str] = []
    at, name, option = 0, "", ""
    for found in _LITERAL.finditer(line):
        try:
            text = json.loads(found[0])
        except ValueError:
            return ""
        told = scrub(text, users=False)
        if line[found.end() : found.end() + 1] == ":":
            name = text
        elif (name and secret_under(name, text)) or (
            option and not text.startswith("-") and secret_under(option, text)
        ):
            told = HIDDEN
        option = text.lstrip("-") if text.startswith("-") else ""
        if told != text:
            kept += (line[at : found.start()], json.dumps(told))
            at = found.end()
    told = "".join((*kept, line[at:]))
    paired = _replaced(told, fields.pairs(told, _tells), _hide)
    return paired if _BETWEEN.fullmatch(_LITERAL.sub("", paired)) else told


# What signs a request or names a session has a digit; the same names in code have a class, a call or a word.
_RANDOM = re.compile(r"(?=[^\d]{0,80}\d)[\w.%+/=~:!?-]{12,}")


def _opaque_under(name: str, value: str) -> bool:
    if words_of(name)[-1:] and words_of(name)[-1] in words("random_alone"):
        return len(value) > _LONGEST_PLAIN or bool(_RANDOM.fullmatch(value))
    return opaque(value)


def _tells(name: str, value: str) -> bool:
    """`secret_under` for a value that a person or a program wrote beside its name: words of prose tell nothing."""
    return secret_under(name, value) and not _prose(value)


def secret_under(name: str, value: str) -> bool:
    """Is `value` a secret, by the name of the key, option or label beside it?"""
    what = kind(name)
    if what is Kind.PERHAPS:
        return _opaque_under(name, value) or _word(name, value)
    return what in {Kind.SECRET, Kind.HEADER} and not plain(value)


def _replaced(text: str, places: Iterator[Place] | Sequence[Place], replace: Replace) -> str:
    kept: list[str] = []
    at = 0
    for begin, end, why in places:
        if begin < at or begin >= end:
            continue
        what = text[begin:end]
        if what == HIDDEN or _marked(what):
            continue
        kept += (text[at:begin], replace(what, why))
        at = end
    return "".join((*kept, text[at:])) if kept else text


_MARK = re.compile(r"\[?<[a-z]{2,12}-\d{1,9}>\]?|\[hidden\]")


def _marked(what: str) -> bool:
    return len(what) < 30 and bool(_MARK.fullmatch(what))


def plain(value: str) -> bool:
    """Values that tell nothing: None, booleans, small numbers, references, placeholders, our own marks."""
    if len(value) > _LONGEST_PLAIN:
        return False
    bare = value.strip("\"'[](){}, ")
    return (
        not bare
        or bool(_PLAIN.fullmatch(value))
        or _marked(value.strip("\"'"))
        or bool(_REFERENCE.fullmatch(value))
        or bare.lower() in words("placeholders")
    )


def opaque(value: str) -> bool:
    """Is it neither a number nor a word, a name of code or a path?"""
    if len(value) > _LONGEST_PLAIN:
        return True
    bare = value.strip("\"'[](){}, ")
    if len(bare) < 5 or plain(value) or " " in bare or bare.startswith(_FOLDER) or bare.startswith("torch."):
        return False
    return not _WORDS.fullmatch(bare)


def _named(text: str, *, users: bool) -> Iterator[Place]:
    """What stands behind names."""
    at = 0
    while (found := _NAMED.search(text, at)) is not None:
        at = found.end()
        if _DONE.match(text, at):
            continue
        what = kind(found["name"])
        query = text[found.start() - 1 : found.start()] in {"?", "&", "#"} or text.startswith(
            "&amp;", found.start() - 5
        )
        if query and in_a_query(found["name"]):
            what = Kind.SECRET
        if what is Kind.OPEN or (what is Kind.TEXT and not users):
            continue
        if found["joint"] is None:
            behind = _behind_a_space if found["comma"] is None else _behind_a_comma
        else:
            behind = _in_a_query if query else _joined
        for begin, end, why, after in behind(text, found, what):
            yield begin, end, why
            at = after


Taken = Iterator[tuple[int, int, str, int]]


def _joined(text: str, found: re.Match[str], what: Kind) -> Taken:
    """`name=value`, `name: value` and, behind an option, what else it was given."""
    at = found.end()
    wrapped = _WRAPPED.match(text, at) is not None
    if what is Kind.TEXT and not wrapped and not found["name"].endswith("input_value"):
        yield from _unquoted(text, found)
        return
    if what is Kind.SECRET and found["name"].startswith("-") and found["joint"].strip() == ":":
        yield from _refused(text, at)
        return
    begin, end, after = scan.value(text, at)
    if what is Kind.HEADER and not wrapped:
        end = after = _header_end(text, found.start(), at)
    quoted = begin > at or after > end
    entry = what is Kind.PERHAPS and (
        quoted
        or found["joint"][-1:] == "="
        or (
            not _PHRASE_BEFORE.search(text, max(0, found.start() - 2), found.start())
            and bool(_ENTRY_ENDS.match(text, after))
        )
    )
    if not (
        _taken(what, found["name"], text[begin:end], quoted=quoted) or (entry and _word(found["name"], text[begin:end]))
    ):
        return
    yield begin, end, {Kind.HEADER: HEADER, Kind.TEXT: ASKED}.get(what, NAMED), after
    if found["name"].startswith("-") and found["joint"].strip() == "=":
        yield from _more_words(text, after)


# Behind the value of an entry nothing goes on: the line ends, or another entry or a bracket follows.
_ENTRY_ENDS = Pattern(r"\s*+(?:\Z|[,;)}\]\n])|[ \t]++[\w.-]{1,60}+=")
# `warm-up pass: logits` is a phrase, and no entry.
_PHRASE_BEFORE = re.compile(r"\w[ ]")
_ONE_WORD = re.compile(r"[A-Za-z][A-Za-z_-]{3,39}")


def _word(name: str, value: str) -> bool:
    """Is it a plain word that a weak name has for its whole value, `pass: hunter`, and none of those that names like
    these have where they guard nothing?"""
    bare = value.strip("\"'")
    if not _ONE_WORD.fullmatch(bare) or kind(name) is not Kind.PERHAPS or words_of(name)[-1] in words("mode"):
        return False
    known = words("prose") | words("placeholders") | words("outcome") | words("pass_of_work") | words("key_of_no_lock")
    return not known.intersection([bare.lower(), *words_of(bare)])


# The text that a record of JSON holds ends there.
_TEXT_ENDS = re.compile(r"\n|(?=\\{0,8}\"[,}])")
_FIRST_WORD = re.compile(r"\S+")
_TWO_WORDS = re.compile(r"[^\W\d_]{2,40}+(?![\w/.-])[^\n]{0,80}?(?<![\w/.-])[^\W\d_]{2,40}+(?![\w/-])")


def _unquoted(text: str, found: re.Match[str]) -> Taken:
    """`prompt: what a user wrote`, where only users write what stands under the name: two words and more, to the end of
    the line."""
    if ":" not in found["joint"] or found["name"].rsplit(".", 1)[-1].lower().replace("-", "_") not in words(
        "written_by_users"
    ):
        return
    at = found.end()
    begun = text[at : at + _LONGEST_PLAIN]
    first = _FIRST_WORD.match(begun)
    if first is None or _prose(first[0]) or not _TWO_WORDS.search(begun):
        return
    ended = _TEXT_ENDS.search(text, at)
    end = len(text) if ended is None else ended.start()
    yield at, end, ASKED, end


_REFUSED = re.compile(r"[^\n'\"]{0,80}?(?:value|choice|got)\b[: ]{0,3}+(?=['\"])")


def _refused(text: str, at: int) -> Taken:
    """`argument --api-key: invalid … value: 'X'`: the sentence of a parser, which quotes what it was given."""
    said = _REFUSED.match(text, at)
    begin, end, after = scan.value(text, at if said is None else said.end())
    if said is not None or not _prose(text[begin:end]):
        yield begin, end, OPTION, after


def _in_a_query(text: str, found: re.Match[str], what: Kind) -> Taken:
    """`?name=value&`."""
    begin, end, after = scan.value(text, found.end(), parameter=True)
    if what is not Kind.TEXT and _taken(what, found["name"], text[begin:end], quoted=False):
        yield begin, end, "parameter of an address", after


def _behind_a_space(text: str, found: re.Match[str], what: Kind) -> Taken:
    """`--name value value`."""
    if found["name"].startswith("-") and what in {Kind.SECRET, Kind.PERHAPS}:
        begin, end, _ = scan.value(text, found.end())
        yield from _words(text, found.end(), sure=what is Kind.SECRET or _word(found["name"], text[begin:end]))
    elif what is Kind.SECRET:
        yield from fields.behind(text, found.span("name"), found.end(), _tells)


def _behind_a_comma(text: str, found: re.Match[str], what: Kind) -> Taken:
    """`('name', 'value')`, `['--name', 'value', 'value']`."""
    option = found["name"].startswith("-")
    if what in {Kind.SECRET, Kind.HEADER} and (option or _first_of_pair(text, found.start())):
        yield from _items(text, found.end(), many=option)


def _taken(what: Kind, name: str, value: str, *, quoted: bool) -> bool:
    if plain(value):
        return False
    if len(value) > _LONGEST_LEFT:
        return True
    if what is Kind.TEXT:
        return _users_own(name.rsplit(".", 1)[-1].lower(), value, quoted=quoted)
    if what is Kind.PERHAPS:
        return _opaque_under(name, value)
    if "pwd" in name.lower() and value.strip("\"'").startswith((*_FOLDER, ".")):
        return False
    return value.lower() not in words("prose")


def _users_own(name: str, value: str, *, quoted: bool) -> bool:
    """Is it text of a user, and not a setting, a number or the address of the server itself?"""
    bracket = value[:1] in {"[", "{", "("}
    if not (quoted or bracket):
        return name == "input_value" and not value.startswith("ArgsKwargs(") and not _SETTING.fullmatch(value[:400])
    if name in {"url", "uri"}:
        host = value.partition("://")[2].split("/", 1)[0].rsplit("@", 1)[-1].split(":", 1)[0]
        public = host in words("public_hosts") or host.endswith(tuple(f".{h}" for h in words("public_hosts")))
        return bool(host) and not public and not _OWN_ROUTES.fullmatch(value[:400])
    if name in _AMBIGUOUS:
        return not (bracket or _SETTING.fullmatch(value[:400])) or (bracket and len(value) > 2)
    return True


def _words(text: str, at: int, *, sure: bool) -> Taken:
    """The values behind an option, up to what is no value: another option, or a sentence that goes on."""
    begin, end, after = scan.value(text, at)
    word = text[begin:end]
    if not (_prose(word) or plain(word)) and (sure or opaque(word)):
        yield begin, end, OPTION, after
        yield from _more_words(text, after)


def _more_words(text: str, at: int) -> Taken:
    while (gap := _NEXT_WORD.match(text, at)) is not None:
        begin, end, at = scan.value(text, gap.end())
        if begin >= end or _prose(text[begin:end]) or _NO_KEY.match(text, begin):
            return
        if not plain(text[begin:end]):
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
        if begin < end and not plain(text[begin:end]):
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


def _spoken(text: str) -> Iterator[Place]:
    """`Invalid API key: X`, `the password is X`."""
    at = 0
    while (found := _PHRASE.search(text, at)) is not None:
        if _DONE.match(text, at := found.end()):
            continue
        begin, end, after = scan.value(text, found.end())
        word, told = text[begin:end], after > end or found[0].rstrip().endswith((":", "="))
        at = found.end()
        if (
            not plain(word)
            and not _prose(word)
            and (told or len(word) > _LONGEST_PLAIN or _spoken_secret(word) or found["what"].lower().startswith("pass"))
        ):
            yield begin, end, NAMED
            at = max(at, after)


def _borne(text: str) -> Iterator[Place]:
    """`Bearer X`, `Basic X`."""
    for found in _BEARER.finditer(text):
        if opaque(found["credential"]):
            yield found.start("credential"), found.end(), "authorization header"


def _prose(word: str) -> bool:
    return len(word) < 30 and word.lower().strip(".,;:") in words("prose")


def _spoken_secret(word: str) -> bool:
    return any(c.isdigit() for c in word) or not word.islower()


def _of_programs(text: str) -> Iterator[Place]:
    """What `curl -u`, `sshpass -p` and their like take on the command line."""
    named = re.search(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(words('programs'))))})(?=\s)", text)
    if named is None:
        return
    at = named.end()
    while (found := _OPTION_OF_PROGRAM.search(text, at)) is not None:
        begin, end, after = scan.value(text, found.end())
        at = max(found.end(), after)
        if not plain(text[begin:end]) and not _PORTS.fullmatch(text[begin:end]):
            yield begin, end, "option of a program"


def _media(text: str) -> Iterator[Place]:
    """The address of an image, a film or a document that a user sent."""
    for found in _MEDIA.finditer(text):
        slash = found[0].find("/")
        if _MEDIA_END.search(found[0][-400:].rstrip(".,;:)]}")):
            yield found.start() + slash + 1, found.end(), "address of what a user sent"


def _templates(text: str) -> Iterator[Place]:
    """A chat template: from where its first expression begins to where its last one ends."""
    if any(word in text for word in ("message", "content", "role")):
        begin = min(at for mark in ("{%", "{{") if (at := text.find(mark)) >= 0)
        end = max(text.rfind("%}"), text.rfind("}}"))
        if end > begin:
            yield begin, end + 2, "chat template"


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

    def scrub(self, text: str, replace: Replace = _hide) -> str:
        """The next line without secrets."""
        if self._left:
            self._left -= 1
            head, end, rest = text.partition(_KEY_END)
            body = [(found.start(), found.end(), "private key") for found in _KEY_BODY.finditer(head)]
            text = _replaced(head, body, replace) + end + rest
        begun = max((found.end() for found in PRIVATE_KEY.finditer(text)), default=-1) if "PRIVATE" in text else -1
        if begun > text.rfind(_KEY_END):
            self._left = _LONGEST_KEY
        elif _KEY_END in text:
            self._left = 0
        if self._name:
            text = _replaced(text, fields.value_of(self._name, text, _tells), replace)
        self._name = fields.name_at_the_end(text)
        if self._block is not None and text.strip():
            inside = len(text) - len(text.lstrip())
            if inside > self._block:
                text = _replaced(text, [(inside, len(text), NAMED)], replace)
            else:
                self._block = None
        elif self._alone and (given := text.find("input_value=")) >= 0:
            told = scan.value(text, given + len("input_value="))
            text = _replaced(text, [(told[0], told[1], NAMED)], replace)
        if self._block is None:
            self._block = fields.block_begins(text)
        self._alone = fields.is_secret_alone(text)
        return scrub(text, replace)
