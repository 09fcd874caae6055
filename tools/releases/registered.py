"""The names that a release registers itself: load formats, tokenizer modes, parsers of tool calls and of reasoning.

Their options take any text, since a plugin may register more; a name that nothing registers ends the start.
"""

from __future__ import annotations

import ast
import re

from releases.assigned import assigned
from releases.wheel import Wheel

# Section → where its table stands, and what it is called.
TABLES = {
    "load_formats": (r"vllm/model_executor/model_loader/__init__\.py", "_LOAD_FORMAT_TO_MODEL_LOADER"),
    "tokenizers": (r"vllm/tokenizers/registry\.py", "_VLLM_TOKENIZERS"),
    "tool_parsers": (r"vllm/(entrypoints/openai/)?tool_parsers/__init__\.py", "_TOOL_PARSERS_TO_REGISTER"),
    "reasoning_parsers": (r"vllm/reasoning/__init__\.py", "_REASONING_PARSERS_TO_REGISTER"),
}
# What is said in a release without such a table: `@ToolParserManager.register_module("hermes")`.
_DECORATED = {
    "tool_parsers": (r"vllm/entrypoints/openai/tool_parsers/\w+\.py", "ToolParserManager"),
    "reasoning_parsers": (r"vllm/(entrypoints/openai/reasoning_parsers|reasoning)/\w+\.py", "ReasoningParserManager"),
}


def read(wheel: Wheel) -> dict[str, dict[str, dict[str, object]]]:
    """Section → name → nothing more; a section that this release does not show in these ways is left out."""
    made = {section: _table(wheel, *place) for section, place in TABLES.items()}
    for section, place in _DECORATED.items():
        made[section] = made[section] or _decorated(wheel, *place)
    made["tokenizers"] |= _replaced(wheel, TABLES["tokenizers"][0], "tokenizer_mode") if made["tokenizers"] else set()
    return {section: {name: {} for name in sorted(names)} for section, names in made.items() if names}


def _table(wheel: Wheel, where: str, called: str) -> set[str]:
    for path in wheel.paths(where):
        for name, value in assigned(wheel.tree(path).body):
            if name == called and isinstance(value, ast.Dict):
                keys = [k.value if isinstance(k, ast.Constant) else None for k in value.keys]
                return {key for key in keys if isinstance(key, str)} if all(isinstance(k, str) for k in keys) else set()
    return set()


def _replaced(wheel: Wheel, where: str, variable: str) -> set[str]:
    """Names for which the table's module takes another: `if tokenizer_mode == "slow"`, which then becomes "hf"."""
    made: set[str] = set()
    for path in wheel.paths(where):
        for node in ast.walk(wheel.tree(path)):
            match node:
                case ast.If(
                    test=ast.Compare(
                        left=ast.Name(id=asked), ops=[ast.Eq()], comparators=[ast.Constant(value=str(name))]
                    )
                ) if asked == variable and variable in {target for target, _ in assigned(node.body)}:
                    made.add(name)
    return made


def _decorated(wheel: Wheel, where: str, manager: str) -> set[str]:
    made: set[str] = set()
    for path in wheel.paths(where):
        for node in ast.walk(wheel.tree(path)):
            for call in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                if isinstance(call, ast.Call) and ast.unparse(call.func) == f"{manager}.register_module":
                    given = [*call.args, *(k.value for k in call.keywords if k.arg == "name")]
                    said = [c.value for g in given for c in ast.walk(g) if isinstance(c, ast.Constant)]
                    names = [name for name in said if isinstance(name, str) and re.fullmatch(r"[\w.-]+", name)]
                    if not names:
                        return set()  # one under a name that is computed: the list would not be whole
                    made |= set(names)
    return made
