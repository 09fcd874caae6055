"""The body of an answer with an error as curl's users and serverless platforms show it, one key a line.

Of each key its value stands in a line of its own (`"message": "…",`), so that no line is the answer. It is written as a
client's package words it, in the line of the message; the other keys of the same object say no more.
"""

import json
import re
from collections.abc import Sequence

from vllm_doctor.log.read.client_answer import REWORDED

# A text with an answer in it is short: whoever shows one shows little else.
_LINES = 400
# Keys of one object stand this near to each other.
_NEAR = 6
_PAIR = re.compile(
    r"""^\s{0,40}["'](?P<key>message|code|type|object|param)["']\s{0,4}:\s{0,4}(?P<value>.{1,4000}?),?\s*$"""
)
_KIND = re.compile(r"""^["'](?P<kind>[A-Za-z]{1,60}Error)["']$""")


def answered(raw: Sequence[str]) -> list[str]:
    """The same lines, as many, with each such body in the line of its message."""
    found = [*raw]
    if len(raw) > _LINES:
        return found
    pairs = {index: pair for index, line in enumerate(raw) if (pair := _PAIR.match(line)) is not None}
    for index, pair in pairs.items():
        if pair["key"] != "message":
            continue
        near = {other["key"]: at for at, other in pairs.items() if at != index and abs(at - index) <= _NEAR}
        code = pairs[near["code"]]["value"].strip("\"'") if "code" in near else ""
        if not {"code", "type"} <= near.keys() or re.fullmatch(r"[45]\d\d", code) is None:
            continue
        kind = _KIND.match(pairs[near["type"]]["value"])
        name = kind["kind"] if kind is not None else "APIStatusError"
        for at in near.values():
            found[at] = ""
        found[index] = f"{REWORDED}{name}: Error code: {code} - {_said(pair['value'])}"
    return found


def _said(value: str) -> str:
    """The message in one line, as it was before it was quoted."""
    try:
        told = json.loads(value)
    except ValueError:
        told = value[1:-1]
    return " ".join(str(told).split("\n"))
