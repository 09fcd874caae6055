"""The options of `vllm serve`: from the calls of `add_argument`, and from the fields that feed them.

Since 0.8.5 an option's kwargs are made of its field's type; the rules here are those of vLLM's own `get_kwargs` and
argparse's. tests/launch/parser_*.json is what two releases' parsers said themselves.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from releases import loaded
from releases.config import Classes, Hint
from releases.fields import Fields
from releases.wheel import Wheel

_SOURCES = re.compile(
    r"vllm/(engine/arg_utils|config|config/\w+|"
    r"entrypoints/(.*(cli_args|launch_args|args)|openai/api_server|cli/serve))\.py"
)
# Up to 0.4.1 the server made its own options, and there was no list of variables.
_OLD_FRONTEND = "vllm/entrypoints/openai/api_server.py"
_PARSER = "vllm/utils/argparse_utils.py"
_INVERSE = {"--enable-": "--disable-", "--disable-": "--enable-"}
_FRONTENDS = re.compile(r"(Base)?Frontend\w*Args|Launch\w*Args")
_NONE: Hint = ("None", ())


@dataclass
class Option:
    """One option: words that it takes (0, 1, a number, "?" or "+"), and what these may be."""

    default: str | None = None
    words: int | str = 1
    type: str = ""
    optional: bool = False
    choices: list[object] | None = None
    no_form: bool = False
    repeated: bool = False  # given several times, each time one item more; of others vLLM takes the last
    inverse: list[str] = field(default_factory=list)  # `--disable-x` of `--enable-x`, and the other way round
    aliases: list[str] = field(default_factory=list)
    deprecated: bool = False
    config: str = ""
    kind: str = ""  # what else a text must be: "json", "object", "braces" (JSON where braces stand around it), "pairs"
    keys: dict[str, bool] = field(default_factory=dict)  # of an object among pairs: key → must it be there
    folded: bool = False  # it is read in small letters, with underscores for hyphens
    loaded: str = ""  # a name that is imported: what must stand in it (see loaded.py)
    said: dict[str, object] = field(default_factory=dict)  # its class's own bounds or names, see fields.py
    fed_by: str = ""  # the field that feeds it, `CacheConfig.cache_dtype`, where that has another name

    def record(self) -> dict[str, object]:
        """What is written down: what differs from an option that takes one word of any text."""
        made: dict[str, object] = {"default": self.default, "words": self.words}
        said = {
            "type": self.type,
            "optional": self.optional,
            "choices": self.choices,
            "no_form": self.no_form,
            "repeated": self.repeated,
            "inverse": self.inverse,
            "aliases": self.aliases,
            "deprecated": self.deprecated,
            "config": self.config,
            "kind": self.kind,
            "keys": self.keys,
            "folded": self.folded,
            "loaded": self.loaded,
            "field": self.fed_by,
            **self.said,
        }
        return made | {key: value for key, value in said.items() if value}


def read(wheel: Wheel, fields: Fields) -> dict[str, dict[str, object]]:
    """Every option by its long name without dashes."""
    modules = {path: wheel.tree(path) for path in wheel.files if _SOURCES.fullmatch(path)}
    if "vllm/envs.py" in wheel.files:
        modules.pop(_OLD_FRONTEND, None)
    named = [wheel.tree(path) for path in _imported(wheel, modules)]
    reading = _Reading(wheel, modules, named, fields)
    found: dict[str, Option] = {}
    for module in modules.values():
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                made = reading.of_call(call)
                if made is not None:
                    found.setdefault(*made)
    for name, option in reading.frontend():
        found.setdefault(name, option)
    if "class EnableDisableAction(BooleanOptionalAction)" in wheel.files.get(_PARSER, ""):
        for name, option in found.items():
            option.inverse = _inverse([f"--{name}", *option.aliases]) if option.no_form else []
    for name, needed in loaded.read(wheel, found):
        if found[name].choices is None and not found[name].said:
            found[name].loaded = needed
    return {name: found[name].record() for name in sorted(found)}


def _inverse(spellings: list[str]) -> list[str]:
    """The opposites that vLLM's own action for switches adds to each spelling."""
    return [
        other + spelling.replace("_", "-").removeprefix(one)
        for spelling in spellings
        for one, other in _INVERSE.items()
        if spelling.replace("_", "-").startswith(one)
    ]


def _imported(wheel: Wheel, modules: dict[str, ast.Module]) -> list[str]:
    """The modules that define a type which the front end's fields are of (`ChatTemplateContentFormatOption`)."""
    found: dict[str, None] = {}
    for path, module in modules.items():
        if path.startswith("vllm/entrypoints/"):
            for node in module.body:
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [alias.name for alias in node.names if alias.name[:1].isupper()]
                    for source in _sources(wheel, node.module):
                        if source not in modules and any(
                            f"\n{name} = Literal[" in wheel.files[source] for name in names
                        ):
                            found[source] = None
    return list(found)


def _sources(wheel: Wheel, module: str) -> list[str]:
    """The file of a module, or those of a package: what a package hands on is defined in one of them."""
    place = module.replace(".", "/")
    return [path for path in wheel.files if path == f"{place}.py" or path.rpartition("/")[0] == place]


class _Reading:
    """The configuration's classes, and what the source changes in the kwargs made of them."""

    def __init__(self, wheel: Wheel, modules: dict[str, ast.Module], named: list[ast.Module], fields: Fields) -> None:
        arg_utils = wheel.files["vllm/engine/arg_utils.py"]
        self.wheel = wheel
        self.validated = fields
        self.classes = Classes(modules.values())
        beside = Classes(named)
        self.classes.types = beside.types | self.classes.types
        self.aliases: dict[str, tuple[str, str]] = {}  # `moe_kwargs = kernel_kwargs["moe"]` → where it came from
        self.changes: dict[tuple[str, str], list[tuple[str, str, ast.expr | None]]] = {}
        self.has_maybe = "{bool, str, type(None)}" in arg_utils
        self.judges_objects = ".validate_json(" in arg_utils
        # A text without braces around it may be pairs, as `image=2`, where that helper stands (0.8.5 to 0.9.2).
        self.reads_json = "parse_type(json.loads)" in arg_utils and "nullable_kvs(" not in arg_utils
        self.reads_braces = "= union_dict_and_str" in arg_utils
        self.made = {
            node.name: node for module in modules.values() for node in module.body if isinstance(node, ast.ClassDef)
        }
        self.custom = {name for m in modules.values() for name in _custom_types(m)}
        for module in modules.values():
            for node in ast.walk(module):
                self._change(node)

    def _change(self, node: ast.AST) -> None:
        """`x_kwargs["field"]["type"] = …`, `del …["nargs"]`, `….append(…)`, `….remove(…)` of its choices."""
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (field := _field(node.value)):
            self.aliases[node.targets[0].id] = field
        elif isinstance(node, ast.Assign) and (at := self._entry(node.targets[0])):
            self.changes.setdefault(at[:2], []).append(("set", at[2], node.value))
        elif isinstance(node, ast.Delete) and (at := self._entry(node.targets[0])):
            self.changes.setdefault(at[:2], []).append(("del", at[2], None))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"remove", "append"}
            and node.args
            and (at := self._entry(node.func.value))
        ):
            self.changes.setdefault(at[:2], []).append((node.func.attr, at[2], node.args[0]))

    def _entry(self, node: ast.expr) -> tuple[str, str, str] | None:
        """(`x_kwargs`, "field", "type") of `x_kwargs["field"]["type"]`."""
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
            return None
        field = self.aliases.get(node.value.id) if isinstance(node.value, ast.Name) else _field(node.value)
        return (*field, str(node.slice.value)) if field is not None else None

    def _fed_by(self, call: ast.Call) -> tuple[str, str | None, str | None]:
        """(table, field, default) of `**cache_kwargs["dtype"]` and `**{**cache_kwargs["dtype"], "default": None}`."""
        spread = next((k.value for k in call.keywords if k.arg is None), None)
        overridden = None
        if isinstance(spread, ast.Dict):
            for written, value in zip(spread.keys, spread.values, strict=True):
                if isinstance(written, ast.Constant) and written.value == "default":
                    overridden = ast.unparse(value)
            spread = next((v for k, v in zip(spread.keys, spread.values, strict=True) if k is None), None)
        field = self.aliases.get(spread.id) if isinstance(spread, ast.Name) else _field(spread)
        return (*field, overridden) if field is not None else ("", None, overridden)

    def frontend(self) -> Iterator[tuple[str, Option]]:
        """Options of the HTTP front end: the fields of its dataclasses (entrypoints/**/cli_args.py)."""
        for cls, own in self.classes.fields.items():
            if _FRONTENDS.fullmatch(cls):
                for name, (kind, default) in own.items():
                    option = self._of_field(name, "frontend_kwargs", kind)
                    option.default = self.classes.default(default)
                    yield name.replace("_", "-"), option

    def of_call(self, call: ast.Call) -> tuple[str, Option] | None:
        """(name, option) of one `add_argument`; None for a positional one."""
        names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        long = [n for n in names if n.startswith("--")]
        if not long:
            return None
        table, fed, overridden = self._fed_by(call)
        option = self._by_field(table, fed) if fed is not None else Option()
        option.aliases = [n for n in names if n != long[0]]
        option.default = overridden or option.default
        given = _keyword(call, "default")
        if given is not None:
            option.default = self._default(ast.unparse(given))
        self._type(call, option)
        self._action(call, option, fed=fed is not None)
        said = ast.unparse(_keyword(call, "help") or ast.Constant("")).lower()
        option.deprecated = "deprecated" in said or _keyword(call, "deprecated") is not None
        name = long[0].lstrip("-").replace("_", "-")
        owner = self.classes.tables.get(table)
        if fed is not None and owner and fed.replace("_", "-") != name:
            option.fed_by = f"{owner}.{fed}"
        return name, option

    def _default(self, source: str) -> str | None:
        engine = self.classes.fields.get("EngineArgs", {})
        named = re.fullmatch(r"(?:Async)?EngineArgs\.(\w+)", source)
        own = engine.get(named[1]) if named else None
        return self.classes.default(own[1] if own is not None else source)

    def _by_field(self, table: str, fed: str) -> Option:
        engine = self.classes.fields.get("EngineArgs", {})
        owner = self.classes.owner(fed, table)
        kind = owner[0] if owner is not None else engine.get(fed, (None, None))[0]
        option = self._of_field(fed, table, kind)
        option.default = self.classes.default(
            engine[fed][1] if fed in engine else owner[1] if owner is not None else None
        )
        said = self.validated.key(self.classes.tables.get(table, ""), fed)
        option.config = str(said.get("config", ""))
        option.said = {"range": said["range"]} if "range" in said else {}
        if "choices" in said and option.choices is None:  # the parser takes any text
            option.said = {"names": said["choices"]} | ({"any_case": True} if "any_case" in said else {})
        return option

    def _of_field(self, name: str, table: str, kind: str | None) -> Option:
        option = Option()
        hints = self.classes.hints(kind)
        if name in self.classes.listed_by_validator:
            hints -= {("str", ())}  # the parser takes any text, and the class then refuses what the type does not list
        self._by_hints(option, name, hints)
        for how, what, value in self.changes.get((table, name), ()):
            self._changed(option, how, what, value)
        return option

    def _by_hints(self, option: Option, name: str, hints: set[Hint]) -> None:
        """vLLM's `_compute_kwargs`, in its order."""
        names = {"dict" if self._is_dict(hint[0]) else hint[0] for hint in hints}
        option.optional = "None" in names and "bool" not in names
        if self.has_maybe and names == {"bool", "str", "None"}:
            option.words = "?"
        elif known := names & self._data_classes():
            option.kind = "object" if self.judges_objects and all(map(self._judged, known)) else ""
        elif "bool" in names:
            option.words, option.no_form = 0, True
        elif "Literal" in names:
            self._literal(option, hints)
        elif (many := names & {"tuple", "list", "set"}) and len(many) == 1:
            self._collection(option, next(hint for hint in hints if hint[0] in many))
        elif "int" in names and name not in self.custom:
            option.type = "int"
        elif "float" in names and "int" not in names:
            option.type = "float"
        elif "dict" in names and names <= {"dict", "None"}:
            option.kind = "object" if self.reads_json else ""
        elif "dict" in names and "int" not in names:
            option.kind = "braces" if self.reads_braces else ""

    def _data_classes(self) -> set[str]:
        return set(self.classes.fields)

    def _is_dict(self, name: str) -> bool:
        return any(base.lower().startswith("dict[") for base in self.classes.bases.get(name, ()))

    def _judged(self, name: str) -> bool:
        """Is it a dataclass that is made of JSON, without a reader of its own (`from_cli`)?"""
        node = self.made.get(name)
        said = [ast.unparse(d) for d in node.decorator_list] if node is not None else []
        own = {line.name for line in node.body if isinstance(line, ast.FunctionDef)} if node is not None else set()
        return any(re.match(r"(config|dataclass)\b", text) for text in said) and "from_cli" not in own

    def _literal(self, option: Option, hints: set[Hint]) -> None:
        values = [v for name, listed in hints if name == "Literal" for v in listed if v is not None]
        first = values[0] if values else None
        option.type = type(first).__name__ if isinstance(first, int | float) and not isinstance(first, bool) else ""
        if values and "str" not in {name for name, _ in hints}:
            option.choices = list(dict.fromkeys(values))  # as they stand; vLLM itself sorts them

    def _collection(self, option: Option, hint: Hint) -> None:
        kind, elements = hint
        option.words = (
            "+" if kind != "tuple" or "..." in elements or "Ellipsis" in elements or not elements else len(elements)
        )
        inner = self.classes.hints(str(elements[0])) if elements else set()
        names = {name for name, _ in inner}
        if "Literal" in names:
            self._literal(option, inner)
        elif len(inner) == 1 and names & {"int", "float"}:
            option.type = names.pop()

    def _changed(self, option: Option, how: str, what: str, value: ast.expr | None) -> None:
        literal = self._constant(value)
        match how, what:
            case "del", "nargs":
                option.words = 1
            case "set", "type":
                objects = option.kind == "object"
                option.type, option.optional = _type_of(value)
                option.kind = _kind_of(value)
                option.folded = value is not None and ast.unparse(value).endswith(".lower().replace('-', '_')")
                if objects and option.kind == "json":
                    option.kind = "object"
            case "set", "action":
                text = ast.unparse(value) if value is not None else ""
                option.repeated = literal == "append"
                if text in self.made:
                    option.keys = loaded.pairs(self.wheel, self.made[text])
                    option.kind = "pairs" if option.keys else ""
                option.words = (
                    0 if "store_" in text else "+" if option.words == "+" and "append" not in text else option.words
                )
            case "set", "nargs" if literal is not None:
                option.words = "+" if literal == "*" else literal  # type: ignore[assignment]
            case "set", "choices":
                option.choices = _plain_list(value)
            case "set", "flags":
                option.aliases += [str(v) for v in _plain_list(value) or ()]
            case "remove", "choices" if option.choices is not None:
                option.choices = [c for c in option.choices if c != literal]
            case "append", "choices" if option.choices is not None and literal is not None:
                option.choices = [*option.choices, literal]
            case _:
                pass

    def _constant(self, node: ast.expr | None) -> object:
        if isinstance(node, ast.Name) and node.id in self.classes.types:
            node = ast.parse(self.classes.types[node.id], mode="eval").body
        return node.value if isinstance(node, ast.Constant) else None

    def _type(self, call: ast.Call, option: Option) -> None:
        given = _keyword(call, "type")
        if given is not None:
            option.type, option.optional = _type_of(given)
            option.kind = _kind_of(given)
        nargs = self._constant(_keyword(call, "nargs"))
        if isinstance(nargs, int | str):
            option.words = "+" if nargs == "*" else nargs
        written = _keyword(call, "choices")
        listed = _plain_list(written)
        if (
            listed is None
            and isinstance(written, ast.Call)
            and ast.unparse(written.func) == "get_args"
            and written.args
        ):
            listed = [
                v
                for name, values in self.classes.hints(ast.unparse(written.args[0]))
                if name == "Literal"
                for v in values
            ]
        option.choices = listed or option.choices

    @staticmethod
    def _action(call: ast.Call, option: Option, *, fed: bool) -> None:
        action = _keyword(call, "action")
        if action is not None:
            text = ast.unparse(action)
            option.no_form = option.no_form or "BooleanOptional" in text
            option.repeated = text == repr("append")
            if "store_true" in text or "store_false" in text or "store_const" in text or "BooleanOptional" in text:
                option.words, option.type = 0, ""
            if option.default is None and ("store_true" in text or "BooleanOptional" in text):
                option.default = "False"
        elif not fed and option.default is None:
            option.default = "None"


def _custom_types(module: ast.Module) -> Iterator[str]:
    """Fields whose whole numbers `get_kwargs` reads by a function of its own (8k, 1.5M, auto)."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name in {"get_kwargs", "_compute_kwargs"}:
            for part in ast.walk(node):
                if isinstance(part, ast.Compare) and isinstance(part.left, ast.Name) and part.left.id == "name":
                    among = part.comparators[0]  # `name == "x"`, and `name in ("x", "y")`
                    part_values = list(among.elts) if isinstance(among, ast.Tuple | ast.List) else [among]
                elif isinstance(part, ast.Set):
                    part_values = list(part.elts)
                else:
                    continue
                yield from (v.value for v in part_values if isinstance(v, ast.Constant) and isinstance(v.value, str))


def _field(node: ast.expr | None) -> tuple[str, str] | None:
    """(`x_kwargs`, "field") of `x_kwargs["field"]`."""
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.value, ast.Name)
        and node.value.id.endswith("kwargs")
    ):
        return node.value.id, str(node.slice.value)
    return None


def _type_of(node: ast.expr | None) -> tuple[str, bool]:
    """(number type, whether None is taken) of a `type=`: `int`, `optional_type(float)`."""
    if isinstance(node, ast.Name):
        return (node.id if node.id in {"int", "float"} else ""), False
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "optional_type" and node.args:
        return _type_of(node.args[0])[0], True
    return "", False


def _kind_of(node: ast.expr | None) -> str:
    """ "json" for a `type=` that reads JSON: `json.loads`, `optional_type(json.loads)`."""
    text = ast.unparse(node) if node is not None else ""
    return "json" if re.fullmatch(r"(?:(?:optional|parse)_type\()?json\.loads\)?", text) else ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _plain_list(node: ast.expr | None) -> list[object] | None:
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return list(value) if isinstance(value, list | tuple | set) else None
