"""The boxes of the section Learning for a run that collects: its estimates, and distributions."""

from collections.abc import Callable
from functools import partial
from itertools import islice

from nicegui import ui

from ternhost.learn.collecting import estimate_rows
from ternhost.learn.distributions.distribution_entries import distributions_of
from ternhost.store.snapshot import Snapshot
from ternhost.text import brief
from ternhost.watch.page import charts, elements

_MOST_ROWS = 200  # of the table


class EstimateCards:
    """What a run has collected so far. The boxes are hidden while there is nothing to show."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """Make the boxes. on_change: called when the user chooses another attribute."""
        with elements.card("What was collected so far", wide=True) as self._box:
            self._table = elements.Html()
        self._pictures = []
        with elements.card("Distribution", wide=True) as box:
            self._pictures.append(box)
            self._which = ui.select({}, label="attribute", on_change=lambda: on_change())
            self._which.props("dense outlined")
        with elements.card("Histogram") as box:
            self._pictures.append(box)
            ui.label("The share of each bin, with its interval.").classes("soft")
            self._histogram = elements.Chart("histogram")
        with elements.card("Cumulative distribution") as box:
            self._pictures.append(box)
            ui.label("The share of values that are at most as large, and quantiles.").classes(
                "soft"
            )
            self._cumulative = elements.Chart("cumulative distribution")

    def show(self, snapshot: Snapshot) -> bool:
        """Show the estimates of a snapshot, or hide the boxes; return whether there are any."""
        entries = snapshot.estimates
        self._box.set_visibility(bool(entries))
        self._table.set(table_of(snapshot))
        self._show_distribution(snapshot)
        return bool(entries)

    def _show_distribution(self, snapshot: Snapshot) -> None:
        """Draw the distribution of the chosen attribute, or hide its boxes if there is none."""
        collected = distributions_of(snapshot.estimates)
        for box in self._pictures:
            box.set_visibility(bool(collected))
        if not collected:
            return
        # Attributes are chosen by their number, as two of them may have the same name.
        names = {number: brief(each.name) for number, each in enumerate(collected)}
        if self._which.options != names:
            chosen = self._which.value
            self._which.set_options(names, value=chosen if chosen in names else 0)
        number = self._which.value or 0
        run_name = None if snapshot.run is None else snapshot.run.name
        key = (run_name, len(snapshot.history), number)
        self._histogram.set(key, partial(charts.histogram, collected[number]))
        self._cumulative.set(key, partial(charts.cumulative, collected[number]))


def table_of(snapshot: Snapshot) -> str:
    """Return an HTML table of the estimates of a snapshot; "" if there are none."""
    rows = list(islice(estimate_rows.rows_of(snapshot.estimates), _MOST_ROWS))
    if not rows:
        return ""
    if all(row.true is None for row in rows):  # the host does not know what devices hold
        return elements.table(estimate_rows.HEAD[:-1], [row[:-1] for row in rows])
    return elements.table(estimate_rows.HEAD, rows)
