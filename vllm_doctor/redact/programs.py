"""Secrets that a program takes by their place on its command line."""

import re
from collections.abc import Iterator

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.redact import scan
from vllm_doctor.redact.names import word_list
from vllm_doctor.redact.shapes import Place
from vllm_doctor.redact.values import tells, tells_nothing

PROGRAM = "option of a program"
_OPTION_OF_PROGRAM = Pattern(
    r"(?<!\S)(?:(?:-u|-U|--user|--proxy-user)[ =]?(?=[\"']?[^\s:%\"'-][^\s:%\"']{0,100}[:%])|-p[ ]?|-a (?=\S{6})|-w )"
    r"(?=[\"']?[^\s-])"
)
# `docker run -p 8000:8000`, `curl -w '%{time_total}'`
_PORTS = Pattern(r"[\d.:/]{1,40}(?:tcp|udp)?|(?:%\{[a-z_]{1,40}\}(?:\\n| ){0,2}){1,8}")
_STDIN = Pattern(
    r"(?<![\w.-])(?:echo|printf)[ \t]{1,4}(?:-\w{1,3}[ \t]{1,4})?(?:[\"']?%s(?:\\n)?[\"']?[ \t]{1,4})?"
    r"(?P<value>\"[^\"|]{1,200}\"|'[^'|]{1,200}'|[^\s|\"']{1,200})[ \t]{0,4}\|(?=[^|\n]{1,200}(?:stdin|passwd|sudo -S))"
)
_HTPASSWD = Pattern(r"(?<![\w.-])htpasswd((?:[ \t]{1,4}-\w{1,12}){1,5})[ \t]{1,4}")
_WORD = re.compile(r"\S{1,200}[ \t]{1,4}")
_LABEL = re.compile(r"(?:pass|env|file|fd|stdin):")


# Oracle's `user/password@host`, behind what a login is told by (Database Net Services: easy connect).
_ORACLE = Pattern(
    r"(?:jdbc:oracle:\w{2,8}:|\b(?:sqlplus|login|logon|connect)[ ]{1,4})"
    r"[\w$#.-]{1,60}/(?P<value>[^\s/@]{3,200})@(?=[\w/])",
    re.IGNORECASE,
)


def of_programs(text: str, lower: str) -> Iterator[Place]:
    """What curl, openssl, htpasswd and their like take on a command line, and what is piped into one that asks."""
    places = [*_of_clients(text)] if any(program in lower for program in word_list("programs")) else []
    if "|" in text and ("echo" in lower or "printf" in lower):
        places += [(*f.span("value"), PROGRAM) for f in _STDIN.finditer(text) if tells("password", f["value"])]
    if "@" in text and "/" in text:
        places += [(*f.span("value"), PROGRAM) for f in _ORACLE.finditer(text)]
    if "htpasswd" in lower:
        places += _of_htpasswd(text)
    for entry in word_list("options_of_programs"):
        program, _, options = entry.partition(" ")
        if program in lower:
            places += _of_program(text, program, options)
    yield from sorted(places)


def _of_htpasswd(text: str) -> Iterator[Place]:
    """`htpasswd -b FILE USER V`, and with `-n` no file."""
    at = 0
    while (found := _HTPASSWD.search(text, at)) is not None:
        flags, at = found[1], found.end()
        for _ in range(1 if "n" in flags else 2):
            word = _WORD.match(text, at)
            at = word.end() if word is not None else len(text)
        begin, end, at = scan.value(text, at)
        if "b" in flags and begin < end and tells("password", text[begin:end]):
            yield begin, end, PROGRAM


def _of_program(text: str, program: str, options: str) -> Iterator[Place]:
    begun = re.search(rf"(?<![\w.-]){re.escape(program)}(?=[ \t])", text)
    if begun is None:
        return
    at = begun.end()
    form = re.compile(rf"(?<=[ \t])(?:{'|'.join(map(re.escape, options.split(' ')))})[ \t=]{{1,4}}(?=[^\s-])")
    while (found := form.search(text, at)) is not None:
        begin, end, after = scan.value(text, found.end())
        at = max(found.end(), after)
        label = _LABEL.match(text, begin, end)
        if label is not None and not label[0].startswith("pass"):
            continue
        begin = begin if label is None else label.end()
        if tells("password", text[begin:end]):
            yield begin, end, PROGRAM


def _of_clients(text: str) -> Iterator[Place]:
    """What `curl -u`, `sshpass -p` and their like take on the command line."""
    named = re.search(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(word_list('programs'))))})(?=\s)", text)
    if named is None:
        return
    at = named.end()
    while (found := _OPTION_OF_PROGRAM.search(text, at)) is not None:
        begin, end, after = scan.value(text, found.end())
        at = max(found.end(), after)
        if not tells_nothing(text[begin:end]) and not _PORTS.fullmatch(text[begin:end]):
            yield begin, end, PROGRAM
