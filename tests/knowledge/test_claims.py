"""What is said and what is true: the claims agree with the facts of the releases, and nothing dead is recommended."""

import pytest

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.claims import Claim, as_text, claims, claims_about, replacements
from vllm_doctor.rules.order import by_code

EVERY_CLAIM = pytest.mark.parametrize("claim", claims(), ids=lambda c: c.id)
NEWEST = versions.newest_known()


@EVERY_CLAIM
def test_spans_are_in_order_and_begin_at_releases_that_were_read(claim: Claim) -> None:
    starts = [versions.as_version(s.first) for s in claim.said]
    assert starts == sorted(set(starts))
    assert set(starts) <= set(versions.sampled())
    assert claim.said[-1].last == "" or versions.as_version(claim.said[-1].last) <= NEWEST
    assert all(s.last == "" or versions.as_version(s.last) >= versions.as_version(s.first) for s in claim.said)


@EVERY_CLAIM
def test_it_comes_up_with_findings_that_exist(claim: Claim) -> None:
    assert set(claim.codes) <= set(by_code())
    assert claim.codes


@EVERY_CLAIM
def test_it_says_gone_exactly_where_the_option_is_gone(claim: Claim) -> None:
    for span in claim.said:
        if "The option is gone" in span.say:
            fact = versions.flag(claim.about[0], span.first)
            assert fact is not None
            assert fact.exists is False


@pytest.mark.parametrize("name", ["swap-space", "disable-log-requests"])
@pytest.mark.parametrize("version", [str(v) for v in versions.sampled()])
def test_a_release_without_the_option_is_never_told_that_it_is_accepted(name: str, version: str) -> None:
    fact = versions.flag(name, version)
    assert fact is not None
    span = claims_about(name)[0].at(versions.as_version(version))
    assert span is not None
    assert ("is gone" in span.say) == (fact.exists is False)


@pytest.mark.parametrize("version", ["0.11.0", "0.19.1", "0.20.0", "0.33.0"])
def test_the_default_fraction_is_the_one_of_the_release(version: str) -> None:
    claim = next(c for c in claims() if c.id == "utilization-default")
    span = claim.at(versions.as_version(version))
    assert span is not None
    assert span.true == (versions.default_utilization(version) == 0.9)


@pytest.mark.parametrize("name", ["VLLM_ATTENTION_BACKEND", "VLLM_USE_V1"])
def test_a_variable_that_nothing_reads_is_not_called_true(name: str) -> None:
    for version in versions.sampled():
        fact = versions.env(name, version)
        span = claims_about(name)[0].at(version)
        assert fact is not None
        if fact.exists is False and span is not None:
            assert not span.true


def test_what_is_put_in_its_place_exists_and_what_went_is_gone() -> None:
    gone, other = replacements()
    for name, wording in gone.items():
        fact = versions.flag(name, NEWEST)
        assert fact is not None, name
        assert fact.exists is False, name
        assert as_text(wording)
        if wording.use is not None and wording.use in gone:
            assert gone[wording.use].use is not None
        elif wording.use is not None:
            new = versions.flag(wording.use, NEWEST)
            assert new is not None, wording.use
            assert new.exists, wording.use
    for name, foreign in other.items():
        assert versions.flag(name, NEWEST) is None, name
        if foreign.use != "model":
            own = versions.flag(foreign.use.removeprefix("no-"), NEWEST)
            assert own is not None, foreign.use
            assert own.exists, foreign.use
