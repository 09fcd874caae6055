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


def test_a_flag_without_a_variable_goes_into_the_mapping() -> None:
    lasting = change("some-flag", 4)
    assert line(structs.replace(lasting, inventory_var="vllm_extra_args")) == "vllm_extra_args: {some-flag: 4}"


def test_every_variable_that_is_offered_is_one_of_the_role() -> None:
    spec = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())
    flags: dict[str, str] = json.loads((KNOWLEDGE / "inventory_vars.json").read_text())
    options = set(spec["argument_specs"]["main"]["options"])
    assert set(flags.values()) | MAPPINGS <= options
