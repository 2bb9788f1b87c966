"""The section Privacy: the epsilon spent by class of devices, and the card of their reports."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from nicegui import ui

from ternhost.errors import UsageError
from ternhost.privacy.guarantee import rounded
from ternhost.run.guarantees import ClassGuarantees
from ternhost.store.boards import BoardRow
from ternhost.store.snapshot import DIRECTION, LABEL, VALUE, Snapshot
from ternhost.text import as_html, counted
from ternhost.watch import curves, words
from ternhost.watch.fleet_view import allowance, budgets, delta_of, heard_within_a_day
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
            with card("What is promised", wide=True) as self._promises_box:
                self._promises = Html()
            with card("What a device pays", wide=True):
                self._account = Html()
                self._classes = Html()
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
        promises = guarantees_table(snapshot)
        self._promises.set(promises)
        self._promises_box.set_visibility(bool(promises))
        self._account.set(account_table(snapshot))

        # The choice of a class, and its card.
        options = {}
        for index, device_class in enumerate(classes):
            options[index] = f"class {index + 1}, epsilon {rounded(device_class['epsilon'])}"
        offer(self._which, options)
        self._controls.set_visibility(len(options) > 1)
        class_index = int(self._which.value or 0)
        card_digits, meaning = card_of_class(snapshot, class_index)
        names = snapshot.run.class_names if snapshot.run else ()
        drawn = (card_digits, meaning, names)
        self._card.set(drawn, partial(_draw, *drawn))


def card_of_class(snapshot: Snapshot, class_index: int) -> tuple[str, str]:
    """Return the card of a class of devices, in hex digits, and what its symbols stand for.

    If the classes of the run are not known, it is the first card of the last round's reports; before
    any report the card is "".
    """
    meanings = _meanings_of_reported_cards(snapshot)
    run = snapshot.run
    if run is None or not run.classes:
        no_card = ("", VALUE)
        return next(iter(meanings.items()), no_card)

    device_class = run.classes[class_index]
    card_digits = device_class["card"]
    meaning = meanings.get(card_digits)
    if meaning is None:  # there is no report by this card yet
        meaning = _expected_meaning(run.algorithm, device_class["mechanism"])
    return card_digits, meaning


def _meanings_of_reported_cards(snapshot: Snapshot) -> dict[str, str]:
    """Return what the symbols of each card stand for, from the counts of the last round.

    The cards are in hex digits, in the order of the counts.
    """
    meanings: dict[str, str] = {}
    for tally in snapshot.tallies:
        # The picture of a card shows directions of gradients as it shows values.
        meanings[tally.card] = VALUE if tally.what == DIRECTION else tally.what
    return meanings


def _expected_meaning(algorithm: str, mechanism: str) -> str:
    """Return what the symbols of a card will stand for in a run that has no reports by it yet."""
    reports_labels = algorithm == "infer" and mechanism == "grr"
    return LABEL if reports_labels else VALUE


def _draw(card_digits: str, meaning: str, classes: tuple[str, ...]) -> dict[str, Any] | str:
    """Draw the distribution of a card's outputs, or return a message if there is no card to draw.

    card_digits: the card in hex digits; "" if none is known. meaning, classes: what its symbols stand for.
    """
    no_card = "No card is known yet."
    if not card_digits:
        return no_card
    try:
        return charts.card(bytes.fromhex(card_digits), meaning, classes)
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
    headings = (
        "class",
        "share of devices",
        "epsilon a report",
        f"epsilon {words.rounds_of_epsilon_run(run)}",
        "spent so far, mean",
        "mechanism",
        "values a report",
        "levels",
        "card",
    )
    scope = _line(f"Each epsilon here is that of {words.scope_of(run)}.")
    return scope + table(headings, rows)


def _line(text: str) -> str:
    """Return the HTML of a line of explanation."""
    return f"<p class=soft>{as_html(text)}</p>"


def guarantees_table(snapshot: Snapshot) -> str:
    """Return an HTML table of what is promised to devices; "" without a run."""
    run = snapshot.run
    if run is None:
        return ""
    rows: list[tuple[str, str]] = []
    for guarantees in run.guarantees:
        of_class = ClassGuarantees.from_json(guarantees)
        rows.append((of_class.report.words(), of_class.report.against))
        if run.is_endless:
            rows.append((words.ENDLESS, of_class.report.against))
            continue
        for guarantee_words in of_class.words():
            rows.append((guarantee_words, of_class.run.against))
    return table(("promise", "against"), rows)


def account_table(snapshot: Snapshot) -> str:
    """Return an HTML table of what devices have spent, may spend in their life, and have left.

    It is "" without a run and without boards.
    """
    run = snapshot.run
    rows: list[tuple[str, str | None, str]] = []
    spent = curves.spent(snapshot)
    if run is not None and spent is not None:
        source = f"by {snapshot.accepted:,} accepted reports; {words.scope_of(run)}"
        rows.append(("spent in this run, mean of devices", rounded(spent), source))

    # A ledger is believed before an option of the run: a board refuses by its own ledger.
    heard = heard_within_a_day(snapshot.boards, snapshot.read)
    allowances = sorted(total for total in map(allowance, heard) if total is not None)
    budget_option = None if run is None else run.options.get("budget")
    name = "allowance in a device's life"
    if allowances:
        amount = f"{allowances[0]:.4g}"
        if allowances[-1] != allowances[0]:
            amount += f" to {allowances[-1]:.4g}"
        source = f"by the ledgers of {counted(len(allowances), 'board')}; {_scopes(heard)}"
        rows.append((name, amount, source))
    elif budget_option:
        rows.append((name, str(budget_option), "by the option --budget of this run"))
    elif run is not None:
        rows.append((name, None, "no board tells it, and the run has no option --budget"))

    budgets_left = budgets(snapshot.boards, snapshot.read)  # in ascending order
    if budgets_left:
        median = budgets_left[len(budgets_left) // 2]
        source = (
            "as the boards said when they connected, less the cost of their reports since; half of "
        )
        source += f"{counted(len(budgets_left), 'board')} have {median:.4g} or more"
        rows.append(("left on the board with the least", f"{budgets_left[0]:.4g}", source))
    return table(("account", "epsilon", "how this is known"), rows) if rows else ""


def _scopes(boards: Sequence[BoardRow]) -> str:
    """Return what the ledgers of boards protect, and at which delta, each combination once."""
    scopes = {words.scope(board.unit, delta_of(board)) for board in boards if board.hello}
    return ", or ".join(sorted(scopes))
