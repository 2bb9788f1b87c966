"""The sections Learning and Runs: the learning curve of this run, and curves of several runs."""

import asyncio
import shlex
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from nicegui import background_tasks, ui

from ternhost.learn import judging
from ternhost.privacy.guarantee import Span
from ternhost.run.guarantees import OfClass, worst
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

    def show(self, now: Snapshot) -> None:
        run, history = now.run, now.history
        known = curves.measures(run, history)
        elements.offer(self._measure, {name: curves.word(name) for name in known})
        elements.offer(self._by, {name: name for name in curves.axes(run, now.devices)})
        self._controls.set_visibility(bool(known))
        measure, by = self._measure.value, self._by.value or curves.REPORTS
        where = run and run.name, len(history), by
        floor = judging.TRIVIAL.get(measure, "baseline") if self._floor.value else None
        drawn = self._curve.set(
            (*where, measure, floor), lambda: _learning(now, known, measure, by, floor)
        )
        self._figures.set(_figures(now, known) if drawn else "")
        for name, label, chart in self._chosen_by_round:
            chart.set(where, partial(_stepped, now, name, label, by))


def _learning(
    now: Snapshot, known: list[str], measure: str, by: str, floor: str | None
) -> dict[str, Any] | str:
    """The picture of the learning curve, or why there is none."""
    if now.run is None:
        return _NO_RUN
    if "measures" in now.run.references and not known:
        return _NO_DATA
    if not now.run.reports:
        return _NO_REPORT
    if not measure:
        return _NO_FIGURE.format(run=brief(shlex.quote(now.run.name), 100))
    return charts.learning(curves.curve(now.run, now.history, measure, by, now.devices), floor)


def _stepped(now: Snapshot, name: str, label: str, by: str) -> dict[str, Any] | str:
    points = curves.series(
        now.history, name, curves.positions(now.run, now.history, by, now.devices)
    )
    if now.run is None or not now.run.reports:
        return "No report yet."
    return charts.stepped(label, points, by) if points else "This run chooses none round by round."


def _figures(now: Snapshot, known: list[str]) -> str:
    rows = []
    for name in known:
        value = now.history[-1].get(name)
        ends = None if value is None else curves.interval(now.run, name, value)
        between = None if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}"
        best, floor = curves.compared_with(now.run, name)
        trivial = judging.TRIVIAL.get(name, "") if floor is not None else ""
        rows.append([curves.word(name), value, between, best, floor, trivial])
    head = ("held-out records", "now", "95 % interval", "without privacy", "no features", "that is")
    return elements.table(head, rows)


class CompareSection(elements.Section):
    """Draws the run of the page with the newest similar ones, until others are chosen."""

    def build(self) -> None:
        self._looked, self._looking, self._ended = -_EVERY, False, False
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
        try:
            by = self._by.value or curves.REPORTS
            chosen = list(self._which.value or ()), by, self._measure.value
            runs, names, drawn, measures, measure = await asyncio.to_thread(self._read, *chosen)
        finally:
            self._looking = False
            self._looked = time.monotonic()
        if self._chart.deleted:
            return
        if [*self._which.options] != [*runs]:
            still = [name for name in self._which.value or () if name in runs]
            self._which.set_options({name: brief(name) for name in runs}, value=still)
        if not self._which.value and drawn:
            self._which.value = names
        if self._measure.options != measures:
            self._measure.set_options(measures, value=measure)
        named = dict(zip(titles([runs[name] for name in drawn]), drawn.values(), strict=True))
        key = (measure, by, tuple((name, curve.points) for name, curve in named.items()))
        none = "No run with a figure has ended a round: choose others above."
        self._chart.set(
            key, lambda: charts.compared(named, measure, by) if named and measure else none
        )
        self._table.set(_runs_table([*runs.values()]))

    def _read(
        self, wanted: Sequence[str], by: str, measure: str | None
    ) -> tuple[dict[str, RunView], list[str], dict[str, Curve], dict[str, str], str | None]:
        known = self.others.runs()
        runs = {name: run for name, (_, run) in known.items()}
        here = self.live.now.run.name if self.live.now.run else None
        names = [name for name in wanted if name in runs] or alike(here, [*runs.values()])
        histories = {name: self.others.history(known[name][0], name) for name in names}
        by_run = (curves.measures(known[name][1], histories[name].history) for name in names)
        measures = {one: brief(curves.word(one), 40) for of_run in by_run for one in of_run}
        if measure not in measures:
            measure = next(iter(measures), None)
        drawn = {}
        for name, snapshot in histories.items():
            if measure is not None and snapshot.history:
                made = curves.curve(snapshot.run, snapshot.history, measure, by, snapshot.devices)
                if made.points and by in curves.axes(snapshot.run, snapshot.devices):
                    drawn[name] = made
        return runs, names, drawn, measures, measure


def alike(name: str | None, runs: Sequence[RunView]) -> list[str]:
    """The names of the runs to begin with: that one, and the newest with the same data and figure."""
    telling = [run for run in runs if run.references.get("measures")]
    able = [run for run in telling if run.rounds]
    first = next((run for run in telling if run.name == name), next(iter(able), None))
    if first is None:
        return []
    figure, data = first.references["measures"][0], first.options.get("dataset")
    of_data = [run for run in able if run.options.get("dataset") == data]
    like = [run for run in of_data if figure in run.references["measures"]]
    return list(dict.fromkeys([first.name, *(run.name for run in like)]))[:_MOST]


def titles(runs: Sequence[RunView]) -> list[str]:
    """The names of runs, with their data where these differ: figures of other records are no better
    or worse.
    """
    data = [str(run.options.get("dataset")) for run in runs]
    if len({*data}) <= 1:
        return [run.name for run in runs]
    return [f"{run.name} ({dataset})" for run, dataset in zip(runs, data, strict=True)]


def _runs_table(runs: Sequence[RunView]) -> str:
    rows = []
    for run in runs[:_SHOWN]:
        promised = worst([OfClass.from_json(each) for each in run.guarantees], Span.RUN)
        paid = None if promised is None else f"{promised.protects}: {promised.numbers()}"
        mechanisms = sorted({str(device_class["mechanism"]) for device_class in run.classes})
        began, dataset = words.moment(run.began), run.options.get("dataset")
        about = [run.name, began, run.status, run.algorithm, dataset, run.fleet]
        cost = [
            ", ".join(mechanisms) or None,
            paid,
            run.rounds,
            run.reports,
            words.duration(run.seconds),
        ]
        rows.append([*about, *cost])
    head = (
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
    return elements.table(head, rows) if rows else elements.empty("No run has begun.")
