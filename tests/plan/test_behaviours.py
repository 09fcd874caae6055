"""What releases do differently stands in one table."""

import re
from pathlib import Path

import pytest

from vllm_doctor.knowledge.version import as_version
from vllm_doctor.plan.behaviour import Behaviour, behaviour, rows

PLAN = Path(__file__).parents[2] / "vllm_doctor" / "plan"


def test_the_table_has_a_row_for_each_thing_that_the_planner_asks():
    assert [row.name for row in rows()] == list(Behaviour.__struct_fields__)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_a_row_says_what_where_and_since_when(row):
    assert row.what
    assert ".py" in row.source or "/" in row.source
    bounds = [as_version(text) for text in (row.since, row.until) if text is not None]
    assert bounds
    assert bounds == sorted(bounds)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_every_row_is_asked_somewhere(row):
    asked = re.compile(rf"\.{row.name}\b")
    assert any(asked.search(file.read_text()) for file in PLAN.rglob("*.py"))


@pytest.mark.parametrize(
    ("name", "before", "first"),
    [
        ("reserves_null_block", "0.28.0", "0.29.0"),
        ("tokens_by_concurrency", "0.20.0", "0.20.1"),
        ("checks_free_at_start", "0.9.0", "0.9.1"),
        ("captures_by_sixteen", "0.11.0", "0.11.1"),
        ("flashinfer_sampler", "0.20.2", "0.21.0"),
        ("state_page_by_kernel_block", "0.19.1", "0.20.0"),
        ("plain_integer_methods", "0.21.0", "0.22.0"),
        ("counts_batches_in_flight", "0.25.1", "0.26.0"),
    ],
)
def test_a_release_does_it_from_the_first_that_has_it(name, before, first):
    assert not getattr(behaviour(as_version(before)), name)
    assert getattr(behaviour(as_version(first)), name)
