"""Every answer is the approved one: figures, sums, changes with their values, order of causes, plans.

Where a change is meant: `make approve`, then read the diff of tests/approved as the reviewer will.
"""

import difflib
from pathlib import Path

import pytest

from tests.approved.files import FOLDER, made, present, text


@pytest.mark.parametrize("path", made(), ids=lambda p: str(p.relative_to(FOLDER)))
def test_it_answers_as_approved(path: Path) -> None:
    approved, now = text(path), made()[path]()
    if now != approved:
        diff = "\n".join(difflib.unified_diff(approved.splitlines(), now.splitlines(), "approved", "now", "", "", 3))
        pytest.fail(f"{diff}\n\nIf this is meant: make approve, and read the diff.", pytrace=False)


def test_no_file_is_left_over() -> None:
    assert present() == set(made())
