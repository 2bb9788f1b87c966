"""The section Round: the open round and the last ones, and the tables of extensions."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from nicegui import ui

from tern.card import PROJECTION, decode
from ternhost.errors import UsageError
from ternhost.extensions import EXTENSIONS, View
from ternhost.store.snapshot import OpenRound, Snapshot, TallyView
from ternhost.text import counted
from ternhost.watch import curves, words
from ternhost.watch.page import charts
from ternhost.watch.page.elements import Chart, Html, Section, card, cards, empty, picture, table
from ternhost.watch.summary import breakdown

_LAST = 12  # rounds in the table
_SUMMED = 1000  # the last rounds whose refusals are counted
_MOST_BARS = 64  # of the picture of symbols
_SYMBOLS = "How often the devices reported each output of their card. The counts are noisy: that is what protects."
_IDLE = "No round is open. `tern serve` opens the next one when its time has come."
_DONE = "The run has ended: no round is under way."
_NO_RUN = "No run has begun: no round is under way."
_SIMULATED = "Simulated devices answer at once: their rounds are shown when they have ended."


class RoundsSection(Section):
    """The section Round: the open round, the last rounds, and what extensions show of them."""

    def build(self) -> None:
        """Make the boxes of the open round, the last rounds, refusals, symbols and extensions."""
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
            self._symbols = picture("What was reported in the last round", _SYMBOLS)
            self._extensions = {}
            for name, extension in EXTENSIONS.items():
                if extension.title:
                    self._extensions[name] = _ExtensionCard(extension.title)

    def show(self, snapshot: Snapshot) -> None:
        """Show the open round, the last rounds, the refusals and the symbols of a snapshot."""
        open_round = snapshot.open[-1] if snapshot.open else None
        self._show_arrivals(open_round)
        self._idle.set("" if open_round else empty(_why_idle(snapshot)))
        self._table.set(last_rounds_table(snapshot))

        # Pictures are drawn again only if their key has changed.
        refusals = curves.refusals_by_reason(snapshot.history[-_SUMMED:])
        self._reasons.set(tuple(refusals.items()), partial(_refusals_picture, refusals))
        run_name = None if snapshot.run is None else snapshot.run.name
        key = (run_name, len(snapshot.history))
        self._symbols.set(key, partial(symbols_picture, snapshot))

        is_open = open_round is not None
        for name, extension_card in self._extensions.items():
            extension_card.show(snapshot.views.get(name), is_open)
        self.tick(snapshot)

    def _show_arrivals(self, open_round: OpenRound | None) -> None:
        """Show how many reports of the open round have arrived, as a bar and as a curve."""
        self._bar.set_visibility(open_round is not None)
        if open_round is not None:
            reports = min(open_round.reports, open_round.wanted)
            self._bar.props(f"max={max(1, open_round.wanted)} value={reports}")
        arrivals = tuple(self.live.arrivals)

        def draw() -> dict[str, object] | str:
            """Return the curve of arriving reports; "" if it would have only one point."""
            if open_round is None or len(arrivals) < 2:
                return ""
            return charts.arriving(arrivals, open_round.wanted)

        number = None if open_round is None else open_round.number
        last_arrival = arrivals[-1] if arrivals else None
        self._arriving.set((number, len(arrivals), last_arrival), draw)

    def tick(self, now: Snapshot) -> None:
        """Update the line about the open round, in which the time goes on."""
        open_round = now.open[-1] if now.open else None
        self._line.set_visibility(open_round is not None)
        self._line.text = "" if open_round is None else _words(open_round)


class _ExtensionCard:
    """A box with the table of an extension under its title, hidden while there is no table."""

    def __init__(self, title: str) -> None:
        """Make the box."""
        with card(title, wide=True) as self._box:
            self._table = Html()

    def show(self, view: View | None, is_open: bool) -> None:
        """Show the table of an extension, or hide the box.

        view: what the extension shows of the store; None: nothing. is_open: a round is under way.
        """
        contents = None if view is None else view.table(is_open)
        if contents is None:
            self._box.set_visibility(False)
            self._table.set("")
            return
        self._box.set_visibility(True)
        self._table.set(table(contents.head, contents.rows))


def _refusals_picture(refusals: Counter[str]) -> dict[str, object] | str:
    """Draw a bar for each reason of refusals, the most frequent one first, or say there is none."""
    if not refusals:
        return "No device has refused."
    counts = dict(refusals.most_common())
    return charts.bars(
        names=list(counts),
        values=list(counts.values()),
        x_name="reason",
        y_name="refusals",
        colour=1,
    )


def _why_idle(snapshot: Snapshot) -> str:
    """Return the message that stands in place of an open round: why there is none."""
    if snapshot.run is None:
        return _NO_RUN
    if not snapshot.run.unfinished:
        return _DONE
    is_simulated = snapshot.run.fleet.startswith("simulated")
    return _SIMULATED if is_simulated else _IDLE


def _words(open_round: OpenRound) -> str:
    """Describe the open round in one sentence: its reports, its devices and its time."""
    line = f"Round {open_round.number:,}: {open_round.reports:,} of {counted(open_round.wanted, 'report')} that end it,"
    line += f" from {counted(open_round.asked, 'device')} asked"
    open_time = words.time_of(open_round, time.time())
    return f"{line}, {open_time}" if open_time else line


def last_rounds_table(snapshot: Snapshot) -> str:
    """Return an HTML table of the last rounds, the newest first."""
    bound_name = curves.bound_name(snapshot.history)
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
                _refusals(entry),
                _bound(snapshot, entry, bound_name),
                entry.get("ended", ""),
            ]
        )
    bound_heading = "radius" if bound_name == curves.RADIUS else "range"
    headings = (
        "round",
        "began",
        "took",
        "asked",
        "reports",
        "refusals",
        bound_heading,
        "ended by",
    )
    return table(headings, rows) if rows else empty("No round has ended yet.")


def _refusals(entry: Mapping[str, Any]) -> int | str | None:
    """Return how many devices refused in a round, and by which reasons if that is known."""
    count = entry.get("refusals")
    reasons = breakdown(entry.get("reasons") or {})
    if not reasons:
        return count
    return f"{count} ({reasons})"


def _bound(snapshot: Snapshot, entry: Mapping[str, Any], name: str) -> str | None:
    """Return the bound to which devices clipped in a round, in words; None if nothing is clipped.

    entry: the round in the history. name: of the bound there. A round without it has the bounds of
    its classes of devices, which stay the same for the whole run.
    """
    if name in entry:
        return f"{entry[name]:.4g}"
    classes = snapshot.run.classes if snapshot.run else ()
    bounds = [device_class["tau"] for device_class in classes if device_class.get("tau")]
    return ", ".join(f"{bound:g}" for bound in dict.fromkeys(bounds)) or None


def symbols_picture(now: Snapshot) -> dict[str, object] | str:
    """Draw how often each symbol was reported in the last round, or say that there is no report.

    A card is the table from which devices sample their symbols. There may be several, and what a
    symbol means depends on its card, so the bars of each card stand together. They begin with the
    classes of devices that use the card, numbered as in the section Privacy.
    """
    no_report = "No report yet, in the last round."
    counts_by_card = _counts_by_card(now.tallies)
    if not counts_by_card:
        return no_report
    has_several_cards = len(counts_by_card) > 1
    symbol_count = sum(len(counts) for counts in counts_by_card.values())
    group_size = math.ceil(symbol_count / _MOST_BARS)  # how many symbols share a bar

    classes = now.run.class_names if now.run else ()
    names: list[str] = []
    heights: list[int] = []
    for (card_digits, meaning), counts in counts_by_card.items():
        try:
            order, symbol_names = charts.outputs(bytes.fromhex(card_digits), meaning, classes)
        except UsageError:  # a card of another version
            return no_report
        prefix = ""
        if has_several_cards:
            prefix = f"{_classes_with(now, card_digits)}: "
        for start in range(0, len(order), group_size):
            symbols_of_bar = order[start : start + group_size]
            names.append(prefix + symbol_names[start])
            heights.append(sum(counts[symbol] for symbol in symbols_of_bar))

    x_name = "class: reported" if has_several_cards else "reported"
    if group_size > 1:
        x_name += f", {group_size} outputs together"
    return charts.bars(names, heights, x_name=x_name, y_name="values", colour=3)


def _classes_with(now: Snapshot, card_digits: str) -> str:
    """Return the numbers of the classes of devices that use a card, such as "1, 2".

    card_digits: from `_card_of_law`. The result is "–" if no class uses it.
    """
    numbers = []
    classes = now.run.classes if now.run else ()
    for number, device_class in enumerate(classes, 1):
        if _card_of_law(device_class["card"]) == card_digits:
            numbers.append(str(number))
    return ", ".join(numbers) or "–"


def _counts_by_card(tallies: Iterable[TallyView]) -> dict[tuple[str, str], list[int]]:
    """Add up how often each symbol was reported, by its card and by what it stands for.

    tallies: the counts of devices with the same question. Several questions may have the same card.
    """
    counts_by_card: dict[tuple[str, str], list[int]] = {}
    for tally in tallies:
        card_and_meaning = (_card_of_law(tally.card), tally.what)
        if card_and_meaning not in counts_by_card:
            counts_by_card[card_and_meaning] = [0] * len(tally.symbols)
        counts = counts_by_card[card_and_meaning]
        for symbol, count in enumerate(tally.symbols):
            counts[symbol] += count
    return counts_by_card


def _card_of_law(card_digits: str) -> str:
    """Return one and the same card for all cards whose symbols have the same probabilities.

    Cards of projections differ from round to round in the radius to which vectors are clipped, their
    last two bytes, little-endian. It is set to 1. card_digits: in hex digits, as is the result.
    """
    data = bytearray.fromhex(card_digits)
    if decode(data).shape == PROJECTION:
        data[-2:] = b"\1\0"
    return data.hex()
