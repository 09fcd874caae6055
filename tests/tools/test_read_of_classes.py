"""What a wheel says of drafters' models and of KV connectors."""

from pathlib import Path

import pytest
from releases import connectors, drafted, mtp
from releases.wheel import read as read_wheel

from tests.tools.small_wheel import wheel

LISTED = """
class SpeculativeConfig:
    def _verify_args(self):
        eagle3_target_supported = ["llama", "qwen"]
        if self.method == "eagle3" and not any(x in self.model_type for x in eagle3_target_supported):
            raise ValueError(eagle3_target_supported)
"""
APART = """
class SpeculativeConfig:
    def _verify_args(self):
        if self.method == "eagle3" and self.target and "llama" not in self.target.hf_text_config.model_type:
            raise ValueError
"""


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (LISTED, "llama qwen"),
        (LISTED.replace("eagle3_target_supported", "aux_hidden_states_supported"), "llama qwen"),
        (APART, "llama"),
        (APART.replace('"eagle3"', '"eagle"'), None),
        (APART.replace("raise ValueError", "pass"), None),  # which refuses nothing
        ("class SpeculativeConfig: ...\n", None),
    ],
)
def test_the_model_types_that_a_drafter_drafts_for(tmp_path: Path, config: str, names: str | None) -> None:
    found = drafted.read(read_wheel(wheel(tmp_path, more={"vllm/config/speculative.py": config})))
    assert found == ({"eagle3": names} if names else {})


PLACE = "vllm/distributed/kv_transfer/kv_connector"
CONNECTORS = {
    f"{PLACE}/factory.py": """
KVConnectorFactory.register_connector("One", "vllm.distributed.kv_transfer.kv_connector.v1.one", "One")
KVConnectorFactory.register_connector("Child", "vllm.distributed.kv_transfer.kv_connector.v1.one", "Child")
KVConnectorFactory.register_connector("Plain", "vllm.distributed.kv_transfer.kv_connector.v1.one", "Plain")
KVConnectorFactory.register_connector("Gone", "vllm.distributed.kv_transfer.kv_connector.v1.gone", "Gone")
""",
    f"{PLACE}/v1/base.py": "from abc import ABC\nclass SupportsHMA(ABC): ...\nclass KVConnectorBase_V1(ABC): ...\n",
    f"{PLACE}/v1/one.py": """
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, SupportsHMA
class One(KVConnectorBase_V1, SupportsHMA): ...
class Child(One): ...
class Plain(KVConnectorBase_V1): ...
""",
}


def test_a_connector_keeps_kinds_of_layers_apart_where_its_class_says_so(tmp_path: Path) -> None:
    found = connectors.read(read_wheel(wheel(tmp_path, more=CONNECTORS)))
    assert found == {"Child": "apart", "Gone": "lost", "One": "apart", "Plain": "together"}


def test_before_such_classes_a_connector_is_for_the_engine_whose_folder_it_lies_in(tmp_path: Path) -> None:
    first = 'KVConnectorFactory.register_connector("Old", "vllm.distributed.kv_transfer.kv_connector.old", "Old")\n'
    factory = CONNECTORS[f"{PLACE}/factory.py"]
    base = {f"{PLACE}/factory.py": factory + first, f"{PLACE}/v1/base.py": "class KVConnectorBase_V1: ...\n"}
    found = connectors.read(read_wheel(wheel(tmp_path, more=base)))
    assert found == {**dict.fromkeys(("Child", "Gone", "One", "Plain"), "second engine"), "Old": "first engine"}


def test_a_release_without_a_factory_says_nothing_of_connectors(tmp_path: Path) -> None:
    assert connectors.read(read_wheel(wheel(tmp_path, more={}))) == {}


TURNED = """
MTPModelTypes = Literal["one_mtp", "two_mtp", "three_mtp"]
class SpeculativeConfig:
    @staticmethod
    def hf_config_override(hf_config):
        first = hf_config.architectures[0]
        if hf_config.model_type in ("one", "one_sparse"):
            hf_config.model_type = "one_mtp"
        if hf_config.model_type == "one_mtp":
            hf_config.update({"n_predict": 1, "architectures": ["OneSparseMTP" if sparse else "OneMTP"]})
        if (arch := hf_config.architectures[0]) in ("TwoForCausalLM", "TwoOmni"):
            hf_config.model_type = "two_mtp"
            hf_config.update({"architectures": [{"TwoForCausalLM": "TwoMTP", "TwoOmni": "TwoOmniMTP"}[arch]]})
        if hf_config.model_type in {"three", "three_old"} and hf_config.num_nextn_predict_layers > 0:
            old = hf_config.model_type == "three_old"
            hf_config.model_type = "three_mtp"
            more = {"n_predict": 1}
            if not old:
                more["architectures"] = ["ThreeMTP"]
            hf_config.update(more)
        if first == "Other":
            hf_config.update({"architectures": ["EagleOther"]})
        return hf_config
"""


def test_what_a_config_is_turned_into_whose_model_drafts_for_itself(tmp_path: Path) -> None:
    assert mtp.read(read_wheel(wheel(tmp_path, more={"vllm/config/speculative.py": TURNED}))) == {
        "*": "one_mtp three_mtp two_mtp",
        "TwoForCausalLM": "two_mtp TwoMTP",
        "TwoOmni": "two_mtp TwoOmniMTP",
        # Which class of the two it is, the function alone does not tell.
        "one": "one_mtp",
        "one_mtp": "one_mtp",
        "one_sparse": "one_mtp",
        "three": "three_mtp ThreeMTP",
        "three_old": "three_mtp",
    }


def test_a_release_that_turns_no_config_has_no_rows(tmp_path: Path) -> None:
    assert mtp.read(read_wheel(wheel(tmp_path, more={"vllm/config.py": "class ModelConfig: ...\n"}))) == {}
