"""YAML that others wrote: what its aliases stand for, written out, has a bound (a text of a kilobyte may stand for a
thousand million words), and nothing in it contains itself."""

import yaml

# Nodes, each alias counted as all that it stands for; a compose file of a hundred services has some thousand.
MOST = 100_000


class _Bounded(yaml.SafeLoader):
    def get_node(self) -> yaml.Node | None:
        node = super().get_node()
        _counted(node, {})
        return node

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        _counted(node, {})
        return node


def _counted(node: yaml.Node | None, known: dict[int, int]) -> int:
    """The nodes of a tree, each alias written out. Raises YAMLError above the bound, and where one contains itself."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST  # until all of it is counted: who comes upon it then is within it
        inner = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + sum(_counted(one, known) for one in inner)
        if known[id(node)] >= MOST:
            raise yaml.YAMLError(f"its aliases stand for more than {MOST:,} parts")
    return known[id(node)]


def value(text: str | bytes) -> object:
    """The value of the one document. Raises YAMLError, RecursionError, ValueError."""
    return yaml.load(text, _Bounded)  # noqa: S506 - a SafeLoader


def values(text: str | bytes) -> list[object]:
    """The value of each document. Raises as `value`."""
    return list(yaml.load_all(text, _Bounded))
