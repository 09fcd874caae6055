"""What releases do differently stands in one table."""

import re
from pathlib import Path

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.plan.behaviour import Behaviour, behaviour, rows

THREE = '--speculative-config {"method":"ngram","num_speculative_tokens":3}'
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
        ("captures_whole_drafts", "0.12.0", "0.13.0"),
        ("captures_more_on_ten", "0.27.1", "0.28.0"),
        ("caps_step_by_sequences", "0.11.0", "0.11.1"),
        ("pads_within_half", "0.17.1", "0.18.0"),
        ("flashinfer_sampler", "0.20.2", "0.21.0"),
        ("state_page_by_kernel_block", "0.19.1", "0.20.0"),
        ("plain_integer_methods", "0.21.0", "0.22.0"),
        ("counts_batches_in_flight", "0.25.1", "0.26.0"),
    ],
)
def test_a_release_does_it_from_the_first_that_has_it(name, before, first):
    assert not getattr(behaviour(as_version(before)), name)
    assert getattr(behaviour(as_version(first)), name)


@pytest.mark.parametrize(
    ("flags", "version", "card", "largest"),
    [
        ("--max-num-seqs 64", "0.33.0", "H100", 128),
        ("--max-num-seqs 1024", "0.33.0", "H100", 512),
        ("--max-num-seqs 1024", "0.33.0", "B200", 1024),
        ("--max-num-seqs 1024", "0.27.1", "B200", 512),
        ("--max-num-seqs 1024", "0.33.0", "RTX 5090", 512),
        (f"--max-num-seqs 32 {THREE}", "0.13.0", "H100", 256),
        (f"--max-num-seqs 32 {THREE}", "0.12.0", "H100", 64),
    ],
)
def test_the_largest_batch_for_which_graphs_are_captured(flags, version, card, largest):
    _, s, _ = settings(LLAMA_8B, flags, version, card)
    assert s.capture_sizes == largest
