"""What decides each refusal of a release, as its source has it."""

import sys
from pathlib import Path

REPO = Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "tools"))

from releases import guards  # noqa: E402
from releases.wheel import Wheel  # noqa: E402

SCHEDULER = """
class SchedulerConfig:
    slots: int = 0
    def check(self):
        if self.slots > 8:
            raise ValueError(f"There are too many slots here: {self.slots}")
"""
KERNEL = """
class KernelConfig:
    backend: str = "a"
"""
ARGUMENTS = """
class EngineArgs:
    slots: int = 0
    pace: str = "a"
    def create(self):
        if self.slots == 1 and self.pace:
            raise ValueError("One slot alone needs no pace")
        return SchedulerConfig(slots=self.slots)
"""
MODEL = """
class Block:
    def __init__(self, config, tp_size):
        self.heads = config.num_heads
        if config.act != "silu":
            raise ValueError(f"No such activation here: {config.act}")
        share = self.heads // tp_size
        if share % 2:
            raise ValueError("The heads of a rank must be even")
        if config.kind == "one":
            pass
        elif config.kind == "two":
            pass
        else:
            raise ValueError(f"There is no such kind of block: {config.kind}")
"""
CONNECTOR = """
class Connector:
    def __init__(self, vllm_config):
        extra_config = vllm_config.kv_transfer_config.kv_connector_extra_config
        workers = extra_config.get("num_workers", 1)
        if workers <= 0:
            raise ValueError("num_workers must be above zero.")
        if self.lost:
            raise RuntimeError("The store has lost a part of it")
"""
CHAT = """
def check(request, envs):
    if request.logprobs and not envs.VLLM_LOGPROBS:
        message = "Logprobs are not on in this server"
        raise ValueError(message)
    assert request.count < 4, "There are more than four of them"
    raise ValueError(f"Unknown {request} of this kind")
"""

HELPER = """
def activation(name):
    try:
        return TABLE[name]
    except KeyError:
        raise ValueError(f"No such activation in the table: {name}")

def pace_of(kind, rate):
    if kind == "even":
        return 1
    raise ValueError(f"Nobody knows this kind of pace: {kind}")
"""
CALLERS = """
class Mlp:
    def __init__(self, config):
        self.act = activation(config.hidden_act)
class Other:
    def __init__(self, config):
        self.act = activation(config.hidden_act)
        self.pace = pace_of(config.pace, rate=1)
"""
KINDS = """
class Layer:
    def __init__(self, vllm_config, config):
        self.heads = config.num_heads
        self.use_mega = vllm_config.kernel_config.backend == "mega"
        self.wide = config.width > 8 and config.depth > 8
        if self.use_mega and self.heads != 4:
            raise ValueError("The mega kernel takes four heads")
        if not self.wide:
            raise ValueError("This layer has to be a wide one")
        if config.rate > 2 or config.rate <= 2:
            raise ValueError("No rate at all is good enough here")
        assert self.heads % tp_size == 0
        assert isinstance(config.sink, str)
        assert self.joined_before_it
    @property
    def most(self):
        return self.config.most_slots
    def add(self, one):
        if len(self.held) >= self.most:
            raise RuntimeError("There is no free place here")
"""
CONFIG = """
class WideConfig:
    def __init__(self, group_size=0, **kwargs):
        if group_size <= 0:
            raise ValueError(f"The size of a group must be positive, got {group_size}")
"""
FORMAT = """
class NarrowConfig(QuantizationConfig):
    def __init__(self, bits):
        self.bits = bits
        if self.bits != 4:
            raise ValueError("Only four bits are read here")
def method_of(quant_config, layer, enable_wide_rows=False, wide=False):
    kind = quant_config.kind_of(layer)
    if kind not in KINDS:
        raise ValueError("No such way of packing is read here")
    if enable_wide_rows is not False:
        raise ValueError("Rows of this kind are never wide")
    if wide:
        raise ValueError("Nobody calls it with this one")
"""
SPLIT = """
def layers_of(config, vllm_config):
    if vllm_config.model_config.hf_config.kinds is None:
        raise ValueError("The kinds of the layers are not told")
    try:
        return [int(one) for one in envs.VLLM_SPLIT.split(",")]
    except ValueError as e:
        raise ValueError("No such list of numbers: {}".format(envs.VLLM_SPLIT)) from e
"""
WAIT = """
async def ask(socket):
    if await socket.poll(timeout=VLLM_RPC_TIMEOUT) == 0:
        raise TimeoutError("The engine did not reply in time")
"""


def read() -> dict[str, dict[str, object]]:
    files = {
        "vllm/config/scheduler.py": SCHEDULER,
        "vllm/engine/arg_utils.py": ARGUMENTS,
        "vllm/config/kernel.py": KERNEL,
        "vllm/model_executor/models/block.py": MODEL,
        "vllm/distributed/kv_connector/store.py": CONNECTOR,
        "vllm/entrypoints/chat.py": CHAT,
        "vllm/model_executor/models/helper.py": HELPER,
        "vllm/model_executor/models/callers.py": CALLERS,
        "vllm/model_executor/layers/quantization/narrow.py": FORMAT,
        "vllm/engine/client.py": WAIT,
        "vllm/config/split.py": SPLIT,
        "vllm/model_executor/models/kinds.py": KINDS,
        "vllm/transformers_utils/configs/wide.py": CONFIG,
    }
    return guards.read(
        Wheel("vllm", "0.33.0", files, {}),
        {
            "slots": {},
            "wide": {},
            "enable-wide-rows": {},
            "kv-transfer-config": {},
            "kernel-config": {"config": "KernelConfig"},
        },
    )


def test_the_nearest_test_is_followed_to_what_anybody_may_set() -> None:
    assert {key.partition(": ")[2]: row.get("by") for key, row in read().items()} == {
        "There are too many slots here: {}": ["option slots > 8"],
        "No such activation here: {}": ["model act != 'silu'"],
        "The heads of a rank must be even": ["model num_heads", "option tensor-parallel-size"],
        # of all that no branch names, no one value is what is wanted
        "There is no such kind of block: {}": ["model kind"],
        "num_workers must be above zero.": ["extra kv-transfer-config num_workers <= 0"],
        "Logprobs are not on in this server": ["request logprobs on", "variable VLLM_LOGPROBS off"],
        "There are more than four of them": ["request count >= 4"],
        # what a function is given is what the places say that call it; what it returns on is not what it refuses
        "No such activation in the table: {}": ["model hidden_act"],
        "Nobody knows this kind of pace: {}": ["model pace"],
        "Only four bits are read here": ["model quantization_config.bits != 4"],
        # what the checkpoint's configuration computes it has read there; a parameter that nobody gives is an option
        # under its whole name, if that is no word for other things
        "No such way of packing is read here": ["model quantization_config"],
        "Rows of this kind are never wide": ["option enable-wide-rows is not False"],
        # what a launch gives is an attribute of the class that keeps it
        "One slot alone needs no pace": ["option slots == 1"],
        # the model's own configuration has its name in all the code
        "The kinds of the layers are not told": ["model kinds is None"],
        "No such list of numbers: {}": ["variable VLLM_SPLIT"],
        "The engine did not reply in time": ["variable VLLM_RPC_TIMEOUT"],
        # what an attribute was set to is asked in its place, as a whole only where each part holds
        "The mega kernel takes four heads": ["option kernel-config backend == 'mega'", "model num_heads != 4"],
        "This layer has to be a wide one": ["model width", "model depth"],
        # two opposite signs tell only that it counts
        "No rate at all is good enough here": ["model rate"],
        # a property is what it returns, and what a class of the model's configuration is given a key of config.json
        "There is no free place here": ["model most_slots"],
        "The size of a group must be positive, got {}": ["model group_size <= 0"],
        # an assertion without words is told by its line, where it asks what a person sets
        "assert self.heads % tp_size == 0": ["model num_heads", "option tensor-parallel-size"],
        # a sentence that may quote a client is kept for the part of it that is vLLM's own
        "Unknown {} of this kind": None,
    }


def test_what_asks_for_nothing_that_is_known_is_left_out() -> None:
    assert not any("lost a part" in key for key in read())
