"""The model types whose configuration a release reads with a class of its own, before Transformers is asked.

`_CONFIG_REGISTRY` (transformers_utils/config.py) has them. Where a release asks Transformers first and looks there
afterwards, a checkpoint with code of its own is refused as before: such a release has none here.
"""

from __future__ import annotations

import ast

from releases.assigned import assigned
from releases.wheel import Wheel

_FILE = "vllm/transformers_utils/config.py"
_TABLES = frozenset({"_CONFIG_REGISTRY", "_CONFIG_REGISTRY_OVERRIDE_HF"})
_ASKS = "AutoConfig.from_pretrained("
_LOOKS = "if model_type in _CONFIG_REGISTRY:"


def read(wheel: Wheel) -> dict[str, dict[str, object]]:
    """Model type → nothing more."""
    if _FILE not in wheel.files:
        return {}
    module = wheel.tree(_FILE)
    plain = ast.unparse(module)
    if _LOOKS not in plain or plain.index(_LOOKS) > plain.index(_ASKS):
        return {}
    listed = {key for name, value in assigned(module.body) if name in _TABLES for key in _keys(value)}
    return {key: {} for key in sorted(listed)}


def _keys(value: ast.expr | None) -> set[str]:
    """The keys of a dictionary, also where it is made by a call with words."""
    match value:
        case ast.Dict(keys=keys):
            return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        case ast.Call(keywords=words):
            return {word.arg for word in words if word.arg is not None}
        case _:
            return set()
