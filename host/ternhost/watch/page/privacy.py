"""The section Privacy: the epsilon spent by class of devices, and the card of their reports."""

from functools import partial
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
    """The section Privacy: costs by class of devices, guarantees, and the card of one class.

    Devices of a class have the same epsilon and the same card, the table from which they sample
    their reports.
    """

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
        # The tables.
        classes = snapshot.run.classes if snapshot.run else ()
        if classes:
            self._classes.set(classes_table(snapshot))
        elif snapshot.run is not None:
            self._classes.set(empty(_UNKNOWN))
        else:
            self._classes.set(empty("No run yet."))
        self._lines.set(guarantees_table(snapshot))

        # The choice of a class, and its card.
        options = {}
        for index, device_class in enumerate(classes):
            options[index] = f"class {index + 1}, epsilon {rounded(device_class['epsilon'])}"
        offer(self._which, options)
        self._controls.set_visibility(len(options) > 1)
        class_index = int(self._which.value or 0)
        card_digits, meaning = card_of_class(snapshot, class_index)
        self._card.set((card_digits, meaning), partial(_draw, card_digits, meaning))


def card_of_class(snapshot: Snapshot, class_index: int) -> tuple[str, str]:
    """Return the card of a class of devices, in hex digits, and what its symbols stand for.

    The meaning of the symbols is known from the counts of the last round; before the first round it
    follows from the algorithm and the mechanism. Without classes, the card is that of any report so
    far, or "".
    """
    meaning_of_card: dict[str, str] = {}
    for tally in snapshot.tallies:
        meaning_of_card[tally.card] = VALUE if tally.what == DIRECTION else tally.what
    if snapshot.run is None or not snapshot.run.classes:
        for card_digits, meaning in meaning_of_card.items():
            return card_digits, meaning
        return "", VALUE

    device_class = snapshot.run.classes[class_index]
    card_digits = device_class["card"]
    if card_digits in meaning_of_card:
        return card_digits, meaning_of_card[card_digits]
    reports_labels = snapshot.run.algorithm == "infer" and device_class["mechanism"] == "grr"
    return card_digits, LABEL if reports_labels else VALUE


def _draw(card_digits: str, meaning: str) -> dict[str, Any] | str:
    """Draw the distribution of a card's outputs, or return a message if there is no card to draw.

    card_digits: the card in hex digits; "" if none is known. meaning: what its symbols stand for.
    """
    no_card = "No card is known yet."
    if not card_digits:
        return no_card
    try:
        return charts.card(bytes.fromhex(card_digits), meaning)
    except UsageError:  # a card of another version
        return no_card


def classes_table(snapshot: Snapshot) -> str:
    """Return an HTML table of the costs of each class of devices, and of the design of its card."""
    run = snapshot.run
    assert run is not None
    rows: list[list[Any]] = []
    for device_class, spent in zip(run.classes, curves.spent_by_class(snapshot), strict=True):
        rows.append(
            [
                len(rows) + 1,  # its number
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
        f"{epsilon}, {words.rounds_of_epsilon_run(run)}",
        "spent so far, mean",
        "mechanism",
        "values a report",
        "levels",
        "card",
    )
    return table(headings, rows)


def guarantees_table(snapshot: Snapshot) -> str:
    """Return an HTML table of what is guaranteed to devices, what they have spent and what is left.

    It is "" without a run.
    """
    run = snapshot.run
    if run is None:
        return ""
    rows: list[tuple[str, Any]] = []

    # What is guaranteed to each class of devices.
    for guarantees in run.guarantees:
        of_class = ClassGuarantees.from_json(guarantees)
        rows.append((of_class.report.words(), f"against {of_class.report.against}"))
        for guarantee_words in of_class.words():
            rows.append((guarantee_words, f"against {of_class.run.against}"))

    # What they have spent, may spend, and have left.
    spent = curves.spent(snapshot)
    if spent is not None:
        so_far = f"spent in this run, mean of devices: {words.epsilon_of(run)} {rounded(spent)}"
        rows.append((so_far, f"by {snapshot.accepted:,} accepted reports"))
    allowed = run.options.get("budget")
    if allowed:
        rows.append((f"allowed in the life of a device: {allowed}", "--budget"))
    else:
        rows.append(("allowed in the life of a device: –", "no --budget was named"))
    budgets_left = budgets(snapshot.boards, snapshot.read)  # in ascending order
    if budgets_left:
        median = budgets_left[len(budgets_left) // 2]
        explanation = (
            f"as boards said, less their reports since; half of {len(budgets_left):,} heard within a day "
            f"have {median:.4g} or more"
        )
        rows.append((f"left on the board with the least: {budgets_left[0]:.4g}", explanation))
    return "<p></p>" + table(("guarantee or account", "that is"), rows)
