"""What an answer of a known issue installs, beside what the releases of vLLM ask for (tools/releases/required.py)."""

import pytest
from releases.required import beyond_requirements, never_given

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.known_issues import Issue, issues

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


@pytest.mark.parametrize("issue", issues(), ids=lambda issue: issue.id)
def test_each_answer_of_an_entry_is_given_in_a_release(issue: Issue) -> None:
    assert never_given(issue) == []


@pytest.mark.parametrize(
    ("to", "command", "told"),
    [
        ("0.6.16.post4", None, ["0.27.0 to 0.28.0: flashinfer-python 0.6.16.post4, asked for: ==0.6.16.post3"]),
        ("0.6.16.post4", "pip install --no-deps flashinfer-python==0.6.16.post4", []),
        ("0.6.16.post3", None, []),
        ("0.6.13", None, []),
        (
            None,
            "pip install 'flashinfer-python<0.6'",
            ["0.27.0 to 0.28.0: flashinfer-python <0.6, asked for: ==0.6.16.post3"],
        ),
        (None, "pip check", []),
    ],
)
def test_a_release_that_no_vllm_of_the_span_takes_is_told(to: str | None, command: str | None, told: list[str]) -> None:
    answer = Answer("package", options=("flashinfer-python",), to=to, command=command)
    assert never_given(Issue("id", "", "", "", "", since="0.27.0", fixed="0.29.0", answers=(answer,))) == told
