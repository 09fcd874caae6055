"""One page that holds everything and runs nothing."""

from html.parser import HTMLParser

import msgspec
from sample import ARGV, HOSTILE, MEMORY, diagnosis, finding

from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.render import html


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]


def test_the_page_tells_the_answer_and_needs_nothing_from_elsewhere() -> None:
    page = html.page([(diagnosis(finding()), ARGV)], taken_at="2026-11-20T10:00:00+00:00")
    tags = Tags()
    tags.feed(page)
    assert "--max-model-len 2048" in page
    assert "A cause was found" in page
    assert page.isascii()
    assert tags.links == []
    assert "script" not in tags.seen


def test_a_time_that_a_stranger_wrote_is_shown_only_if_it_is_one() -> None:
    told = diagnosis(finding())
    assert "2026-11-20T10" in html.page([(told, ARGV)], taken_at="2026-11-20T10:00:00+00:00")
    assert "api_key" not in html.page([(told, ARGV)], taken_at='{"config": "{\\"api_key\\": \\"x\\"}"}')


def test_who_was_not_there_reads_what_it_does_to_the_service_and_what_to_do_first() -> None:
    page = html.page([(diagnosis(finding("VD121")), ARGV)])
    top = page.partition("<h2>")[0]
    assert "The service does not start until this is repaired." in top
    assert "Do this: <code>--max-model-len 2048</code>" in top
    assert "one request of <code>max_model_len</code> tokens would not fit" in page
    assert "proved by the evidence below" in page


def test_what_is_not_proved_or_has_no_change_promises_none() -> None:
    possible = html.page([(diagnosis(finding(confidence=Confidence.POSSIBLE, changes=())), ARGV)])
    assert "This may be the cause; it is not proved." in possible
    without = html.page([(diagnosis(finding(changes=())), ARGV)])
    assert "No known setting repairs it" in without
    assert "The changes are below" not in possible + without


def test_measured_memory_stands_beside_the_plan() -> None:
    told = msgspec.structs.replace(diagnosis(finding()), memory_use=MEMORY)
    page = html.page([(told, ARGV)])
    row = '<td>KV cache</td><td class="figure" data-of="measured">40.25</td><td class="figure" data-of="planned">41.50'
    assert row in page
    assert "GPU 0: 60.10 of 79.19 GiB held by this server, 2.50 by others, 16.59 free (NVML)" in page
    assert "memory went" not in html.page([(diagnosis(finding()), ARGV)])


def test_hostile_text_stays_text() -> None:
    hostile = finding(title=HOSTILE, evidence=(Evidence(HOSTILE, HOSTILE, HOSTILE),), refute=HOSTILE)
    page = html.page([(diagnosis(hostile, unit=HOSTILE), (HOSTILE,))])
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.seen
    assert "<script>alert" not in page
    assert "{{ 7*7 }}" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
