"""What a text model's section of config.json leaves out because Transformers' class has it (class_defaults.json).

Checkpoints saved within another model write only what differs from the class: LLaVA 1.5 names neither its width nor its
layers, Gemma 3 4B neither its heads nor its vocabulary.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.plan.model.config_json import Section


class _Defaults(msgspec.Struct, frozen=True):
    source: str
    model_types: dict[str, dict[str, int]]


@cache
def _table() -> dict[str, dict[str, int]]:
    file = Path(__file__).with_name("class_defaults.json")
    return msgspec.json.decode(file.read_bytes(), type=_Defaults).model_types


def with_class_values(text: Section) -> Section:
    """The section with its class's values for the keys that it has not."""
    known = _table().get(text.text("model_type"))
    missing = {key: value for key, value in known.items() if key not in text.values} if known else {}
    return Section({**missing, **text.values}, text.path) if missing else text
