"""A refusal names an option, or quotes its value, and does not say what to do: the option is the change."""

import pytest

from vllm_doctor.knowledge.refusals import options_named, values_quoted

OPTIONS = ("attention-backend", "mm-encoder-attention-backend", "dtype", "distributed-executor-backend", "device-ids")


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("Unrecognized distributed executor backend SEVEN", ("distributed-executor-backend",)),
        ("--device-ids index 7 is out of range", ("device-ids",)),
        ("mm_encoder_attention_backend is refused", ("mm-encoder-attention-backend",)),
        ("device_ids beside attention_backend", ("device-ids", "attention-backend")),
        ("a dtype in words is none", ()),
        ("--dtype seven", ("dtype",)),
    ],
)
def test_names_of_options_in_a_sentence(said: str, named: tuple[str, ...]) -> None:
    assert options_named(said, OPTIONS) == named


def test_values_that_a_sentence_quotes() -> None:
    given = {"dtype": "float16", "attention-backend": "SEVEN_ATTN", "seed": "4096", "load-format": "auto", "x": True}
    assert values_quoted("torch.float16 with SEVEN_ATTN at 4096, auto", given) == ("dtype", "attention-backend")
