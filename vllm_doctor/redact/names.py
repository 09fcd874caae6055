"""What a name says of the value beside it: an option's, a variable's, a header's, a key's of JSON."""

import json
import re
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path

# The end of a longer one says what it is.
_LONGEST = 120
_PARTS = re.compile(r"[A-Z]++(?![a-z])|[A-Z]?[a-z]++|[A-Z]")


class ValueKind(Enum):
    """What the value of a name is."""

    OPEN = "open"
    SECRET = "secret"  # noqa: S105 - no secret, a kind of name
    PERHAPS = "perhaps"
    HEADER = "header"
    TEXT = "text"


@cache
def word_list(of: str) -> frozenset[str]:
    """A list of words.json."""
    return frozenset(_lists()[of])


@cache
def _lists() -> dict[str, list[str]]:
    lists: dict[str, list[str]] = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
    return lists


def words_of(name: str) -> list[str]:
    """The words of which a name is made, in lower case."""
    return [part.lower() for part in _PARTS.findall(name[-_LONGEST:])]


def value_kind(name: str) -> ValueKind:
    """The kind of value that stands under `name`."""
    return _kind(name[-_LONGEST:])


@lru_cache(maxsize=4096)
def _kind(name: str) -> ValueKind:
    if name.rsplit(".", 1)[-1].lower().replace("-", "_").strip("_") in word_list("user_text"):
        return ValueKind.TEXT
    if not name.isascii() and any(word in name.lower() for word in word_list("secret_in_other_languages")):
        return ValueKind.SECRET
    parts = words_of(name)
    if not parts:
        return ValueKind.OPEN
    squashed = "".join(parts)
    if squashed in word_list("header") or parts[-1] in {"cookie", "cookies"}:
        return ValueKind.HEADER
    known = _secret(parts, squashed)
    if known is ValueKind.SECRET and parts[-1] in word_list("tells_of_a_secret") and not squashed.endswith("sessionid"):
        return ValueKind.PERHAPS
    if known is ValueKind.OPEN:
        return _abbreviated(name)
    return ValueKind.SECRET if known is ValueKind.PERHAPS and name.isupper() and len(parts) > 1 else known


def _secret(parts: list[str], squashed: str) -> ValueKind:
    if any(word in squashed for word in word_list("secret")):
        return ValueKind.SECRET
    if parts[-2:] == ["id", "token"]:  # OpenID's; ids of tokens are `token_id`
        return ValueKind.SECRET
    if "token" in parts:
        return ValueKind.OPEN if word_list("token_of_text").intersection(parts) else ValueKind.SECRET
    if "tokens" in parts:
        return ValueKind.SECRET if word_list("tokens_of_access").intersection(parts) else ValueKind.OPEN
    last = parts[-1]
    if "pwd" in parts:
        return ValueKind.SECRET
    if last in {"key", "keys"}:
        return (
            ValueKind.OPEN
            if len(parts) == 1 or word_list("key_of_no_lock").intersection(parts[:-1])
            else ValueKind.PERHAPS
        )
    if last == "pass" and len(parts) > 1:
        return ValueKind.OPEN if word_list("pass_of_work").intersection(parts[:-1]) else ValueKind.SECRET
    weak = last in word_list("perhaps") or squashed.endswith(("token", "pwd")) or _opens(last)
    # `webhook_url`: whoever knows the address may write to it.
    return ValueKind.PERHAPS if weak or ("webhook" in parts and last in {"url", "uri"}) else ValueKind.OPEN


def _opens(word: str) -> bool:
    """`DBPASS`, `userpw`."""
    return word.endswith(("pass", "passwd", "pw")) and len(word) > 4 and word not in word_list("pass_of_no_door")


def _abbreviated(name: str) -> ValueKind:
    """An option that argparse takes for one of vLLM's secret ones: `--api-k`; `--api` may be one."""
    bare = name[2:].replace("_", "-").lower() if name.startswith("--") else ""
    if len(bare) < 2 or not any(option.startswith(bare) for option in word_list("secret_options")):
        return ValueKind.OPEN
    return (
        ValueKind.PERHAPS
        if any(other.startswith(bare) for other in word_list("options_beside_them"))
        else ValueKind.SECRET
    )


def is_secret_name(name: str) -> bool:
    """Does an option or variable of this name carry a secret?"""
    return value_kind(name) in {ValueKind.SECRET, ValueKind.HEADER}


def in_a_query(name: str) -> bool:
    """Does a parameter of an address carry one?"""
    return "".join(words_of(name)) in word_list("in_a_query")


@cache
def _shown() -> tuple[tuple[str, ...], frozenset[str]]:
    return tuple(word_list("shown_variables")), word_list("shown_names")


def is_shown_variable(name: str) -> bool:
    """Does an environment variable of this name tell about vLLM, and nothing else?"""
    prefixes, names = _shown()
    return (name.startswith(prefixes) or name in names) and value_kind(name) in {ValueKind.OPEN, ValueKind.TEXT}
