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
