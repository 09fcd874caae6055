"""What a model's name says of its size."""

import pytest

from vllm_doctor.knowledge.hub import billions


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("acme/chat-7B", 7.0),
        ("acme/chat-8x7B-instruct", 45.2),
        ("acme/chat-8x22b", 142.1),
        ("acme/chat", None),
        ("acme/Chat-17B-16E-Instruct", None),
    ],
)
def test_experts_share_what_is_not_their_mlp(name: str, size: float | None) -> None:
    assert billions(name) == (pytest.approx(size, abs=0.1) if size is not None else None)
