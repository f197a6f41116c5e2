"""The page in a real browser: no sideways scrolling, no errors, no requests; light, dark, narrow, wide, printed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from report import helpers_chromium
from report.conftest import Built

pytestmark = pytest.mark.chromium


@pytest.fixture(scope="module")
def page() -> Iterator[helpers_chromium.Page]:
    binary = helpers_chromium.find()
    if binary is None:
        pytest.skip("there is no Chromium here (apt-get install chromium)")
    with helpers_chromium.chromium(binary) as found:
        yield found


# The colour that an element really shows, and the first colour behind it: the WCAG contrast of the two.
CONTRAST = """
(() => {
  const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = (c) => {
    const [r, g, b] = rgb(c).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (c && (rgb(c).length < 4 || rgb(c)[3] > 0)) return c;
    }
    return "rgb(255, 255, 255)";
  };
  const bad = [];
  const look = (e, colour, least) => {
    const [a, b] = [light(colour), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least) bad.push(`${e.tagName} ${e.textContent.trim().slice(0, 20)} ${colour} ${ratio.toFixed(2)}`);
  };
  for (const e of document.querySelectorAll("h1,h2,h3,h4,p,td,th,dt,dd,li,code,pre,a,figcaption,caption,small"))
    if (e.textContent.trim()) look(e, getComputedStyle(e).color, 4.5);
  for (const e of document.querySelectorAll("svg.chart text")) look(e, getComputedStyle(e).fill, 4.5);
  for (const e of document.querySelectorAll("svg.chart path[fill^='var(--s']")) look(e, getComputedStyle(e).fill, 2.9);
  return bad.slice(0, 5);
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_it_fits_is_legible_and_silent(page: helpers_chromium.Page, eventful: Built, width: int, scheme: str) -> None:
    page.open(eventful.folder / "summary/report.html", width=width, scheme=scheme)
    assert page.value("matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")
    wide, seen = page.value("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= seen <= width
    sticking_out = (
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, svg') && "
        "e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert page.value(sticking_out) == []
    assert page.value(CONTRAST) == []
    assert page.value("document.querySelectorAll('svg.chart').length") >= 8
    assert page.problems == []


def test_panels_stand_side_by_side_where_there_is_room(page: helpers_chromium.Page, eventful: Built) -> None:
    columns = "getComputedStyle(document.querySelector('.panels')).gridTemplateColumns.split(' ').length"
    page.open(eventful.folder / "summary/report.html", width=1400)
    assert page.value(columns) == 3
    page.open(eventful.folder / "summary/report.html", width=400)
    assert page.value(columns) == 1


def test_sorting_puts_gaps_last_both_ways(page: helpers_chromium.Page, eventful: Built) -> None:
    page.open(eventful.folder / "summary/report.html", width=1400)
    table = "document.querySelector('table.sortable')"
    click = f"[...{table}.querySelectorAll('th button')].find(b => b.textContent.startsWith('Prefill')).click()"
    column = (
        f"[...{table}.tBodies[0].rows].map(r => {{const c = r.cells[Math.min(4, r.cells.length - 1)]; "
        "return c.classList.contains('gap') ? null : Number(c.dataset.value)})"
    )
    for turn in (1, -1):
        page.value(click)
        values = page.value(column)
        numbers = [v for v in values if v is not None]
        assert numbers == sorted(numbers, reverse=turn < 0)
        assert values[len(numbers) :] == [None] * 10
        assert len(numbers) == 26
    assert page.problems == []


def test_print_is_black_on_white_also_for_those_who_read_in_the_dark(
    page: helpers_chromium.Page, eventful: Built
) -> None:
    page.open(eventful.folder / "summary/report.html", width=1000, scheme="dark")
    page.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.value("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    page.call("Emulation.setEmulatedMedia", media="")
