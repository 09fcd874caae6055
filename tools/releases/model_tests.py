"""What a model's own classes refuse as they are made: the tests behind `raise` and `assert` lines of `__init__` of the
class that the registry has for an architecture, and of each class of the models' folders and each parallel linear layer
that it makes on the way.

A test is written in the keys of config.json (`config['num_attention_heads']`; `text` is the language model's section)
and in what a launch settles: `tp` and `pp` ranks, `dtype`, the card's `capability`, `expert` parallelism, `quant` and
`lora` (None where there is none), whether a `tower` is made, whether each rank has it `whole`, the `tower_backend` that
is asked for and whether flash-attn itself is installed (`own_flash`). `layer` is any layer's number: a test that holds
for one of them ends the start. What asks for anything else is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from releases import texts
from releases.checkpoints import Checkpoints
from releases.constant_tests import elements, truth
from releases.executed import UNKNOWN, Family, State, target_of
from releases.models import served
from releases.wheel import Wheel

_NAMES = frozenset(
    {"config", "text", "tp", "pp", "dtype", "capability", "expert", "quant", "lora", "tower", "whole", "layer"}
    | {"tower_backend", "own_flash"}
)
_OF_PYTHON = frozenset({"len", "isinstance", "int", "str", "list", "tuple", "dict", "bool", "max", "min"})
_MODELS = ("vllm/model_executor/models/", "vllm/models/")
_DIVIDES = "vllm/distributed/utils.py"
_OLD_DIVIDES = "vllm/model_executor/parallel_utils/utils.py"  # up to 0.3.3
_FOLLOWED = (*_MODELS, "vllm/model_executor/layers/linear.py", "vllm/model_executor/parallel_utils/", _DIVIDES)
_CONFIG = re.compile(r"(config|text)(\['\w+'\])*")
# Keys that a release, or Transformers, writes anew before a model is made.
_REWRITTEN = frozenset(
    {
        "architectures",
        "dtype",
        "model_type",
        "name_or_path",
        "quantization_config",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "sliding_window",
        "tie_word_embeddings",
        "torch_dtype",
    }
)
# What `__init__` is given, by the name of its parameter (before and since 0.6.4).
_GIVEN = {"vllm_config": "vllm:config", "config": "config", "quant_config": "quant", "lora_config": "lora"}
_PARTS = {"model_config": "model", "parallel_config": "parallel"}
_OF_CONFIG = frozenset({"vllm", "model", "parallel", "multimodal"})
_WHOLE = "('data' if whole else 'weights')"
_ANSWERS = {
    ("vllm", "quant_config"): "quant",
    ("vllm", "lora_config"): "lora",
    ("model", "dtype"): "dtype",
    ("parallel", "tensor_parallel_size"): "tp",
    ("parallel", "pipeline_parallel_size"): "pp",
    ("parallel", "enable_expert_parallel"): "expert",
    ("multimodal", "mm_encoder_tp_mode"): _WHOLE,
}
_ASKED = {"get_tensor_model_parallel_world_size": "tp", "is_vit_use_data_parallel": "whole"}
# Functions that are given what a tower is, and answer what the launch and the host settle.
_OF_TOWERS = {"get_vit_attn_backend": "tower_backend", "check_upstream_fa_availability": "own_flash"}
_BACKENDS = frozenset({"_Backend", "AttentionBackendEnum"})
_PLATFORM = {"is_cuda": "True", "is_cuda_alike": "True"} | dict.fromkeys(
    ("is_rocm", "is_xpu", "is_tpu", "is_cpu", "is_hpu", "is_neuron", "is_out_of_tree"), "False"
)
# Of the group of stages: one is the first, and one the last, of some rank's.
_STAGES = {"is_first_rank": "True", "is_last_rank": "True", "world_size": "pp"}
_NOBODY_KNOWS = {UNKNOWN, f"(not {UNKNOWN})"}
_TOWER = "tower"
# Transformers' classes of towers, by which LLaVA's models choose one, and the `model_type` of each.
_TOWERS = {
    "CLIPVisionConfig": "clip_vision_model",
    "PixtralVisionConfig": "pixtral",
    "SiglipVisionConfig": "siglip_vision_model",
}
_CLASS = "class__"  # a class that a name holds, by its number
_DEPTH = 24


class ModelTests(Checkpoints):
    """The models of one wheel."""

    def __init__(self, wheel: Wheel) -> None:
        super().__init__(wheel)
        self.classes: list[Family] = []
        self.owners: list[Family] = []  # whose `__init__` is followed
        self.plain = cache(self._plain_test)
        self.named: dict[tuple[str, str], Family | None] = {}
        self.seen: set[object] = set()
        self.places: dict[int, str] = {}
        self.divides = False

    def read(self) -> dict[str, dict[str, object]]:
        """Architecture and test → the class that asks it, and what is said there."""
        made: dict[str, dict[str, object]] = {}
        for name, (module, cls) in served(self.wheel).items():
            made |= {f"{name}: {test}": said for test, said in self.of(module, cls).items()}
        return dict(sorted(made.items()))

    def of(self, module: str, cls: str) -> dict[str, dict[str, object]]:
        """The tests of one class of the registry's."""
        self.found, self.places, self.seen = [], {}, set()
        family = self.class_named(self._path(module), cls)
        method = family.method("__init__") if family is not None else None
        if family is None or method is None or _stands_for_others(family):
            return {}
        listed = (*method[1].args.args, *method[1].args.kwonlyargs)
        given = {one.arg: _GIVEN[one.arg] for one in listed if one.arg in _GIVEN}
        self._made(family, [], given, State("", None, depth=_DEPTH))
        kept: dict[str, dict[str, object]] = {}
        for test, line in self.found:
            plain = self.plain(test)
            said = _says(line)
            if plain and said:  # without a sentence a method is another class's to write
                kept.setdefault(plain, {"in": self.places.get(id(line), cls), "says": said})
        return kept

    def _plain_test(self, test: str) -> str:
        """A test as it is written down; empty where it asks for what nobody knows."""
        held, self.found = self.found, [(test, ast.Pass())]
        plain = next((told for told, _ in self.tests()), "")
        self.found = held
        names = {node.id for node in ast.walk(ast.parse(plain)) if isinstance(node, ast.Name)}
        return plain if names & _NAMES and names <= _NAMES | _OF_PYTHON else ""

    def _path(self, module: str) -> str:
        plain = module.replace(".", "/")
        stem = plain if plain.startswith("vllm/") else f"{_MODELS[0]}{plain}"
        return next((p for p in (f"{stem}.py", f"{stem}/__init__.py") if p in self.wheel.files), "")

    def met(self, behind: Sequence[str], line: ast.stmt) -> None:
        """As `Executed.met`, with the class whose line it is; a line that divides is many classes'."""
        if not _NOBODY_KNOWS.isdisjoint(behind):
            return
        super().met(behind, line)
        told = (one for one in reversed(self.owners) if one.module.startswith(_MODELS))
        self.places[id(line)] = "" if self.divides else next((one.node.name for one in told), "")

    def class_named(self, module: str, name: str) -> Family | None:
        """As `Checkpoints.class_named`; a class that stands on one of its own name has no bases that are known."""
        key = module, name
        if key not in self.named:
            self.named[key] = None
            self.named[key] = super().class_named(module, name)
        return self.named[key]

    def function_named(self, module: str, name: str) -> tuple[str, ast.FunctionDef] | None:
        """Functions of other folders are not followed."""
        found = super().function_named(module, name)
        return found if found is not None and found[0].startswith(_FOLLOWED) else None

    def _made(self, family: Family | None, args: list[str], keywords: Mapping[str, str], state: State) -> str:
        """Classes of other folders are not followed; nor is one that was made alike before."""
        method = family.method("__init__") if family is not None else None
        if family is None or method is None or not method[0].module.startswith(_FOLLOWED):
            return UNKNOWN
        if not _NOBODY_KNOWS.isdisjoint(state.behind):
            return UNKNOWN
        key = (family.module, family.node.name, *args, *sorted(keywords.items()), state.behind)
        if key not in self.seen:
            self.seen.add(key)
            self.owners.append(method[0])
            self._entered(method[1], method[0], family, args, keywords, state)
            self.owners.pop()
        return UNKNOWN

    def _above(self, args: list[str], keywords: Mapping[str, str], state: State) -> None:
        """`super().__init__(…)`: that of the nearest base."""
        for base in self.owners[-1].bases if self.owners else ():
            method = base.method("__init__")
            if method is not None and method[0].module.startswith(_FOLLOWED):
                fields = {name: held for name, held in state.names.items() if name.startswith("self.")}
                self.owners.append(method[0])
                self._entered(method[1], method[0], state.family, args, keywords, state, fields)
                self.owners.pop()
                return

    def test(self, node: ast.expr, state: State, line: ast.stmt) -> str:
        """As `Executed.test`; a part of the configuration is there."""
        match node:
            case ast.Name() | ast.Attribute() if _is_part(self.value(node, state, line)):
                return "True"
            case ast.Compare(left=of, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]) if (
                _is_part(self.value(of, state, line))
            ):
                return str(isinstance(op, ast.IsNot))
            case _:
                return super().test(node, state, line)

    def value(self, node: ast.expr, state: State, line: ast.stmt | None = None) -> str:  # noqa: PLR0912
        """As `Executed.value`, with what a model asks of the configuration."""
        at = line if line is not None else ast.Pass()
        match node:
            case ast.Name(id=name) if name in state.inner:
                self._entered(state.inner[name], state.module, state.family, [], {}, state, inner=True)
                return UNKNOWN
            case ast.Name(id=name) if name not in state.names and name not in state.own:
                family = self.class_named(state.module, name)
                if family is not None:
                    return self._held(family)
            case ast.Attribute(value=ast.Name(id=of), attr=name) if (
                of in state.own and state.family is not None and f"self.{name}" not in state.names
            ):
                found = state.family.constant(name)
                if found is not None and isinstance(found[1], ast.Name):
                    family = self.class_named(found[0].module, found[1].id)
                    return UNKNOWN if family is None else self._held(family)
            case ast.Subscript(value=ast.Name(id=name), slice=key) if name not in state.names:
                return self._listed(name, self.value(key, state, line), state)
            case ast.Lambda(args=args, body=body):
                self.value(body, _with(state, dict.fromkeys([one.arg for one in args.args], UNKNOWN)), line)
                return UNKNOWN
            case ast.ListComp(elt=each, generators=[one]) | ast.GeneratorExp(elt=each, generators=[one]) if not one.ifs:
                names = dict.fromkeys([n.id for n in ast.walk(one.target) if isinstance(n, ast.Name)], UNKNOWN)
                for held in elements(self.value(one.iter, state, line)):
                    alone = {one.target.id: held} if isinstance(one.target, ast.Name) else names
                    self.value(each, _with(state, alone), line)
                return UNKNOWN
            case ast.BoolOp(op=ast.Or(), values=parts) if {self.value(part, state, line) for part in parts} == {_TOWER}:
                return _TOWER
            case ast.BoolOp(op=op, values=[first, *others]) if (
                met := truth(held := self.value(first, state, line))
            ) is not None:
                if met is isinstance(op, ast.Or):
                    return held
                return self.value(others[0] if len(others) == 1 else ast.BoolOp(op, others), state, line)
            case ast.IfExp(test=asked, body=one, orelse=two) if (met := truth(self.test(asked, state, at))) is not None:
                return self.value(one if met else two, state, line)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="get_pp_group")), attr=asked):
                return _STAGES.get(asked, UNKNOWN)
            case ast.Attribute(value=ast.Name(id=of), attr=kind) if of == "torch" or of in _BACKENDS:
                return repr(kind)
            case ast.Attribute(value=of, attr=attr) if not (isinstance(of, ast.Name) and of.id in state.own):
                held = self.value(of, state, line)
                told = _field(held, attr)
                if told is not None or held != UNKNOWN:
                    return told or UNKNOWN
            case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
                pairs = zip(keys, values, strict=True)
                return f"{{{', '.join(f'{ast.unparse(k)}: {self.value(v, state, line)}' for k, v in pairs if k)}}}"
            case ast.Subscript(value=of, slice=ast.Constant(value=str() as key)) if entries := _spread(
                [self.value(of, state, line)]
            ):
                return entries.get(key, UNKNOWN)
            case ast.Subscript(value=of, slice=key) if not isinstance(key, ast.Constant | ast.Slice):
                held, index = self.value(of, state, line), self.value(key, state, line)
                return UNKNOWN if UNKNOWN in {held, index} else f"{held}[{index}]"
            case _:
                pass
        return super().value(node, state, line)

    def _call(self, node: ast.Call, state: State, line: ast.stmt) -> str:  # noqa: PLR0912
        spread = _spread([self.value(k.value, state, line) for k in node.keywords if k.arg is None])
        if any(isinstance(arg, ast.Starred) for arg in node.args) or spread is None:
            return UNKNOWN
        last = getattr(node.func, "attr", getattr(node.func, "id", ""))
        held = self.value(node.func, state, line) if isinstance(node.func, ast.Name | ast.Attribute) else UNKNOWN
        match node:
            case ast.Call(args=[], keywords=[]) if last in _ASKED:
                return _ASKED[last]
            case ast.Call(func=ast.Name(id=asked)) if asked in _OF_TOWERS:
                return _OF_TOWERS[asked]
            case ast.Call() if last == "extract_layer_index":
                return "layer"
            case ast.Call(func=ast.Name(id="int"), args=[one]) if "prefix" in ast.unparse(one):
                return "layer"
            case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=str() as key), *_]):
                return _field(self.value(of, state, line), key) or UNKNOWN
            case ast.Call(func=ast.Name(id="hasattr"), args=[of, ast.Constant(value=str() as key)]):
                of_config = self.value(of, state, line)
                return f"({key!r} in {of_config})" if _plain(of_config, key) else UNKNOWN
            case ast.Call(args=[one], keywords=[]) if last == "deepcopy":
                return self.value(one, state, line)
            case ast.Call(func=ast.Name(id="isinstance"), args=[of, ast.Name(id=kind)]) if kind in _TOWERS:
                section = self.value(of, state, line)
                return f"({section}['model_type'] == {_TOWERS[kind]!r})" if _CONFIG.fullmatch(section) else UNKNOWN
            case ast.Call(func=ast.Attribute(value=of, attr="get_limit_per_prompt")):
                # Before towers were marked (`_mark_tower_model`, from 0.15 on) a limit of nothing left one out.
                return _TOWER if self.value(of, state, line).startswith("multimodal:") else UNKNOWN
            case ast.Call(func=ast.Attribute(value=of, attr="get_text_config")):
                of_config = self.value(of, state, line)
                return "text" if of_config == "config" else of_config
            case ast.Call(func=ast.Attribute(value=ast.Name(id="current_platform"), attr=asked), args=args):
                if asked == "has_device_capability" and len(args) == 1 and isinstance(args[0], ast.Constant):
                    return f"(capability >= {args[0].value!r})"
                return UNKNOWN if args else _PLATFORM.get(asked, UNKNOWN)
            case ast.Call(func=ast.Attribute(value=of, attr="with_hf_config"), args=[one, *_]):
                config = self.value(one, state, line)
                whole = self.value(of, state, line).startswith("vllm:")
                return f"vllm:{config}" if whole and _CONFIG.fullmatch(config) else UNKNOWN
            case ast.Call(func=ast.Name(id="init_vllm_registered_model")):
                self._registered(node, state, line)
                return UNKNOWN
            case _:
                pass
        given = [self.value(arg, state, line) for arg in node.args]
        keywords = {k.arg: self.value(k.value, state, line) for k in node.keywords if k.arg is not None} | spread
        match node.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"):
                self._above(given, keywords, state)
                return UNKNOWN
            case _ if last == "divide":  # by a name that is imported with all others
                path = _DIVIDES if _DIVIDES in self.wheel.files else _OLD_DIVIDES
                found, self.divides = self.function_named(path, "divide"), True
                held = UNKNOWN if found is None else self._entered(found[1], found[0], None, given, keywords, state)
                self.divides = False
                return held
            case ast.Name(id="max" | "min" as how) if len(given) == 2 and UNKNOWN not in given:
                return f"{how}({', '.join(given)})"
            case _ if _CLASS in held and ":" not in held:
                self._chosen(ast.parse(held, mode="eval").body, given, keywords, state)
                return UNKNOWN
            case _:
                return super()._call(node, state, line)

    def _held(self, family: Family) -> str:
        """A class as what a name holds."""
        self.classes.append(family)
        return f"{_CLASS}{len(self.classes) - 1}"

    def _listed(self, name: str, key: str, state: State) -> str:
        """The class that a table of a module has for a key."""
        found = self.constant_named(state.module, name)
        if found is None or key == UNKNOWN or not isinstance(found[1], ast.Dict):
            return UNKNOWN
        made = UNKNOWN
        for at, held in zip(found[1].keys, found[1].values, strict=True):
            family = self.class_named(found[0], held.id) if isinstance(held, ast.Name) else None
            if family is not None and isinstance(at, ast.Constant):
                made = f"({self._held(family)} if ({key} == {at.value!r}) else {made})"
        return made

    def _chosen(self, held: ast.expr, args: list[str], keywords: dict[str, str], state: State) -> None:
        """An instance of the class that a name holds, or of each that it may hold behind its test."""
        match held:
            case ast.Name(id=name) if name.startswith(_CLASS):
                self._made(self.classes[int(name.removeprefix(_CLASS))], args, keywords, state)
            case ast.IfExp(test=test, body=one, orelse=two):
                self._chosen(one, args, keywords, state.past(f"({ast.unparse(test)})"))
                self._chosen(two, args, keywords, state.past(f"(not {ast.unparse(test)})"))
            case _:
                pass

    def _registered(self, node: ast.Call, state: State, line: ast.stmt) -> None:
        """A model within another, of the class that is named there."""
        given = {str(k.arg): k.value for k in node.keywords}
        names, config = given.get("architectures"), given.get("hf_config")
        held = self.value(config, state, line) if config is not None else ""
        match names:
            case ast.List(elts=[ast.Constant(value=str() as name)]) if _CONFIG.fullmatch(held):
                module, cls = served(self.wheel).get(name, ("", ""))
                self._made(self.class_named(self._path(module), cls), [], {"vllm_config": f"vllm:{held}"}, state)
            case _:
                pass

    def _line(self, line: ast.stmt, state: State, result: object) -> State | None:
        match line:
            case ast.If(test=asked, body=body, orelse=other) if (
                met := truth(self.test(asked, state, line))
            ) is not None:
                return self._run(body if met else other, state, result)  # type: ignore[arg-type]
            case ast.If(body=[*_, ast.Raise()], orelse=[]):
                # Where it raises, the start has ended: what comes behind it asks no more for what nobody knows.
                after = super()._line(line, state, result)  # type: ignore[arg-type]
                new = () if after is None else after.behind[len(state.behind) :]
                return replace(after, behind=state.behind) if after is not None and set(new) <= _NOBODY_KNOWS else after
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                same = isinstance(value, ast.Tuple) and len(value.elts) == len(targets)
                parts = value.elts if same and isinstance(value, ast.Tuple) else []
                told = [self.value(part, state, line) for part in parts] or [self.value(value, state, line)]
                after = super()._line(line, state, result)  # type: ignore[arg-type]
                names = [target_of(target, state) for target in targets] if same else []
                return after if after is None else _with(after, {k: v for k, v in zip(names, told, strict=False) if k})
            case ast.For(iter=what, body=body, orelse=[]):
                self.value(what, state, line)
                after = super()._line(line, state, result)  # type: ignore[arg-type]
                if after is not None:
                    self._run(body, after, _Nothing())  # type: ignore[arg-type]
                return after
            case ast.With(items=items, body=body) if any("_mark_tower_model" in ast.unparse(one) for one in items):
                after = self._run(body, state.past(_TOWER), result)  # type: ignore[arg-type]
                return after if after is None else replace(after, behind=state.behind)
            case _:
                return super()._line(line, state, result)  # type: ignore[arg-type]


class _Nothing:
    """What lines of a loop give back is not asked."""

    def __init__(self) -> None:
        self.given: list[tuple[tuple[str, ...], str]] = []


def _stands_for_others(family: Family) -> bool:
    """Is an object of it one of another class, by what config.json says?"""
    return any(isinstance(line, ast.FunctionDef) and line.name == "__new__" for line in family.node.body)


def _with(state: State, names: Mapping[str, str]) -> State:
    return replace(state, names={**state.names, **names})


def _plain(held: str, key: str) -> bool:
    return _CONFIG.fullmatch(held) is not None and key not in _REWRITTEN


def _spread(tables: Sequence[str]) -> dict[str, str] | None:
    """The entries of tables that are written down; None where one is no such table."""
    made: dict[str, str] = {}
    for held in tables:
        tree = ast.parse(held, mode="eval").body if held.startswith("{") else None
        if not isinstance(tree, ast.Dict):
            return None
        pairs = zip(tree.keys, tree.values, strict=True)
        made |= {str(k.value): ast.unparse(v) for k, v in pairs if isinstance(k, ast.Constant)}
    return made


def _is_part(held: str) -> bool:
    """Is it the whole configuration, or one of its parts that each model has?"""
    return held.partition(":")[0] in _OF_CONFIG and ":" in held


def _field(held: str, attr: str) -> str | None:
    """A field of something of the configuration; None for a field of anything else."""
    part, _, config = held.partition(":")
    if config and part in _OF_CONFIG:
        match attr:
            case "hf_config":
                return config
            case "hf_text_config":
                return "text" if config == "config" else config
            case "multimodal_config":
                return f"multimodal:{config}"
            case _:
                return f"{_PARTS[attr]}:{config}" if attr in _PARTS else _ANSWERS.get((part, attr), UNKNOWN)
    if _CONFIG.fullmatch(held):
        return f"{held}[{attr!r}]" if attr not in _REWRITTEN else UNKNOWN
    return None


def _says(line: ast.stmt) -> str:
    """The sentence of a line that ends the start, with `…` for each value; of an assertion what it asks."""
    match line:
        case ast.Raise(exc=ast.Call(args=[said, *_])):
            return next(texts.of(said), "").replace(texts.HOLE, "…").strip()
        case ast.Assert(test=test, msg=said):
            told = next(texts.of(said), "") if said is not None else ""
            return told.replace(texts.HOLE, "…").replace("{}", "…").strip() or ast.unparse(test)
        case _:
            return ""


def read(wheel: Wheel) -> dict[str, dict[str, object]]:
    """The tests of a release."""
    return ModelTests(wheel).read()
