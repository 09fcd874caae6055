"""Why a release would not start with a launch, as one record for every check of launches."""

from enum import StrEnum

import msgspec


class Why(StrEnum):
    """What is wrong with an argument."""

    GONE = "gone"
    UNKNOWN = "unknown"
    VALUE = "value"
    WORD = "word"


class Refusal(msgspec.Struct, frozen=True):
    """Why this version's vLLM would not start with the line: the flag, what was given, what it takes, and one value of
    these where it is known."""

    flag: str
    found: str
    needed: str
    why: Why = Why.VALUE
    to: str = ""
    beside: str = ""  # the option that the release takes it with

    def __str__(self) -> str:
        return f"{self.flag}: found {self.found}; needed: {self.needed}"
