"""The section Round: the open round and the last ones, and the tables of extensions."""

import math
import time
from collections import Counter
from collections.abc import Iterable

from nicegui import ui

from tern.card import PROJECTION, decode
from ternhost.errors import UsageError
from ternhost.extensions import EXTENSIONS, View
from ternhost.store.snapshot import OpenRound, Snapshot, TallyView
from ternhost.watch import curves, words
from ternhost.watch.page import charts
from ternhost.watch.page.elements import Chart, Html, Section, card, cards, empty, picture, table
from ternhost.watch.summary import breakdown

_LAST = 12  # rounds of the table
_SUMMED = 1000  # of the refusals
_MOST_SYMBOLS = 64
_SYMBOLS = "How often each output of the card was reported, over all coordinates, noise included."
_IDLE = "No round is open. A served fleet begins the next one after its --interval."
_DONE = "The run has ended: no round is under way."
_SIMULATED = "A simulated fleet answers at once: its rounds are shown when they have ended."


class RoundsSection(Section):
    """The round under way, live."""

    def build(self) -> None:
        with cards():
            with card("Round under way", wide=True):
                self._line = ui.label().mark("round")
                self._bar = ui.element("progress").props("max=1 value=0")
                self._arriving = Chart("reports arriving", "chart low")
                self._idle = Html()
            with card("Last rounds", wide=True):
                self._table = Html()
            self._reasons = picture(
                "Refusals by reason", f"Of the last {_SUMMED:,} rounds at most."
            )
            self._symbols = picture("Symbols of the last round", _SYMBOLS)
            self._extensions = {
                name: _ExtensionCard(extension.title)
                for name, extension in EXTENSIONS.items()
                if extension.title
            }

    def show(self, now: Snapshot) -> None:
        opened = now.open[-1] if now.open else None
        self._show_arrivals(opened)
        self._idle.set("" if opened else empty(_why_idle(now)))
        self._table.set(_table(now))
        reasons = curves.reasons(now.history[-_SUMMED:])
        self._reasons.set(tuple(reasons.items()), lambda: _refusals(reasons))
        key = now.run and now.run.name, len(now.history)
        self._symbols.set(key, lambda: symbols_picture(now) or "No report yet, in the last round.")
        for name, box in self._extensions.items():
            box.show(now.views.get(name), bool(now.open))
        self.tick(now)

    def _show_arrivals(self, opened: OpenRound | None) -> None:
        self._bar.set_visibility(opened is not None)
        if opened is not None:
            reports = min(opened.reports, opened.wanted)
            self._bar.props(f"max={max(1, opened.wanted)} value={reports}")
        arrivals = tuple(self.live.arrivals)

        def draw() -> dict[str, object] | str:
            if opened is None or len(arrivals) < 2:
                return ""
            return charts.arriving(arrivals, opened.wanted)

        number = None if opened is None else opened.number
        self._arriving.set((number, len(arrivals), arrivals[-1:]), draw)

    def tick(self, now: Snapshot) -> None:
        opened = now.open[-1] if now.open else None
        self._line.set_visibility(opened is not None)
        self._line.text = "" if opened is None else _words(opened)


class _ExtensionCard:
    """The table of an extension under its title, hidden while there is none."""

    def __init__(self, title: str) -> None:
        with card(title, wide=True) as self._box:
            self._table = Html()

    def show(self, view: View | None, is_open: bool) -> None:
        """Show the table of a view. is_open: a round is under way."""
        cells = None if view is None else view.table(is_open)
        self._box.set_visibility(cells is not None)
        self._table.set("" if cells is None else table(cells.head, cells.rows))


def _refusals(reasons: Counter[str]) -> dict[str, object] | str:
    if not reasons:
        return "No device has refused."
    counts = dict(reasons.most_common())
    return charts.bars(list(counts), list(counts.values()), "reason", "refusals", 1)


def _why_idle(now: Snapshot) -> str:
    if now.run is None:
        return _IDLE
    if not now.run.unfinished:
        return _DONE
    return _SIMULATED if now.run.fleet.startswith("simulated") else _IDLE


def _words(opened: OpenRound) -> str:
    line = (
        f"Round {opened.number:,}: {opened.reports:,} of the {opened.wanted:,} reports that end it,"
    )
    line += f" from {opened.asked:,} devices asked"
    since = words.time_of(opened, time.time())
    return f"{line}, {since}" if since else line


def _table(now: Snapshot) -> str:
    rows = []
    for entry in reversed(now.history[-_LAST:]):
        began, finished = entry.get("began"), entry.get("finished")
        took = None
        if began is not None and finished is not None:
            took = words.duration(finished - began)
        rows.append(
            [
                entry["round"],
                words.moment(finished if began is None else began),
                took,
                entry.get("asked"),
                entry.get("reports"),
                entry.get("refusals"),
                breakdown(entry.get("reasons") or {}),
                entry.get("ended", ""),
            ]
        )
    head = ("round", "began", "took", "asked", "reports", "refusals", "why", "ended by")
    return table(head, rows) if rows else empty("No round has ended yet.")


def symbols_picture(now: Snapshot) -> dict[str, object] | None:
    """How often each symbol was reported.

    Card by card, since a symbol's meaning depends on its card. Classes are numbered as in the
    section Privacy.
    """
    counts_by_card = _counts_by_card(now.tallies)
    if not counts_by_card:
        return None
    several = len(counts_by_card) > 1
    symbols = sum(len(counts) for counts in counts_by_card.values())
    every = math.ceil(symbols / _MOST_SYMBOLS)
    class_cards = [_law(each["card"]) for each in now.run.classes] if now.run else []
    names: list[str] = []
    bars: list[int] = []
    for (card_digits, what), counts in counts_by_card.items():
        try:
            order, meanings = charts.outputs(bytes.fromhex(card_digits), what)
        except UsageError:
            return None
        classes = [str(i) for i, law in enumerate(class_cards, 1) if law == card_digits]
        prefix = f"{', '.join(classes) or '–'}: " if several else ""
        for start in range(0, len(order), every):
            names.append(prefix + meanings[start])
            bars.append(sum(counts[symbol] for symbol in order[start : start + every]))
    unit = "class: reported" if several else "reported"
    if every > 1:
        unit += f", {every} outputs together"
    return charts.bars(names, bars, unit, "values", 3)


def _counts_by_card(tallies: Iterable[TallyView]) -> dict[tuple[str, str], list[int]]:
    """By card and what its symbols stand for, how often each symbol was reported."""
    counts_by_card: dict[tuple[str, str], list[int]] = {}
    for tally in tallies:
        key = _law(tally.card), tally.what
        counts = counts_by_card.setdefault(key, [0] * len(tally.symbols))
        for symbol, count in enumerate(tally.symbols):
            counts[symbol] += count
    return counts_by_card


def _law(card: str) -> str:
    """The card (hex) with the law of its symbols.

    Projections differ by round in their radius: here it is 1.
    """
    data = bytearray.fromhex(card)
    if decode(data).shape == PROJECTION:
        data[-2:] = b"\1\0"
    return data.hex()
