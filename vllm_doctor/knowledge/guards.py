"""What decides a refusal of vLLM: the test above its `raise`, as the release's source has it (history/guards.json).

A sentence often names nothing that a person may change, and its `raise` stands behind a test of one option, of one key
of config.json or of one field of a request. The table is read from wheels by tools/releases/guards.py.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple, get_args

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import Version
from vllm_doctor.knowledge.versions import newest_known

HOLE = "{}"
DecidedBy = Literal["option", "extra", "model", "request", "variable"]
# Signs of two words before those of one.
_SIGNS = ("is not", "not in", "is", "in", "==", "!=", ">=", "<=", ">", "<", "on", "off")
_FRONT_ENDS = ("/fastapi/", "/starlette/")
# An assertion without words is told by its own line of code, whole.
_ASSERTS = "assert "
# Fewer letters of a sentence are no sign of it.
_LETTERS, _LETTERS_WITHIN = 8, 20


class Decider(NamedTuple):
    """One thing that a refusal's test asks for: an option and a key of its value, an option's extra setting (`key`),
    a key of config.json, a field of a request, a variable. `sign` and `value` are what the test compares it with, as
    far as the source says it plainly."""

    kind: DecidedBy
    name: str
    key: str = ""
    sign: str = ""
    value: str = ""


class GuardedRaise(NamedTuple):
    """A refusal's sentence in its fixed pieces, and what decides it."""

    pieces: tuple[str, ...]
    by: tuple[Decider, ...]


def guard(file: str, message: str, at: Version | None, *, gone: bool = False) -> GuardedRaise | None:
    """The refusal of vLLM's that a message is, by the file that raised it. Of an unknown release the newest.

    `gone`: None where the release has it no more; else what an earlier one had decides.
    """
    path = _in_vllm(file)
    within = path.endswith("/")
    told = [(pieces, name) for name, pieces in _of_file(path) if _is_said(pieces, message, within=within)]
    if not told:
        return None
    pieces, name = max(told, key=lambda row: sum(map(len, row[0])))
    known = history("guards", "guards")
    if gone and known.exists(name, at or newest_known()) is False:
        return None
    # the same words in the same file: what the newest reader saw there holds where an older file was read with less
    held = known.value(name, at or newest_known()).get("by") or known.value(name, newest_known()).get("by", [])
    rows = held if isinstance(held, list) else []
    return GuardedRaise(pieces, tuple(one for row in rows if (one := decider(str(row))) is not None))


def _in_vllm(file: str) -> str:
    """`…/vllm/config/cache.py` → `vllm/config/cache.py`; a check of pydantic's is one of the configuration's, and what
    FastAPI refuses a check of the front end's."""
    inside = f"/{file.rpartition('-packages/')[2]}"  # an environment may itself lie in a folder of that name
    if inside.startswith(_FRONT_ENDS):
        return "vllm/entrypoints/"
    start = inside.rfind("/vllm/")
    return inside[start + 1 :] if start >= 0 else "vllm/config/"


@cache
def _of_file(path: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    whole = path if path.endswith("/") else f"{path}: "
    return tuple(
        (name, tuple(name.partition(": ")[2].split(HOLE)))
        for name in history("guards", "guards").names()
        if name.startswith(whole)
    )


def _is_said(pieces: tuple[str, ...], message: str, *, within: bool) -> bool:
    """Does a message have a sentence's fixed pieces, in their order and from its beginning? `within`: or behind what
    pydantic writes before it, where fewer words are no sign of it."""
    if pieces[0].startswith(_ASSERTS):
        return message == HOLE.join(pieces)
    letters = sum(c.isalpha() for piece in pieces for c in piece)
    if letters < (_LETTERS_WITHIN if within else _LETTERS) or not (within or message.startswith(pieces[0])):
        return False
    at = 0
    for piece in pieces:
        at = message.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def decider(row: str) -> Decider | None:
    """`option kv-transfer-config kv_role == 'kv_both'`, parted."""
    kind, _, rest = row.partition(" ")
    named = next((one for one in get_args(DecidedBy) if one == kind), None)
    sign = next((s for s in _SIGNS if f" {s} " in rest or rest.endswith(f" {s}")), "")
    head, _, value = f"{rest} ".partition(f" {sign} ") if sign else (rest, "", "")
    name, _, key = head.strip().partition(" ")
    return Decider(named, name, key, sign, value.strip()) if named is not None and name else None
