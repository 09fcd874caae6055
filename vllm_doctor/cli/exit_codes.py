"""What the process ends with; one place, documented and tested."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERNAL = 4
    INTERRUPTED = 130


# What is neither known to start nor known to fail is no finding.
_OF_PLANS = {"starts": Exit.OK, "unknown": Exit.INCOMPLETE, "uncertain": Exit.INCOMPLETE}


def of_plan(verdict: str) -> Exit:
    """The exit status of a planned start, by its verdict (plan/prediction/record.py)."""
    return _OF_PLANS.get(verdict, Exit.FINDINGS)
