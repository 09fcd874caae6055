"""The table of the rules: what stands in it, codes that were retired, and rules in preview."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.scenarios.loading import snapshot
from vllm_doctor.rules import engine, order
from vllm_doctor.rules.explain import about
from vllm_doctor.rules.registry import rules

FIRES = "vd524-metrics-fires"
ROW = "| VD118 | 0.3.0 | VD121 | The configured length fits only with an FP8 KV cache |"
GONE = "| VD119 | 0.3.0 |  | A finding that nothing answers any more |"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The table with two retired codes, which the package reads meanwhile."""
    kept = [line for line in order.TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("| VD118")]
    written = tmp_path / "ORDER.md"
    written.write_text("\n".join([*kept, ROW, GONE]), encoding="utf-8")
    pages = order.TABLE.parent
    monkeypatch.setattr(order, "TABLE", written)
    (tmp_path / "startup").symlink_to(pages / "startup")
    caches = (order.rows, order.by_code, order.retired)
    for each in caches:
        each.cache_clear()
    yield written
    monkeypatch.undo()
    for each in caches:
        each.cache_clear()


@pytest.mark.usefixtures("table")
def test_a_retired_code_says_what_replaced_it_and_shows_its_page() -> None:
    told = about("vd118", None)
    assert told is not None
    assert "retired in 0.3.0. VD121 replaced it: The KV cache cannot hold one full-length request." in told
    assert "## What to do" in told


@pytest.mark.usefixtures("table")
def test_a_retired_code_that_nothing_replaced_says_so_and_is_no_rule() -> None:
    assert "no other one replaced it" in (about("VD119", None) or "")
    assert not set(order.retired()) & set(order.by_code())


def test_a_word_that_the_column_does_not_know_is_refused(table: Path) -> None:
    text = table.read_text(encoding="utf-8")
    table.write_text(text.replace("| last resort ", "| last chance "), encoding="utf-8")
    with pytest.raises(ValueError, match="VD601: asked 'last chance'; needed: nothing, last resort or preview"):
        order.rows()


def test_a_rule_in_preview_is_asked_only_by_who_asks_for_previews(monkeypatch: pytest.MonkeyPatch) -> None:
    all_rules = tuple(replace(one, preview=one.code == "VD524") for one in rules())
    monkeypatch.setattr(engine, "rules", lambda: all_rules)
    given = snapshot(FIRES)
    assert "VD524" not in {found.code for found in engine.diagnose(given).findings}
    assert engine.diagnose(given, preview=True).findings[0].code == "VD524"
