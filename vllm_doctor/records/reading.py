"""A value that was read, or the reason why it was not: the sum type that keeps `unknown` from becoming `ok`."""

from typing import Generic, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Known(msgspec.Struct, Generic[T], frozen=True, tag="known"):
    """A value and the place it was read from (`journal`, `--launch`, `/proc/4242/cmdline` …)."""

    value: T
    source: str


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """It exists but could not be read; `remedy` is the exact thing that would make it readable."""

    reason: str
    remedy: str = ""


class Absent(msgspec.Struct, frozen=True, tag="not_applicable"):
    """It does not exist here, so the question does not arise (no GPU on a CPU host)."""

    reason: str


Reading: TypeAlias = Known[T] | Unknown | Absent

NOT_GIVEN = Unknown(reason="not given")
