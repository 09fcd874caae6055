"""Manual pages: each command and each option stands in them, and roff has nothing to complain of."""

import shutil
import subprocess

import pytest

from tools import man_pages
from vllm_doctor.cli.app import _SHORT

PAGES = man_pages.pages()


def test_each_command_has_a_page_and_stands_in_the_first() -> None:
    assert set(PAGES) == {"vllm-doctor.1", *(f"vllm-doctor-{name}.1" for name in _SHORT)}
    for name in _SHORT:
        assert f"vllm\\-doctor\\-{name} (1)" in PAGES["vllm-doctor.1"]


def test_an_option_stands_with_its_words() -> None:
    page = PAGES["vllm-doctor-diagnose.1"]
    assert "\\-\\-no\\-canary" in page
    assert ".SH EXAMPLES" in page


@pytest.mark.parametrize(("text", "shown"), [(".so /etc/passwd", "\\&.so /etc/passwd"), ("a\\b", "a\\eb")])
def test_no_text_is_a_request(text: str, shown: str) -> None:
    assert man_pages.roff(text) == shown


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_roff_reads_them_without_a_warning() -> None:
    whole = "".join(PAGES.values())
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", "-Kutf8"], input=whole, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
