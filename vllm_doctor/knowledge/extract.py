"""Read what a vLLM wheel accepts, without running it: `python -m vllm_doctor.knowledge.extract WHEEL…`.

Each WHEEL is a .whl file or a folder with an unpacked one. Flags come from the calls of `add_argument` and the
dataclasses that feed them, variables from envs.py. What is found is merged into versions.json, whose other facts
(notes, releases) stay.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.knowledge.versions import Version, as_version, canonical, parse_version

DATA = Path(__file__).with_name("versions.json")
_SOURCES = Pattern(
    r"vllm/(engine/arg_utils|envs|config|config/\w+|entrypoints/.*(cli_args|launch_args|args)|entrypoints/openai/api_server)\.py"
)
# Up to 0.4.1 the server made its own options, and there was no list of variables.
_OLD_FRONTEND = "vllm/entrypoints/openai/api_server.py"


@dataclass
class Found:
    """One flag of one release: the source of its default, its choices (None: any), and how it may be written."""

    default: str | None = None
    choices: list[object] | None = None
    kind: str | None = None
    aliases: list[str] = field(default_factory=list)
    negatable: bool = False
    deprecated: bool = False


@dataclass
class Release:
    """What one wheel holds."""

    version: Version
    flags: dict[str, Found]
    environment: dict[str, str | None]


class ExtractError(Exception):
    """A file that is no vLLM wheel."""


def _texts(place: Path) -> Iterator[tuple[str, str]]:
    """(path, text) of the files that matter."""
    if place.is_dir():
        for file in sorted(place.rglob("*.py")):
            name = str(file.relative_to(place))
            if _SOURCES.fullmatch(name):
                yield name, file.read_text(encoding="utf-8")
        return
    try:
        with zipfile.ZipFile(place) as wheel:
            for name in sorted(wheel.namelist()):
                if _SOURCES.fullmatch(name):
                    yield name, wheel.read(name).decode("utf-8")
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError) as problem:
        raise ExtractError(f"{place}: {problem}; needed: a vLLM wheel or a folder with one unpacked") from None


def version_of(place: Path) -> Version:
    """The version in a wheel's or a folder's name. Raises ExtractError where it holds none."""
    found = re.match(r"vllm(?:_cpu)?[-_]?(\d[^-]*)", place.name) or re.match(r"(\d+\.\d+[^-]*)", place.name)
    version = parse_version(found[1]) if found else None
    if version is None:
        raise ExtractError(f"{place}: the name holds no version; needed: vllm-X.Y.Z-….whl, or a folder named X.Y.Z")
    return version


class _AnyText(Exception):  # noqa: N818 - no error: any text goes
    """The type takes any text."""


class _Classes:
    """Dataclass fields and literal types of all config modules: what a flag's default and choices resolve to."""

    def __init__(self, modules: Mapping[str, ast.Module]) -> None:
        self.fields: dict[str, dict[str, tuple[str | None, str | None]]] = {}  # class → field → (type, default)
        self.types: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        for module in modules.values():
            for node in module.body:
                self._top(node)
            for deep in ast.walk(module):
                self._table(deep)

    def _table(self, node: ast.AST) -> None:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "get_kwargs"
            and node.value.args
        ):
            self.tables[node.targets[0].id] = ast.unparse(node.value.args[0])

    def _top(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef):
            listed = self.fields.setdefault(node.name, {})
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    listed[each.target.id] = (
                        ast.unparse(each.annotation),
                        None if each.value is None else ast.unparse(each.value),
                    )
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.types[node.targets[0].id] = ast.unparse(node.value)

    def default(self, source: str | None, depth: int = 4) -> str | None:
        """`ModelConfig.dtype` → the default of that field; `get_field(ModelConfig, "x")` likewise; else the source
        itself."""
        if source is None or depth == 0:
            return source
        named = re.fullmatch(r"(\w+)\.(\w+)", source) or re.fullmatch(r"get_field\((\w+), ['\"](\w+)['\"]\)", source)
        if named and named[1] in self.fields and named[2] in self.fields[named[1]]:
            return self.default(self.fields[named[1]][named[2]][1], depth - 1)
        inner = re.match(r"Field\(default=([^,()]+|'[^']*')[,)]", source)
        return inner[1] if inner else source

    def owner(self, name: str, table: str = "") -> tuple[str | None, str | None] | None:
        """(type, default) of a field as the config class that owns it has it; `table` is the variable that holds its
        fields (`scheduler_kwargs = get_kwargs(SchedulerConfig)`)."""
        said = self.fields.get(self.tables.get(table, ""), {})
        if name in said:
            return said[name]
        for cls, listed in self.fields.items():
            if cls.endswith("Config") and name in listed:
                return listed[name]
        return None

    def choices(self, kind: str | None) -> list[object] | None:
        """The values of a Literal type, through aliases; None when any value goes. As vLLM makes its parser (engine/
        arg_utils.py literal_to_kwargs): beside `str` the values are mere hints, beside other types they hold."""
        if kind is None:
            return None
        try:
            return self._values(ast.parse(kind, mode="eval").body, 6) or None
        except (SyntaxError, _AnyText):
            return None

    def _values(self, node: ast.expr, depth: int) -> list[object]:
        if depth == 0:
            return []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._values(node.left, depth) + self._values(node.right, depth)
        if isinstance(node, ast.Name):
            if node.id == "str":
                raise _AnyText
            alias = self.types.get(node.id)
            return [] if alias is None else self._values(ast.parse(alias, mode="eval").body, depth - 1)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if node.value.id == "Literal":
                return [v for each in inner for v in self._literal(each, depth)]
            if node.value.id in {"Optional", "InitVar", "SkipValidation", "Union"}:
                return [v for each in inner for v in self._values(each, depth - 1)]
            if node.value.id == "Annotated":
                return self._values(inner[0], depth - 1)
        return []

    def _literal(self, node: ast.expr, depth: int) -> list[object]:
        return [node.value] if isinstance(node, ast.Constant) else self._values(node, depth - 1)


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _plain_list(node: ast.expr | None) -> list[object] | None:
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, SyntaxError):
        return None
    return list(value) if isinstance(value, list | tuple | set) else None


def _calls(module: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            yield node


def _of_call(call: ast.Call, classes: _Classes) -> tuple[str, Found] | None:
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = [n for n in names if n.startswith("--")]
    if not long:
        return None
    name = max(long, key=len) if len(long) == 1 else long[0]
    found = Found(aliases=[n for n in names if n != name])
    spread = next((k.value for k in call.keywords if k.arg is None), None)
    fed = None
    overridden: str | None = None
    if isinstance(spread, ast.Dict):
        # **{**scheduler_kwargs["max_num_seqs"], "default": None}
        for written, value in zip(spread.keys, spread.values, strict=True):
            if isinstance(written, ast.Constant) and written.value == "default":
                overridden = ast.unparse(value)
        spread = next((v for k, v in zip(spread.keys, spread.values, strict=True) if k is None), None)
    if (
        isinstance(spread, ast.Subscript)
        and isinstance(spread.slice, ast.Constant)
        and isinstance(spread.slice.value, str)
    ):
        fed = spread.slice.value
    engine = classes.fields.get("EngineArgs", {})
    table = spread.value.id if isinstance(spread, ast.Subscript) and isinstance(spread.value, ast.Name) else ""
    owner = classes.owner(fed, table) if fed else None
    if fed is not None:
        annotated = engine.get(fed) or owner
        kind = owner[0] if owner is not None else annotated[0] if annotated is not None else None
        found.kind = kind
        found.default = classes.default(engine[fed][1] if fed in engine else owner[1] if owner is not None else None)
        found.choices = classes.choices(kind)
        found.negatable = kind is not None and re.fullmatch(r"(Optional\[)?bool\]?( \| None)?", kind) is not None
    found.default = overridden or found.default
    given = _keyword(call, "default")
    if given is not None:
        source = ast.unparse(given)
        field_name = re.fullmatch(r"EngineArgs\.(\w+)|AsyncEngineArgs\.(\w+)", source)
        key = next((g for g in field_name.groups() if g), "") if field_name else ""
        found.default = classes.default(engine[key][1]) if key in engine else classes.default(source)
    listed = _plain_list(_keyword(call, "choices"))
    found.choices = listed or found.choices
    action = _keyword(call, "action")
    if action is not None:
        text = ast.unparse(action)
        found.negatable = found.negatable or "BooleanOptional" in text
        if found.default is None and ("store_true" in text or "BooleanOptional" in text):
            found.default = "False"
    elif fed is None and found.default is None:
        found.default = "None"
    found.deprecated = (
        "deprecated" in ast.unparse(_keyword(call, "help") or ast.Constant("")).lower()
        or _keyword(call, "deprecated") is not None
    )
    return name.lstrip("-").replace("_", "-"), found


def _frontend(classes: _Classes) -> Iterator[tuple[str, Found]]:
    """Flags of the HTTP front end: the fields of its dataclasses (entrypoints/**/cli_args.py)."""
    for cls, listed in classes.fields.items():
        if not re.fullmatch(r"(Base)?Frontend\w*Args|Launch\w*Args", cls):
            continue
        for name, (kind, default) in listed.items():
            yield (
                name.replace("_", "-"),
                Found(classes.default(default), classes.choices(kind), kind, [], kind == "bool"),
            )


def _environment(module: ast.Module) -> dict[str, str | None]:
    """Names that envs.py reads, with the default that its annotations state."""
    stated: dict[str, str | None] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.isupper():
            stated[node.target.id] = None if node.value is None else ast.unparse(node.value)
    names: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Dict):
            keys = [k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            names += [k for k in keys if re.fullmatch(r"[A-Z][A-Z0-9_]+", k)]
    return {n: stated.get(n) for n in dict.fromkeys(names)}


def extract(place: Path) -> Release:
    """Everything of one wheel. Raises ExtractError for what is no vLLM wheel."""
    modules: dict[str, ast.Module] = {}
    for name, text in _texts(place):
        try:
            modules[name] = ast.parse(text)
        except SyntaxError as problem:
            raise ExtractError(
                f"{place}: {name} line {problem.lineno} is not Python that this interpreter reads"
            ) from None
    envs = modules.get("vllm/envs.py")
    if envs is not None:
        modules.pop(_OLD_FRONTEND, None)
    if "vllm/engine/arg_utils.py" not in modules or (envs is None and _OLD_FRONTEND not in modules):
        raise ExtractError(
            f"{place}: holds no vllm/engine/arg_utils.py; needed: a vLLM wheel or a folder with one unpacked"
        )
    classes = _Classes(modules)
    flags: dict[str, Found] = {}
    for module in modules.values():
        for call in _calls(module):
            made = _of_call(call, classes)
            if made is not None:
                flags.setdefault(*made)
    for name, found in _frontend(classes):
        flags.setdefault(name, found)
    return Release(version_of(place), flags, _environment(envs) if envs is not None else {})


def _span(known: list[Version], present: set[Version]) -> list[list[str]]:
    """Runs of neighbouring samples that have something, as [first, last]."""
    spans: list[list[str]] = []
    inside = False
    for version in known:
        if version in present:
            if inside:
                spans[-1][1] = str(version)
            else:
                spans.append([str(version), str(version)])
        inside = version in present
    return spans


def _within(spans: object, known: list[Version], old: set[Version]) -> set[Version]:
    """The samples that stored spans cover, among those that were sampled when they were written."""
    if not isinstance(spans, list):
        return set()
    pairs = [(as_version(a), as_version(b)) for a, b in spans]
    return {v for v in known if v in old and any(a <= v <= b for a, b in pairs)}


def _series(stored: object, known: list[Version], fresh: Mapping[Version, object]) -> list[list[object]]:
    """[[since, value], …] with the samples of `fresh` put in; neighbours with one value are one entry."""
    listed = [(as_version(a), b) for a, b in stored] if isinstance(stored, list) else []
    out: list[list[object]] = []
    for version in known:
        before = [b for a, b in listed if a <= version]
        if version in fresh:
            value = fresh[version]
        elif before:
            value = before[-1]
        else:
            continue
        if not out or out[-1][1] != value:
            out.append([str(version), value])
    return out


def merge(data: dict[str, object], releases: list[Release]) -> dict[str, object]:
    """versions.json with these releases in it. `complete` lists the samples whose every flag is known."""
    listed, complete = data["sampled"], data.get("complete", [])
    flags, environment = data["flags"], data["environment"]
    if (
        not isinstance(listed, list)
        or not isinstance(complete, list)
        or not isinstance(flags, dict)
        or not isinstance(environment, dict)
    ):
        raise TypeError("versions.json does not have its shape")
    old = {as_version(v) for v in listed}
    by_version = {r.version: r for r in releases}
    known = sorted(old | set(by_version))
    whole = sorted({as_version(v) for v in complete} | set(by_version))
    names = list(dict.fromkeys([*flags, *(canonical(n) for r in releases for n in r.flags)]))
    merged_flags = {}
    for name in names:
        entry = dict(flags.get(name) or {"among": "complete"})
        among = whole if entry.get("among") == "complete" else known
        have = {v: r.flags[name] for v, r in by_version.items() if name in r.flags}
        present = (
            _within(entry.get("present"), among, set(among) - set(by_version)) if name in flags else set()
        ) | set(have)
        entry["present"] = _span(among, present)
        defaults = {v: f.default for v, f in have.items() if f.default is not None}
        entry["defaults"] = _series(entry.get("defaults"), among, defaults)
        choices = {v: f.choices for v, f in have.items() if f.choices is not None or "choices" in entry}
        if choices or "choices" in entry:
            entry["choices"] = _series(entry.get("choices"), among, choices)
        aliases = dict.fromkeys([*entry.get("aliases", []), *(a for f in have.values() for a in f.aliases)])
        if aliases:
            entry["aliases"] = list(aliases)
        for key, wanted in (("no_form_available", "negatable"), ("deprecated_in", "deprecated")):
            stored = _within(entry.get(key), among, set(among) - set(by_version))
            spans = _span(among, stored | {v for v, f in have.items() if getattr(f, wanted)})
            if spans:
                entry[key] = spans
        merged_flags[name] = entry
    merged_env = {}
    for name in dict.fromkeys([*environment, *(n for r in releases for n in r.environment)]):
        entry = dict(environment.get(name) or {"among": "complete"})
        among = whole if entry.get("among") == "complete" else known
        have_env = {v: r.environment[name] for v, r in by_version.items() if name in r.environment}
        outside = (
            name in environment and not any(name in r.environment for r in releases) and not name.startswith("VLLM_")
        )
        if not outside:
            present = (
                _within(entry.get("present"), among, set(among) - set(by_version)) if name in environment else set()
            ) | set(have_env)
            entry["present"] = _span(among, present)
            entry["defaults"] = _series(
                entry.get("defaults"), among, {v: d for v, d in have_env.items() if d is not None}
            )
        merged_env[name] = entry
    return {
        **data,
        "sampled": [str(v) for v in known],
        "complete": [str(v) for v in whole],
        "flags": merged_flags,
        "environment": merged_env,
    }


def dumps(data: Mapping[str, object]) -> str:
    """The file's own layout: one flag, variable or release a line, so that two states can be compared."""
    parts = []
    for key, value in data.items():
        if isinstance(value, dict):
            inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            parts.append(f"{json.dumps(key)}: {{\n{inner}\n}}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(argv: list[str]) -> int:
    """Merge the wheels into versions.json; 2 for bad input."""
    if not argv or argv[0] in {"-h", "--help"}:
        sys.stdout.write(f"{__doc__}\n")
        return 0 if argv else 2
    try:
        releases = [extract(Path(a)) for a in argv]
    except ExtractError as problem:
        sys.stderr.write(f"extract: {problem}\n")
        return 2
    data = json.loads(DATA.read_text(encoding="utf-8"))
    DATA.write_text(dumps(merge(data, releases)), encoding="utf-8")
    for r in releases:
        sys.stdout.write(f"{r.version}: {len(r.flags)} flags, {len(r.environment)} variables\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
