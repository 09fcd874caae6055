"""Refusals that name an option: where each is raised, which options it names, and a hash of its sentence.

The sentence itself stays in the wheel: `tools/release.py add` prints the new ones, because a person must read them.
"""

from __future__ import annotations

import re

from releases import texts
from releases.raised import raised
from releases.wheel import Wheel

_FILES = (
    r"vllm/(config(/\w+)?|engine/\w+|platforms/\w+|lora/\w+|v1/(engine|core|executor|worker)/\w+|distributed/\w+|"
    r"entrypoints/(\w+/)?(cli_args|api_server|launcher)|model_executor/(model_loader/\w+|layers/quantization/\w+))\.py"
)
_KINDS = {"ValueError", "NotImplementedError", "RuntimeError", "TypeError", "AssertionError", "VLLMValidationError"}
_WORD = re.compile(r"--[a-z][a-z0-9-]+|\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")


def read(wheel: Wheel, options: frozenset[str]) -> dict[str, dict[str, object]]:
    """Hash of the sentence → where it is raised, as what, and the options it names."""
    return {key: {k: v for k, v in row.items() if k != "text"} for key, row in sentences(wheel, options).items()}


def sentences(wheel: Wheel, options: frozenset[str]) -> dict[str, dict[str, object]]:
    """As `read`, with the sentence as `text`."""
    made: dict[str, dict[str, object]] = {}
    for path in wheel.paths(_FILES):
        if "raise " not in wheel.files[path] and "assert " not in wheel.files[path]:
            continue
        for where, _, kind, text in raised(wheel.tree(path)):
            if kind not in _KINDS:
                continue
            named = sorted({o for w in _WORD.findall(text) if (o := w.lstrip("-").replace("_", "-")) in options})
            if named:
                made[texts.digest([text])] = {"in": f"{path} {where}", "kind": kind, "options": named, "text": text}
    return dict(sorted(made.items(), key=lambda row: (str(row[1]["in"]), row[0])))
