"""Which unit template a card takes: a template is a behaviour, and most cards behave like any other.

Standard library only: the roles load it on an Ansible controller that may have nothing else of this package's needs.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

DATA = Path(__file__).with_name("templates.json")


@functools.cache
def cards() -> Mapping[str, tuple[str, str]]:
    """Card to (its behaviour, the reason and what else there is to know of it), in the order of their names."""
    raw = json.loads(DATA.read_text(encoding="utf-8"))
    return MappingProxyType({name: (facts["behaviour"], facts["why"]) for name, facts in raw.items()})


def behaviour(template: str) -> str:
    """The file of a template's name: a card's is its behaviour's, and any other name stands for itself."""
    return cards()[template][0] if template in cards() else template
