"""What an answer of a known issue installs, beside what the releases of vLLM ask for (tools/releases/required.py)."""

import pytest
from releases.required import beyond_requirements

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.known_issues import Issue

FOUR = "<5,>=4.56.0"
ODD = "!=5.0.*,!=5.1.*,!=5.2.*,!=5.3.*,!=5.4.*,!=5.5.0,>=4.56.0"


@pytest.mark.parametrize(
    ("package", "to", "since", "fixed", "told"),
    [
        ("transformers", "5.11.0", "0.19.1", "0.26.0", []),
        ("transformers", "5.5.0", "0.19.1", "0.20.0", [f"0.19.1: transformers 5.5.0, asked for: {ODD}"]),
        (
            "transformers",
            "5.10.1",
            "0.18.0",
            "0.20.0",
            ["0.18.0 to 0.19.0: transformers 5.10.1, asked for: <5,>=4.56.0"],
        ),
        ("transformers", "<5.13", "0.19.0", "0.24.0", ["0.19.0: transformers <5.13, asked for: <5,>=4.56.0"]),
        ("transformers", "<5", "0.24.0", "0.25.0", ["0.24.0: transformers <5, asked for: >=5.5.3"]),
        ("transformers", "<5", "0.12.0", "0.14.0", []),
        ("transformers", "{limit}", "0.12.0", "0.14.0", []),
        ("no-package-of-vllm", "1.0", "0.12.0", "0.14.0", []),
    ],
)
def test_what_a_release_does_not_ask_for_is_told(
    package: str, to: str, since: str, fixed: str, told: list[str]
) -> None:
    answer = Answer("package", options=(package,), to=to)
    found = beyond_requirements(Issue("id", "", "", "", "", since=since, fixed=fixed, answers=(answer,)))
    assert found == told
