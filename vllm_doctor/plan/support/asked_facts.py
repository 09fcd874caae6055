"""A test that a release's own code makes, asked of facts of ours under the names that it has there."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from vllm_doctor.knowledge.parser.combinations import UNKNOWN, OptionTest


class FactTest(OptionTest):
    """The names of the test, as `facts` have them; what is not there is unknown."""

    def __init__(self, facts: Mapping[str, object]) -> None:
        self.facts = facts

    def value(self, node: ast.expr) -> object:
        """As `OptionTest.value`; a list is a tuple."""
        return super().value(ast.Tuple(node.elts, node.ctx) if isinstance(node, ast.List) else node)

    def named(self, name: str) -> object:
        """The fact of this name."""
        return self.facts.get(name, UNKNOWN)

    def shown(self, name: str) -> str:
        """The name itself."""
        return name
