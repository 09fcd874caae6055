"""What stands behind an answer's `why`: the line that says what failed, and none that only frames it."""

import re
from pathlib import Path

import pytest
import yaml

APPROVED = Path(__file__).parents[1] / "approved" / "diagnoses"
# The first line of a traceback, and those of its calls; what stands before it on its line is no message.
FRAME = re.compile(
    r"(?:: |\] |\) )(?:Traceback \(most recent call last\):|[\s~^]*\^\^\s*|\s*File \"[^\"]+\", line \d+, in \S+)$"
)


@pytest.mark.parametrize("path", sorted(APPROVED.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_first_evidence_is_no_frame_of_a_traceback(path: Path) -> None:
    answers = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    framed = {
        name: finding["evidence"][0]
        for name, answer in answers.items()
        for finding in answer.get("findings") or ()
        if finding.get("evidence") and FRAME.search(finding["evidence"][0])
    }
    assert framed == {}
