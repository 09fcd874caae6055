"""Each known issue can be matched, by all that it names and by its releases, and answers what some release has."""

import re

import pytest

from vllm_doctor.knowledge import known_issues, versions
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.known_issues import (
    Issue,
    Proof,
    answers_of,
    issues,
    matching,
    mended_in,
    met_on,
    normalised,
)
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.records.verdict import Direction

EVERY_ISSUE = pytest.mark.parametrize("issue", issues(), ids=lambda issue: issue.id)
STEPS = ("AssertionError", "", "assert isinstance(attn_metadata, FlashAttentionMetadata)")
# Who calls vLLM is known in the traceback alone: programs that are proved to have a release for it.
CALLERS = {("caller",): ("trl", "ray")}
# No package of the registry: which release of it is asked for stands in the code that asks.
TOOLKIT = ("cuda-toolkit",)
# A variable that vLLM itself reads; the others are read by another package, a plugin of it for one.
CORE = re.compile(r"VLLM_(?!ASCEND_)")
CALL = "/opt/v/vllm/worker/multi_step_model_runner.py:_advance_step"


@EVERY_ISSUE
def test_it_names_an_exception_and_more_than_a_word_of_it(issue: Issue) -> None:
    assert issue.kind
    assert issue.said or (issue.code and issue.calls)
    for regex in (issue.kind, issue.said, issue.code, *issue.calls):
        re.compile(regex)


@EVERY_ISSUE
def test_its_exception_is_a_class_without_its_package_as_a_traceback_is_read(issue: Issue) -> None:
    assert re.fullmatch(r"\w+(?:\|\w+)*", issue.kind) or re.fullmatch(issue.kind, "ValueError")


@EVERY_ISSUE
def test_it_says_where_and_when_it_was_read(issue: Issue) -> None:
    assert issue.address.startswith("https://github.com/")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", issue.read)
    assert len(issue.title) <= 70
    assert "; " not in issue.title
    assert issue.about.endswith(".")


@EVERY_ISSUE
def test_its_releases_are_releases_and_its_options_some_release_has(issue: Issue) -> None:
    bounds = [as_version(v) for v in (issue.since, issue.fixed) if v is not None]
    assert bounds == sorted(bounds)
    for answer in issue.answers:
        if answer.kind == "flag":
            assert any(versions.flag(o, versions.newest_known()) is not None for o in answer.options)


@EVERY_ISSUE
def test_a_release_that_it_is_met_in_has_each_option_and_variable_of_its_answers(issue: Issue) -> None:
    since, fixed = (as_version(v) if v is not None else None for v in (issue.since, issue.fixed))
    met = [r for r in versions.sampled() if (since is None or r >= since) and (fixed is None or r < fixed)]
    for answer in issue.answers:
        ask = {"flag": versions.flag, "env": versions.env}.get(answer.kind)
        for name in answer.options:
            if ask is not None and met and (answer.kind == "flag" or CORE.match(name)):
                facts = [ask(name, release) for release in met]
                assert any(fact is not None and fact.exists for fact in facts), name


@EVERY_ISSUE
def test_its_cards_are_names_and_each_is_named_once(issue: Issue) -> None:
    assert len(set(issue.cards)) == len(issue.cards)
    for card in issue.cards:
        assert re.fullmatch(r"[A-Z][\w +()-]{1,40}", card), card


def test_the_cards_that_its_words_do_not_name_are_told() -> None:
    one = Issue("id", "", "Seen on A100.", "", "", cards=("A100", "RTX 3090"))
    assert met_on(one) == " Reported on RTX 3090."
    assert met_on(Issue("id", "", "Seen on A100.", "", "", cards=("A100",))) == ""


@EVERY_ISSUE
def test_what_mends_it_is_proved_by_a_pull_request_or_by_code_of_two_releases(issue: Issue) -> None:
    upgrades = [answer for answer in issue.answers if answer.kind == "upgrade"]
    assert not (issue.fixed or upgrades) or any(not proof.package for proof in issue.proof)
    for proof in issue.proof:
        assert bool(proof.pull) != proof.of_code
        assert not proof.pull or re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", proof.pull)
        assert not proof.of_code or as_version(proof.last) < as_version(proof.first)


@EVERY_ISSUE
def test_the_release_that_mends_it_is_the_first_whose_code_does(issue: Issue) -> None:
    seen = [proof.first for proof in issue.proof if proof.of_code and not proof.package]
    assert issue.fixed is None or issue.fixed in seen


@EVERY_ISSUE
def test_a_package_is_upgraded_to_a_release_that_is_proved_to_mend_it(issue: Issue) -> None:
    for answer in issue.answers:
        if answer.kind != "package" or answer.direction is not Direction.UPGRADE or answer.options == TOOLKIT:
            continue
        proved = [
            proof for proof in issue.proof if proof.package in {*answer.options, *CALLERS.get(answer.options, ())}
        ]
        assert proved, answer.options
        asked = answer.to or next(iter(re.findall(r"(?<=>=)[\d.]+\d", answer.command or "")), None)
        if asked is not None and not answer.said:
            assert any(as_version(proof.first) <= as_version(asked) for proof in proved if proof.of_code)


@pytest.mark.parametrize(
    ("why", "before", "told"),
    [
        ("", "", "0.11.1 no longer fails in this way (pull requests 7 and 9)"),
        ("on CPUs", "0.10.2", "on CPUs: changed in 0.10.2 (pull requests 7 and 9)"),
    ],
)
def test_an_upgrade_says_what_the_proofs_bear_out(why: str, before: str, told: str) -> None:
    pulls = (Proof(pull="vllm-project/vllm#7"), Proof(pull="acme/kernels#8"), Proof(pull="vllm-project/vllm#9"))
    upgrade = Answer("upgrade", Direction.UPGRADE, why=why, before=before)
    kept = Answer("flag", options=("enforce-eager",), why="no graph is captured")
    one = Issue("id", "", "", "", "", fixed="0.11.1", proof=pulls, answers=(upgrade, kept))
    assert [answer.why for answer in answers_of(one)] == [told, "no graph is captured"]


@EVERY_ISSUE
def test_nothing_rests_on_a_report_that_is_closed(issue: Issue) -> None:
    for text in (issue.about, *(answer.why for answer in issue.answers)):
        assert not re.search(r"\bclosed\b", text), text


def test_ids_are_used_once() -> None:
    assert len({one.id for one in issues()}) == len(issues())


def test_all_that_it_names_must_be_there() -> None:
    assert [one.id for one in matching(*STEPS, [CALL])] == ["multi-step-attention"]
    assert not matching(*STEPS, ["/opt/v/vllm/attention/layer.py:forward"])
    assert not matching("ValueError", *STEPS[1:], [CALL])


def test_the_entry_that_names_most_of_a_failure_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"title": "", "about": "", "address": "", "read": ""}
    wide = Issue("wide", **about, kind="KeyError", said="layers")
    exact = Issue("exact", **about, kind="KeyError", said="layers", calls=("loader\\.py:load$",))
    monkeypatch.setattr(known_issues, "issues", lambda: (wide, exact))
    assert [one.id for one in matching("KeyError", "layers.0", "", ["a/loader.py:load"])] == ["exact", "wide"]
    assert [one.id for one in matching("KeyError", "layers.0", "", [])] == ["wide"]


def test_its_releases_are_honoured() -> None:
    assert not matching(*STEPS, [CALL], as_version("0.5.0"))
    assert matching(*STEPS, [CALL], as_version("0.6.0"))


def test_what_a_release_has_mended_is_told() -> None:
    assert all(one.fixed is not None for one in mended_in(versions.newest_known()))


def test_what_differs_between_reports_is_taken_out() -> None:
    assert normalised("index 31 is out of bounds, 'x' at 0x7f") == "index * is out of bounds, * at *"
