"""README's pictures are what the doctor answers."""

import pictures
import pytest


def test_the_pictures_are_the_real_answer_and_fetch_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pictures.REPO)
    assert pictures.main(["--check"]) == 0, capsys.readouterr().out
    for name in pictures.THEMES:
        drawn = (pictures.FOLDER / f"answer-{name}.svg").read_text(encoding="utf-8")
        assert "VD140" in drawn
        assert "url(http" not in drawn
        assert "@font-face" not in drawn
