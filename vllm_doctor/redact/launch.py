"""Takes secrets out of a launch: its command line and its environment, where names and values are known as such."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from urllib.parse import unquote

from vllm_doctor.redact.names import ValueKind, is_secret_name, is_shown_variable, value_kind
from vllm_doctor.redact.text import HIDDEN, Replace, hide, scrub
from vllm_doctor.redact.unnamed import secrets_unnamed
from vllm_doctor.redact.values import opaque, tells_nothing

# Shorter ones would take innocent words out of the log.
SHORTEST_SECRET = 6
_LONGEST = 4000
_WORD = re.compile(
    r"[a-z]+|[A-Z]+|[\w.-]+\.(?:so|py|json|conf|toml|ya?ml|log)(?:\.\d+)?|[0-9.:,/-]+|[a-z]{2}_[A-Z]{2}\.[\w-]+"
)

# Options of docker, podman and srun behind which a variable or a label stands with its value.
_GIVES = frozenset({"-e", "--env", "--label"})


def scrub_argv(argv: Sequence[str], replace: Replace = hide) -> tuple[str, ...]:
    """A command line whose secret options lost their values (`--api-key A B` loses both)."""
    kept: list[str] = []
    secret = False
    header = False
    alone = secrets_unnamed(argv)
    before, leads = "", True
    for word in argv:
        name, equals, value = word.partition("=")
        leads = leads and (bool(equals and name.isidentifier()) or _hands_on(word))
        if (leads or before in _GIVES) and equals and not word.startswith("-"):
            kept.append(f"{name}={_given(before, name, value, replace)}")
            secret = False
        elif name in _GIVES and equals and "=" in value:
            inner, _, value = value.partition("=")
            kept.append(f"{name}={inner}={_given(name, inner, value, replace)}")
        elif word.startswith("-"):
            hide = _hides(name, value)
            secret = hide and not equals
            kept.append(f"{name}={replace(value, 'secret option')}" if hide and equals else scrub(word, replace))
        elif equals and name.isidentifier() and not tells_nothing(value) and not secret and is_secret_name(name):
            kept.append(f"{name}={replace(value, 'name before the value')}")
        else:
            hide = secret or (header and not tells_nothing(word))
            kept.append(replace(word, "secret option") if hide else scrub(word, replace))
        header = word in {"-H", "-u", "--user"}
        before = word
        for value in alone:
            if value in kept[-1]:
                kept[-1] = kept[-1].replace(value, replace(value, "value without a known name"))
    return tuple(kept)


def _hands_on(word: str) -> bool:
    return word.rsplit("/", 1)[-1] in {"env", "sudo", "exec", "export"}


def _given(option: str, name: str, value: str, replace: Replace) -> str:
    """The value of a variable or of a container's label, which is anybody's: told as that of any environment is."""
    if tells_nothing(value):
        return value
    if option == "--label":
        return replace(value, "label of a container")
    return scrub_env({name: value}, replace)[name]


def _hides(name: str, value: str) -> bool:
    what = value_kind(name)
    return what in {ValueKind.SECRET, ValueKind.HEADER} or (what is ValueKind.PERHAPS and bool(value) and opaque(value))


def scrub_env(env: Mapping[str, str], replace: Replace = hide) -> dict[str, str]:
    """All names; the values only of variables that are known to tell about vLLM and to carry no secret."""
    return {
        name: scrub(value, replace)
        if is_shown_variable(name)
        else replace(value, "environment variable that is not on the list")
        for name, value in env.items()
    }


def secret_values(argv: Sequence[str], env: Mapping[str, str], known: Iterable[str] = ()) -> frozenset[str]:
    """The secrets that a launch carries, to be looked for where no name stands beside them: by name, and every value
    of the environment that is not known to be harmless (a variable that may be shown, a word, a number, a folder, a
    part of what the command line shows anyway or of what is `known`), and what is hidden inside of any value: the
    password in an address, the key in a JSON option."""
    shown = "\n".join((*scrub_argv(argv), *known, *(value for name, value in env.items() if is_shown_variable(name))))
    found = {
        value
        for name, value in env.items()
        if is_secret_name(name) or not (is_shown_variable(name) or value in shown or _harmless(value))
    }
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name.startswith("-") and _hides(name, value):
            found.update((value,) if equals else takewhile(lambda w: not w.startswith("-"), argv[at + 1 :]))
    found |= secrets_unnamed(argv)
    found |= {value for word in (*argv, *env.values()) for value in _inside(word)}
    return frozenset(value for value in found if len(value) >= SHORTEST_SECRET and not tells_nothing(value))


# What joins user and password in an address, the items of a list, and the quotes around them.
_PARTS = re.compile(r"[^\s:,\[\](){}\"']+")


def _inside(word: str) -> set[str]:
    """The secrets in a value whose other parts are none; a plain word is not looked for elsewhere."""
    found: set[str] = set()

    def remember(what: str, _why: str) -> str:
        bare = what.strip("\"'")
        parts = {bare, bare.partition(":")[2], *(_PARTS.findall(bare[:_LONGEST]) if bare[:1] in {"[", "("} else ())}
        found.update(part for one in parts for part in (one, unquote(one)) if not _harmless(part))
        return HIDDEN

    scrub(word, remember, users=False)
    return {value for value in found if HIDDEN not in value}


def _harmless(value: str) -> bool:
    return value.startswith(("/", "~", "unix:/")) or (bool(_WORD.fullmatch(value[:80])) and len(value) <= 80)


def scrub_values(text: str, secrets: Collection[str]) -> str:
    """`text` without the given secrets, wherever they stand."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return text
