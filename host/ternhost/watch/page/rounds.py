"""The section Round: arriving reports, refusals, symbols and gateways of the open round and the last ones."""

from __future__ import annotations

import time

from nicegui import ui

from ternhost.errors import UsageError
from ternhost.store.snapshot import OpenRound, Snapshot
from ternhost.watch import curves, words
from ternhost.watch.page import charts
from ternhost.watch.page.elements import Chart, Html, Section, card, cards, empty, table
from ternhost.watch.summary import breakdown

_LAST = 12  # rounds of the table
_SUMMED = 1000  # of the refusals
_MOST_SYMBOLS = 64
_IDLE = "No round is open. A served fleet begins the next one after its --interval."
_DONE = "The run has ended: no round is under way."
_SIMULATED = "A simulated fleet answers at once: its rounds are shown when they have ended."
_NO_GATEWAY = (
    "This host asks its devices itself. Gateways of other sites are listed here: `tern gateway --help`."
)


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
            with card("Refusals by reason"):
                self._why = ui.label().classes("soft")
                self._reasons = Chart("refusals by reason", "chart low")
            with card("Symbols of the last round"):
                ui.label(
                    "How often each output of the card was reported, over all coordinates, noise included."
                ).classes("soft")
                self._symbols = Chart("symbols of the last round", "chart low")
            with card("Gateways", wide=True):
                self._gateways = Html()

    def show(self, now: Snapshot) -> None:
        opened = now.open[-1] if now.open else None
        self._bar.set_visibility(opened is not None)
        if opened is not None:
            self._bar.props(f"max={max(1, opened.wanted)} value={min(opened.reports, opened.wanted)}")
        arrivals = tuple(self.live.arrivals)
        self._arriving.set(
            (opened and opened.number, len(arrivals), arrivals[-1:]),
            lambda: charts.arriving(arrivals, opened.wanted) if opened and len(arrivals) > 1 else None,
            "",
        )
        self._idle.set("" if opened else empty(_why_idle(now)))
        self._table.set(_table(now))
        self._refusals(now)
        last = now.history[-1]["round"] if now.history else None
        key = now.run and now.run.name, last
        self._symbols.set(key, lambda: _symbols(now), "No round has ended with a known count.")
        self._gateways.set(_gateways(now))
        self.tick(now)

    def tick(self, now: Snapshot) -> None:
        opened = now.open[-1] if now.open else None
        self._line.text = "" if opened is None else _words(opened)

    def _refusals(self, now: Snapshot) -> None:
        summed = now.history[-_SUMMED:]
        reasons = curves.reasons(summed)
        names = [name for name, _ in reasons.most_common()]
        self._why.text = "Of the last round." if len(summed) == 1 else f"Of the last {len(summed):,} rounds."
        counts = [reasons[name] for name in names]
        self._reasons.set(
            tuple(reasons.items()),
            lambda: charts.bars(names, counts, "reason", "refusals", 1) if names else None,
            "No device has refused.",
        )


def _why_idle(now: Snapshot) -> str:
    if now.run is not None and not now.run.unfinished:
        return _DONE
    return _SIMULATED if now.run is not None and now.run.fleet.startswith("simulated") else _IDLE


def _words(opened: OpenRound) -> str:
    line = f"Round {opened.number:,}: {opened.reports:,} of the {opened.wanted:,} reports that end it,"
    line += f" from {opened.asked:,} devices asked"
    since = words.time_of(opened, time.time())
    return f"{line}, {since}" if since else line


def _table(now: Snapshot) -> str:
    rows = []
    for entry in reversed(now.history[-_LAST:]):
        began, finished = entry.get("began"), entry.get("finished")
        rows.append(
            [
                entry["round"],
                words.moment(began if began is not None else finished),
                None if began is None or finished is None else words.duration(finished - began),
                entry.get("asked"),
                entry.get("reports"),
                entry.get("refusals"),
                breakdown(entry.get("reasons") or {}),
                entry.get("ended", ""),
            ]
        )
    head = ("round", "began", "took", "asked", "reports", "refusals", "why", "ended by")
    return table(head, rows) if rows else empty("No round has ended yet.")


def _symbols(now: Snapshot) -> dict[str, object] | None:
    """How often each symbol was reported, card by card, since a symbol's meaning depends on its card."""
    by_card: dict[tuple[str, str], list[int]] = {}
    for tally in now.tallies:
        before = by_card.get((tally.card, tally.what), [0] * len(tally.symbols))
        by_card[tally.card, tally.what] = [a + b for a, b in zip(before, tally.symbols, strict=True)]
    every = -(-sum(len(symbols) for symbols in by_card.values()) // _MOST_SYMBOLS)
    names, counts = [], []
    for (data, what), symbols in by_card.items():
        try:
            order, meant = charts.outputs(bytes.fromhex(data), what)
        except UsageError:
            return None
        whose = f"{_classes_of(now, data)}: " if len(by_card) > 1 else ""
        names += [whose + meant[i] for i in range(0, len(order), every)]
        counts += [sum(symbols[j] for j in order[i : i + every]) for i in range(0, len(order), every)]
    unit = ("class: " if len(by_card) > 1 else "") + "reported"
    unit += f", {every} outputs together" if every > 1 else ""
    return charts.bars(names, counts, unit, "values", 3) if by_card else None


def _classes_of(now: Snapshot, data: str) -> str:
    # Numbered as in the section Privacy.
    classes = now.run.classes if now.run else ()
    numbers = [str(i) for i, device_class in enumerate(classes, 1) if device_class["card"] == data]
    return ", ".join(numbers) or "–"


def _gateways(now: Snapshot) -> str:
    if not now.gateways:
        return empty(_NO_GATEWAY)
    rows = [
        [
            gateway.name,
            "online" if gateway.online else "offline",
            words.ago(gateway.heard),
            gateway.devices,
            f"{gateway.reports:,} reports{', has answered' if gateway.answered else ' so far'}"
            * bool(now.open),
            ", ".join(f"{name} {value}" for name, value in gateway.here.items()),
        ]
        for gateway in now.gateways
    ]
    return table(("gateway", "state", "last heard", "devices", "round under way", "it says"), rows)
