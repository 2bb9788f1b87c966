"""What all experiments share: their options, what they give, and how that is written down and drawn."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tern.card import Card, decode
from ternhost import datasets, mechanisms
from ternhost.errors import StorageError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """A mechanism that is compared with others, with its own options. Raises UsageError where it cannot be."""

    name: str
    levels: int | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        mechanism = mechanisms.REGISTRY.named(self.name)
        if not mechanism.single_valued:
            raise UsageError(
                f"the reports of {self.name} cannot be averaged", hint="name another --mechanism"
            )
        mechanism.chosen(dict(self.options))

    @property
    def label(self) -> str:
        """What its curve is called."""
        said = [f"{name} {value}" for name, value in self.options]
        if self.levels is not None:
            said.insert(0, f"{self.levels} levels")
        return ", ".join([self.name, *said])

    def card(self, epsilon: int, use: str | None = None) -> Card:
        """Its card at `epsilon` (micro), designed once; tuned for `use`, if it can be."""
        return _card(self, epsilon, use)


@dataclass(frozen=True)
class Options:
    """What was asked for. None leaves the choice to the experiment; `quick` is a small version, to look at.

    `contender` is compared with those of the experiment. `progress` hears what is being done.
    """

    dataset: str | None = None
    runs: int | None = None
    quick: bool = False
    seed: int = 1
    contender: Contender | None = None
    progress: Callable[[str], None] = lambda message: None

    def __post_init__(self) -> None:
        if self.runs is not None and self.runs < 1:
            raise UsageError(f"--runs must be 1 or more, not {self.runs}")
        if self.seed < 0:
            raise UsageError(f"--seed must be 0 or more, not {self.seed}")

    def runs_or(self, full: int, quick: int) -> int:
        """The number of runs asked for, or a default."""
        if self.runs is not None:
            return self.runs
        return quick if self.quick else full

    def compared(self, *names: str) -> dict[str, Contender]:
        """The mechanisms to compare, by label: these, what other packages have added, and the one asked for."""
        found = [Contender(name) for name in (*names, *mechanisms.added())]
        if self.contender is not None:
            found.append(self.contender)
        return {one.label: one for one in found}


@dataclass(frozen=True)
class Outcome:
    """Tables by name (each a list of rows with the same columns), figures by name, and what to say in a few lines."""

    name: str
    settings: Mapping[str, Any]
    tables: Mapping[str, Sequence[Row]]
    figures: Mapping[str, Figure]
    lines: Sequence[str] = ()


def write(outcome: Outcome, directory: Path) -> list[Path]:
    """Write a CSV a table, a PNG a figure and one JSON of it all; return their paths. Raises StorageError."""
    from ternhost.report import plots  # takes long to import

    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, rows in outcome.tables.items():
            path = directory / f"{name}.csv"
            with path.open("w", newline="") as file:
                table = csv.DictWriter(file, list(rows[0]))
                table.writeheader()
                table.writerows(rows)
            paths.append(path)
        path = directory / f"{outcome.name}.json"
        whole = {
            "experiment": outcome.name,
            "settings": outcome.settings,
            "tables": outcome.tables,
            "lines": outcome.lines,
        }
        path.write_text(json.dumps(_finite(whole), indent=1) + "\n")
        paths.append(path)
    except OSError as error:
        raise StorageError(
            f"{directory}: {error.strerror}", hint="name another place with --output"
        ) from error
    for name, figure in outcome.figures.items():
        path = directory / f"{name}.png"
        plots.save(figure, path)
        paths.append(path)
    return paths


def _finite(value: Any) -> Any:
    # JSON has no nan
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value


def two_classes(name: str) -> datasets.Dataset:
    """The data set of that name, for an experiment that tells two classes apart. Raises UsageError for another."""
    dataset = datasets.load(name)
    if dataset.task != datasets.CLASSIFICATION:
        raise UsageError(f"{name} is not for telling two classes apart", hint="name another --dataset")
    return dataset


@lru_cache(maxsize=512)
def _card(of: Contender, epsilon: int, use: str | None) -> Card:
    found = mechanisms.design(of.name, levels=of.levels, epsilon_micro=epsilon, use=use, **dict(of.options))
    card: Card = decode(found.card)
    return card


def card_of(name: str, epsilon: int, levels: int | None = None) -> Card:
    """The card of a mechanism at `epsilon` (micro), designed once."""
    return Contender(name, levels).card(epsilon)


# Pictures

_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS = "osD^vPX*<>hdp8"
_ASIDE = 0.006  # of the width, between neighbouring curves with error bars
_COLOURS = ("#14406b", "#c46a1b", "#222222", "#4f83b5", "#8a4a10", "#7a7a7a")


_MOST = 9  # curves that can be told apart in one pair of axes
_ENOUGH = 3  # points of a line that says how y depends on x


@dataclass(frozen=True)
class Curve:
    """Points of a picture; `error` is one standard error of each y, drawn as a bar.

    A line joins them where what is measured is continuous in x: break it with a point of nan, or use joined=False.
    everywhere: show it in each part of a panel that is divided because it has too many curves.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    joined: bool = True
    everywhere: bool = False

    @property
    def has_line(self) -> bool:
        """Whether it is drawn with a line: two points say nothing of what is between them, but for a height."""
        points = sum(map(math.isfinite, self.y))
        return self.joined and (points >= _ENOUGH or len(set(self.y)) == 1)


@dataclass(frozen=True)
class Panel:
    """One pair of axes: `across` and `up` name what they measure, with the unit."""

    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    lines: Mapping[str, float] = field(default_factory=dict)  # named heights
    limits: tuple[float, float] | None = None  # of what is shown upwards


def _divided(panel: Panel) -> list[Panel]:
    """The panel, or several of at most _MOST curves."""
    if len(panel.curves) <= _MOST:
        return [panel]
    shared = [curve for curve in panel.curves if curve.everywhere]
    own = [curve for curve in panel.curves if not curve.everywhere]
    parts = -(-len(own) // (_MOST - len(shared)))
    size = -(-len(own) // parts)
    return [
        replace(
            panel, title=f"{panel.title} ({i + 1} of {parts})", curves=own[i * size : (i + 1) * size] + shared
        )
        for i in range(parts)
    ]


def draw(panels: Sequence[Panel], columns: int = 1) -> Figure:
    """Panels with one legend for all. Curves differ by line style, marker and shade, so that grey is enough.

    Curves with error bars are moved apart a little, or the bars would hide each other. A panel with too many curves is
    divided into several with the same axes, side by side.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    from ternhost.report import plots  # takes long to import

    whole = [_divided(panel) for panel in panels]
    panels = [part for parts in whole for part in parts]
    columns = max(columns, *map(len, whole))
    rows = -(-len(panels) // columns)
    curves = sorted((curve for panel in panels for curve in panel.curves), key=lambda curve: curve.everywhere)
    labels = list(dict.fromkeys(curve.label for curve in curves))
    heights = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    width = 6.2 if columns == 1 else 4.8 * columns
    entry = 0.7 + 0.075 * max(len(name) for name in (*labels, *heights))  # inches of the legend
    legend_columns = max(1, int(width / entry))
    legend_rows = -(-(len(labels) + len(heights)) // legend_columns)
    figure = plots.blank(width, 3.5 * rows + 0.3 + 0.22 * legend_rows)
    grid = np.atleast_1d(figure.subplots(rows, columns)).reshape(-1)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    entries: dict[str, Any] = {}
    for axes, panel in zip(grid, panels, strict=False):
        plots.dress(axes)
        barred = [curve for curve in panel.curves if curve.error and any(curve.error)]
        for curve in panel.curves:
            i = labels.index(curve.label)
            aside = barred.index(curve) - (len(barred) - 1) / 2 if curve in barred else 0.0
            entries[curve.label] = axes.errorbar(
                _aside(curve.x, aside, panel.log_x),
                curve.y,
                curve.error,
                linestyle=_LINES[(i + i // len(_COLOURS)) % len(_LINES)] if curve.has_line else "none",
                marker=_MARKERS[i % len(_MARKERS)],
                color=_COLOURS[i % len(_COLOURS)],
                markerfacecolor="white" if i % 2 else None,
                markersize=5,
                linewidth=1.4,
                capsize=2,
                elinewidth=0.8,
            )
        for name, height in panel.lines.items():
            style = ((0, (4, 4)), (0, (1, 1)))[heights.index(name) % 2]
            entries[name] = axes.axhline(height, color="#222222", linewidth=1, linestyle=style)
        if panel.limits:
            axes.set_ylim(panel.limits)
        axes.set_title(panel.title, fontsize="medium")
        axes.set_xlabel(panel.across)
        axes.set_ylabel(panel.up)
        if panel.log_x:
            axes.set_xscale("log")
            axes.set_xticks(
                xs := sorted({x for curve in panel.curves for x in curve.x}), [f"{x:g}" for x in xs]
            )
            axes.xaxis.set_minor_formatter(NullFormatter())
        if panel.log_y:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
    drawn = iter(grid)
    for parts in whole:
        beside = [next(drawn) for _ in parts]
        for axes in beside[1:]:
            axes.sharex(beside[0])
            axes.sharey(beside[0])
        beside[0].autoscale_view()
    names = [*labels, *heights]
    figure.legend(
        [entries[name] for name in names], names, loc="outside upper center", ncols=legend_columns,
        frameon=False, fontsize="small", handlelength=3.2,
    )  # fmt: skip
    return figure


def _aside(x: Sequence[float], by: float, log: bool) -> Sequence[float]:
    if not by or len(x) < 2:
        return x
    at = np.asarray(x, np.float64)
    step = np.exp(by * _ASIDE * np.log(at[-1] / at[0])) if log else by * _ASIDE * (at[-1] - at[0])
    moved: list[float] = (at * step if log else at + step).tolist()
    return moved


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean of several runs and its standard error (0 of a single one)."""
    found = np.asarray(values, np.float64)
    return float(found.mean()), float(found.std(ddof=1) / len(found) ** 0.5) if len(found) > 1 else 0.0
