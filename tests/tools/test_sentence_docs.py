"""docs/sentences.md shows what the rules say, and nothing of how they are written."""

from pathlib import Path

import pytest
import sentence_docs


def test_the_page_is_what_the_rules_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence_docs.main(["--check"]) == 0, capsys.readouterr().out


def test_a_stale_page_is_said_and_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_docs, "TARGET", tmp_path / "sentences.md")
    assert sentence_docs.main(["--check"]) == 1
    assert sentence_docs.main([]) == 0
    assert sentence_docs.main(["--check"]) == 0


def test_a_sentence_is_shown_once_with_what_is_filled_in_and_names_are_left_out() -> None:
    source = '''"""A docstring of several words."""
told = f"The driver offers CUDA {found}; a newer one is needed"
again = "The disk is full", "The disk is full", "max-num-seqs", "GiB"
'''
    assert sentence_docs.sentences(source) == [
        "The driver offers CUDA {…}; a newer one is needed",
        "The disk is full",
    ]


def test_every_rule_has_its_section_those_of_the_table_too() -> None:
    page = sentence_docs.text()
    assert "## VD121 The KV cache cannot hold one full-length request" in page
    assert "- No room to write {path}\n" in page
    assert (
        "- let the gateway refuse token IDs outside the vocabulary: from 0.6.4 on vLLM refuses such a request itself\n"
        in page
    )
