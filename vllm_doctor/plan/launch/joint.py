"""What a release's configuration refuses of a launch as a whole: its own tests (history/joint.json), asked of the
options as given, of the model, and of what the plan settles.

A test names parts of the configuration: `parallel.enable_eplb and (not parallel.enable_expert_parallel)`. What nobody
knows makes no refusal: a value that the release computes before it asks, a default that it computes, a method. Where it
may only set one of a few values that stand in its code, the test must hold for what was given and for each of them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from itertools import product

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.parser.combinations import UNKNOWN, OptionTest
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.launch.together import option_value
from vllm_doctor.plan.model.architecture import RECURRENT, Architecture

# The option that makes a part of the configuration, where it is there only if asked for.
_ASKED_FOR = {
    "speculative": "speculative-config",
    "lora": "enable-lora",
    "kv_transfer": "kv-transfer-config",
    "ec_transfer": "ec-transfer-config",
}
# What is told of an option that a launch leaves out.
_ABSENT = "not set"
_STORED = "model.quantization"
# A device of CUDA; of others' devices the plan asks nothing.
_CUDA = frozenset({"is_cuda", "is_cuda_alike", "is_sleep_mode_available"})
_OTHERS = frozenset({"is_rocm", "is_xpu", "is_tpu", "is_cpu", "is_out_of_tree", "is_hpu", "is_neuron"})
# What should be, or should not be, in words.
_WORDS = {
    "model.is_moe": ("a model with experts", "a model without experts"),
    "model.use_mla": ("a model with latent attention (MLA)", "a model without latent attention (MLA)"),
    "model.is_encoder_decoder": ("an encoder-decoder model", "a model that is not an encoder-decoder"),
    "model.takes_items": ("a model that takes images or sounds", "a model of text alone, or no images and sounds"),
    "model.is_multimodal_model": ("a multimodal model", "a model of text alone"),
    "model.recurrent_layers": ("a model with recurrent layers", "a model without recurrent layers"),
    "model.hf_config.model_type": ("a model type", "a model type"),
    "model.is_hybrid": ("a model with recurrent layers", "a model without recurrent layers"),
    "model.quantization": ("a quantized model", "a model that is not quantized"),
    "model.on_first_runner": ("VLLM_USE_V2_MODEL_RUNNER=0", "VLLM_USE_V2_MODEL_RUNNER=1"),
    "whole.use_v2_model_runner": ("VLLM_USE_V2_MODEL_RUNNER=1", "no VLLM_USE_V2_MODEL_RUNNER=1"),
}


class _Launch(OptionTest):
    """The names of one test, as this launch has them."""

    def __init__(self, record: Mapping[str, object], flags: Mapping[str, str | bool], facts: Mapping[str, object]):
        self.options, self.defaults = _table(record, "options"), _table(record, "defaults")
        self.moved, self.filled = _listed(record, "moved"), _listed(record, "filled")
        self.becomes = _table(record, "becomes")
        self.flags, self.facts = flags, facts
        self.taken: Mapping[str, object] = {}  # of the values that a name may have, the one that is asked now
        self.version: Version = facts["version"]  # type: ignore[assignment]

    def value(self, node: ast.expr) -> object:
        """As `OptionTest.value`, with what is asked of the card."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="platform"), attr=asked), args=[ast.Constant(value=of)]):
                held = self.facts.get("capability")
                known = isinstance(held, float) and isinstance(of, int)
                return _capable(asked, round(held * 10), of) if known else UNKNOWN  # type: ignore[operator, arg-type]
            case _:
                return super().value(node)

    def option(self, name: str) -> str | None:
        """The option that a name is made of."""
        part, _, key = name.partition(".")
        if name in self.options:
            return str(self.options[name]).replace("_", "-")
        return _ASKED_FOR.get(part, f"{part.replace('_', '-')}-config") if key else _ASKED_FOR.get(part)

    def given(self, name: str) -> bool:
        """Does the launch itself say what this name holds?"""
        option, key = self.option(name), name.partition(".")[2]
        if option is None or option not in self.flags:
            return False
        return name in self.options or not key or key in _object(self.flags[option])

    def named(self, name: str) -> object:
        part, _, key = name.partition(".")
        if name in self.facts:
            return self.facts[name]
        if name in self.taken:
            return self.taken[name]
        if part == "platform":
            return True if key in _CUDA else False if key in _OTHERS else UNKNOWN
        if not key:
            option = _ASKED_FOR.get(part)
            return UNKNOWN if option is None else self.flags[option] if self.flags.get(option) else None
        if name in self.moved:
            return UNKNOWN
        if self.given(name):
            option = str(self.option(name))
            if name in self.options:
                return option_value(option, self.flags[option], self.version)
            return _object(self.flags[option])[key]
        if name in self.filled or name not in self.defaults:
            return UNKNOWN
        found = versions.literal(self.defaults[name])
        return UNKNOWN if isinstance(found, versions.Expression) else found

    def holds(self, tree: ast.expr, env: Mapping[str, str]) -> bool:
        """Does a test hold, whatever the release makes of the names in it?"""
        names = [name for name in self.becomes if name not in self.facts]
        ways = [[self.named(name), *(_set_to(text, env, self.version) for text in self._texts(name))] for name in names]
        for way in product(*ways):
            self.taken = dict(zip(names, way, strict=True))
            if self.value(tree) is not True:
                return False
        self.taken = {}
        return True

    def _texts(self, name: str) -> list[str]:
        found = self.becomes[name]
        return [str(text) for text in found] if isinstance(found, list) else []

    def shown(self, name: str) -> str:
        if name in _WORDS:
            return _WORDS[name][0]
        option, key = self.option(name), name.partition(".")[2]
        if option is None:
            return name
        return f"--{option}" if name in self.options or not key else f"{key} of --{option}"

    def refusal(self, tree: ast.expr, name: str) -> Refusal:
        """What is told of a test that holds, of a name in it that was given."""
        option = str(self.option(name))
        if option not in self.flags:
            method = self.facts[_STORED]
            return Refusal(f"--{option}", _ABSENT, f"--{option}, without which {self.version} takes no {method}")
        key, value = name.partition(".")[2], self.flags[option]
        found = "set" if value is True else str(value)
        if key and name not in self.options:
            found = f"{key} {json.dumps(_object(value)[key])}"
        return Refusal(f"--{option}", found[:60], self.instead(tree, name))

    def needless(self, part: ast.expr, held: Sequence[ast.expr]) -> bool:
        """That a part is there at all goes without saying where one of its keys is asked for."""
        if ast.unparse(part) == "envs.VLLM_USE_V1":
            return True  # which engine it is follows from the launch
        names, others = set(_names(part)), {name for one in held if one is not part for name in _names(one)}
        return all("." not in name and any(other.startswith(f"{name}.") for other in others) for name in names)

    def wanted(self, name: str, *, holds: bool) -> str:
        if name in _WORDS:
            return _WORDS[name][0 if holds else 1]
        return super().wanted(name, holds=holds)


def of_model(arch: Architecture, quantization: str | None, *, no_items: bool = False) -> dict[str, object]:
    """What vLLM's configuration asks of a model, by its names; nothing of a type that is not known. `no_items`: the
    launch takes text alone."""
    if not arch.known:
        return {}
    stored = arch.quantization.text("quant_method") if arch.quantization is not None else ""
    return {
        "model.is_moe": arch.moe is not None,
        "model.use_mla": arch.mla is not None,
        "model.is_encoder_decoder": arch.encoder_decoder,
        "model.is_multimodal_model": arch.multimodal,
        "model.takes_items": arch.multimodal and not no_items,
        "model.is_hybrid": arch.hybrid,
        "model.recurrent_layers": tuple(layer.kind for layer in arch.layers if layer.kind in RECURRENT),
        **({} if arch.multimodal else {"model.hf_config.model_type": arch.model_type}),
        "model.architecture": arch.name or None,
        "model.quantization": quantization or stored or None,
        "model.get_total_num_kv_heads": arch.kv_heads,
        "multimodal": True if arch.multimodal else None,
    }


def of_environment(env: Mapping[str, str]) -> dict[str, object]:
    """Switches of vLLM's as its configuration reads them, and the runner where one of them asks for it."""
    made: dict[str, object] = {f"envs.{name}": value == "1" for name, value in env.items() if value in {"0", "1"}}
    asked = env.get("VLLM_USE_V2_MODEL_RUNNER")
    return made if asked is None else {**made, "whole.use_v2_model_runner": asked == "1"}


def refusals(
    flags: Mapping[str, str | bool],
    version: Version,
    facts: Mapping[str, object],
    *,
    env: Mapping[str, str] | None = None,
    gpu: Card | None = None,
    told: Set[str] = frozenset(),
) -> Iterator[Refusal]:
    """Each test of the release that holds for the launch. `facts` are the values of names that the plan settles.
    What asks for an option of `told` is left out: its value is refused already, and one mistake is said once."""
    if gpu is not None and gpu.backend != "CUDA":
        return
    tests, asked_of = _tests(version), _asked_of(version)
    facts = {**facts, "version": version, "capability": gpu.capability if gpu is not None else None}
    asked = {*flags, *({"quantization"} if facts.get(_STORED) else ())}
    for number in sorted({number for option in asked for number in asked_of.get(option, ())}):
        test, record, _ = tests[number]
        launch, tree = _Launch(record, flags, facts), _tree(test)
        if launch.holds(tree, env or {}):
            listed = list(dict.fromkeys(_names(tree)))
            names = [name for name in listed if launch.given(name)]
            if not names and _STORED in listed:  # the checkpoint says what no option does
                names = [name for name in listed if name in facts and name in launch.options and name != _STORED]
            if names and told.isdisjoint(f"--{launch.option(name)}" for name in names):
                yield launch.refusal(tree, min(names, key=lambda name: "." not in name))


@cache
def _tests(version: Version) -> tuple[tuple[str, Mapping[str, object], frozenset[str]], ...]:
    """The tests of a release, each with its record and the options that it asks of. Kept: a search for another launch
    asks them hundreds of times."""
    table = history("joint", "joint")
    found = ((test, table.value(test, version)) for test in table.names() if table.exists(test, version))
    return tuple(
        (test, record, frozenset(_asked(test, _Launch(record, {}, {"version": version})))) for test, record in found
    )


@cache
def _asked_of(version: Version) -> Mapping[str, tuple[int, ...]]:
    """By option, the tests of a release that ask of it: a launch has few of the options."""
    found: dict[str, list[int]] = {}
    for number, (_, _, options) in enumerate(_tests(version)):
        for option in options:
            found.setdefault(option, []).append(number)
    return {option: tuple(numbers) for option, numbers in found.items()}


@cache
def _tree(test: str) -> ast.expr:
    return ast.parse(test, mode="eval").body


def _asked(test: str, launch: _Launch) -> Iterator[str]:
    """The options that a test asks of: a release never refuses its own defaults."""
    yield from (str(option).replace("_", "-") for option in launch.options.values())
    for word in test.replace("(", " ").replace(")", " ").split():
        if word[0].isalpha():
            yield str(launch.option(word))


def _names(tree: ast.expr) -> Iterator[str]:
    """The names of a test, in their order."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id in _ASKED_FOR):
            yield ast.unparse(node)


def _capable(asked: str, card: int, of: int) -> object:
    """Platform.has_device_capability, is_device_capability and is_device_capability_family (platforms/interface.py)."""
    answers = {
        "has_device_capability": card >= of,
        "is_device_capability": card == of,
        "is_device_capability_family": card // 10 == of // 10,
    }
    return answers.get(asked, UNKNOWN)


def _set_to(text: str, env: Mapping[str, str], version: Version) -> object:
    """What a release sets a name to, by its text: a value, or what a variable of the environment holds."""
    of, _, name = text.partition(".")
    if of != "envs":
        return ast.literal_eval(text)
    table = history("environment", "environment")
    standard = table.value(name, version).get("default") if table.exists(name, version) else None
    default = versions.literal(str(standard)) if standard is not None else UNKNOWN
    if isinstance(default, versions.Expression):
        return UNKNOWN
    return default if name not in env else env[name] if isinstance(default, str) else UNKNOWN


def _table(record: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = record.get(key)
    return found if isinstance(found, dict) else {}


def _listed(record: Mapping[str, object], key: str) -> frozenset[str]:
    found = record.get(key)
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def _object(value: str | bool) -> Mapping[str, object]:
    """A value of JSON; nothing for what is none."""
    try:
        loaded = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
