"""Takes secrets out of text: by the name that stands before a value, and by shapes that only secrets have.

Names of environment variables stay, values only of those that are listed; the same holds for options.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

HIDDEN = "[hidden]"
# Shorter ones would take innocent words out of the log.
SHORTEST_SECRET = 6

_WORD = r"api[_-]?key|token(?!s|iz)|secret|passw(?:or)?d|passphrase|credential|private[_-]?key|access[_-]?key"
_NAME = rf"[\w-]*(?:{_WORD})[\w-]*"
_SECRET_NAME = re.compile(rf"^-*{_NAME}$", re.IGNORECASE)
# What may carry a number of tokens and not a token: `max_tokens=5`, `num_batched_tokens: 8192`.
_ASSIGNED = re.compile(
    rf"(?P<key>(?<![\w-])--?{_NAME}[ =]+|[\"']?(?<![\w-]){_NAME}[\"']?\s*[:=]\s*)"
    r"(?P<value>\[[^\]\n]*\]|\"[^\"\n]*\"|'[^'\n]*'|[^\s,;)}\]]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<key>\b(?:Bearer|Basic)\s+)(?P<value>[\w.~+/=-]{8,})", re.IGNORECASE)
_HEADER = re.compile(
    r"(?P<key>\b(?:(?:Proxy-)?Authorization|(?:Set-)?Cookie)[\"']?\s*[:=]\s*)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'][^\n]*)",
    re.IGNORECASE,
)
# PWD is a folder where it begins like one.
_PWD = re.compile(r"(?P<key>(?<![\w-])pwd[\"']?\s*[:=]\s*)(?P<value>(?![\"']?[/~.])[^\s,;]+)", re.IGNORECASE)
# The `auth` of a registry's config.json.
_AUTH = re.compile(r"(?P<key>[\"']_?auth[\"']\s*:\s*)(?P<value>\"[^\"\n]{8,}\"|'[^'\n]{8,}')", re.IGNORECASE)
_QUERY = re.compile(r"(?P<key>[?&][\w.-]*(?:sig|signature|auth)=)(?P<value>[^\s&\"'<>]+)", re.IGNORECASE)
_USERINFO = re.compile(r"(?P<key>\b[a-z][a-z0-9+.-]*://)(?P<value>[^\s/@:]*:?[^\s/@]*)(?=@)", re.IGNORECASE)
_PASSWORD = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/@:]*:[^\s/@]+@", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_KEY_IN_LINE = re.compile(rf"(?P<key>{_PRIVATE_KEY.pattern})(?P<value>.+?)(?=-----END|$)")
_KEY_BODY = re.compile(
    r"(?P<key>)(?P<value>(?<![\w+/=])(?:[A-Za-z0-9+/]{16,}={0,2}|[A-Za-z0-9+/]{2,}={1,2})(?=\\n|\s|$))"
)
_KEY_END = "-----END"
# An RSA key of 16384 bits has 200 lines.
_LONGEST_KEY = 250
_SHAPES = re.compile(
    r"(?P<key>)(?P<value>\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bAKIA[A-Z0-9]{16}\b|\bxox[abprs]-[A-Za-z0-9-]{10,}|\beyJ[\w-]{5,}\.[\w-]{8,}\.[\w-]{8,}|\bglpat-[\w-]{16,}"
    r"|\bnvapi-[\w-]{20,}|\bASIA[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}|\bdckr_pat_[\w-]{16,}"
    r"|\bpypi-[\w-]{16,}|\bnpm_[A-Za-z0-9]{30,}|\b[sr]k_live_[A-Za-z0-9]{16,}|\bSG\.[\w-]{16,}\.[\w-]{16,}"
    r"|\bgsk_[A-Za-z0-9]{20,}|\br8_[A-Za-z0-9]{30,})"
)
# A secret key of AWS has no mark of its own: forty characters of base64 where something speaks of AWS or a secret.
_AWS = re.compile(
    r"(?P<key>)(?P<value>(?<![\w/+=])(?=[a-z0-9/+]*[A-Z])(?=[A-Z0-9/+]*[a-z])(?=[A-Za-z/+]*\d)[A-Za-z0-9/+]{40}(?![\w/+=]))"
)
_AWS_HINT = re.compile(r"AKIA|ASIA|aws|secret", re.IGNORECASE)
_BASE64 = re.compile(r"(?P<key>)(?P<value>(?<![\w+/=])[A-Za-z0-9+/]{20,}={0,2}(?![\w+/=]))")
_USER_COLON_PASSWORD = re.compile(r"[\w.@-]{1,64}:[!-~]{3,}")

# `--enable-log-requests` writes what users asked; that is theirs.
_PROMPT = re.compile(
    r"(?P<key>\bprompt(?:_token_ids)?[\"']?: )(?P<value>(?:'.*'|\".*\"|\[.*\])(?=, \w+: |,? ?\}|$)|[\"'].*$)"
)
_PATTERNS = (
    ("what a user asked", _PROMPT),
    ("private key", _KEY_IN_LINE),
    ("authorization or cookie header", _HEADER),
    ("name before the value", _ASSIGNED),
    ("name before the value", _PWD),
    ("name before the value", _AUTH),
    ("signature in an address", _QUERY),
    ("authorization header", _BEARER),
    ("user and password in an address", _USERINFO),
    ("shape of a token", _SHAPES),
)
# Cheap first look: a line without any of these has nothing to hide.
_HINT = re.compile(
    r"key|token|secret|passw|passphrase|credential|bearer|basic|@|hf_|sk-|gh[pousr]_|github_pat|AKIA|xox|eyJ|glpat|nvapi|prompt"
    r"|auth|cookie|pwd|sig=|signature=|ASIA|aws|AIza|ya29|_pat_|pypi-|npm_|k_live|SG\.|gsk_|r8_",
    re.IGNORECASE,
)

_SHOWN_ENV = re.compile(
    r"^(VLLM_|CUDA_|NVIDIA_|NCCL_|PYTORCH_|TORCH_|TORCHINDUCTOR_|TRITON_|FLASHINFER_|OMP_|MKL_|RAY_|HF_HUB_|TRANSFORMERS_)"
    r"|^(HF_HOME|HOME|PATH|LD_LIBRARY_PATH|LD_PRELOAD|LANG|TMPDIR|XDG_CACHE_HOME|HOSTNAME|INVOCATION_ID|GLOO_SOCKET_IFNAME"
    r"|MALLOC_ARENA_MAX|PYTHONUNBUFFERED|PYTHONPATH|PYTHONHASHSEED|VIRTUAL_ENV)$"
)

Replace = Callable[[str, str], str]


def _hide(_value: str, _why: str) -> str:
    return HIDDEN


def is_secret_name(name: str) -> bool:
    """Does an option or variable of this name carry a secret?"""
    return bool(_SECRET_NAME.match(name))


def has_secret_shape(text: str) -> bool:
    """Does it hold what only a secret looks like: a token, a private key, a password in an address?"""
    return bool(_SHAPES.search(text) or _PASSWORD.search(text) or _PRIVATE_KEY.search(text))


def scrub(text: str, replace: Replace = _hide) -> str:
    """`text` without secrets. `replace(secret, why)` gives what stands in its place."""
    if _HINT.search(text):
        patterns = (*_PATTERNS, ("shape of a token", _AWS)) if _AWS_HINT.search(text) else _PATTERNS
        for why, pattern in patterns:
            text = _taken(pattern, text, why, replace)
    return _BASE64.sub(lambda found: _decoded(found, replace), text)


def _taken(pattern: re.Pattern[str], text: str, why: str, replace: Replace) -> str:
    def put(found: re.Match[str]) -> str:
        value = found["value"]
        if value == HIDDEN or not value.strip("[]\"' ") or _plain(value):
            return found[0]
        return found["key"] + replace(value, why)

    return pattern.sub(put, text)


def _decoded(found: re.Match[str], replace: Replace) -> str:
    """Base64 of a token, of a key or of `user:password`; what else it may be stays."""
    value = found["value"]
    try:
        inside = base64.b64decode(value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        return found[0]
    if inside.isprintable() and (has_secret_shape(inside) or _USER_COLON_PASSWORD.fullmatch(inside)):
        return replace(value, "base64 of a secret")
    return found[0]


class Lines:
    """Scrubs lines that follow each other: the body of a private key has no mark but the line that began it."""

    def __init__(self) -> None:
        self._left = 0

    def scrub(self, text: str, replace: Replace = _hide) -> str:
        """The next line without secrets."""
        if self._left:
            self._left -= 1
            head, end, rest = text.partition(_KEY_END)
            text = _taken(_KEY_BODY, head, "private key", replace) + end + rest
        begun = max((found.end() for found in _PRIVATE_KEY.finditer(text)), default=-1)
        if begun > text.rfind(_KEY_END):
            self._left = _LONGEST_KEY
        elif _KEY_END in text:
            self._left = 0
        return scrub(text, replace)


def _plain(value: str) -> bool:
    """Values that tell nothing: None, booleans, small numbers, our own marks."""
    return bool(
        re.fullmatch(r"[\[\"']*(None|null|true|false|\d{1,6}|<[\w -]+>|\[hidden\]?|\*+)[\]\"']*", value, re.IGNORECASE)
    )


def scrub_argv(argv: Sequence[str], replace: Replace = _hide) -> tuple[str, ...]:
    """A command line whose secret options lost their values (`--api-key A B` loses both)."""
    kept: list[str] = []
    secret = False
    for word in argv:
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            secret = is_secret_name(name) and not equals
            hide = bool(equals) and is_secret_name(name)
            kept.append(f"{name}={replace(value, 'secret option')}" if hide else scrub(word, replace))
        else:
            kept.append(replace(word, "secret option") if secret else scrub(word, replace))
    return tuple(kept)


def scrub_env(env: Mapping[str, str], replace: Replace = _hide) -> dict[str, str]:
    """All names; the values only of variables that are known to tell about vLLM and to carry no secret."""
    return {
        name: scrub(value, replace)
        if _SHOWN_ENV.match(name) and not is_secret_name(name)
        else replace(value, "environment variable that is not on the list")
        for name, value in env.items()
    }


def secret_values(argv: Sequence[str], env: Mapping[str, str]) -> frozenset[str]:
    """The secrets that a launch carries by name, to be looked for where no name stands beside them."""
    found = {value for name, value in env.items() if is_secret_name(name)}
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name.startswith("-") and is_secret_name(name):
            found.update((value,) if equals else takewhile(lambda w: not w.startswith("-"), argv[at + 1 :]))
    return frozenset(value for value in found if len(value) >= SHORTEST_SECRET and not _plain(value))


def scrub_values(text: str, secrets: frozenset[str]) -> str:
    """`text` without the given secrets, wherever they stand."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text
