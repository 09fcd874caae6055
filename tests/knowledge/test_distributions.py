"""Which distribution a module is of: only names that vLLM requires, or that a person has read, come into a command."""

import pytest

from vllm_doctor.knowledge import distributions


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("cv2", "opencv-python-headless"),
        ("PIL.Image", "pillow"),
        ("google.protobuf.message", "protobuf"),
        ("flash_attn.bert_padding", "flash-attn"),
        ("transformers.models.example", "transformers"),
        ("intel_extension_for_pytorch", "intel-extension-for-pytorch"),
        ("acme_layers", None),
        ("glibc", None),
        ("python", None),
    ],
)
def test_a_module_is_of_a_distribution_that_is_known(module: str, distribution: str | None) -> None:
    assert distributions.distribution(module) == distribution


def test_a_name_that_nobody_read_is_not_listed() -> None:
    assert distributions.listed("reqeusts") is None
    assert distributions.listed("vllm[audio]") == "vllm"
    assert distributions.listed("flash_attn") == "flash-attn"


def test_every_name_is_written_as_the_index_writes_it() -> None:
    named = (*distributions.table().optional, *distributions.table().modules.values())
    assert [name for name in named if name != name.lower() or "_" in name] == []
    assert list(distributions.table().optional) == sorted(distributions.table().optional)
    # What a release requires is known from its metadata; a second list of it would contradict the first some day.
    assert set(distributions.table().optional) & distributions.required() == set()


def test_a_module_stands_in_the_table_only_where_its_name_does_not_tell() -> None:
    same = [m for m, package in distributions.table().modules.items() if m.lower().replace("_", "-") == package]
    assert same == []
