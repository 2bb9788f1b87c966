"""The section Fleet: all boards; only the visible rows are sent."""

import json
import math
import time
from collections import Counter
from collections.abc import Mapping

from nicegui import ui

from ternhost.store.snapshot import Snapshot
from ternhost.watch.fleet_view import budget, fleet_of
from ternhost.watch.page import charts, live_store
from ternhost.watch.page.elements import Section, card, cards, empty, picture
from ternhost.watch.page.terms import TERMS

_EVERY = 2.0  # least seconds between two fetches of the visible rows, if boards have changed
_NONE = (
    "No board was seen yet. A fleet on a broker has boards (`tern serve`), and so has one on ports."
    " Simulated devices have none."
)
_SAYS = "as the board says"
_LEFT = (
    "What a board's first device may still spend: as the board said when it connected, less the cost of"
    " its reports since. If its ledger counts rho, this is the epsilon at delta 1e-6."
)
_BARS = 20  # of the histogram of budgets
_ROW = 36  # the height of a row in pixels, as in page.css
_CARD_HEIGHT = 124  # of a row on a phone, which has five lines

# Functions in JavaScript: they show a time as "20 s ago", an unknown value as a dash, and a number
# with commas; `_SOURCE` fetches rows of the table from /boards.
_AGO = """p => { if (p.value == null) return "–"; const s = Math.max(0, Date.now() / 1000 - p.value);
 return s < 120 ? s.toFixed(0) + " s ago" : s < 7200 ? (s / 60).toFixed(0) + " min ago"
 : s < 172800 ? (s / 3600).toFixed(0) + " h ago" : (s / 86400).toFixed(0) + " d ago" }"""
_DASH = 'p => p.value == null ? "–" : p.value'
_NUMBER = 'p => p.value == null ? "–" : p.value.toLocaleString("en", {maximumFractionDigits: 3})'
_SOURCE = """({ getRows(p) {
  const sort = p.sortModel[0] || {}, q = new URLSearchParams({ first: p.startRow, last: p.endRow,
    search: window.ternSearch || "", sort: sort.colId || "", descending: sort.sort === "desc" });
  fetch("/boards?" + q).then(r => r.json()).then(d => p.successCallback(d.rows, d.count), () => p.failCallback());
} })"""


# Makes the card of a board, from text only: nothing that a board says becomes HTML.
_CARD_LINES = """p => {
  const box = document.createElement("div"), board = p.data;
  box.className = "board-card";
  if (!board) return box;
  const number = value => value == null ? "–" : value.toLocaleString("en", {maximumFractionDigits: 3});
  const line = (name, text) => { const row = box.appendChild(document.createElement("div"));
    row.className = name; row.textContent = row.title = text; };
  line("name", board.name);
  line("", board.online + ", heard " + AGO({value: board.heard}));
  line("", "epsilon left " + number(board.budget) + " of " + number(board.allowance));
  line("soft", board.protects ?? "what it protects is not known");
  line("soft", (board.library ?? "unknown library") + (board.program ? ", " + board.program : "") +
    (board.errors ? ", errors: " + board.errors + (board.error ? ", last: " + board.error : "") : ""));
  return box }""".replace("AGO", f"({_AGO})")


def _javascript(value: object) -> str:
    """Return JavaScript for a value, in which members whose names begin with a colon are code."""
    if isinstance(value, dict):
        members = []
        for name, member in value.items():
            if name.startswith(":"):
                members.append(f"{json.dumps(name[1:])}: {member}")
            else:
                members.append(f"{json.dumps(name)}: {_javascript(member)}")
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_javascript, value))}]"
    return json.dumps(value)


def _column(
    field: str,
    name: str,
    width: int,
    value_format: str = "",
    is_reported: bool = True,
    **options: object,
) -> dict[str, object]:
    """Describe a column of the table of boards to the JavaScript library AG Grid.

    field: of the rows from `live_store.row`. name: the heading. width: in pixels. value_format:
    "number", "ago" (a time, shown as "20 s ago") or "" (as it is). is_reported: boards report it
    themselves, and nothing proves it. options: further options of AG Grid, which replace those from
    here.
    """
    formatters = {"": _DASH, "number": _NUMBER, "ago": _AGO}
    tooltip = f"{name}: {_SAYS}" if is_reported else name
    column: dict[str, object] = {
        "field": field,
        "headerName": name,
        "headerTooltip": tooltip,
        "width": width,
        ":valueFormatter": formatters[value_format],  # the colon: its value is JavaScript
        "sortable": True,
        "tooltipField": field if not value_format else None,  # a longer text than fits
    }
    if value_format == "number":
        column["type"] = "rightAligned"
    return column | options


_NAME = _column("name", "board", 175, is_reported=False, pinned="left")
_HEARD = [
    _column("online", "state", 90, is_reported=False),
    _column("heard", "last heard", 115, "ago", is_reported=False),
    _column("errors", "errors", 85, "number", is_reported=False),
    _column("error", "last error", 115, is_reported=False),
]
_REPORTED = [
    _column("budget", "epsilon left", 125, "number", headerTooltip=_LEFT),
    _column("allowance", "allowance", 115, "number", headerTooltip=TERMS["allowance"]),
    _column("library", "library", 115, headerTooltip=TERMS["library"]),
    _column("program", "program", 170, headerTooltip=TERMS["program"]),
    _column("protects", "protects", 330, headerTooltip=TERMS["protects"]),
    _column("machine", "kind of board", 190),
    _column("interpreter", "interpreter", 180, headerTooltip=TERMS["interpreter"]),
    _column("entropy", "entropy", 120, headerTooltip=TERMS["entropy"]),
    _column("heap", "heap free, kB", 140, "number"),
    _column("restarts", "restarts", 105, "number"),
    _column("exceptions", "exceptions", 120, "number"),
    _column("records", "most records", 135, "number"),
    _column("epoch", "fleet key", 110, "number"),
    _column("first", "first device", 130, "number"),
    _column("clients", "devices", 100, "number"),
    _column("text", "its whole text", 560),
]
# On a phone, a board is a card of some lines instead of a row.
_CARD = _column("name", "board", 200, is_reported=False, flex=1, tooltipField=None)
_CARD |= {":valueFormatter": "p => p.value", ":cellRenderer": _CARD_LINES, "colId": "card"}
_SEEN = {"headerName": "as the host has seen", "children": _HEARD}
_REPORTED_BY_BOARDS = {"headerName": f"{_SAYS} (unverified)", "children": _REPORTED}
_WIDE_GRID = [_NAME, _SEEN, _REPORTED_BY_BOARDS]
_IS_NARROW = "innerWidth < 640"
_GRID = {
    ":columnDefs": f"{_IS_NARROW} ? {_javascript([_CARD])} : {_javascript(_WIDE_GRID)}",
    "suppressCellFocus": True,
    "rowModelType": "infinite",
    "cacheBlockSize": 100,
    "maxBlocksInCache": 6,
    "infiniteInitialRowCount": 30,
    ":datasource": _SOURCE,
    ":getRowId": "p => String(p.data.first)",
    ":rowHeight": f"{_IS_NARROW} ? {_CARD_HEIGHT} : {_ROW}",
    ":headerHeight": f"{_IS_NARROW} ? 0 : {_ROW}",
    ":groupHeaderHeight": f"{_IS_NARROW} ? 0 : {_ROW}",
    ":alwaysShowHorizontalScroll": f"!({_IS_NARROW})",
    "tooltipShowDelay": 300,
}


class FleetSection(Section):
    """The section Fleet: a table of boards to search and to sort, and pictures of all boards."""

    def build(self) -> None:
        """Make the searchable table of boards, and the pictures of budgets and releases."""
        # The boards of the live store count their changes. These are the counts when the visible
        # rows were last fetched, and when the boards were last counted; -1: never.
        self._fetched_changes = -1
        self._counted_changes = -1
        self._last_fetch = 0.0  # time.monotonic()

        with cards() as self._none, card("Boards", wide=True):
            ui.html(empty(_NONE), sanitize=False)
        with cards() as self._all:
            with card("Boards", wide=True):
                with ui.element("div").classes("controls"):
                    about = "search: offline, tern 0.1.0, ..."
                    self._search = ui.input(placeholder=about, on_change=self._find)
                    self._search.props(
                        'dense outlined clearable debounce=250 aria-label="search boards"'
                    )
                    self._count = ui.label().classes("soft").mark("counts")
                    self._source = ui.label().classes("soft").mark("source")
                self._grid = ui.aggrid(dict(_GRID), auto_size_columns=False).classes("board-grid")
            self._left = picture("Epsilon left", _LEFT)
            self._releases = picture(
                "Libraries", "The release of tern's device library, as the boards say."
            )

    def _find(self) -> None:
        """Show only the boards that match the text in the search field."""
        text = json.dumps(str(self._search.value or ""))  # as a string of JavaScript
        ui.run_javascript(f"window.ternSearch = {text}")  # `_SOURCE` sends it with each request
        self._grid.run_grid_method("purgeInfiniteCache")  # fetch all rows again

    def show(self, snapshot: Snapshot) -> None:
        """Show the boards of a snapshot, or that there are none."""
        has_boards = len(snapshot.boards) > 0
        self._none.set_visibility(not has_boards)
        self._all.set_visibility(has_boards)
        if not has_boards:
            return

        # Counts and pictures are made again only if boards have changed.
        change_count = self.live.table.changes
        if self._counted_changes != change_count:
            self._counted_changes = change_count
            counts = live_store.summary(snapshot.boards)
            self._count.text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        self._source.text = self._who_is_online()
        self._left.set(change_count, lambda: budgets_picture(snapshot))
        self._releases.set(change_count, lambda: releases_picture(snapshot))
        self._grid.style(
            f"--boards: {len(snapshot.boards)}"
        )  # the height of the table, in page.css
        self.tick(snapshot)

    def _who_is_online(self) -> str:
        """Say how it is known who is online."""
        if self.live.connected is not None:
            return f"No host is running: the broker at {self.live.connected.broker} says who is online."
        return ""

    def tick(self, snapshot: Snapshot) -> None:
        """Fetch the visible rows again if boards have changed, at most every `_EVERY` seconds."""
        change_count = self.live.table.changes
        is_current = self._fetched_changes == change_count
        seconds_since_last = time.monotonic() - self._last_fetch
        if is_current or seconds_since_last < _EVERY:
            return
        is_first_time = self._fetched_changes < 0
        if not is_first_time:  # the table fetches its first rows by itself
            self._grid.run_grid_method("refreshInfiniteCache")
        self._fetched_changes = change_count
        self._last_fetch = time.monotonic()


def _bars(counts: Mapping[str, int], quantity: str, colour: int) -> dict[str, object] | str:
    """Draw a bar for each value that boards have, or say it in words if there is only one value.

    counts: the number of boards by value. quantity: what the values are, such as "release". colour:
    an index into `charts.COLOURS`. Returns options of ECharts, or a text; "" if there is no value.
    """
    if len(counts) > 1:
        return charts.bars(
            names=list(counts),
            values=list(counts.values()),
            x_name=quantity,
            y_name="boards",
            colour=colour,
        )
    text = ""
    for name, count in counts.items():
        noun = "boards" if count > 1 else "board"
        text += f"{quantity.capitalize()} {name}: {count:,} {noun}."
    return text


def budgets_picture(now: Snapshot) -> dict[str, object] | str:
    """Draw how many boards have how much epsilon left: a bar for each value, or a histogram.

    Returns a text if fewer than two different budgets are reported.
    """
    budgets = []
    for board in now.boards:
        budget_left = budget(board)
        if budget_left is not None:
            budgets.append(budget_left)
    if not budgets:
        return "No board reports its budget."
    budgets.sort()
    has_few_values = len(set(budgets)) <= _BARS
    if has_few_values:
        counts_by_value = Counter(f"{value:.4g}" for value in budgets)
        return _bars(counts_by_value, "epsilon left", 0)

    # A histogram from 0 to the 99th percentile. What lies above it has one bar, since a few lying
    # boards must not make all other bars tiny.
    top = budgets[math.ceil(0.99 * len(budgets)) - 1]
    if top == 0:
        top = 1.0
    names = [f"{top * number / _BARS:.3g}" for number in range(_BARS)]  # where each bar begins
    counts = dict.fromkeys(names, 0)
    boards_beyond = 0
    for value in budgets:
        if value > top:
            boards_beyond += 1
        else:
            bar = min(_BARS - 1, int(_BARS * value / top))  # `top` itself is in the last bar
            counts[names[bar]] += 1
    if boards_beyond > 0:
        counts["more"] = boards_beyond
    return _bars(counts, "epsilon left, from", 0)


def releases_picture(snapshot: Snapshot) -> dict[str, object] | str:
    """Draw how many boards report which release, or say it in words if there is only one."""
    counts = dict(fleet_of(snapshot.boards, snapshot.read).releases)
    boards_without_release = len(snapshot.boards) - sum(counts.values())
    if boards_without_release > 0:
        counts["unknown"] = boards_without_release
    counts_in_order = dict(sorted(counts.items()))
    return _bars(counts_in_order, "library", 3)
