"""Takes off the label that a launcher of several hosts sets before each line: srun --label, pdsh, clush."""

import re

# A task's number, or a host's name; hosts of a cluster are counted.
_LABEL = re.compile(r" {0,5}(?:\d{1,5}|[A-Za-z][\w.-]{0,60}\d[\w.-]{0,20}):(?: |$)")
# The launchers' own lines have none.
_OWN = ("srun:", "slurmstepd:", "pdsh@", "clush:", "$ ")
# What the program behind a label writes.
_INNER = re.compile(r"(?:INFO|WARNING|ERROR) \d\d-\d\d | pid=\d|Traceback \(most recent|(?:INFO|ERROR): {1,10}")
_FEW, _ALL = 3, 0.9


def unlabelled(text: str) -> str:
    """The text without them; the same text where not almost every line has one."""
    lines = text.split("\n")
    told = [line for line in lines if line.strip() and not line.startswith(_OWN)]
    labelled = [found for line in told if (found := _LABEL.match(line)) is not None]
    if len(labelled) < _FEW or len(labelled) < _ALL * len(told):
        return text
    if not any(_INNER.search(found.string, found.end()) for found in labelled):
        return text
    return "\n".join(line if line.startswith(_OWN) else _bare(line) for line in lines)


def _bare(line: str) -> str:
    label = _LABEL.match(line)
    return line if label is None else line[label.end() :]
