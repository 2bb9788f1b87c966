"""The sections Learning and Runs: the learning curve of this run, and curves of several runs."""

import asyncio
import shlex
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from nicegui import background_tasks, ui

from ternhost.learn.models import judging
from ternhost.privacy.guarantee import Span
from ternhost.run.guarantees import ClassGuarantees, worst
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.text import brief
from ternhost.watch import curves, words
from ternhost.watch.curves import Curve
from ternhost.watch.page import charts, elements
from ternhost.watch.page.estimates import EstimateCards

_EVERY = 5.0  # seconds between two reads of the runs to compare
_MOST_CURVES = 6  # as many as there are kinds of lines
_MOST_ROWS = 100  # runs in the table
_NO_RUN = (
    "No run has begun. Begin one: `tern train --fleet simulated:10000` or "
    "`tern serve --fleet mqtt:my-fleet --every 1h`."
)
_NO_REPORT = "No report yet: the curve begins with the first round that has one."
_NO_FIGURE = (
    "This algorithm has no figure for each round: its results are in its report, which `tern runs --draw {run}` draws"
    " when the run has finished."
)
_NO_DATA = (
    "The host does not know the devices' records, so it cannot judge the model: give `tern serve` a data set for that,"
    " or look at the section Round."
)


class LearningSection(elements.Section):
    """The learning curve of the run, of which the user chooses the figure and the x axis."""

    def build(self) -> None:
        """Make the learning curve with its controls, its table, and the pictures of parameters.

        A run that collects has no model: then its estimates take their place.
        """
        with elements.cards():
            self._estimates = EstimateCards(self._choice_changed)
        with elements.cards() as self._of_model:
            with elements.card("Learning curve", wide=True):
                with ui.element("div").classes("controls") as self._controls:
                    self._measure = elements.toggle("figure", self._choice_changed)
                    self._by = elements.toggle("axis", self._choice_changed)
                    self._with_baseline = ui.switch(
                        "with the baseline", on_change=self._choice_changed
                    )
                    self._with_baseline.props("dense")
                self._curve = elements.Chart("learning curve")
                self._figures = elements.Html()

            # The parameters of each round.
            self._bound = elements.picture(
                "Range or radius of each round",
                "Devices clip what they report to this bound before they perturb it.",
            )
            self._rate = elements.picture(
                "Learning rate of each round", "How far a round moves the model."
            )

    def _choice_changed(self) -> None:
        """Show the newest snapshot again, after the user has chosen something else."""
        self.show(self.live.now)

    def show(self, snapshot: Snapshot) -> None:
        """Show the curve, the figures and the chosen parameters of a snapshot, or its estimates."""
        has_estimates = self._estimates.show(snapshot)
        self._of_model.set_visibility(not has_estimates)

        # What the user can choose.
        measures = curves.measures(snapshot.run, snapshot.history)
        axes = curves.axes(snapshot.run, snapshot.devices)
        elements.offer(self._measure, {name: curves.word(name) for name in measures})
        elements.offer(self._by, {name: name for name in axes})
        self._controls.set_visibility(bool(measures))

        # The pictures. They are drawn again only if the key is another one.
        by = self._by.value or curves.REPORTS
        run_name = None if snapshot.run is None else snapshot.run.name
        key = (run_name, len(snapshot.history), by)
        has_curve = self._show_curve(snapshot, measures, by, key)
        self._figures.set(_figures(snapshot, measures) if has_curve else "")
        bound_name = curves.bound_name(snapshot.history)
        self._bound.set((*key, bound_name), partial(stepped_picture, snapshot, bound_name, by))
        self._rate.set(key, partial(stepped_picture, snapshot, curves.RATE, by))

    def _show_curve(
        self, snapshot: Snapshot, measures: list[str], by: str, key: tuple[object, ...]
    ) -> bool:
        """Draw the curve of the figure that the user has chosen, and return whether there is one.

        measures: the figures of the run. by: the x axis. key: if it is the same as at the last
        call, the curve has not changed.
        """
        measure = self._measure.value
        baseline_name = None
        if self._with_baseline.value:
            baseline_name = judging.TRIVIAL.get(measure, "baseline")

        def draw() -> dict[str, Any] | str:
            """Return the picture, or a message that says why there is none."""
            why_none = why_no_curve(snapshot, measures, measure)
            if why_none:
                return why_none
            curve = curves.curve(snapshot.run, snapshot.history, measure, by, snapshot.devices)
            return charts.learning(curve, baseline_name)

        return self._curve.set((*key, measure, baseline_name), draw)


def why_no_curve(snapshot: Snapshot, measures: list[str], measure: str | None) -> str:
    """Return why there is no learning curve, as a message; "" if there is one.

    measures: the figures of the run. measure: the one that the user has chosen.
    """
    run = snapshot.run
    if run is None:
        return _NO_RUN
    cannot_judge_model = "measures" in run.references and not measures
    if cannot_judge_model:
        return _NO_DATA
    if run.reports == 0:
        return _NO_REPORT
    if not measure:
        quoted_name = shlex.quote(run.name)  # for the command in the message
        return _NO_FIGURE.format(run=brief(quoted_name, 100))
    return ""


def stepped_picture(snapshot: Snapshot, name: str, by: str) -> dict[str, Any] | str:
    """Draw a parameter over the rounds, or say in words what it is if it does not change.

    name: of the parameter in the history, such as "tau". by: the x axis.
    """
    run = snapshot.run
    if run is None or not run.reports:
        return "No report yet."
    label = curves.parameter_word(name)
    positions = curves.positions(run, snapshot.history, by, snapshot.devices)
    points = curves.series(snapshot.history, name, positions)
    if not points:
        if name == curves.RATE:
            return "This algorithm has no learning rate."
        return constant_bound(run)
    values = {value for _x, value in points}
    if len(values) == 1:
        return f"The {label} is {values.pop():.4g} in every round so far."
    return charts.stepped(label, points, by)


def constant_bound(run: RunView) -> str:
    """Say to which bound the devices of each class clip in every round; it comes from their costs."""
    bounds = [device_class.get("tau") for device_class in run.classes]
    if not any(bounds):
        return "This run chooses no bound: what its devices report has a fixed range."
    texts = []
    for number, bound in enumerate(bounds, 1):
        of_class = f"class {number}: " if len(bounds) > 1 else ""
        texts.append(f"{of_class}range {bound:g}")
    return f"The same in every round. {'; '.join(texts)}."


def _figures(snapshot: Snapshot, measures: list[str]) -> str:
    """Return an HTML table of the run's figures beside the values to compare them with.

    measures: the names of the figures. Their values are those after the last round.
    """
    last_entry = snapshot.history[-1]
    rows = []
    for name in measures:
        value = last_entry.get(name)
        interval = None
        if value is not None:
            interval_ends = curves.interval(snapshot.run, name, value)
            if interval_ends is not None:
                low, high = interval_ends
                interval = f"{low:.4f} to {high:.4f}"
        optimum, baseline = curves.compared_with(snapshot.run, name)
        what_baseline_does = ""
        if baseline is not None:
            what_baseline_does = judging.TRIVIAL.get(name, "")
        rows.append([curves.word(name), value, interval, optimum, baseline, what_baseline_does])
    headings = (
        "figure",
        "now",
        "95 % interval",
        "without privacy",
        "no features",
        "which is",
    )
    table = elements.table(headings, rows)
    return (
        f"<p class=soft>On records that were held out: no device has learned from them.</p>{table}"
    )


class _Comparison(NamedTuple):
    """The runs to compare and their curves, as another thread has read them."""

    runs: dict[str, RunView]  # all runs by name, the newest first
    names: list[str]  # the names of those to compare
    curves: dict[str, Curve]  # of those to compare, by the name of the run
    measures: dict[str, str]  # the figures that one of them has, with their display names
    measure: str | None  # the figure that the curves show


class CompareSection(elements.Section):
    """Compares the run of the page with the newest similar ones, until the user chooses others."""

    def build(self) -> None:
        """Make the choice of runs, their curves, and the table of all runs."""
        self._last_read = -_EVERY  # time.monotonic()
        self._is_reading = False
        with elements.cards():
            with elements.card("Runs compared", wide=True):
                with ui.element("div").classes("controls"):
                    self._which = ui.select(
                        {}, multiple=True, label="runs", on_change=self._choice_changed
                    )
                    self._which.props(f"dense outlined use-chips max-values={_MOST_CURVES}")
                    self._measure = elements.toggle("figure", self._choice_changed)
                    axes = {name: name for name in (curves.REPORTS, curves.ROUNDS, curves.EPSILON)}
                    self._by = elements.toggle("axis", self._choice_changed, axes)
                self._chart = elements.Chart("learning curves of several runs")
            with elements.card("Runs here", wide=True):
                self._table = elements.Html()

    def show(self, now: Snapshot) -> None:
        """Read the runs again if it is time to. The snapshot is not used: it has only one run."""
        self.tick(now)

    def tick(self, now: Snapshot) -> None:
        """Begin to read the runs in the background, at most every `_EVERY` seconds."""
        is_due = time.monotonic() - self._last_read >= _EVERY
        if is_due and not self._is_reading:
            self._is_reading = True
            background_tasks.create(self._read_and_show(), name="tern runs")

    def _choice_changed(self) -> None:
        """Read the runs now, after the user has chosen something else."""
        self._last_read = -_EVERY
        self.tick(self.live.now)

    async def _read_and_show(self) -> None:
        """Read the chosen runs in another thread, and show them if the page is still open."""
        try:
            by = self._by.value or curves.REPORTS
            chosen_names = list(self._which.value or ())
            comparison = await asyncio.to_thread(self._read, chosen_names, by, self._measure.value)
        finally:
            self._is_reading = False
            self._last_read = time.monotonic()
        if not self._chart.deleted:
            self._show(comparison, by)

    def _show(self, comparison: _Comparison, by: str) -> None:
        """Update the choices, the curves and the table of runs. by: the x axis."""
        # The user can choose among all runs; a chosen run may have been removed.
        runs = comparison.runs
        if list(self._which.options) != list(runs):
            still_existing = [name for name in self._which.value or () if name in runs]
            self._which.set_options({name: brief(name) for name in runs}, value=still_existing)
        nothing_chosen = not self._which.value
        if nothing_chosen and comparison.curves:
            self._which.value = comparison.names
        if self._measure.options != comparison.measures:
            self._measure.set_options(comparison.measures, value=comparison.measure)

        self._draw(comparison, by)
        self._table.set(runs_table(list(runs.values())))

    def _draw(self, comparison: _Comparison, by: str) -> None:
        """Draw the compared curves against an axis, unless they are drawn already."""
        measure = comparison.measure
        compared_runs = [comparison.runs[name] for name in comparison.curves]
        curves_by_title = dict(zip(titles(compared_runs), comparison.curves.values(), strict=True))

        def draw() -> dict[str, Any] | str:
            """Return the picture, or a message if there is no curve."""
            if not curves_by_title or not measure:
                return "No run with a figure has ended a round: choose others above."
            return charts.compared(curves_by_title, measure, by)

        points = tuple((title, curve.points) for title, curve in curves_by_title.items())
        self._chart.set((measure, by, points), draw)

    def _read(self, chosen_names: Sequence[str], by: str, measure: str | None) -> _Comparison:
        """Read the chosen runs and their curves. It takes a while, so another thread does it.

        chosen_names: of the runs; if none of them exists, the run of the page and similar ones are
        taken. by: the x axis. measure: the figure that was chosen; if no run has it, the first
        figure of a run is taken.
        """
        # Which runs there are, and which of them are compared.
        stores_and_runs = self.others.runs()
        runs = {}
        for name, (_store, run) in stores_and_runs.items():
            runs[name] = run
        names = [name for name in chosen_names if name in runs]
        if not names:
            current_run = self.live.now.run
            current_name = None if current_run is None else current_run.name
            names = alike(current_name, list(runs.values()))

        # Their histories and figures.
        snapshots = {}
        measures = {}
        for name in names:
            store, run = stores_and_runs[name]
            snapshot = self.others.history(store, name)
            snapshots[name] = snapshot
            for figure in curves.measures(run, snapshot.history):
                measures[figure] = brief(curves.word(figure), 40)
        if measure not in measures:
            measure = next(iter(measures), None)

        # The curves of those that have one.
        curves_by_name = {}
        for name, snapshot in snapshots.items():
            curve = _curve_of(snapshot, measure, by)
            if curve is not None:
                curves_by_name[name] = curve
        return _Comparison(
            runs=runs, names=names, curves=curves_by_name, measures=measures, measure=measure
        )


def _curve_of(snapshot: Snapshot, measure: str | None, by: str) -> Curve | None:
    """Return the curve of a run, or None if the run lacks this figure or this axis.

    measure: the name of the figure. by: the x axis.
    """
    if measure is None or not snapshot.history:
        return None
    if by not in curves.axes(snapshot.run, snapshot.devices):
        return None
    curve = curves.curve(snapshot.run, snapshot.history, measure, by, snapshot.devices)
    return curve if curve.points else None


def alike(name: str | None, runs: Sequence[RunView]) -> list[str]:
    """Return the names of the runs to compare at first: a run, and the newest ones that are like it.

    Runs are alike if they have the same data and the same main figure. name: of the run; without
    such a run, it is the newest one that has a curve. runs: all runs, the newest first.
    """
    with_figure = [run for run in runs if run.references.get("measures")]
    with_curve = [run for run in with_figure if run.rounds > 0]
    named_runs = [run for run in with_figure if run.name == name]
    candidates = named_runs or with_curve
    if not candidates:
        return []
    first = candidates[0]
    figure = first.references["measures"][0]
    names = [first.name]
    for run in with_curve:
        has_same_data = run.options.get("data") == first.options.get("data")
        has_figure = figure in run.references["measures"]
        if has_same_data and has_figure and run.name not in names:
            names.append(run.name)
    return names[:_MOST_CURVES]


def titles(runs: Sequence[RunView]) -> list[str]:
    """Return the names of runs for the legend, with their data if these differ.

    Figures of different data cannot be compared, so the data must be visible.
    """
    data_of_runs = [str(run.options.get("data")) for run in runs]
    if len(set(data_of_runs)) <= 1:
        return [run.name for run in runs]
    return [f"{run.name} ({data})" for run, data in zip(runs, data_of_runs, strict=True)]


def runs_table(runs: Sequence[RunView]) -> str:
    """Return an HTML table of runs with a row for each, at most `_MOST_ROWS`."""
    if not runs:
        return elements.empty("No run has begun.")
    headings = (
        "run",
        "began",
        "status",
        "algorithm",
        "data",
        "fleet",
        "mechanism",
        "protects",
        "rounds",
        "reports",
        "took",
    )
    rows = [_row_of(run) for run in runs[:_MOST_ROWS]]
    return elements.table(headings, rows)


def _row_of(run: RunView) -> list[Any]:
    """Return the cells of a run in the table of runs; None leaves a cell empty."""
    # What is guaranteed to the class of devices that loses most.
    classes = [ClassGuarantees.from_json(guarantees) for guarantees in run.guarantees]
    guarantee = worst(classes, Span.REPORT if run.is_endless else Span.RUN)
    guarantee_words = None
    if guarantee is not None:
        guarantee_words = f"{guarantee.protects}: {guarantee.numbers()}"
        if run.is_endless:
            guarantee_words += " a report"

    mechanisms = sorted({str(device_class["mechanism"]) for device_class in run.classes})
    return [
        run.name,
        words.moment(run.began),
        run.status,
        run.algorithm,
        run.options.get("data"),
        run.fleet,
        ", ".join(mechanisms) or None,
        guarantee_words,
        run.rounds,
        run.reports,
        words.duration(run.seconds),
    ]
