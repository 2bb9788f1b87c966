"""The section Round: arriving reports, refusals and symbols of the open round and the last ones, and
the tables of extensions.
"""

import time
from collections import Counter

from nicegui import ui

from tern.card import PROJECTION, decode
from ternhost.errors import UsageError
from ternhost.extensions import EXTENSIONS, View
from ternhost.store.snapshot import OpenRound, Snapshot
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
        self._bar.set_visibility(opened is not None)
        if opened is not None:
            self._bar.props(
                f"max={max(1, opened.wanted)} value={min(opened.reports, opened.wanted)}"
            )
        arrivals = tuple(self.live.arrivals)
        self._arriving.set(
            (opened and opened.number, len(arrivals), arrivals[-1:]),
            lambda: (
                charts.arriving(arrivals, opened.wanted) if opened and len(arrivals) > 1 else ""
            ),
        )
        self._idle.set("" if opened else empty(_why_idle(now)))
        self._table.set(_table(now))
        reasons = curves.reasons(now.history[-_SUMMED:])
        self._reasons.set(
            tuple(reasons.items()), lambda: _refusals(reasons) or "No device has refused."
        )
        key = now.run and now.run.name, len(now.history)
        self._symbols.set(key, lambda: _symbols(now) or "No report yet, in the last round.")
        for name, box in self._extensions.items():
            box.show(now.views.get(name), bool(now.open))
        self.tick(now)

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


def _refusals(reasons: Counter[str]) -> dict[str, object] | None:
    counts = dict(reasons.most_common())
    return charts.bars([*counts], [*counts.values()], "reason", "refusals", 1) if counts else None


def _why_idle(now: Snapshot) -> str:
    if now.run is not None and not now.run.unfinished:
        return _DONE
    return _SIMULATED if now.run is not None and now.run.fleet.startswith("simulated") else _IDLE


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
        took = None if began is None or finished is None else words.duration(finished - began)
        counts = (entry.get(name) for name in ("asked", "reports", "refusals"))
        why = breakdown(entry.get("reasons") or {})
        when = words.moment(finished if began is None else began)
        rows.append([entry["round"], when, took, *counts, why, entry.get("ended", "")])
    head = ("round", "began", "took", "asked", "reports", "refusals", "why", "ended by")
    return table(head, rows) if rows else empty("No round has ended yet.")


def _symbols(now: Snapshot) -> dict[str, object] | None:
    """How often each symbol was reported, card by card, since a symbol's meaning depends on its
    card.
    """
    by_card: dict[tuple[str, str], list[int]] = {}
    classes = [_law(each["card"]) for each in now.run.classes] if now.run else []
    for tally in now.tallies:
        key = _law(tally.card), tally.what
        before = by_card.get(key, [0] * len(tally.symbols))
        by_card[key] = [a + b for a, b in zip(before, tally.symbols, strict=True)]
    every = -(-sum(len(symbols) for symbols in by_card.values()) // _MOST_SYMBOLS)
    names, counts = [], []
    for (data, what), symbols in by_card.items():
        try:
            order, meant = charts.outputs(bytes.fromhex(data), what)
        except UsageError:
            return None
        # Numbered as in the section Privacy.
        numbers = [str(i) for i, law in enumerate(classes, 1) if law == data]
        whose = f"{', '.join(numbers) or '–'}: " if len(by_card) > 1 else ""
        names += [whose + meant[i] for i in range(0, len(order), every)]
        counts += [
            sum(symbols[j] for j in order[i : i + every]) for i in range(0, len(order), every)
        ]
    unit = ("class: " if len(by_card) > 1 else "") + "reported"
    unit += f", {every} outputs together" if every > 1 else ""
    return charts.bars(names, counts, unit, "values", 3) if by_card else None


def _law(card: str) -> str:
    """The card (hex) with the law of its symbols: of projections, which differ by round in their
    radius, one of 1.
    """
    data = bytearray.fromhex(card)
    if decode(data).shape == PROJECTION:
        data[-2:] = b"\1\0"
    return data.hex()
