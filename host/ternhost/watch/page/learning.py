"""The sections Learning and Runs: the learning curve of this run, and curves of several runs."""

import asyncio
import shlex
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from nicegui import background_tasks, ui

from ternhost.learn import judging
from ternhost.privacy.guarantee import Span
from ternhost.run.guarantees import ClassGuarantees, worst
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.text import brief
from ternhost.watch import curves, words
from ternhost.watch.curves import Curve
from ternhost.watch.page import charts, elements

_EVERY = 5.0  # seconds
_MOST = 6  # curves, as many as there are kinds of lines
_SHOWN = 100  # runs of the table
_NO_RUN = "No run has begun. Begin one: `tern train --fleet simulated:10000` or `tern serve --fleet mqtt:my-fleet`."
_NO_REPORT = "No report yet: the curve begins with the first round that has one."
_NO_FIGURE = (
    "This algorithm has no figure for each round: its results are in its report, which `tern runs --draw {run}` draws"
    " when the run has finished."
)
_NO_DATA = (
    "The host does not know the devices' records, so it cannot judge the model: give `tern serve` a --dataset for that,"
    " or look at the section Round."
)


class LearningSection(elements.Section):
    """Measures and axes can be chosen."""

    def build(self) -> None:
        """Make the learning curve with its controls, its table, and the pictures of parameters."""
        with elements.cards():
            with elements.card("Learning curve", wide=True):
                with ui.element("div").classes("controls") as self._controls:
                    self._measure = elements.toggle("figure", self._chosen)
                    self._by = elements.toggle("axis", self._chosen)
                    self._floor = ui.switch("with the baseline", on_change=self._chosen).props(
                        "dense"
                    )
                self._curve = elements.Chart("learning curve")
                self._figures = elements.Html()
            about = "Values are clipped to this bound (tau) before they are perturbed."
            tau = elements.picture("Range", about)
            rate = elements.picture("Learning rate", "How far a round moves the model.")
            self._chosen_by_round = (("tau", "range (tau)", tau), ("rate", "learning rate", rate))

    def _chosen(self) -> None:
        self.show(self.live.now)

    def show(self, snapshot: Snapshot) -> None:
        """Show the curve, the figures and the chosen parameters of a snapshot."""
        measures = curves.measures(snapshot.run, snapshot.history)
        elements.offer(self._measure, {name: curves.word(name) for name in measures})
        elements.offer(
            self._by, {name: name for name in curves.axes(snapshot.run, snapshot.devices)}
        )
        self._controls.set_visibility(bool(measures))
        by = self._by.value or curves.REPORTS
        key = snapshot.run and snapshot.run.name, len(snapshot.history), by
        has_picture = self._show_curve(snapshot, measures, by, key)
        self._figures.set(_figures(snapshot, measures) if has_picture else "")
        for name, label, chart in self._chosen_by_round:
            chart.set(key, partial(stepped_picture, snapshot, name, label, by))

    def _show_curve(
        self, snapshot: Snapshot, measures: list[str], by: str, key: tuple[object, ...]
    ) -> bool:
        """Draw the curve of the chosen figure, and return whether there is one.

        measures: the figures of the run. by: the x axis. key: changes if the curve has to be drawn
        again.
        """
        measure = self._measure.value
        baseline_name = None
        if self._floor.value:
            baseline_name = judging.TRIVIAL.get(measure, "baseline")

        def draw() -> dict[str, Any] | str:
            why_none = why_no_curve(snapshot, measures, measure)
            if why_none:
                return why_none
            curve = curves.curve(snapshot.run, snapshot.history, measure, by, snapshot.devices)
            return charts.learning(curve, baseline_name)

        return self._curve.set((*key, measure, baseline_name), draw)


def why_no_curve(snapshot: Snapshot, measures: list[str], measure: str | None) -> str:
    """Return why there is no learning curve, as a message; "" if there is one."""
    if snapshot.run is None:
        return _NO_RUN
    if "measures" in snapshot.run.references and not measures:
        return _NO_DATA
    if not snapshot.run.reports:
        return _NO_REPORT
    if not measure:
        return _NO_FIGURE.format(run=brief(shlex.quote(snapshot.run.name), 100))
    return ""


def stepped_picture(snapshot: Snapshot, name: str, label: str, by: str) -> dict[str, Any] | str:
    """Draw a parameter that the algorithm chooses for each round, or say why there is none.

    name: of the parameter in the history. label: of the y axis. by: the x axis.
    """
    if snapshot.run is None or not snapshot.run.reports:
        return "No report yet."
    positions = curves.positions(snapshot.run, snapshot.history, by, snapshot.devices)
    points = curves.series(snapshot.history, name, positions)
    if not points:
        return "This run chooses none round by round."
    return charts.stepped(label, points, by)


def _figures(snapshot: Snapshot, measures: list[str]) -> str:
    """Return an HTML table of the run's figures beside the values to compare them with.

    measures: the names of the figures.
    """
    rows = []
    for name in measures:
        value = snapshot.history[-1].get(name)
        interval = None
        if value is not None:
            interval_ends = curves.interval(snapshot.run, name, value)
            interval = (
                f"{interval_ends[0]:.4f} to {interval_ends[1]:.4f}" if interval_ends else None
            )
        optimum, baseline = curves.compared_with(snapshot.run, name)
        trivial = "" if baseline is None else judging.TRIVIAL.get(name, "")
        rows.append([curves.word(name), value, interval, optimum, baseline, trivial])
    headings = (
        "held-out records",
        "now",
        "95 % interval",
        "without privacy",
        "no features",
        "that is",
    )
    return elements.table(headings, rows)


class _Comparison(NamedTuple):
    """What is compared, as another thread has read it."""

    runs: dict[str, RunView]  # all runs, the newest first
    names: list[str]  # of the chosen runs
    curves: dict[str, Curve]  # by run
    measures: dict[str, str]  # figure -> its display name
    measure: str | None


class CompareSection(elements.Section):
    """Draws the run of the page with the newest similar ones, until others are chosen."""

    def build(self) -> None:
        """Make the choice of runs, their curves, and the table of all runs."""
        self._looked = -_EVERY  # time
        self._looking = False
        with elements.cards():
            with elements.card("Runs compared", wide=True):
                with ui.element("div").classes("controls"):
                    self._which = ui.select({}, multiple=True, label="runs", on_change=self._again)
                    self._which.props(f"dense outlined use-chips max-values={_MOST}")
                    self._measure = elements.toggle("figure", self._again)
                    axes = {name: name for name in (curves.REPORTS, curves.ROUNDS, curves.EPSILON)}
                    self._by = elements.toggle("axis", self._again, axes)
                self._chart = elements.Chart("learning curves of several runs")
            with elements.card("Runs here", wide=True):
                self._table = elements.Html()

    def show(self, now: Snapshot) -> None:
        self.tick(now)

    def tick(self, now: Snapshot) -> None:
        if time.monotonic() - self._looked >= _EVERY and not self._looking:
            self._looking = True
            background_tasks.create(self._look(), name="tern runs")

    def _again(self) -> None:
        self._looked = -_EVERY
        self.tick(self.live.now)

    async def _look(self) -> None:
        """Read the chosen runs in another thread, and show them if the page is still open."""
        try:
            by = self._by.value or curves.REPORTS
            chosen = list(self._which.value or ())
            comparison = await asyncio.to_thread(self._read, chosen, by, self._measure.value)
        finally:
            self._looking = False
            self._looked = time.monotonic()
        if not self._chart.deleted:
            self._show(comparison, by)

    def _show(self, comparison: _Comparison, by: str) -> None:
        """Update the choices, the curves and the table of runs."""
        runs, measure = comparison.runs, comparison.measure
        if list(self._which.options) != list(runs):
            still_existing = [name for name in self._which.value or () if name in runs]
            self._which.set_options({name: brief(name) for name in runs}, value=still_existing)
        if not self._which.value and comparison.curves:
            self._which.value = comparison.names
        if self._measure.options != comparison.measures:
            self._measure.set_options(comparison.measures, value=measure)
        self._draw(comparison, by)
        self._table.set(runs_table(list(runs.values())))

    def _draw(self, comparison: _Comparison, by: str) -> None:
        """Draw the compared curves against an axis, unless they are drawn already."""
        measure = comparison.measure
        compared_runs = [comparison.runs[name] for name in comparison.curves]
        by_title = dict(zip(titles(compared_runs), comparison.curves.values(), strict=True))

        def draw() -> dict[str, Any] | str:
            if not by_title or not measure:
                return "No run with a figure has ended a round: choose others above."
            return charts.compared(by_title, measure, by)

        points = tuple((title, curve.points) for title, curve in by_title.items())
        self._chart.set((measure, by, points), draw)

    def _read(self, chosen_names: Sequence[str], by: str, measure: str | None) -> _Comparison:
        """Read the chosen runs and their curves; runs in another thread, since it takes a while.

        chosen_names: of runs; if none is left, the current run and similar ones are taken. by: the
        x axis. measure: the figure that was chosen; if no run has it, another one is taken.
        """
        stores_and_runs = self.others.runs()
        runs = {name: run for name, (_, run) in stores_and_runs.items()}
        names = [name for name in chosen_names if name in runs]
        if not names:
            current_name = self.live.now.run.name if self.live.now.run else None
            names = alike(current_name, [*runs.values()])
        measures = {}
        snapshots = {}
        for name in names:
            snapshots[name] = self.others.history(stores_and_runs[name][0], name)
            for figure in curves.measures(runs[name], snapshots[name].history):
                measures[figure] = brief(curves.word(figure), 40)
        if measure not in measures:
            measure = next(iter(measures), None)
        drawn = {}
        for name, snapshot in snapshots.items():
            curve = _curve_of(snapshot, measure, by)
            if curve is not None:
                drawn[name] = curve
        return _Comparison(runs, names, drawn, measures, measure)


def _curve_of(snapshot: Snapshot, measure: str | None, by: str) -> Curve | None:
    """Return the curve of a run to compare, or None if it lacks this figure or this axis."""
    if measure is None or not snapshot.history:
        return None
    if by not in curves.axes(snapshot.run, snapshot.devices):
        return None
    curve = curves.curve(snapshot.run, snapshot.history, measure, by, snapshot.devices)
    return curve if curve.points else None


def alike(name: str | None, runs: Sequence[RunView]) -> list[str]:
    """Choose the runs to compare at first: that one, and the newest with the same data and figure.

    name: of the current run; without such a run the comparison begins with the newest one that has
    a curve. runs: all runs, the newest first. Returns names.
    """
    with_figure = [run for run in runs if run.references.get("measures")]
    with_curve = [run for run in with_figure if run.rounds]
    current_runs = [run for run in with_figure if run.name == name]
    candidates = current_runs or with_curve
    if not candidates:
        return []
    first = candidates[0]
    figure = first.references["measures"][0]
    names = [first.name]
    for run in with_curve:
        same_data = run.options.get("dataset") == first.options.get("dataset")
        if same_data and figure in run.references["measures"] and run.name not in names:
            names.append(run.name)
    return names[:_MOST]


def titles(runs: Sequence[RunView]) -> list[str]:
    """Return the names of runs for the legend, with their data if these differ.

    Figures of different data cannot be compared, so the data must be visible.
    """
    datasets = [str(run.options.get("dataset")) for run in runs]
    if len(set(datasets)) <= 1:
        return [run.name for run in runs]
    return [f"{run.name} ({dataset})" for run, dataset in zip(runs, datasets, strict=True)]


def runs_table(runs: Sequence[RunView]) -> str:
    """Return an HTML table of runs, the first `_SHOWN` of them."""
    rows = []
    for run in runs[:_SHOWN]:
        guarantee = worst([ClassGuarantees.from_json(each) for each in run.guarantees], Span.RUN)
        guarantee_words = (
            None if guarantee is None else f"{guarantee.protects}: {guarantee.numbers()}"
        )
        mechanisms = sorted({str(device_class["mechanism"]) for device_class in run.classes})
        rows.append(
            [
                run.name,
                words.moment(run.began),
                run.status,
                run.algorithm,
                run.options.get("dataset"),
                run.fleet,
                ", ".join(mechanisms) or None,
                guarantee_words,
                run.rounds,
                run.reports,
                words.duration(run.seconds),
            ]
        )
    if not rows:
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
    return elements.table(headings, rows)
