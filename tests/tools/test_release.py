"""A vLLM wheel becomes one file of facts, and the facts of other releases stay as they are (tools/release.py)."""

import json
import re
import stat
import warnings
import zipfile
from pathlib import Path

import pytest
import release
from releases import checks, history, joint, models, read, report, store, traits
from releases.wheel import Wheel
from releases.wheel import read as read_wheel

from tests.tools.small_wheel import ARG_UTILS, wheel
from vllm_doctor.knowledge import serving
from vllm_doctor.knowledge.version import as_version

REPO = Path(__file__).resolve().parents[2]
CONTRIBUTING = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")


def added(folder: Path, place: Path) -> int:
    return release.add(place, folder / "releases", folder / "history")


def facts(folder: Path, version: str = "0.99.0") -> dict[str, dict[str, object]]:
    return json.loads((folder / "releases" / f"{version}.json").read_text(encoding="utf-8"))


class TestAWheel:
    """What is written down of it."""

    def test_options_have_what_argparse_would_make_of_them(self, tmp_path: Path) -> None:
        options = read.release(read_wheel(wheel(tmp_path)), [])["options"]
        assert options == {
            "backend": {"default": "None", "words": 1, "choices": ["triton", "cutlass"]},
            "enforce-eager": {"default": "False", "words": 0, "no_form": True},
            "kv-cache-dtype": {
                "default": "'auto'",
                "words": 1,
                "choices": ["auto", "fp8"],
                "field": "CacheConfig.cache_dtype",
            },
            "max-model-len": {"default": "None", "words": 1, "optional": True},
            "max-num-batched-tokens": {"default": "None", "words": 1, "optional": True},
            "max-num-seqs": {"default": "None", "words": 1, "type": "int"},
            "middleware": {"default": "field(default_factory=list)", "words": "+"},
            "old": {"default": "False", "words": 0, "deprecated": True},
            "port": {"default": "8000", "words": 1, "type": "int", "choices": [8000, 8001], "aliases": ["-p"]},
        }

    @pytest.mark.parametrize(
        "names", ['{"max_num_batched_tokens"}', '("max_num_batched_tokens", "kv_cache_memory_bytes")']
    )
    def test_a_number_whose_suffixes_the_release_reads_is_no_plain_one(self, tmp_path: Path, names: str) -> None:
        source = ARG_UTILS.replace('{"max_num_batched_tokens"}', names)
        options = read.release(read_wheel(wheel(tmp_path, more={"vllm/engine/arg_utils.py": source})), [])["options"]
        assert "type" not in options["max-num-batched-tokens"]
        assert options["max-num-seqs"]["type"] == "int"

    def test_text_that_the_class_then_refuses_has_the_choices_of_its_type(self, tmp_path: Path) -> None:
        source = """
Kind = Literal["auto", "fp8"]
KINDS: list[str] = list(get_args(Kind))
def known(name):
    return name in KINDS
class CacheConfig:
    cache_dtype: Kind | str = "auto"
    @field_validator("cache_dtype", mode="after")
    @classmethod
    def _validate(cls, value):
        if not known(value):
            raise ValueError(f"Valid values are: {KINDS}")
        return value
"""
        for text, choices in ((source, ["auto", "fp8"]), (source.replace("raise ValueError", "print"), None)):
            made = wheel(tmp_path, more={"vllm/config/cache.py": text})
            option = read.release(read_wheel(made), [])["options"]["kv-cache-dtype"]
            assert option.get("choices") == choices

    def test_the_keys_of_an_option_are_those_of_the_class_that_pydantic_validates(self, tmp_path: Path) -> None:
        more = {
            "vllm/config/utils.py": "from pydantic.dataclasses import dataclass\nConfigDict(extra='forbid')\n",
            "vllm/config/more.py": """
from enum import Enum, IntEnum
class Level(IntEnum):
    L0 = 0
    L1 = 1
class Way(Enum):
    FAST = (1, 2)
    SLOW = 2
@config
class Inner:
    size: int = Field(default=1, ge=1, le=HALF)
@config
class OuterConfig:
    level: Level = Level.L0
    way: Way = Way.FAST
    inner: Inner = field(default_factory=Inner)
    kind: Literal["a", "b"] | None = None
    free: Literal["a"] | str = "a"
    changed: int = 3
    @field_validator("way", mode="before")
    def _way(cls, value):
        if value.lower() == "auto":
            return None
        return Way[value.upper()]
    @field_validator("changed", mode="before")
    def _changed(cls, value):
        return anything(value)
@config
class FirstConfig:
    size: int = Field(default=1, ge=1)
    @model_validator(mode="before")
    def _all(cls, values):
        return anything(values)
@config
class VllmConfig:
    outer_config: OuterConfig = field(default_factory=OuterConfig)
    level: Level = Level.L0
""",
            "vllm/engine/more_args.py": "",
        }
        more["vllm/entrypoints/api_cli_args.py"] = """
vllm_kwargs = get_kwargs(VllmConfig)
group.add_argument("--outer-config", **vllm_kwargs["outer_config"])
group.add_argument("--level", **vllm_kwargs["level"])
"""
        said = read.release(read_wheel(wheel(tmp_path, more=more)), [])
        assert said["options"]["outer-config"]["config"] == "OuterConfig"
        assert said["options"]["level"]["names"] == [0, 1]
        assert said["fields"] == {
            "Inner": {"closed": True},
            "Inner.size": {"type": "int", "range": {"ge": 1}},
            "OuterConfig": {"closed": True},
            "OuterConfig.changed": {},
            "OuterConfig.free": {},
            "OuterConfig.inner": {"config": "Inner"},
            "OuterConfig.kind": {"choices": ["a", "b"], "optional": True},
            "OuterConfig.level": {"choices": [0, 1]},
            "OuterConfig.way": {"choices": ["FAST", "SLOW", "auto"], "any_case": True},
        }

    def test_the_names_that_a_release_registers_are_read_where_each_can_be(self, tmp_path: Path) -> None:
        more = {
            "vllm/model_executor/model_loader/__init__.py": "_LOAD_FORMAT_TO_MODEL_LOADER = {'auto': A, 'pt': B}\n",
            "vllm/tool_parsers/__init__.py": "_TOOL_PARSERS_TO_REGISTER = {'hermes': ('f', 'C'), **more}\n",
            "vllm/reasoning/one.py": "@ReasoningParserManager.register_module(['r1', 'r2'])\nclass One: ...\n",
            "vllm/tokenizers/registry.py": """
_VLLM_TOKENIZERS = {"hf": A}
def resolve(mode, tokenizer_mode):
    if tokenizer_mode == "slow":
        tokenizer_mode = "hf"
    if tokenizer_mode == "grok2" or mode == "other":
        mode = "hf"
""",
        }
        said = read.release(read_wheel(wheel(tmp_path, more=more)), [])
        assert said["load_formats"] == {"auto": {}, "pt": {}}
        assert said["reasoning_parsers"] == {"r1": {}, "r2": {}}
        assert said["tokenizers"] == {"hf": {}, "slow": {}}  # one that becomes another is taken too
        assert "tool_parsers" not in said  # not the whole list

    def test_a_type_of_the_front_end_may_stand_anywhere_in_the_package_that_hands_it_on(self, tmp_path: Path) -> None:
        more = {
            "vllm/entrypoints/cli_args.py": "from vllm.chat import Form\nclass FrontendArgs:\n    form: Form = 'a'\n",
            "vllm/chat/__init__.py": "from .types import Form\n",
            "vllm/chat/types.py": 'import typing\nForm = Literal["a", "openai"]\n',
        }
        options = read.release(read_wheel(wheel(tmp_path, more=more)), [])["options"]
        assert options["form"]["choices"] == ["a", "openai"]

    def test_what_a_text_must_be_is_read_from_types_readers_and_loaders(self, tmp_path: Path) -> None:
        more = {
            "vllm/engine/arg_utils.py": """
class EngineArgs:
    def add_cli_args(parser):
        if one:
            kwargs["type"] = lambda val: TypeAdapter(cls).validate_json(val)
            kwargs["type"] = union_dict_and_str
            kwargs["type"] = parse_type(json.loads)
        model_kwargs = get_kwargs(ModelConfig)
        for name in ("part", "old", "plain", "open", "worker"):
            pass
        group.add_argument("--part", **model_kwargs["part"])
        group.add_argument("--old", **model_kwargs["old"])
        group.add_argument("--plain", **model_kwargs["plain"])
        group.add_argument("--open", **model_kwargs["open"])
        group.add_argument("--worker-cls", **model_kwargs["worker_cls"])
        group.add_argument("--enable-x", **model_kwargs["enable_x"])
""",
            "vllm/config/cache.py": """
@config
class Part:
    size: int = 1
@config
class Old:
    size: int = 1
    @classmethod
    def from_cli(cls, value): ...
class Options(dict[str, int]):
    pass
class ModelConfig:
    part: Part = field(default_factory=Part)
    old: Old = field(default_factory=Old)
    plain: Options = field(default_factory=Options)
    open: dict[str, int] | str = ""
    worker_cls: str = "auto"
    enable_x: bool = False
""",
            "vllm/entrypoints/cli_args.py": """
class PairAction(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        for item in values:
            if "=" in item and "," not in item:
                name, path = item.split("=", 1)
                made.append(Adapter(name, path))
            else:
                given = json.loads(item)
                made.append(Adapter(**given))
class FrontendArgs:
    adapters: list[Adapter] | None = None
    middleware: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    def change(frontend_kwargs):
        frontend_kwargs["adapters"]["action"] = PairAction
        frontend_kwargs["origins"]["type"] = json.loads
        del frontend_kwargs["origins"]["nargs"]
def run(args):
    for one in args.middleware:
        module, name = one.rsplit(".", 1)
""",
            "vllm/entrypoints/protocol.py": """
class Adapter:
    name: str
    path: str
    base: str | None = None
""",
            "vllm/v1/worker/base.py": "worker = resolve_obj_by_qualname(config.worker_cls)\n",
            "vllm/utils/argparse_utils.py": "class EnableDisableAction(BooleanOptionalAction): ...\n",
        }
        options = read.release(read_wheel(wheel(tmp_path, more=more)), [])["options"]
        said = {
            name: {key: option[key] for key in ("kind", "keys", "loaded", "inverse") if key in option}
            for name, option in options.items()
        }
        assert said == {
            "part": {"kind": "object"},
            "old": {},  # it has a reader of its own
            "plain": {"kind": "object"},
            "open": {"kind": "braces"},
            "worker-cls": {"loaded": "."},
            "enable-x": {"inverse": ["--disable-x"]},
            "adapters": {"kind": "pairs", "keys": {"name": True, "path": True, "base": False}},
            "middleware": {"loaded": "."},
            "origins": {"kind": "json"},
        }

    def test_what_a_variable_s_text_becomes_is_read_where_all_are_read_at_the_start(self, tmp_path: Path) -> None:
        envs = """
def flag(value):
    return None if value is None else bool(int(value))
def port():
    text = os.getenv("VLLM_PORT", "0")
    try:
        return int(text)
    except ValueError:
        raise ValueError("an address?")
environment_variables = {
    "VLLM_PORT": port,
    "VLLM_FLAG": lambda: flag(os.environ.get("VLLM_FLAG")),
    "VLLM_ON": lambda: bool(int(os.getenv("VLLM_ON", "0"))),
    "VLLM_SHARE": lambda: float(os.environ["VLLM_SHARE"]) if "VLLM_SHARE" in os.environ else None,
    "VLLM_WORD": lambda: os.getenv("VLLM_WORD", "").lower(),
    "VLLM_OTHER": lambda: len(os.getenv("VLLM_OTHER", "")),
    "VLLM_LEVEL": lambda: os.getenv("VLLM_LEVEL", "INFO"),
    "VLLM_WAY": env_with_choices("VLLM_WAY", None, ["a", "b"], case_sensitive=False),
    "VLLM_SOME": env_set_with_choices("VLLM_SOME", default=[], choices=["a", "b"]),
}
def enable_envs_cache():
    for key in environment_variables:
        __getattr__(key)
"""
        logger = 'CONFIG = {"handlers": {"vllm": {"level": envs.VLLM_LEVEL}}}\n'
        made = wheel(tmp_path, more={"vllm/envs.py": envs, "vllm/logger.py": logger})
        assert read.release(read_wheel(made), [])["environment"] == {
            "VLLM_FLAG": {"default": None, "reads": "int"},
            "VLLM_LEVEL": {"default": None, "reads": "level"},
            "VLLM_ON": {"default": None, "reads": "int"},
            "VLLM_OTHER": {"default": None},
            "VLLM_PORT": {"default": None, "reads": "int"},
            "VLLM_SHARE": {"default": None, "reads": "float"},
            "VLLM_SOME": {"default": None, "choices": ["a", "b"], "many": True},
            "VLLM_WAY": {"default": None, "choices": ["a", "b"], "any_case": True},
            "VLLM_WORD": {"default": None},
        }
        lazy = envs.replace("def enable_envs_cache", "def another")
        made = wheel(tmp_path, more={"vllm/envs.py": lazy})
        assert "reads" not in str(read.release(read_wheel(made), [])["environment"])

    def test_a_test_of_options_alone_is_written_down_as_it_stands(self, tmp_path: Path) -> None:
        more = {
            "vllm/entrypoints/cli_args.py": """
class FrontendArgs:
    outputs: bool = False
    requests: bool = False
    port: int = 8000
    other_port: int | None = None
def validate_port(args):
    if args.other_port is None:
        return
    if args.other_port == args.port:
        raise ValueError("two servers on one port")
    if lookup(args.port):
        raise ValueError("nobody can say")
def validate_parsed_serve_args(args):
    if hasattr(args, "subparser") and args.subparser not in ("serve", "launch"):
        return
    validate_port(args)
    if args.outputs and not getattr(args, "requests", False):
        raise TypeError("outputs without requests")
""",
        }
        checks = read.release(read_wheel(wheel(tmp_path, more=more)), [])["checks"]
        assert checks == {
            "(not (other_port is None)) and (other_port == port)": {},
            "(outputs and (not requests))": {},
        }

    def test_what_parts_of_the_configuration_do_not_take_together_is_followed_to_where_it_is_asked(
        self, tmp_path: Path
    ) -> None:
        more = {
            "vllm/engine/arg_utils.py": ARG_UTILS
            + """
    stages: int = 1
    adapters: bool = False
    def create(self):
        return VllmConfig(ParallelConfig(stages=self.stages, adapters=self.adapters))
""",
            "vllm/config/parallel.py": """
class ParallelConfig:
    stages: int = 1
    adapters: bool = False
    mode: str | None = None
    ranks: int = 0
    way: str | None = None
    @property
    def several(self):
        return self.stages > 1
    def __post_init__(self):
        if self.mode is None:
            self.mode = derived()
        self.ranks = counted()
        if self.way == "old":
            self.way = "new"
        if self.way is None:
            self.way = envs.WAY
        assert self.stages < 9, "too many"
""",
            "vllm/config/vllm.py": """
class VllmConfig:
    def __post_init__(self):
        if self.model_config is not None:
            self.model_config.verify_with(self.parallel_config)
        if self.parallel_config.ranks % 3 != 0 and self.parallel_config.mode == "odd":
            raise ValueError("three by three")
        if self.parallel_config.several:
            ways = self.parallel_config.way
            assert ways in ["new", "newer"], "stages go another way"
        way = 1
        way = 2
        if way and self.parallel_config.several:
            raise ValueError("a name that is set twice stands for nothing")
        unsupported = self._unsupported()
        if unsupported:
            raise ValueError(unsupported)
    def _unsupported(self):
        found = []
        if lookup(self.parallel_config):
            found.append("nobody can say")
        if self.parallel_config.several and self.lora_config is not None:
            found.append("adapters in stages")
        return found
""",
            "vllm/config/model.py": """
class ModelConfig:
    def verify_with(self, parallel_config):
        if not self.is_deep:
            return
        stages = parallel_config.stages
        if stages > 1 and not self.has_stages:
            raise ValueError("no stages")
class LoRAConfig:
    rank: int = 16
""",
        }
        options = {"stages": {}, "adapters": {}}
        told = joint.read(read_wheel(wheel(tmp_path, more=more)), options)
        assert told == {
            "model.is_deep and parallel.stages > 1 and (not model.has_stages)": {
                "options": {"parallel.stages": "stages"},
                "defaults": {"parallel.stages": "1"},
            },
            "parallel.ranks % 3 != 0 and parallel.mode == 'odd'": {
                "defaults": {"parallel.mode": "None", "parallel.ranks": "0"},
                "moved": ["parallel.ranks"],
                "filled": ["parallel.mode"],
            },
            "not parallel.stages < 9": {
                "options": {"parallel.stages": "stages"},
                "defaults": {"parallel.stages": "1"},
            },
            "parallel.stages > 1 and (not parallel.way in ('new', 'newer'))": {
                "options": {"parallel.stages": "stages"},
                "defaults": {"parallel.stages": "1", "parallel.way": "None"},
                "becomes": {"parallel.way": ["'new'", "envs.WAY"]},
            },
            "unknown or (parallel.stages > 1 and lora is not None)": {
                "options": {"parallel.stages": "stages"},
                "defaults": {"parallel.stages": "1"},
            },
        }

    def test_traits_follow_a_class_to_its_interfaces(self, tmp_path: Path) -> None:
        models = "vllm/model_executor/models"
        more = {
            f"{models}/interfaces.py": """
from typing import Protocol
class SupportsLoRA(Protocol):
    supports_lora: ClassVar[Literal[True]] = True
    packed_modules_mapping: dict[str, list[str]] = {}
class SupportsPP(Protocol):
    supports_pp: ClassVar[Literal[True]] = True
class SupportsRealtime(Protocol):
    supports_realtime: ClassVar[Literal[True]] = True
class SupportsMultiModal(Protocol):
    supports_encoder_tp_data: ClassVar[bool] = False
""",
            f"{models}/registry.py": """
_TEXT_GENERATION_MODELS = {
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "FineForCausalLM": ("fine", "Fine"),
    "WholeForCausalLM": ("fine", "Whole"),
    "EitherForCausalLM": ("vllm.models.either", "Either"),
    "MadeForCausalLM": ("fine", "Made"),
    "LostForCausalLM": ("fine", "Lost"),
    "SeesForCausalLM": ("sees", "Sees"),
    "SplitsForCausalLM": ("sees", "Splits"),
}
""",
            f"{models}/sees.py": """
from .interfaces import SupportsMultiModal
class Sees(SupportsMultiModal):
    supports_encoder_tp_data = True
class Splits(SupportsMultiModal): ...
""",
            f"{models}/llama.py": """
from .interfaces import SupportsLoRA, SupportsPP
from torch import nn
class LlamaForCausalLM(nn.Module, SupportsLoRA, SupportsPP):
    def compute_logits(self): ...
""",
            f"{models}/fine.py": """
from vllm.model_executor.models.llama import LlamaForCausalLM as Base
class Fine(Base):
    supports_lora = False
class Whole:
    def __init__(self):
        self.packed_modules_mapping = {}
Made = adapted(Base)
class Lost(Nowhere): ...
""",
            "vllm/models/either/__init__.py": """
if platform.is_cuda():
    from .cuda import Either
else:
    from .other import Either
""",
            "vllm/models/either/cuda.py": "class Either:\n    supports_pp = True\n",
            "vllm/models/either/other.py": "class Either:\n    supports_lora = True\n",
        }
        assert traits.read(read_wheel(wheel(tmp_path, more=more))) == {
            "*": "compute_logits fused_experts get_expert_mapping packed_modules_mapping supports_encoder_tp_data "
            "supports_lora supports_pp",
            "EitherForCausalLM": "supports_lora supports_pp",
            "FineForCausalLM": "compute_logits packed_modules_mapping supports_pp",
            "LlamaForCausalLM": "compute_logits packed_modules_mapping supports_lora supports_pp",
            "SeesForCausalLM": "supports_encoder_tp_data",
            "SplitsForCausalLM": "",
            "WholeForCausalLM": "packed_modules_mapping",
        }

    def test_a_class_that_stands_on_the_interface_of_experts_hands_them_over(self, tmp_path: Path) -> None:
        models = "vllm/model_executor/models"
        own = "from typing import Protocol\nclass MixtureOfExperts(Protocol):\n    num_moe_layers: int\n"
        lora = "class SupportsLoRA(Protocol):\n    supports_lora: ClassVar[Literal[True]] = True\n"
        head = "from .interfaces import MixtureOfExperts, SupportsLoRA\n"
        more = {
            f"{models}/interfaces.py": own + lora,
            f"{models}/registry.py": (
                '_MODELS = {"AForCausalLM": ("a", "A"), "BForCausalLM": ("b", "B"), "CForCausalLM": ("a", "C")}\n'
            ),
            f"{models}/a.py": (
                f"{head}class A(nn.Module, MixtureOfExperts): ...\nclass C(nn.Module, SupportsLoRA): ...\n"
            ),
            f"{models}/b.py": "from .a import A\nclass B(A): ...\n",
        }
        said = traits.read(read_wheel(wheel(tmp_path, more=more)))
        names = [name for name, has in said.items() if "balanced_experts" in has]
        assert names == ["*", "AForCausalLM", "BForCausalLM"]
        more[f"{models}/interfaces.py"] = f"from typing import Protocol\n{lora}"
        more[f"{models}/a.py"] = "from .interfaces import SupportsLoRA\nclass A(SupportsLoRA): ...\nclass C(A): ...\n"
        said = traits.read(read_wheel(wheel(tmp_path, more=more)))
        assert not any("balanced_experts" in has for has in said.values())

    def test_a_model_that_runs_the_layers_of_other_stages_has_no_stages(self, tmp_path: Path) -> None:
        models = "vllm/model_executor/models"
        for over, told in (
            ("enumerate(self.layers)", ""),
            ("self.layers", ""),
            ("islice(self.layers, self.start_layer, self.end_layer)", "supports_pp"),
            ("self.layers[self.start_layer:self.end_layer]", "supports_pp"),
        ):
            more = {
                f"{models}/interfaces.py": "class SupportsPP:\n    supports_pp: bool = True\n",
                f"{models}/llama.py": f"""
from .interfaces import SupportsPP
class LlamaModel:
    def __init__(self):
        self.start_layer, self.end_layer, self.layers = make_layers(2, one)
    def forward(self, states, residual):
        for layer in {over}:
            states, residual = layer(states, residual)
        return states
class LlamaForCausalLM(SupportsPP): ...
""",
            }
            assert traits.read(read_wheel(wheel(tmp_path, more=more)))["LlamaForCausalLM"] == told

    def test_experts_are_read_from_the_module_and_their_map_from_those_beside_it(self, tmp_path: Path) -> None:
        models = "vllm/model_executor/models"
        more = {
            f"{models}/interfaces.py": "class SupportsLoRA:\n    supports_lora: bool = True\n",
            f"{models}/llama.py": "class LlamaForCausalLM:\n    experts = FusedMoE(8)\n",
            f"{models}/base.py": "class Base:\n    def get_expert_mapping(self): ...\n",
            f"{models}/llava.py": "from .base import Base\nclass Llava:\n    experts = SharedFusedMoE(8)\n",
        }
        joins = f"{more[f'{models}/llama.py']}    def pack_params(self): ...\n"
        joined = traits.read(read_wheel(wheel(tmp_path, more={**more, f"{models}/llama.py": joins})))
        assert joined["LlamaForCausalLM"] == "fused_experts joined_experts"
        said = traits.read(read_wheel(wheel(tmp_path, more=more)))
        assert said["LlamaForCausalLM"] == "fused_experts"
        assert said["LlavaForConditionalGeneration"] == "fused_experts get_expert_mapping"

    @pytest.mark.parametrize(
        "source",
        [
            'DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES = frozenset({"BForCausalLM", "AForCausalLM"})',
            """
class VllmConfig:
    def __post_init__(self):
        if "VLLM_USE_BREAKABLE_CUDAGRAPH" not in os.environ and any(
            a in ("AForCausalLM", "BForCausalLM") for a in self.model_config.architectures
        ):
            os.environ["VLLM_USE_BREAKABLE_CUDAGRAPH"] = "1"
        if "VLLM_OTHER" in ("CForCausalLM",):
            os.environ["VLLM_OTHER"] = "1"
""",
        ],
    )
    def test_models_that_are_captured_in_breaking_pieces_stand_in_a_set_or_a_condition(
        self, tmp_path: Path, source: str
    ) -> None:
        said = read.release(read_wheel(wheel(tmp_path, more={"vllm/config/vllm.py": source})), [], ["breakable"])
        assert said["breakable"] == {"AForCausalLM": {}, "BForCausalLM": {}}

    def test_stages_are_those_that_an_old_configuration_lists(self, tmp_path: Path) -> None:
        models = "vllm/model_executor/models"
        more = {
            "vllm/config.py": '_PP_SUPPORTED_MODELS = ["LlamaForCausalLM"]\n',
            f"{models}/interfaces.py": "class SupportsLoRA:\n    supports_lora: bool = True\n",
            f"{models}/llama.py": "class LlamaForCausalLM: ...\n",
            f"{models}/llava.py": "from .interfaces import SupportsLoRA\nclass Llava(SupportsLoRA): ...\n",
        }
        assert traits.read(read_wheel(wheel(tmp_path, more=more))) == {
            "*": "compute_logits fused_experts get_expert_mapping packed_modules_mapping supports_lora supports_pp",
            "LlamaForCausalLM": "supports_pp",
            "LlavaForConditionalGeneration": "supports_lora",
        }

    def test_which_matrices_bitsandbytes_packs_is_asked_of_a_release_whose_loader_asks(self, tmp_path: Path) -> None:
        models = "vllm/model_executor/models"
        more = {
            f"{models}/interfaces.py": "class SupportsLoRA:\n    supports_lora: bool = True\n",
            f"{models}/llama.py": "class LlamaForCausalLM:\n    bitsandbytes_stacked_params_mapping = {}\n",
            f"{models}/llava.py": "class Llava: ...\n",
        }
        plain = traits.read(read_wheel(wheel(tmp_path, more=more)))
        assert plain["LlamaForCausalLM"] == ""
        loader = {
            "vllm/model_executor/model_loader/loader.py": "hasattr(model, 'bitsandbytes_stacked_params_mapping')\n"
        }
        asks = traits.read(read_wheel(wheel(tmp_path, more={**more, **loader})))
        assert asks["LlamaForCausalLM"] == "bitsandbytes_stacked_params_mapping"
        assert asks["LlamaForCausalLM"] in asks["*"].split()
        assert asks["LlavaForConditionalGeneration"] == ""

    def test_methods_of_the_first_releases_stand_elsewhere(self, tmp_path: Path) -> None:
        more = {
            "vllm/model_executor/quantization_utils/__init__.py": '_QUANTIZATION_REGISTRY = {"awq": AWQConfig}\n',
            "vllm/model_executor/quantization_utils/awq.py": """
class AWQConfig:
    @classmethod
    def get_min_capability(cls): return 75
""",
        }
        files = dict(read_wheel(wheel(tmp_path, more=more)).files)
        files.pop("vllm/model_executor/layers/quantization/__init__.py")
        assert models.quantizations(Wheel("vllm", "0.2.1", files, {})) == {"awq": {"capability": "7.5"}}

    def test_methods_that_a_release_lists_for_another_build_than_cudas(self, tmp_path: Path) -> None:
        more = {
            "vllm/model_executor/layers/quantization/__init__.py": 'M = {"awq": AWQConfig, "fp8": Fp8Config}\n',
            "vllm/platforms/rocm.py": """
class RocmPlatform:
    supported_quantization: list[str] = ["awq", "quark"]
    if not on_gfx9():
        supported_quantization += ["fp8"]
""",
            "vllm/platforms/tpu.py": 'class TpuPlatform:\n    supported_quantization = ["awq"]\n',
            "vllm/config.py": 'def verify():\n    xpu_supported_quantization = ["awq"]\n',
        }
        said = models.quantizations(read_wheel(wheel(tmp_path, more=more)))
        assert said["awq"]["devices"] == ["rocm", "xpu"]
        assert said["fp8"]["devices"] == ["rocm"]

    def test_the_algorithms_of_modelopt_are_those_of_a_list_or_of_the_tables_in_it(self, tmp_path: Path) -> None:
        layers = "vllm/model_executor/layers/quantization"
        methods = 'def get(): return {"modelopt": ModelOptConfig, "awq": AWQConfig}\n'
        for text, told in (
            ('QUANT_ALGOS = ["NVFP4", "FP8"]\n', ["FP8", "NVFP4"]),
            ('LINEAR = {"FP8": 1, "MXFP8": 2}\nQUANT_ALGOS = [*LINEAR, "MIXED"]\n', ["FP8", "MIXED", "MXFP8"]),
        ):
            more = {f"{layers}/__init__.py": methods, f"{layers}/modelopt.py": text}
            said = models.quantizations(read_wheel(wheel(tmp_path, more=more)))
            assert said["modelopt"]["algorithms"] == told
            assert "algorithms" not in said["awq"]

    def test_architectures_of_the_first_releases_stand_elsewhere(self, tmp_path: Path) -> None:
        more = {"vllm/model_executor/model_loader.py": '_MODEL_REGISTRY = {"LlamaForCausalLM": LlamaForCausalLM}\n'}
        files = dict(read_wheel(wheel(tmp_path, more=more)).files)
        files["vllm/model_executor/models/registry.py"] = ""
        assert models.architectures(Wheel("vllm", "0.2.1", files, {})) == {"LlamaForCausalLM": "text-generation"}

    def test_before_there_were_interfaces_a_list_of_modules_said_who_takes_adapters(self, tmp_path: Path) -> None:
        models = "vllm/model_executor/models"
        more = {
            f"{models}/llama.py": "class LlamaForCausalLM:\n    supported_lora_modules = ['qkv_proj']\n",
            f"{models}/llava.py": "class Llava: ...\n",
        }
        assert traits.read(read_wheel(wheel(tmp_path, more=more))) == {
            "*": "compute_logits fused_experts get_expert_mapping packed_modules_mapping supports_lora",
            "LlamaForCausalLM": "supports_lora",
            "LlavaForConditionalGeneration": "",
        }

    def test_everything_else_is_a_name_a_line(self, tmp_path: Path) -> None:
        assert added(tmp_path, wheel(tmp_path)) == 0
        said = facts(tmp_path)
        assert said["environment"] == {
            "VLLM_THING": {"default": "3"},
            "VLLM_WAY": {"default": None, "choices": ["a", "b"]},
        }
        assert said["attention"] == {"FLASH_ATTN": {"capability": ">=8.0"}, "NONE_SUCH": {}}
        assert said["metrics"]["vllm:refused"] == {
            "kind": "counter",
            "labels": ["model_name", "engine", "reason"],
            "engines": ["V1"],
        }
        assert said["architectures"] == {
            "LlamaForCausalLM": "text-generation",
            "LlavaForConditionalGeneration": "multimodal",
        }
        assert said["quantizations"] == {"awq": {"capability": "7.5", "dtypes": ["float16", "bfloat16"]}, "fp8": {}}
        assert said["packages"] == {
            "glibc": ">=2.28",
            "python": ">=3.11,<3.15",
            "torch": "==2.14.0",
            "transformers": "<5.21.0,>=5.16.1",
        }
        assert said["messages"]["free-below-wanted"]["in"] == "vllm/v1/worker/utils.py"
        assert [row["options"] for row in said["refusals"].values()] == [["max-num-seqs"]]
        assert set(said["cited"]) >= {
            "vllm/engine/arg_utils.py::EngineArgs.get_batch_defaults",
            "vllm/v1/worker/utils.py::request_memory",
        }

    def test_a_folder_of_any_name_with_it_unpacked_says_the_same(self, tmp_path: Path) -> None:
        packed = wheel(tmp_path)
        folder = tmp_path / "unpacked"
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(folder)
        one, other = (read.release(read_wheel(place), release.sought()) for place in (packed, folder))
        assert one | {"source": ""} == other | {"source": ""}

    def test_a_message_is_followed_where_it_is_said_though_its_words_also_stand_elsewhere(self, tmp_path: Path) -> None:
        said = 'logger.info("Model loading took %s GiB memory and %.2f seconds", size, seconds)\n'
        more = {
            "vllm/a_first.py": 'logger.info("Loading lora %s failed, which no person needs to know", name)\n',
            "vllm/v1/worker/runner.py": said,
        }
        found = read.release(read_wheel(wheel(tmp_path, more=more)), release.sought())["messages"]
        assert found["weights-took"]["in"] == "vllm/v1/worker/runner.py"
        more["vllm/v1/worker/runner.py"] = said.replace("Model loading took", "The model was read in")
        reworded = read.release(read_wheel(wheel(tmp_path, more=more)), release.sought())["messages"]
        assert "weights-took" not in reworded

    def test_a_message_whose_anchor_is_short_or_reaches_into_a_value_is_found_in_the_file_of_its_row(
        self, tmp_path: Path
    ) -> None:
        died = 'raise X("Worker proc %s died unexpectedly (exit code: %s), " "shutting down executor.", name, code)\n'
        chosen = 'logger.info_once("Selected %s for %s", kernel.__name__, method)\n'
        homes = {
            "vllm/v1/executor/multiproc_executor.py": died,
            "vllm/model_executor/kernels/linear/__init__.py": chosen,
        }
        found = read.release(read_wheel(wheel(tmp_path, more=homes)), release.sought())["messages"]
        assert found["engine-process-died"]["in"] == "vllm/v1/executor/multiproc_executor.py"
        assert found["linear-kernel"]["in"] == "vllm/model_executor/kernels/linear/__init__.py"
        swapped = dict(zip(homes, reversed(homes.values()), strict=True))
        found = read.release(read_wheel(wheel(tmp_path, more=swapped)), release.sought())["messages"]
        assert not {"engine-process-died", "linear-kernel"} & set(found)

    def test_an_option_that_is_read_in_other_letters_says_so(self, tmp_path: Path) -> None:
        plain = read.release(read_wheel(wheel(tmp_path)), [], ["options"])["options"]["backend"]
        text = ARG_UTILS.replace("lambda s: s.lower()", 'lambda s: s.lower().replace("-", "_")')
        folded = read.release(read_wheel(wheel(tmp_path, more={"vllm/engine/arg_utils.py": text})), [], ["options"])
        assert folded["options"]["backend"] == plain | {"folded": True}

    def test_the_defaults_of_a_test_have_one_order_whatever_python_makes_of_a_set(self, tmp_path: Path) -> None:
        keys = ["from_f", "from_e", "from_d", "from_c", "from_b", "from_a"]
        lines = ["class CacheConfig:", *(f"    {key}: bool = False" for key in keys), "    def __post_init__(self):"]
        lines += [f"        if {' and '.join(f'self.{key}' for key in keys)}:", "            raise ValueError('all')"]
        config = "\n".join(lines)
        made = checks.read(read_wheel(wheel(tmp_path, more={"vllm/config/cache.py": config})), {}, {"CacheConfig": {}})
        (one,) = [test["defaults"] for test in made.values() if test]
        assert list(one) == sorted(keys)

    def test_nothing_of_it_runs(self, tmp_path: Path) -> None:
        trap = tmp_path / "ran"
        bad = f"import pathlib; pathlib.Path({str(trap)!r}).touch()\nVLLM_A: int = 1\n"
        assert added(tmp_path, wheel(tmp_path, more={"vllm/envs.py": bad, "vllm/__init__.py": bad})) == 0
        assert not trap.exists()


class TestAnotherRelease:
    """Beside those that are there."""

    def test_adding_twice_changes_nothing_and_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        added(tmp_path, wheel(tmp_path))
        before = {f: f.read_bytes() for f in sorted(tmp_path.rglob("*.json"))}
        capsys.readouterr()
        assert added(tmp_path, wheel(tmp_path)) == 0
        assert "0.99.0.json says so already, 0 history files changed" in capsys.readouterr().out
        assert {f: f.read_bytes() for f in sorted(tmp_path.rglob("*.json"))} == before

    def test_a_message_that_was_added_since_is_all_that_is_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who adds a rule reads no report of a release that was worked off long ago."""
        added(tmp_path, wheel(tmp_path))
        have = release.sought()
        monkeypatch.setattr(release, "sought", lambda: [m for m in have if m.id != "free-below-wanted"])
        added(tmp_path, wheel(tmp_path))
        monkeypatch.undo()
        capsys.readouterr()
        added(tmp_path, wheel(tmp_path))
        said = capsys.readouterr().out
        assert "What was not known of 0.99.0 before:\n  free-below-wanted in vllm/v1/worker/utils.py\n" in said
        assert "Planner" not in said

    @pytest.mark.parametrize("later", ["0.100.0", "0.98.0"])
    def test_the_files_of_others_stay_byte_for_byte(self, tmp_path: Path, later: str) -> None:
        added(tmp_path, wheel(tmp_path))
        before = (tmp_path / "releases" / "0.99.0.json").read_bytes()
        assert added(tmp_path, wheel(tmp_path, later)) == 0
        assert (tmp_path / "releases" / "0.99.0.json").read_bytes() == before

    def test_a_name_that_did_not_change_is_no_new_line_of_the_history(self, tmp_path: Path) -> None:
        added(tmp_path, wheel(tmp_path))
        before = (tmp_path / "history" / "options.json").read_text().splitlines()
        envs = {"vllm/config/cache.py": 'class CacheConfig:\n    cache_dtype: Literal["auto", "fp4"] = "auto"\n'}
        added(tmp_path, wheel(tmp_path, "0.100.0", more=envs))
        changed = set((tmp_path / "history" / "options.json").read_text().splitlines()) - set(before)
        assert {line.split(":")[0].strip() for line in changed} >= {'"releases"', '"kv-cache-dtype"'}
        assert '"port"' not in {line.split(":")[0].strip() for line in changed}

    def test_it_says_what_changed_and_what_to_read(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        added(tmp_path, wheel(tmp_path))
        capsys.readouterr()
        config = """
CacheDType = Literal["auto", "fp8", "nvfp4"]
class CacheConfig:
    cache_dtype: CacheDType = "auto"
class SchedulerConfig:
    max_num_seqs: int = 128
class ModelConfig:
    enforce_eager: bool = False
    def verify(self):
        raise ValueError("--max-num-seqs and --port cannot be used together")
"""
        later = wheel(tmp_path, "0.100.0", limit=16384, advice="Free it.", more={"vllm/config/cache.py": config})
        assert added(tmp_path, later) == 0
        said = capsys.readouterr().out
        assert "What changed (against 0.99.0):" in said
        assert "~ kv-cache-dtype: choices +nvfp4" in said
        assert "another body: EngineArgs.get_batch_defaults in vllm/engine/arg_utils.py" in said
        assert "another wording: free-below-wanted in vllm/v1/worker/utils.py" in said
        assert "vllm/config/cache.py ModelConfig.verify: --max-num-seqs and --port cannot be used together" in said
        assert "gone: free-below-wanted" not in said

    def test_the_lines_of_a_function_to_read_again_are_shown(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "new").mkdir()
        old, new = wheel(tmp_path), wheel(tmp_path / "new", "0.100.0", limit=16384)
        assert release.main(["bodies", str(old), str(new)]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[0] == "--- 0.99.0 vllm/engine/arg_utils.py::EngineArgs.get_batch_defaults"
        assert [line for line in shown[2:] if line[0] in "+-"] == ["-        return 8192", "+        return 16384"]
        assert release.main(["bodies", str(old), str(tmp_path / "none")]) == 2
        assert capsys.readouterr().err.startswith("release: ")

    def test_a_message_that_left_is_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        added(tmp_path, wheel(tmp_path))
        assert added(tmp_path, wheel(tmp_path, "0.100.0", more={"vllm/v1/worker/utils.py": "pass\n"})) == 0
        said = capsys.readouterr().out
        assert "gone: free-below-wanted (was in vllm/v1/worker/utils.py)" in said
        assert "gone: vllm/v1/worker/utils.py::request_memory (cited by" in said

    def test_a_message_whose_wordings_all_ended_before_is_not_said_to_be_gone(self) -> None:
        old = {"version": "0.32.0", "messages": {name: {"in": "a.py", "as": "1"} for name in ("a", "b", "c", "d")}}
        catalogue = [
            report.Catalogued("a", ("0.10.0", "0.31.0")),
            report.Catalogued("b", ("0.10.0", "0.32.0")),
            report.Catalogued("c", ("0.33.0",)),
            report.Catalogued("d", ("0.6+",)),
            report.Catalogued("another program's", ("0.33.0",)),
        ]
        said = list(report.messages(old, {"version": "0.33.0", "messages": {}}, catalogue))
        assert [line.partition(" (")[0] for line in said] == ["gone: b", "gone: c", "gone: d"]
        assert "no row says that it is still there; look for what is said there now" in said[0]
        assert "end its span with 0.32.0; look for what is said there now" in said[1]

    def test_a_message_that_its_file_never_said_is_named(self) -> None:
        """Its row was added after the older wheels were read, so no release ever had it."""
        catalogue = [
            report.Catalogued("written elsewhere", ("0.33.0",)),
            report.Catalogued("ended before", ("0.32.0",), has_file=True),
            report.Catalogued("reworded", ("0.32.0", "0.33.0"), has_file=True),
        ]
        new = {"version": "0.33.0", "messages": {}}
        assert [line.partition(":")[2].split(":")[0].strip() for line in report.messages(None, new, catalogue)] == [
            "reworded"
        ]
        assert report.claims_too_much(new, [new], catalogue) == ["reworded"]

    def test_many_names_in_which_one_key_alone_changed_are_one_line_and_hide_no_other(self) -> None:
        names = [f"enable-{n}" for n in range(45)]
        old = {"version": "0.32.0", "options": {name: {} for name in [*names, "port"]}}
        new = {"version": "0.33.0", "options": {name: {"inverse": [f"--no-{name}"]} for name in names}}
        new["options"]["port"] = {"default": "8001"}
        said = list(report.changes(old, new))
        assert said[1:] == ["  ~ port: default None → 8001", f"  ~ inverse alone, of 45: {', '.join(names)}"]

    def test_what_is_done_is_not_asked_for_again(self, tmp_path: Path) -> None:
        new = store.load("0.32.0")
        assert new is not None
        asked = "\n".join(release._by_hand(None, new, tmp_path))
        assert "tools/vllm_lock.py 0.32.0+cu130-x86_64 0.32.0+cu130-aarch64" in asked
        assert "CHANGELOG.md says nothing of 0.32.0" in asked
        assert "knowledge/released.json: the day it came out" in asked
        for path, text in {
            "roles/vllm/files/locks/0.32.0+cu130-x86_64.lock": "",
            "roles/vllm/files/locks/0.32.0+cu130-aarch64.lock": "",
            "roles/vllm/defaults/main.yml": 'vllm_version: "0.31.0"\n',
            "inventories/one/group_vars/vllm.yml": "vllm_version: 0.32.0\n",
            "CHANGELOG.md": "- 0.32.0 is known\n",
            "vllm_doctor/knowledge/released.json": '{"days": {"0.32.0": "2026-10-18"}}\n',
        }.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        asked = "\n".join(release._by_hand(None, new, tmp_path))
        assert asked.splitlines()[:-1] == [
            "vllm_version is older in roles/vllm/defaults/main.yml, and both locks are there"
        ]
        (tmp_path / "roles/vllm/defaults/main.yml").write_text('vllm_version: "0.32.0"\n')
        (todo,) = release._by_hand(None, new, tmp_path)
        assert todo.startswith("pytest ")

    def test_a_span_that_no_source_can_extend_is_counted_apart(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """`call-of-v1` names a file in a traceback: that a source does not say it is no change of a release."""
        monkeypatch.setattr(release, "_newest_two", lambda: ("0.32.0", "0.33.0"))
        monkeypatch.setattr(release, "_extended", lambda *_: ({}, {}, ["call-of-v1", "ray-node-empty"]))
        assert release.spans() == 0
        _, otherwise, apart = capsys.readouterr().out.splitlines()
        assert otherwise.endswith("not at all: ray-node-empty")
        assert apart.startswith("1 more end with 0.32.0: neither source holds their text")

    def test_a_release_that_cannot_be_locked_says_why_once(self, tmp_path: Path) -> None:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "support.md").write_text("| 0.33.0 | no lock: it asks for a certifi that is not there |\n")
        new = store.load("0.33.0")
        assert new is not None
        assert not any("vllm_lock" in line for line in release._by_hand(None, new, tmp_path))

    def test_a_comment_and_a_layout_change_no_hash(self, tmp_path: Path) -> None:
        added(tmp_path, wheel(tmp_path))
        other = read_wheel(wheel(tmp_path)).files["vllm/engine/arg_utils.py"]
        other = other.replace('"""What a person reads."""', '"""Other words."""  # and a comment')
        other = other.replace("def get_batch_defaults(self):", "def get_batch_defaults(self) -> int:")
        added(tmp_path, wheel(tmp_path, "0.100.0", more={"vllm/engine/arg_utils.py": other}))
        assert facts(tmp_path)["cited"] == facts(tmp_path, "0.100.0")["cited"]


MORE = {
    "leaves the folder": {"../../outside.py": "x"},
    "absolute": {"/etc/outside.py": "x"},
    "huge member": {"vllm/huge.py": "#" * (9 << 20)},
    "no Python": {"vllm/envs.py": "def ("},
    "deep": {"vllm/envs.py": "(" * 5000 + ")" * 5000},
}


def broken(folder: Path, how: str) -> Path:
    if how in MORE:
        return wheel(folder, more=MORE[how])
    if how in {"pre-release", "too old"}:
        return wheel(folder, {"pre-release": "0.99.0rc1", "too old": "0.1.7"}[how])
    if how == "another project":
        return wheel(folder, name="vllm-omni")
    file = wheel(folder)
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif how == "no archive":
        file.write_text("not a zip")
    elif how == "another version":
        file = file.rename(folder / file.name.replace("0.99.0", "0.98.0"))
    elif how == "no sources":
        with zipfile.ZipFile(file, "w") as made:
            made.writestr("vllm-0.99.0.dist-info/METADATA", "Name: vllm\nVersion: 0.99.0\n")
    else:
        with zipfile.ZipFile(file, "a") as made:
            link = zipfile.ZipInfo("vllm/link.py")
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            member = {"twice": "vllm/envs.py", "link": link, "no text": "vllm/bytes.py"}[how]
            with warnings.catch_warnings(action="ignore"):
                made.writestr(member, b"\xff\xfe" if how == "no text" else b"VLLM_B: int = 1")
    return file


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("missing", "no such file or folder"),
        ("truncated", "needed: a whole vLLM wheel"),
        ("no archive", "needed: a whole vLLM wheel"),
        ("another project", "a wheel of 'vllm-omni'; needed: one of vllm"),
        ("no sources", "holds no vllm/engine/arg_utils.py"),
        ("pre-release", "is no release"),
        ("too old", "older than what this reads; needed: 0.2"),
        ("another version", "named 0.98.0, but its METADATA says 0.99.0"),
        ("leaves the folder", "leaves the wheel"),
        ("absolute", "leaves the wheel"),
        ("twice", "stands twice"),
        ("link", "is a link"),
        ("huge member", "is larger than 8 MiB"),
        ("no Python", "is not Python that this interpreter reads"),
        ("deep", "is not Python that this interpreter reads"),
        ("no text", "a source is not UTF-8"),
    ],
)
def test_a_bad_wheel_is_one_clear_line_and_the_data_stays(
    how: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good").mkdir()
    added(tmp_path, wheel(tmp_path / "good", "0.97.0"))
    before = {f: f.read_bytes() for f in sorted(tmp_path.rglob("*.json"))}
    capsys.readouterr()
    assert added(tmp_path, broken(tmp_path, how)) == 2
    out, problem = capsys.readouterr()
    assert (out, problem.count("\n")) == ("", 1)
    assert problem.startswith("release: ")
    assert said in problem
    assert {f: f.read_bytes() for f in sorted(tmp_path.rglob("*.json"))} == before


def test_reading_again_touches_the_named_sections_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, folders = wheel(tmp_path), (tmp_path / "releases", tmp_path / "history")
    added(tmp_path, place)
    whole = store.path("0.99.0", folders[0]).read_text(encoding="utf-8")
    older = facts(tmp_path)
    del older["options"]["port"]["choices"], older["metrics"]  # an older extractor read neither
    older["options"]["made-up"] = {"words": 1}
    older["source"] = "wheel of long ago"  # type: ignore[assignment]
    store.write(store.path("0.99.0", folders[0]), store.dumps(older))
    capsys.readouterr()
    assert release.again([place], ["options"], *folders) == 0
    printed = capsys.readouterr().out
    assert "options: 0 new, 1 gone, 1 changed" in printed
    assert "- made-up" in printed
    assert facts(tmp_path)["options"] == json.loads(whole)["options"]
    assert facts(tmp_path)["source"] == "wheel of long ago"
    assert "metrics" not in facts(tmp_path)
    assert release.again([place], store.SECTIONS, *folders) == 0
    assert store.path("0.99.0", folders[0]).read_text(encoding="utf-8") == whole


def test_a_release_that_is_not_there_is_not_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.again([wheel(tmp_path)], ["options"], tmp_path, tmp_path) == 2
    assert "0.99.0 is not written down" in capsys.readouterr().err


class TestWhatIsKept:
    """The data of the repository itself."""

    def test_the_files_that_the_package_reads_follow_from_the_releases(self) -> None:
        assert release.check_history() == 0

    def test_every_file_is_in_its_own_layout(self) -> None:
        for version in store.versions():
            kept = store.load(version)
            assert kept is not None
            assert kept["version"] == version
            assert store.dumps(kept) == store.path(version).read_text(encoding="utf-8"), version

    def test_no_message_of_the_catalogue_is_claimed_for_a_newest_release_that_has_it_no_longer(self) -> None:
        read_ones = [r for v in store.versions() if "messages" in (r := store.load(v) or {})]
        assert read_ones[-1]["version"] == store.versions()[-1]
        assert report.claims_too_much(read_ones[-1], read_ones, release.catalogued()) == [], (
            "not found in the newest release's source. The text is gone: end the row's span in log/catalogue. "
            "It is there: begin the row's `source` with its file, and add the newest wheel again (tools/release.py add)"
        )

    def test_the_catalogue_was_read_against_the_newest_release(self) -> None:
        newest = store.versions()[-1]
        claimed = [m.id for m in release.catalogued() if newest in m.until]
        have = store.section(store.load(newest), "messages")
        assert len(set(claimed) & set(have)) > 50, f"wordings that {newest} still has: tools/release.py spans"

    def test_the_metrics_that_the_doctor_asks_for_are_some_release_s(self) -> None:
        known = {name for v in store.versions() for name in store.section(store.load(v), "metrics")}
        newest = store.section(store.load(store.versions()[-1]), "metrics")
        for names in (serving.KV_USE, serving.RUNNING, serving.WAITING, serving.PREEMPTIONS, serving.FINISHED):
            bare = [n.removesuffix("_total") for n in names]
            assert set(bare) & set(newest), names
            assert set(names) & known, names

    def test_every_cited_function_is_in_the_newest_release(self) -> None:
        newest = store.load(store.versions()[-1])
        assert set(store.section(newest, "cited")) == set(release.report.cited.table())

    def test_releases_are_in_order(self) -> None:
        listed = store.versions()
        assert [as_version(v) for v in listed] == sorted(as_version(v) for v in listed)


def test_the_worked_example_of_contributing_can_be_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command of it is one that the tool has, and what it prints has the headings that the example shows."""
    example = CONTRIBUTING.partition("## A release of vLLM")[2].partition("\n## ")[0]
    commands = re.findall(r"tools/release\.py (\w+)", example, re.MULTILINE)
    of_all = ["api", "functions", "behind"]
    assert commands == ["add", "spans", "diff", "again", "said", "said", *of_all, "bodies", "dated"]
    added(tmp_path, wheel(tmp_path))
    capsys.readouterr()
    assert added(tmp_path, wheel(tmp_path, "0.100.0", limit=16384)) == 0
    printed = capsys.readouterr().out
    for heading in re.findall(r"\| \*\*(.+?)\*\* \|", example):
        assert f"\n{heading}" in printed, heading
    assert history.texts(tmp_path / "releases").keys() == {f.stem for f in (tmp_path / "history").glob("*.json")}
