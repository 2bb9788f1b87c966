"""How the live page looks in a real browser, with several kinds of runs: nothing is cut off, and all
text can be read.
"""

import shutil
import time
from contextlib import closing

import numpy as np
import pytest
import rig
import sample_store
from test_dashboard import SECTIONS, Visit, dashboard

from terngateway.tables import GatewayTables
from ternhost.count.rounds import StoredCohort, StoredRound
from ternhost.store import store_file
from ternhost.store.store import Store

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
    pytest.mark.xdist_group("views"),
]
WIDTHS = (1280, 768, 400)
LEAST_CONTRAST = 4.5  # of text to what is behind it, as WCAG 2 asks for (AA)
NAME = "run"


@pytest.fixture(scope="module")
def browser():
    """A browser that shows scroll bars, as those of users do."""
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox"],
            ignore_default_args=["--hide-scrollbars"],
        )
        yield launched
        launched.close()


# Stores of several kinds


def tern_run(directory, *words):
    """The store of a finished run of this command."""
    rig.tern(*words, "--quiet", "--no-report", "--name", NAME, cwd=directory, code=0)
    return directory / "runs" / NAME


def fedsgd_with_boards(directory):
    """A run that was stopped in the middle of a round, with 300 boards."""
    return sample_store.make(directory, 300, rounds=12, planned=20)


def finished_fedsgd(directory):
    words = "train fedsgd --epsilon 8 --reports 400 --rounds 4 --fleet simulated:400"
    return tern_run(directory, *words.split())


def means_of_records(directory):
    """A run whose epsilons are about one record, at a delta."""
    words = "collect means --unit record --run-epsilon 2 --delta 1e-6 --records 20"
    return tern_run(directory, *words.split(), "--fleet", "simulated:200")


def quantiles(directory):
    """A run that has collected distributions: it has pictures of them in place of a learning curve."""
    words = "collect quantiles --data wine --epsilon 8 --clients 100 --fleet simulated:100"
    return tern_run(directory, *words.split())


def classes_of_devices(directory):
    words = "train fedavg --epsilons 0.25:2:0.5,0.5:4:0.5 --rounds 3 --fleet simulated:300"
    return tern_run(directory, *words.split())


def infer(directory):
    words = "infer --data iris --answer label --epsilon 2 --fleet simulated:50"
    return tern_run(directory, *words.split())


def through_gateways(directory):
    """A run with two gateways, of which one has answered the round that is under way."""
    run = sample_store.make(directory, 40, rounds=3, planned=10)
    with Store(run / store_file.NAME) as store:
        tables = GatewayTables(store)
        about = {"fleet": "port", "release": "0.1.0"}
        tables.gateway_seen("north-greenhouses", np.arange(1, 21), time.time(), about)
        tables.gateway_seen("south", np.arange(21, 41), time.time(), about)
        store.save_run(
            sample_store.NAME,
            asked={**store.run(sample_store.NAME).asked, "fleet": "gateways:my-sites"},
        )
        number = store.last_round() + 1
        cohort = StoredCohort(sample_store.BODY, range(1, 41))
        store.open_round(StoredRound(number, [cohort], 40, 600.0, sample_store.NAME))
        tables.save_questions(number, {"north-greenhouses": b"?", "south": b"?"})
        tables.save_progress(number, "south", 3)
    return run


def no_run(directory):
    """A fleet of which twelve boards were seen, without a run."""
    path = directory / store_file.NAME
    with Store(path) as store:
        store.add_devices({device: sample_store.key_of(device) for device in range(1, 41)})
        store.boards_seen(sample_store.boards(12))
    return path


def empty(directory):
    path = directory / store_file.NAME
    Store(path).close()
    return path


KINDS = (
    fedsgd_with_boards,
    finished_fedsgd,
    means_of_records,
    quantiles,
    classes_of_devices,
    infer,
    through_gateways,
    no_run,
    empty,
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, id=kind.__name__, marks=() if kind is KINDS[0] else pytest.mark.slow)
        for kind in KINDS
    ],
)
def url(request, tmp_path_factory):
    """The address of the page of a store of each kind."""
    with dashboard(request.param(tmp_path_factory.mktemp("store"))) as url:
        yield url


# Returns what a reader would miss: texts that are cut by a box, or that lie outside of the window.
# What a box cuts is not missing if the box has a scroll bar that can be seen.
CUT_OFF = """() => {
  const clips = (box, axis) => {
    const overflow = getComputedStyle(box)["overflow" + axis];
    if (overflow === "visible") return false;
    const bar = axis === "X" ? box.offsetHeight - box.clientHeight : box.offsetWidth - box.clientWidth;
    return overflow === "hidden" || overflow === "clip" || bar < 4;
  };
  const missing = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const parent = text.parentElement;
    if (!text.data.trim() || !parent.checkVisibility() || parent.closest("[class*=ag-aria]")) continue;
    const head = parent.closest(".ag-header");  // which a phone does not show
    if (head && head.offsetHeight < 2) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const part of range.getClientRects()) {
      if (part.width < 1) continue;
      for (let box = parent; box; box = box.parentElement) {
        const edge = box.getBoundingClientRect(), grid = box.closest(".ag-root-wrapper");
        // The table of boards has a scroll bar of its own, and shows more rows when it is scrolled.
        if (grid && !box.matches(".ag-cell, .ag-cell *, .ag-header-cell, .ag-header-cell *")) {
          const bar = grid.querySelector(".ag-body-horizontal-scroll");
          const content = grid.querySelector(".ag-center-cols-container");
          const view = grid.querySelector(".ag-center-cols-viewport");
          if (content.offsetWidth > view.offsetWidth + 1 && bar.offsetHeight < 4)
            missing.push("the table of boards has no scroll bar");
          break;
        }
        const isCut = clips(box, "X") && (part.right > edge.right + 1.5 || part.left < edge.left - 1.5)
          || clips(box, "Y") && (part.bottom > edge.bottom + 3 || part.top < edge.top - 3);
        if (isCut) { missing.push(text.data + " in " + box.className); break; }
        if (box.matches(".table-box") && box.scrollWidth > box.clientWidth + 1) break;
        if (box.matches("main") && (part.right > innerWidth + 1 || part.left < -1))
          missing.push(text.data + " outside of the window");
      }
    }
  }
  for (const text of document.querySelectorAll("main svg text")) {
    const svg = text.closest("svg").getBoundingClientRect(), part = text.getBoundingClientRect();
    if (part.width && (part.right > svg.right + 2 || part.left < svg.left - 2 || part.bottom > svg.bottom + 2))
      missing.push(text.textContent + " in a picture");
  }
  return [...new Set(missing)];
}"""

# Returns the texts whose contrast to what is behind them is below a number.
FAINT = """least => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const linear = [r, g, b].map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * linear[0] + .7152 * linear[1] + .0722 * linear[2];
  };
  const behind = element => {
    for (let box = element; box; box = box.parentElement) {
      const colour = parts(getComputedStyle(box).backgroundColor);
      if (colour.length < 4 || colour[3] > .9) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("main *")) {
    const inSvg = element.closest("svg");
    if (inSvg && element.tagName !== "text") continue;
    const hasText = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!hasText || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const one = light(parts(inSvg ? style.fill : style.color)), other = light(behind(element));
    const contrast = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (contrast < least) faint.push(element.textContent.slice(0, 60) + ": " + contrast.toFixed(2));
  }
  return [...new Set(faint)];
}"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off_and_all_text_can_be_read(url, browser, width):
    """At the widths of a desktop, a tablet and a phone, in light and in dark colours: no text of any
    section is cut off, unless its box visibly scrolls, and each has enough contrast.
    """
    with closing(Visit(browser, url, viewport={"width": width, "height": 900})) as opened:
        page = opened.open()
        page.add_style_tag(content="* { transition: none !important }")  # colours change at once
        seen = []
        for section in opened.sections():
            page.evaluate("document.querySelector('.terms').open = true")
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.wait_for_timeout(100)
                cut_off = page.evaluate(CUT_OFF)
                assert cut_off == [], (section, scheme, cut_off)
                faint = page.evaluate(FAINT, LEAST_CONTRAST)
                assert faint == [], (section, scheme, faint)
            # The page itself does not scroll sideways.
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            seen.append(section)
        assert tuple(seen) == SECTIONS
        assert not opened.complaints


@pytest.fixture(
    scope="module",
    params=[
        "means --unit record --run-epsilon 2 --delta 1e-6 --records 20",
        "quantiles --data wine --attributes alcohol",
    ],
    ids=["means", "quantiles"],
)
def report(request, tmp_path_factory):
    """The address of the report of a run, which is a page of its own."""
    directory = tmp_path_factory.mktemp("report")
    words = f"collect {request.param} --fleet simulated:200 --name r"
    rig.tern(*words.split(), cwd=directory, code=0)
    return (directory / "runs" / "r" / "report.html").as_uri()


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_of_a_report_is_cut_off_and_all_of_it_can_be_read(report, browser, width):
    with closing(Visit(browser, report, viewport={"width": width, "height": 900})) as opened:
        opened.page.goto(report)
        for section in opened.page.locator("summary").all():
            section.click()
        for scheme in ("light", "dark"):
            opened.page.emulate_media(color_scheme=scheme)
            cut_off = opened.page.evaluate(CUT_OFF)
            assert cut_off == [], (scheme, cut_off)
            faint = opened.page.evaluate(FAINT, LEAST_CONTRAST)
            assert faint == [], (scheme, faint)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_checks_find_what_is_cut_off_and_what_is_faint(url, browser):
    """The tests above could not fail if their scripts found nothing."""
    with closing(Visit(browser, url, viewport={"width": 400, "height": 900})) as opened:
        page = opened.open()
        page.evaluate(
            """() => { const box = document.createElement("div");
            box.style = "width: 60px; overflow: hidden; white-space: nowrap; color: #888; background: #777";
            box.textContent = "a text that is far too long";
            document.querySelector("main.tern").append(box) }"""
        )
        assert any("far too long" in found for found in page.evaluate(CUT_OFF))
        assert any("far too long" in found for found in page.evaluate(FAINT, LEAST_CONTRAST))
