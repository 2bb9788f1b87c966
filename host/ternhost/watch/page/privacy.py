"""The section Privacy: the epsilon spent by class of devices, and the card of their reports."""

from typing import Any

from nicegui import ui

from ternhost.errors import UsageError
from ternhost.privacy.guarantee import rounded
from ternhost.run.guarantees import OfClass
from ternhost.store.snapshot import DIRECTION, LABEL, VALUE, Snapshot
from ternhost.watch import curves, words
from ternhost.watch.fleet_view import budgets
from ternhost.watch.page import charts
from ternhost.watch.page.elements import (
    Chart,
    Html,
    Section,
    card,
    cards,
    empty,
    offer,
    table,
    toggle,
)

_UNKNOWN = "The classes of this run are not known yet."
_CARD = (
    "The exact distribution of reports, from the integers that the devices use. Each device proves the epsilon of a"
    " card before it uses it."
)


class PrivacySection(Section):
    """By class; the card of one of them is drawn."""

    def build(self) -> None:
        with cards():
            with card("What the run costs a device", wide=True):
                self._classes = Html()
                self._lines = Html()
            with card("The card", wide=True):
                ui.label(_CARD).classes("soft")
                with ui.element("div").classes("controls") as self._controls:
                    self._which = toggle("class", lambda: self.show(self.live.now))
                self._card = Chart("distribution of the card's outputs")

    def show(self, now: Snapshot) -> None:
        classes = now.run.classes if now.run else ()
        self._classes.set(_table(now) if classes else empty(_UNKNOWN if now.run else "No run yet."))
        self._lines.set(_lines(now))
        options = {
            i: f"class {i + 1}, epsilon {rounded(each['epsilon'])}"
            for i, each in enumerate(classes)
        }
        offer(self._which, options)
        self._controls.set_visibility(len(options) > 1)
        data, what = _card(now, int(self._which.value or 0))
        self._card.set((data, what), lambda: _draw(data, what) or "No card is known yet.")


def _card(now: Snapshot, of_class: int) -> tuple[str, str]:
    """The card of a class of devices, in hex, and what its symbols stand for."""
    meanings = {each.card: VALUE if each.what == DIRECTION else each.what for each in now.tallies}
    if now.run is None or not now.run.classes:
        return next(iter(meanings.items()), ("", VALUE))
    device_class = now.run.classes[of_class]
    labels = now.run.algorithm == "infer" and device_class["mechanism"] == "grr"
    return device_class["card"], meanings.get(device_class["card"], LABEL if labels else VALUE)


def _draw(data: str, what: str) -> dict[str, Any] | None:
    try:
        return charts.card(bytes.fromhex(data), what) if data else None
    except UsageError:
        return None


def _table(now: Snapshot) -> str:
    run = now.run
    assert run is not None
    rows = []
    for i, (of_class, spent) in enumerate(
        zip(run.classes, curves.spent_by_class(now), strict=True), 1
    ):
        costs = [rounded(float(of_class[name])) for name in ("epsilon_per_report", "epsilon_run")]
        design = [of_class[name] for name in ("mechanism", "k", "levels", "card_hash")]
        so_far = None if spent is None else rounded(spent)
        rows.append([i, f"{100 * of_class['share']:.3g} %", *costs, so_far, *design])
    epsilon = words.epsilon_of(run)
    head = (
        "class",
        "share of devices",
        f"{epsilon}, a report",
        f"{epsilon}, {words.reckoned(run)}",
        "spent so far, mean",
        "mechanism",
        "values a report",
        "levels",
        "card",
    )
    return table(head, rows)


def _lines(now: Snapshot) -> str:
    run = now.run
    if run is None:
        return ""
    rows: list[tuple[str, Any]] = []
    for each in map(OfClass.from_json, run.guarantees):
        rows.append((each.report.words(), f"against {each.report.against}"))
        rows += [(line, f"against {each.run.against}") for line in each.words()]
    if (spent := curves.spent(now)) is not None:
        so_far = f"spent in this run, mean of devices: {words.epsilon_of(run)} {rounded(spent)}"
        rows.append((so_far, f"by {now.accepted:,} accepted reports"))
    allowed = run.options.get("budget")
    named = "--budget" if allowed else "no --budget was named"
    rows.append((f"allowed in the life of a device: {allowed or '–'}", named))
    if left := budgets(now.boards, now.read):
        half = left[len(left) // 2]
        middle = (
            f"as boards said, less their reports since; half of {len(left):,} heard within a day"
        )
        middle += f" have {half:.4g} or more"
        rows.append((f"left on the board with the least: {left[0]:.4g}", middle))
    return "<p></p>" + table(("guarantee or account", "that is"), rows)
