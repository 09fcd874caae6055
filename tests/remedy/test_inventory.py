"""The inventory line of a change, read back by YAML."""

import json
from pathlib import Path

import pytest
import yaml
from msgspec import structs

import vllm_doctor
from tests.remedy.test_argv import change
from vllm_doctor.records.finding import Scalar
from vllm_doctor.remedy.inventory import MAPPINGS, assignment, line

KNOWLEDGE = Path(vllm_doctor.__file__).parent / "knowledge"
ROLE = Path(__file__).parents[2] / "roles" / "vllm"


@pytest.mark.parametrize("value", [2048, 0.92, True, "fp8", "yes", "1e3", "a: b", "#x"])
def test_the_line_reads_back_as_the_value(value: Scalar) -> None:
    text = assignment("vllm_x", value)
    assert "\n" not in text
    assert yaml.safe_load(text) == {"vllm_x": value}


class Reader(yaml.SafeLoader):
    """YAML as Ansible reads it: what is marked unsafe is a text, and is never a template."""


Reader.add_constructor("!unsafe", lambda loader, node: ("unsafe", loader.construct_scalar(node)))


@pytest.mark.parametrize(
    "hostile",
    ["{{ lookup('pipe', 'reboot') }}", "a {% for x in y %}", "{# #}", "{{ '\n' }}\nvllm_model: other", "'\"{{"],
)
def test_a_template_in_a_value_is_marked_as_text(hostile: str) -> None:
    for value, wanted in ((hostile, ("unsafe", hostile)), ({"k": hostile}, {"k": ("unsafe", hostile)})):
        text = assignment("vllm_x", value)
        assert "\n" not in text
        assert yaml.load(text, Reader) == {"vllm_x": wanted}  # noqa: S506 - a safe loader with one tag more


@pytest.mark.parametrize(
    "hostile", ["a\nvllm_model: other", "a\n\n- b", "\x1b[2J", "\u2028x", "%n ; reboot", "&a *b !!c"]
)
def test_a_hostile_value_stays_one_line_and_one_value(hostile: str) -> None:
    text = assignment("vllm_x", hostile)
    assert len(text.splitlines()) == 1
    assert yaml.safe_load(text) == {"vllm_x": hostile}


def test_a_flag_without_a_variable_goes_into_the_mapping() -> None:
    lasting = change("some-flag", 4)
    assert line(structs.replace(lasting, inventory_var="vllm_extra_args")) == "vllm_extra_args: {some-flag: 4}"


def test_every_variable_that_is_offered_is_one_of_the_role() -> None:
    spec = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())
    flags: dict[str, str] = json.loads((KNOWLEDGE / "inventory_vars.json").read_text())
    options = set(spec["argument_specs"]["main"]["options"])
    assert set(flags.values()) | MAPPINGS <= options


def test_a_mapping_of_vllm_s_is_a_mapping_in_the_inventory() -> None:
    passes = '{"pass_config": {"fuse_allreduce_rms": false}, "mode": 3}'
    text = line(structs.replace(change("compilation-config", passes), inventory_var="vllm_compilation_config"))
    assert text == "vllm_compilation_config: {pass_config: {fuse_allreduce_rms: false}, mode: 3}"
    extra = line(structs.replace(change("kernel-config", '{"moe_backend": "no"}'), inventory_var="vllm_extra_args"))
    assert extra is not None
    assert yaml.safe_load(extra) == {"vllm_extra_args": {"kernel-config": {"moe_backend": "no"}}}


def test_a_switch_that_is_off_is_a_line_and_no_removal() -> None:
    off = structs.replace(change("enable-prefix-caching", after=False), inventory_var="vllm_enable_prefix_caching")
    assert line(off) == "vllm_enable_prefix_caching: false"


def test_letters_of_other_languages_stand_as_they_were_written() -> None:
    assert assignment("vllm_extra_args", {"served-model-name": ["modèle", "模型"]}).endswith("[modèle, 模型]}")
