"""A sentence names the model and the card; of two that differ nobody can tell which one is meant."""

import pytest

from vllm_doctor.log.told_setup import ToldSetup, told_setup


@pytest.mark.parametrize(
    ("text", "size", "bits", "total"),
    [
        ("Qwen2.5-32B-Instruct on an A100 40GB goes OOM", 32, 16, 39.39),
        ("I cannot load a 13B on my 3090", 13, 16, 23.56),
        ("用 vllm 部署 baichuan2-13B-chat\uff0cV100-32G 加载时 OOM", 13, 16, 31.74),
        ("Llama-3.1-70B AWQ, one L40S", 70, 4, 44.42),
        ("an 8B model (fp8) on a T4", 8, 8, 14.56),
        ("a 14B GGUF on an L4", 14, None, 22.03),
        ("8B in bf16 on my 16 GB card", 8, 16, 16.0),
        ("llama 48GB显存 不够", None, 16, 48.0),
        ("8 GiB of 16 GB were free", None, 16, None),
        ("a 70B with an 8B draft on an H200", None, 16, 139.81),
        ("a 7B runs, the 13B goes OOM on my T4", 13, 16, 14.56),
        ("a 7B and a 13B go OOM on my T4", None, 16, 14.56),
        ("fine on an A100 40GB, fails on an L4", None, 16, None),
        ("910B, Qwen3-32B", 32, 16, None),
        ("a 7B on an Orin NX 16G", 7, 16, None),
        ("a 7B on an RTX 5090 laptop", 7, 16, 23.43),
    ],
)
def test_what_a_sentence_names_once(text: str, size: float | None, bits: int | None, total: float | None) -> None:
    told = told_setup([text])
    assert (told.billions, told.bits, told.total_gib) == (size, bits, total)


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("on 2x A100 40GB", True),
        ("on 8 H100", True),
        ("on four L40S", True),
        ("两张V100 32G", True),
        ("8卡A100 80G", True),
        ("2x 24 GB of VRAM", True),
        ("on our L40S", False),
        ("on one A100 40GB with vLLM 0.12", False),
        ("1x A100", False),
    ],
)
def test_how_many_cards_are_meant(text: str, several: bool) -> None:
    assert told_setup([text]).several is several


def test_a_plural_names_no_card() -> None:
    assert not told_setup(["on our A100s"]).card


def test_nothing_is_named() -> None:
    assert told_setup(["it goes out of memory"]) == ToldSetup(bits=16)
