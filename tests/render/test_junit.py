"""JUnit's XML for a CI: a finding is a failure with its repair, and what could not be judged is no success."""

from xml.etree import ElementTree as Xml

import pytest

from tests.render.sample import diagnosis as sample
from tests.render.sample import finding
from tests.scenarios.loading import diagnosis, names
from vllm_doctor.records.verdict import Confidence, Verdict
from vllm_doctor.render.junit import text


def suite(told: str) -> Xml.Element:
    found = Xml.fromstring(told).find("testsuite")  # noqa: S314 - our own
    assert found is not None
    return found


def test_a_finding_is_a_failure_that_says_why_and_what_to_do() -> None:
    told = suite(text([diagnosis("vd140-sampler-fires")]))
    failure = told.find("testcase/failure")
    assert failure is not None
    assert (told.get("tests"), told.get("failures"), told.get("errors")) == ("1", "1", "0")
    assert failure.get("type") == "VD140"
    assert "why: asked for 0.77 GiB, free 0.54 GiB" in (failure.text or "")
    assert "do: --max-num-seqs 256" in (failure.text or "")


def test_what_is_only_possible_fails_no_pipeline() -> None:
    told = suite(text([sample(finding(confidence=Confidence.POSSIBLE))]))
    assert (told.get("failures"), told.get("skipped")) == ("0", "1")


def test_an_unknown_verdict_is_an_error_and_ok_is_a_test_that_passes() -> None:
    verdicts = {
        said: suite(text([diagnosis(name)]))
        for name in names()
        if not diagnosis(name).findings and (said := diagnosis(name).verdict) in {Verdict.OK, Verdict.UNKNOWN}
    }
    assert verdicts[Verdict.UNKNOWN].get("errors") == "1"
    assert (verdicts[Verdict.OK].get("tests"), verdicts[Verdict.OK].get("errors")) == ("1", "0")
    assert verdicts[Verdict.OK].find("testcase/skipped") is None


@pytest.mark.parametrize("sign", ["\x00", "\x1b[2J", "\ufffe", "]]>", "<x>", "\ud800"])
def test_no_text_of_a_log_breaks_the_file(sign: str) -> None:
    assert suite(text([sample(finding(title=f"a {sign} b"))])).find("testcase/failure") is not None
