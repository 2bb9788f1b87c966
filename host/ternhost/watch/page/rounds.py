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
        """Make the cards of the open round, the last rounds, refusals, symbols and extensions."""
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

    def show(self, snapshot: Snapshot) -> None:
        """Show the open round, the last rounds and the refusals of a snapshot."""
        open_round = snapshot.open[-1] if snapshot.open else None
        self._show_arrivals(open_round)
        self._idle.set("" if open_round else empty(_why_idle(snapshot)))
        self._table.set(_table(snapshot))
        reasons = curves.refusals_by_reason(snapshot.history[-_SUMMED:])
        self._reasons.set(tuple(reasons.items()), lambda: _refusals(reasons))
        key = snapshot.run and snapshot.run.name, len(snapshot.history)
        self._symbols.set(
            key, lambda: symbols_picture(snapshot) or "No report yet, in the last round."
        )
        for name, extension_card in self._extensions.items():
            extension_card.show(snapshot.views.get(name), bool(snapshot.open))
        self.tick(snapshot)

    def _show_arrivals(self, open_round: OpenRound | None) -> None:
        """Show how many reports of the open round have arrived, as a bar and as a curve."""
        self._bar.set_visibility(open_round is not None)
        if open_round is not None:
            reports = min(open_round.reports, open_round.wanted)
            self._bar.props(f"max={max(1, open_round.wanted)} value={reports}")
        arrivals = tuple(self.live.arrivals)

        def draw() -> dict[str, object] | str:
            if open_round is None or len(arrivals) < 2:
                return ""
            return charts.arriving(arrivals, open_round.wanted)

        number = None if open_round is None else open_round.number
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


def _why_idle(snapshot: Snapshot) -> str:
    """Return the message that stands in place of an open round."""
    if snapshot.run is None:
        return _IDLE
    if not snapshot.run.unfinished:
        return _DONE
    return _SIMULATED if snapshot.run.fleet.startswith("simulated") else _IDLE


def _words(open_round: OpenRound) -> str:
    """Describe the open round in one sentence: its reports, its devices and its time."""
    line = f"Round {open_round.number:,}: {open_round.reports:,} of the {open_round.wanted:,} reports that end it,"
    line += f" from {open_round.asked:,} devices asked"
    open_time = words.time_of(open_round, time.time())
    return f"{line}, {open_time}" if open_time else line


def _table(snapshot: Snapshot) -> str:
    """Return an HTML table of the last rounds, the newest first."""
    rows = []
    for entry in reversed(snapshot.history[-_LAST:]):
        began, finished = entry.get("began"), entry.get("finished")
        duration = None
        if began is not None and finished is not None:
            duration = words.duration(finished - began)
        rows.append(
            [
                entry["round"],
                words.moment(finished if began is None else began),
                duration,
                entry.get("asked"),
                entry.get("reports"),
                entry.get("refusals"),
                breakdown(entry.get("reasons") or {}),
                entry.get("ended", ""),
            ]
        )
    headings = ("round", "began", "took", "asked", "reports", "refusals", "why", "ended by")
    return table(headings, rows) if rows else empty("No round has ended yet.")


def symbols_picture(now: Snapshot) -> dict[str, object] | None:
    """Draw how often each symbol was reported in the last round.

    The bars are grouped by card, since a symbol's meaning depends on its card. Classes are numbered
    as in the section Privacy. Returns None if there is no report, or a card cannot be drawn.
    """
    counts_by_card = _counts_by_card(now.tallies)
    if not counts_by_card:
        return None
    symbol_count = sum(len(counts) for counts in counts_by_card.values())
    group_size = math.ceil(symbol_count / _MOST_SYMBOLS)  # outputs that share a bar
    names: list[str] = []
    bars: list[int] = []
    for (card_digits, meaning), counts in counts_by_card.items():
        try:
            order, symbol_names = charts.outputs(bytes.fromhex(card_digits), meaning)
        except UsageError:
            return None
        prefix = ""
        if len(counts_by_card) > 1:
            prefix = f"{_classes_with(now, card_digits)}: "
        for start in range(0, len(order), group_size):
            group = order[start : start + group_size]
            names.append(prefix + symbol_names[start])
            bars.append(sum(counts[symbol] for symbol in group))
    x_name = "class: reported" if len(counts_by_card) > 1 else "reported"
    if group_size > 1:
        x_name += f", {group_size} outputs together"
    return charts.bars(names, bars, x_name, "values", 3)


def _classes_with(now: Snapshot, card_digits: str) -> str:
    """Return the numbers of the classes of devices that use a card, such as "1, 2"."""
    numbers = []
    classes = now.run.classes if now.run else ()
    for number, device_class in enumerate(classes, 1):
        if _law(device_class["card"]) == card_digits:
            numbers.append(str(number))
    return ", ".join(numbers) or "–"


def _counts_by_card(tallies: Iterable[TallyView]) -> dict[tuple[str, str], list[int]]:
    """Add up how often each symbol was reported, by card and what its symbols stand for."""
    counts_by_card: dict[tuple[str, str], list[int]] = {}
    for tally in tallies:
        key = _law(tally.card), tally.what
        counts = counts_by_card.setdefault(key, [0] * len(tally.symbols))
        for symbol, count in enumerate(tally.symbols):
            counts[symbol] += count
    return counts_by_card


def _law(card: str) -> str:
    """Return a card (hex) without what differs between cards with the same law of symbols.

    Projections differ from round to round in their radius, the last two bytes: here it is 1.
    """
    data = bytearray.fromhex(card)
    if decode(data).shape == PROJECTION:
        data[-2:] = b"\1\0"
    return data.hex()
