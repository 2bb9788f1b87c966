"""The section Privacy: the epsilon spent by class of devices, and the card of their reports."""

from typing import Any

from nicegui import ui

from ternhost.errors import UsageError
from ternhost.privacy.guarantee import rounded
from ternhost.run.guarantees import ClassGuarantees
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
        """Make the tables of costs and guarantees, and the picture of a card."""
        with cards():
            with card("What the run costs a device", wide=True):
                self._classes = Html()
                self._lines = Html()
            with card("The card", wide=True):
                ui.label(_CARD).classes("soft")
                with ui.element("div").classes("controls") as self._controls:
                    self._which = toggle("class", lambda: self.show(self.live.now))
                self._card = Chart("distribution of the card's outputs")

    def show(self, snapshot: Snapshot) -> None:
        """Show the costs, the guarantees and the card of the chosen class of devices."""
        classes = snapshot.run.classes if snapshot.run else ()
        if classes:
            self._classes.set(classes_table(snapshot))
        else:
            self._classes.set(empty(_UNKNOWN if snapshot.run else "No run yet."))
        self._lines.set(guarantees_table(snapshot))
        options = {}
        for index, device_class in enumerate(classes):
            options[index] = f"class {index + 1}, epsilon {rounded(device_class['epsilon'])}"
        offer(self._which, options)
        self._controls.set_visibility(len(options) > 1)
        card_digits, meaning = card_of_class(snapshot, int(self._which.value or 0))
        self._card.set(
            (card_digits, meaning), lambda: _draw(card_digits, meaning) or "No card is known yet."
        )


def card_of_class(snapshot: Snapshot, class_index: int) -> tuple[str, str]:
    """Return the card of a class of devices, in hex, and what its symbols stand for.

    Before the first round the meaning of the symbols follows from algorithm and mechanism.
    """
    meanings: dict[str, str] = {}
    for tally in snapshot.tallies:
        meanings[tally.card] = VALUE if tally.what == DIRECTION else tally.what
    if snapshot.run is None or not snapshot.run.classes:
        # Without classes, the card of any report so far, or none.
        return next(iter(meanings.items()), ("", VALUE))
    device_class = snapshot.run.classes[class_index]
    sends_labels = snapshot.run.algorithm == "infer" and device_class["mechanism"] == "grr"
    before_first_round = LABEL if sends_labels else VALUE
    return device_class["card"], meanings.get(device_class["card"], before_first_round)


def _draw(data: str, what: str) -> dict[str, Any] | None:
    try:
        return charts.card(bytes.fromhex(data), what) if data else None
    except UsageError:
        return None


def classes_table(snapshot: Snapshot) -> str:
    """Return an HTML table of the costs of each class of devices, and of the design of its card."""
    run = snapshot.run
    assert run is not None
    rows = []
    spent_by_class = curves.spent_by_class(snapshot)
    for number, (device_class, spent) in enumerate(
        zip(run.classes, spent_by_class, strict=True), 1
    ):
        rows.append(
            [
                number,
                f"{100 * device_class['share']:.3g} %",
                rounded(float(device_class["epsilon_per_report"])),
                rounded(float(device_class["epsilon_run"])),
                None if spent is None else rounded(spent),
                device_class["mechanism"],
                device_class["k"],
                device_class["levels"],
                device_class["card_hash"],
            ]
        )
    epsilon = words.epsilon_of(run)
    headings = (
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
    return table(headings, rows)


def guarantees_table(snapshot: Snapshot) -> str:
    """Return an HTML table of what is guaranteed to devices, what they have spent and what is left."""
    run = snapshot.run
    if run is None:
        return ""
    rows: list[tuple[str, Any]] = []
    for guarantees in run.guarantees:
        of_class = ClassGuarantees.from_json(guarantees)
        rows.append((of_class.report.words(), f"against {of_class.report.against}"))
        for guarantee_words in of_class.words():
            rows.append((guarantee_words, f"against {of_class.run.against}"))
    spent = curves.spent(snapshot)
    if spent is not None:
        so_far = f"spent in this run, mean of devices: {words.epsilon_of(run)} {rounded(spent)}"
        rows.append((so_far, f"by {snapshot.accepted:,} accepted reports"))
    allowed = run.options.get("budget")
    source = "--budget" if allowed else "no --budget was named"
    rows.append((f"allowed in the life of a device: {allowed or '–'}", source))
    budgets_left = budgets(snapshot.boards, snapshot.read)
    if budgets_left:
        median = budgets_left[len(budgets_left) // 2]
        explanation = (
            f"as boards said, less their reports since; half of {len(budgets_left):,} heard within a day "
            f"have {median:.4g} or more"
        )
        rows.append((f"left on the board with the least: {budgets_left[0]:.4g}", explanation))
    return "<p></p>" + table(("guarantee or account", "that is"), rows)
