"""Which options a release has and what each takes.

How many words an option takes does not change between releases, so the newest release that has it answers for those
that were not read; what a release has, and how it spells `--no-…`, is asked of the release itself.
"""

from functools import lru_cache

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import Version, canonical, flag, flag_names, newest_known


def own(version: Version) -> bool:
    """Was this very release read (or the newest, which a newer one is taken for)?"""
    return parser.options(str(version)) is not None or version > newest_known()


@lru_cache(maxsize=4096)
def takes(name: str, version: Version | None) -> int | str:
    """How many words follow the option of this long name: 0, 1, "?" (0 or 1) or "+" (1 and more)."""
    option = (parser.options(str(version)) or {}).get(name) or parser.takes(name)
    return option.words if option is not None else 1


@lru_cache(maxsize=256)
def names(version: Version) -> frozenset[str]:
    """All long spellings that the release takes, `no-…` among them."""
    asked = parser.options(str(version))
    if asked is not None:
        return frozenset(asked)
    listed = flag_names(version)
    return frozenset(listed) | {f"no-{n}" for n in listed if (fact := flag(n, version)) and fact.negatable}


def opposite(name: str, version: Version | None) -> str | None:
    """The switch that this spelling turns off: `enable-x` for `disable-x` (in a release whose parser takes both)."""
    if version is None and is_known(name):  # some release has it as an option of its own
        return None
    return _opposites(version or newest_known()).get(name)


@lru_cache(maxsize=256)
def _opposites(version: Version) -> dict[str, str]:
    facts = history("options", "options")
    return {
        spelling: name
        for name in facts.names()
        if facts.exists(name, version)
        for spelling in parser.opposites(facts.value(name, version))
    }


def is_known(name: str) -> bool:
    """Has any release that was read an option of this name (or alias)?"""
    return name == "help" or flag(name, newest_known()) is not None


@lru_cache(maxsize=4096)
def completed(name: str, version: Version) -> tuple[str, ...]:
    """The options that a shortened long name may mean, as argparse completes it; one where it is clear."""
    listed = names(version)
    if name in listed:
        return (name,)
    longer = sorted({n for n in listed if n.startswith(name)})
    own_names = {n if n.startswith("no-") else canonical(n) for n in longer}
    return tuple(sorted(own_names))
