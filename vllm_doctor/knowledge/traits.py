"""What a release's class of an architecture can do, by what the class says of itself (history/traits.json)."""

from __future__ import annotations

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import Version

# The row that says which traits a release knows at all.
EVERY = "*"


def lacks(architecture: str, trait: str, at: Version) -> bool:
    """Is it known that the class has not got the trait? Not for a release that knows no such trait, for a class that
    could not be followed, nor between two releases that disagree."""
    table = history("traits", "traits")
    known, has = table.around(EVERY, at), table.around(architecture, at)
    if known is None or has is None:
        return False
    return all(trait in said.split() for said in known) and not any(trait in said.split() for said in has)


def has_trait(architecture: str, trait: str, at: Version) -> bool:
    """Is it known that the class has the trait? Not between two releases that disagree."""
    told = history("traits", "traits").around(architecture, at)
    return told is not None and all(trait in said.split() for said in told)


def breaks_by_itself(architecture: str, at: Version) -> bool:
    """Does the release capture the class in pieces that break by themselves, and compile nothing, unasked
    (config/vllm.py)? Not between two releases that disagree."""
    return history("models", "breakable").exists(architecture, at) is True
