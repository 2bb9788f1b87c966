"""The section Learning: the curve of what was learned, beside what could be, and what was chosen round by round."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

from nicegui import ui

from ternhost.learn import judging
from ternhost.store.snapshot import Snapshot
from ternhost.watch import curves, words
from ternhost.watch.page import charts
from ternhost.watch.page.section import Chart, Html, Section, card, cards

_NO_RUN = (
    "No run has begun. Begin one: `tern train --fleet simulated:10000` or `tern serve --fleet mqtt:my-fleet`."
)
_NO_ROUND = "The first round is under way: the curve begins with its end."
_NO_FIGURE = (
    "This algorithm tells no figure round by round: what it has found is in its report, which `tern runs --draw {run}`"
    " draws when the run has finished."
)
_NO_DATA = (
    "The records are the devices' own, so that nobody can judge the model here: give `tern serve` a --dataset to judge"
    " it by, or look at the section Round."
)


class Learning(Section):
    """Measures and axes can be chosen."""

    def build(self) -> None:
        with cards():
            with card("Learning curve", wide=True):
                with ui.element("div").classes("controls") as self._controls:
                    self._measure = ui.toggle([], on_change=self._chosen).props(
                        "dense no-caps aria-label=figure"
                    )
                    self._by = ui.toggle([], on_change=self._chosen).props("dense no-caps aria-label=axis")
                    self._floor = ui.switch("with the baseline", value=True, on_change=self._chosen).props(
                        "dense"
                    )
                self._curve = Chart("learning curve")
                self._empty = Html()
                self._figures = Html()
            with card("Range"):
                ui.label("Values are clipped to this bound (tau) before they are perturbed.").classes("soft")
                self._range = Chart("range by round", "chart low")
                self._no_range = Html()
            with card("Learning rate"):
                ui.label("How far a round moves the model.").classes("soft")
                self._rate = Chart("learning rate by round", "chart low")
                self._no_rate = Html()

    def _chosen(self) -> None:
        self.show(self.live.now)

    def show(self, now: Snapshot) -> None:
        run, history = now.run, now.history
        known = curves.measures(run, history)
        _offer(self._measure, {name: curves.word(name) for name in known})
        _offer(self._by, {name: name for name in curves.axes(run, now.devices)})
        self._controls.set_visibility(bool(known))
        measure, by = self._measure.value, self._by.value or curves.REPORTS
        where = run and run.name, len(history), by
        floor = judging.TRIVIAL.get(measure, "baseline") if self._floor.value else None
        drawn = self._curve.set(
            (*where, measure, floor),
            lambda: (
                charts.learning(curves.curve(run, history, measure, by, now.devices), floor)
                if measure and history
                else None
            ),
        )
        self._empty.set("" if drawn else words.empty(_why_empty(now, known)))
        self._figures.set(_figures(now, known) if drawn else "")
        for chart, empty, name, label in (
            (self._range, self._no_range, "tau", "range (tau)"),
            (self._rate, self._no_rate, "rate", "learning rate"),
        ):
            some = chart.set(where, partial(_stepped, now, name, label, by))
            empty.set("" if some else words.empty(_none_chosen(now)))


def _stepped(now: Snapshot, name: str, label: str, by: str) -> dict[str, Any] | None:
    points = curves.series(now.history, name, curves.positions(now.run, now.history, by, now.devices))
    return charts.stepped(label, points, by) if points else None


def _offer(toggle: ui.toggle, options: dict[str, str]) -> None:
    if toggle.options != options:
        value = toggle.value if toggle.value in options else next(iter(options), None)
        toggle.set_options(options, value=value)


def _why_empty(now: Snapshot, known: list[str]) -> str:
    if now.run is None:
        return _NO_RUN
    if not now.history:
        return _NO_ROUND
    if "measures" in now.run.references and not known:
        return _NO_DATA
    return _NO_FIGURE.format(run=shlex.quote(now.run.name))


def _none_chosen(now: Snapshot) -> str:
    return "This run chooses none round by round." if now.history else "No round has ended yet."


def _figures(now: Snapshot, known: list[str]) -> str:
    last, references = now.history[-1], now.run.references if now.run else {}
    rows = []
    for name in known:
        value = last.get(name)
        ends = None
        if value is not None and (judged := references.get("judged")):
            ends = curves.interval(name, value, judged["records"], judged["positive"])
        best, floor = (references.get(part, {}).get(name) for part in ("optimum", "baseline"))
        rows.append(
            [
                curves.word(name),
                value,
                None if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}",
                best,
                floor,
                judging.TRIVIAL.get(name, "") if floor is not None else "",
            ]
        )
    head = ("held-out records", "now", "95 % interval", "without privacy", "no features", "that is")
    return words.table(head, rows)
