"""What an optional part of the doctor needs is asked for by the names that an index has."""

from pathlib import Path

import pytest

from vllm_doctor.gather import extras

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("hub", "pip install 'huggingface-hub>=0.34' in the doctor's environment"),
        ("speed", "pip install 'aiconfigurator==0.12.*' in the doctor's environment"),
    ],
)
def test_an_extra_is_brought_by_what_it_needs(extra: str, told: str) -> None:
    assert extras.brings(extra) == told


def test_without_metadata_the_checkout_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "DISTRIBUTION", "nobody-has-this")
    assert extras.brings("hub") == "pip install '.[hub]' in the checkout"


def test_nobody_is_sent_to_an_index_for_the_doctor_itself() -> None:
    """Its name is free there: whoever takes it would be installed."""
    said = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [*(ROOT / "vllm_doctor").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if f"{extras.DISTRIBUTION}[" in line or f"install {extras.DISTRIBUTION}" in line
    ]
    assert not said
