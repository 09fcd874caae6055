"""Flags and defaults by release: one owner, and honest where samples disagree."""

import pytest

from vllm_doctor.knowledge import gpus
from vllm_doctor.knowledge.parser import value_complaint
from vllm_doctor.knowledge.version import is_written
from vllm_doctor.knowledge.versions import (
    as_version,
    batch_defaults,
    canonical,
    default_utilization,
    engine,
    env,
    flag,
    flag_names,
    parse_version,
    sampled,
)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.11.0rc2.dev12+g1a2b", (0, 11, 0)),
        ("0.19.0+cpu", (0, 19, 0)),
        ("v0.10.1.1", (0, 10, 1, 1)),
        (" 0.33.0\n", (0, 33, 0)),
        ("0.8.5.dev169", (0, 8, 5)),
    ],
)
def test_versions_as_they_are_logged(text, release):
    assert parse_version(text).release == release


@pytest.mark.parametrize("text", ["", "abc", "1", "1.2.3.4.5", "99999.1"])
def test_what_is_no_version(text):
    assert parse_version(text) is None


def test_versions_are_ordered_by_number():
    assert as_version("0.9.2") < as_version("0.10.0") < as_version("0.10.1.1") < as_version("0.10.2")
    assert as_version("0.19.0+cpu") == as_version("0.19.0")


def test_the_default_utilization_changed_once():
    assert [default_utilization(v) for v in ("0.9.0", "0.19.1", "0.20.0", "0.33.0")] == [0.9, 0.9, 0.92, 0.92]


def test_a_flag_that_is_gone_is_known_to_be_gone():
    gone = flag("swap-space", "0.33.0")
    assert gone is not None
    assert gone.exists is False
    assert flag("swap-space", "0.10.2").exists is True
    assert flag("swap-space", "0.18.0").exists is False
    assert flag("swap-space", "0.17.0.5").exists is True  # between two releases that agree
    assert flag("swap-space", "0.17.1.5").exists is None  # between two that disagree
    assert flag("swap-space", "0.99.0").exists is False  # newer than any: as the newest
    assert flag("swap-space", "0.1.7").exists is None  # older than any


def test_names_are_found_as_they_are_written():
    assert canonical("--max_num_seqs") == "max-num-seqs"
    assert canonical("-tp") == "tensor-parallel-size"
    assert flag("--gpu_memory_utilization", "0.33.0") == flag("gpu-memory-utilization", "0.33.0")
    assert flag("max-num-on-the-fly-batches", "0.33.0") is None


def test_choices_grow_with_releases():
    assert "nvfp4" not in flag("kv-cache-dtype", "0.10.2").choices
    assert "nvfp4" in flag("kv-cache-dtype", "0.25.1").choices
    assert flag("block-size", "0.33.0").choices is None


@pytest.mark.parametrize(
    ("version", "gib", "name", "tokens", "seqs"),
    [
        ("0.19.0", 79.19, "NVIDIA H100 80GB HBM3", 8192, 1024),
        ("0.19.0", 79.25, "NVIDIA A100-SXM4-80GB", 2048, 256),
        ("0.19.0", 22.03, "NVIDIA L4", 2048, 256),
        ("0.33.0", 178.35, "NVIDIA B200", 16384, 1024),
        ("0.27.1", 178.35, "NVIDIA B200", 8192, 1024),
        ("0.33.0", 119.7, "NVIDIA GB10", 2048, 256),
        ("0.13.0", 119.7, "NVIDIA GB10", 2048, 256),
        ("0.8.3", 23.57, "NVIDIA GeForce RTX 3090", 2048, 1024),
        ("0.8.4", 23.57, "NVIDIA GeForce RTX 3090", 2048, 256),
        ("0.8.4", 79.25, "NVIDIA A100-SXM4-80GB", 2048, 256),
        ("0.8.4", 79.19, "NVIDIA H100 80GB HBM3", 8192, 1024),
        ("0.8.5", 79.25, "NVIDIA A100-SXM4-80GB", 8192, 1024),
        ("0.9.0", 79.25, "NVIDIA A100-SXM4-80GB", 2048, 256),
    ],
)
def test_batch_defaults_follow_card_and_release(version, gib, name, tokens, seqs):
    got = batch_defaults(version, gib, name)
    assert (got.tokens, got.seqs) == (tokens, seqs)


def test_engines():
    assert [engine(v) for v in ("0.6.3", "0.7.3", "0.8.0", "0.11.0")] == ["V0", "V0", "V1", "V1"]
    assert engine("0.9.2", use_v1=False) == "V0"
    assert engine("0.11.2", use_v1=False) == "V1"


def test_variables():
    assert env("VLLM_ATTENTION_BACKEND", "0.12.0").exists is True
    assert env("VLLM_ATTENTION_BACKEND", "0.33.0").exists is False
    assert env("VLLM_NONESUCH", "0.33.0") is None


def test_every_span_lies_among_the_samples():
    listed = set(map(str, sampled()))
    for name in flag_names("0.33.0"):
        fact = flag(name, "0.33.0")
        assert {fact.first, fact.last} <= listed, name


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("RTX 5090", "NVIDIA GeForce RTX 5090"),
        ("NVIDIA H100 NVL 94GB", "NVIDIA H100 NVL"),
        ("NVIDIA A100 80GB", "NVIDIA A100-SXM4-80GB"),
        ("Tesla T4", "Tesla T4"),
        ("l40s", "NVIDIA L40S"),
    ],
)
def test_cards_by_the_names_people_use(asked, found):
    assert gpus.find(asked).name == found


def test_a_card_that_does_not_exist_has_neighbours():
    assert gpus.find("H101") is None
    assert "NVIDIA H100 80GB HBM3" in gpus.nearest("H101")


def test_two_sizes_of_a_card_are_told_apart_by_memory():
    assert gpus.find("V100", 15.8).name == "Tesla V100-SXM2-16GB"
    assert gpus.find("A100", 39.4).name == "NVIDIA A100-SXM4-40GB"


def test_no_total_exceeds_its_nameplate():
    for name in gpus.names():
        card = gpus.find(name)
        assert 5 < card.total_gib < 300, name
        assert card.multiprocessors > 0


@pytest.mark.parametrize(
    ("name", "version", "value"),
    [("tokenizer-mode", "0.33.0", "hf"), ("scheduling-policy", "0.15.1", "priority"), ("block-size", "0.31.0", 256)],
)
def test_a_value_that_the_wheel_takes_is_among_the_choices(name, version, value):
    choices = flag(name, as_version(version)).choices
    assert choices is None or value in choices


@pytest.mark.parametrize(("name", "version"), [("all2all-backend", "0.13.0"), ("stream-interval", "0.12.0")])
def test_a_flag_is_there_from_the_first_wheel_that_has_it(name, version):
    assert flag(name, as_version(version)).exists


@pytest.mark.parametrize(
    ("option", "value", "version", "refused"),
    [
        ("kv-cache-dtype", "fp2", "0.33.0", True),  # the parser takes it, the class refuses it
        ("kv-cache-dtype", "nvfp4", "0.33.0", False),
        ("chat-template-content-format", "json", "0.33.0", True),
        ("quantization", "fp88", "0.33.0", True),
        ("quantization", "FP8", "0.33.0", False),
        ("quantization", "bitsandbytes", "0.33.0", True),  # gone; a plugin may have it
        ("quantization", "bitsandbytes", "0.11.0", False),
        ("quantization", "fp88", "0.99.0", False),  # nobody read that release
        ("attention-backend", "flash_attn", "0.33.0", False),
        ("attention-backend", "auto", "0.33.0", False),
        ("attention-backend", "FLASH_ATTN4", "0.33.0", True),
    ],
)
def test_a_name_that_only_a_table_of_the_release_has_is_looked_up_there(
    option: str, value: str, version: str, refused: bool
) -> None:
    said = value_complaint(option, value, parse_version(version))
    assert (said is not None) is refused
    assert said is None or value not in said.needed.split(": ")[-1].split(", ")


@pytest.mark.parametrize(
    "text", ["0.33.0", "v0.33.0", "0.33", "0.9.0.1", "0.11.0rc2.dev12+g1a2b3c4", "0.8.5.post1", "0.33.0+cpu"]
)
def test_a_version_that_a_person_gives(text):
    assert is_written(text)


@pytest.mark.parametrize(
    "text", ["0.33.0x", "33", "0.33.0 or so", "99999.1", "newest", "0.33.", "", "0.33.0+", "0.33.0\n"]
)
def test_what_a_person_gives_that_is_no_version(text):
    assert not is_written(text)
