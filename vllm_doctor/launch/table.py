"""Which options a release has and what each takes, from its own parser where that was asked, else from its sources.

How many words an option takes has not changed between releases, so the newest parser that was asked answers for those
that were not; what a release has, and how it spells `--no-…`, is asked of the release itself.
"""

from functools import lru_cache

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.parser import Option
from vllm_doctor.knowledge.versions import Version, canonical, flag, flag_names, newest_known

_ASKED = "0.32.0"


def own(version: Version) -> bool:
    """Was this very release's parser asked (or one that a newer release stands for)?"""
    return parser.options(str(version)) is not None or version > Version((0, 32))


@lru_cache(maxsize=4096)
def takes(name: str, version: Version | None) -> int | str:
    """How many words follow the option of this long name: 0, 1, "?" (0 or 1) or "+" (1 and more)."""
    option = _option(name, version)
    if option is not None:
        return option.words
    fact = flag(name, version or newest_known())
    if fact is not None and not fact.exists and fact.last:
        fact = flag(name, fact.last)
    return 0 if fact is not None and (isinstance(fact.default, bool) or fact.negatable) else 1


def _option(name: str, version: Version | None) -> Option | None:
    for release in (str(version), _ASKED):
        option = (parser.options(release) or {}).get(name)
        if option is not None:
            return option
    return None


@lru_cache(maxsize=64)
def names(version: Version) -> frozenset[str]:
    """All long spellings that the release takes, `no-…` among them."""
    asked = parser.options(str(version))
    if asked is not None:
        return frozenset(asked)
    listed = flag_names(version)
    return frozenset(listed) | {f"no-{n}" for n in listed if (fact := flag(n, version)) and fact.negatable}


def is_known(name: str) -> bool:
    """Has any release that was read an option of this name (or alias)?"""
    return flag(name, newest_known()) is not None or any(
        canonical(name) in (parser.options(release) or {}) for release in (_ASKED,)
    )


@lru_cache(maxsize=4096)
def completed(name: str, version: Version) -> tuple[str, ...]:
    """The options that a shortened long name may mean, as argparse completes it; one where it is clear."""
    listed = names(version)
    if name in listed:
        return (name,)
    longer = sorted({n for n in listed if n.startswith(name)})
    own_names = {n if n.startswith("no-") else canonical(n) for n in longer}
    return tuple(sorted(own_names))
