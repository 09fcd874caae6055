"""The pages in a real browser: on a phone and a wide screen, light and dark, nothing is cut off or too pale to read."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.browser import Browser, browser
from tests.render.sample import MEMORY, diagnosis, finding
from tests.render.test_fleet import FLEET
from vllm_doctor.monitor.over_time import Chart, Curve
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.render import fleet as fleet_page
from vllm_doctor.render.html import page as diagnosis_page
from vllm_doctor.render.report import ServiceReport, page

MOMENT = 1_770_000_000.0
LONG = "meta-llama/Llama-3.3-70B-Instruct-with-a-name-that-no-phone-has-room-for"
# Words that stand alone in a cell or heading must not be broken into letters.
CUT = """[...document.querySelectorAll('th, td.n')].filter(e => {
    const inside = document.createRange(); inside.selectNodeContents(e);
    return new Set([...inside.getClientRects()].map(r => r.top)).size > 1 && e.textContent.trim().length < 12
    }).map(e => e.textContent)"""
# Contrast of each text with the nearest background, as WCAG 2 reckons it.
PALE = """(() => {
    const lum = c => { const v = c.map(x => x / 255).map(x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
        return .2126 * v[0] + .7152 * v[1] + .0722 * v[2] };
    const rgb = t => (t.match(/[0-9.]+/g) || []).map(Number);
    const back = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
        if (c.length < 4 || c[3] > 0) return c.slice(0, 3) }
        return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255] };
    const told = e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim());
    return [...document.querySelectorAll('body *')].filter(told).map(e => {
            const ink = lum(rgb(getComputedStyle(e).color).slice(0, 3));
            const [a, b] = [ink, lum(back(e))].sort((x, y) => y - x);
            return [(a + .05) / (b + .05), e.textContent.trim().slice(0, 40)] }).filter(([c]) => c < 4.5) })()"""


def report() -> str:
    points = tuple((MOMENT + 60 * at, (at % 50) / 50) for at in range(300))
    lines = (Curve("gpu01 vllm@main.service", points), Curve(f"gpu02 {LONG}", points))
    charts = (Chart("KV cache in use", "percentunit", lines, 1.0), Chart("GPU memory", "bytes", (), note="no figures"))
    told = ServiceReport("vLLM, all services", MOMENT, MOMENT + 18_000, "Prometheus at http://127.0.0.1:9090", charts)
    return page([told])


def diagnosis_of() -> Diagnosis:
    told = diagnosis(finding(title=f"the KV cache of {LONG} is too small"))
    return msgspec.structs.replace(told, memory_use=MEMORY)


PAGES: dict[str, Callable[[], str]] = {
    "report": report,
    "fleet": lambda: fleet_page.page(fleet_page.fleet(FLEET, "2026-01-01T00:00:00+00:00")),
    "diagnosis": lambda: diagnosis_page([(diagnosis_of(), ())]),
}


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    made = browser()
    yield made
    made.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_read_without_scrolling_sideways(
    tab: Browser, tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGES[name]())
    tab.show(file, width=width, height=800, dark=dark)
    assert tab.ask("document.title")
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.ask(CUT) == []
    assert tab.ask(PALE) == []
