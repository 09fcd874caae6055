"""Takes off the label that a launcher of several hosts or processes sets before each line: srun --label, pdsh, clush;
a name in brackets becomes the form of a service's (`NAME | `), as it tells servers apart."""

import re

# A task's number, or a host's name; hosts of a cluster are counted.
_LABEL = re.compile(r" {0,5}(?:\d{1,5}|[A-Za-z][\w.-]{0,60}\d[\w.-]{0,20}):(?: |$)")
# What a script puts before what each of its processes writes; a level there is a logger's.
_LEVEL = r"(?i:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\]"
_BRACKETED = re.compile(rf"\[(?!{_LEVEL})([A-Za-z][\w.-]{{1,60}})\] (?=\S)")
# The launchers' own lines have none.
_OWN = ("srun:", "slurmstepd:", "pdsh@", "clush:", "$ ")
# What the program behind a label writes.
_INNER = re.compile(r"(?:INFO|WARNING|ERROR) \d\d-\d\d | pid=\d|Traceback \(most recent|(?:INFO|ERROR): {1,10}")
_FEW, _ALL = 3, 0.9


def unlabelled(text: str) -> str:
    """The text without them; the same text where not almost every line has one."""
    lines = text.split("\n")
    told = [line for line in lines if line.strip() and not line.startswith(_OWN)]
    for label, instead in ((_LABEL, ""), (_BRACKETED, r"\1 | ")):
        labelled = [found for line in told if (found := label.match(line)) is not None]
        if len(labelled) < _FEW or len(labelled) < _ALL * len(told):
            continue
        if any(_INNER.search(found.string, found.end()) for found in labelled):
            return "\n".join(line if line.startswith(_OWN) else _relabelled(line, label, instead) for line in lines)
    return text


def _relabelled(line: str, label: re.Pattern[str], instead: str) -> str:
    found = label.match(line)
    return line if found is None else found.expand(instead) + line[found.end() :]
