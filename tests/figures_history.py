"""The measured figures of the device library by commit: what each change has cost or saved."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from ternhost.errors import UsageError
from ternhost.plots import canvas

_PANEL_WIDTH = 5.0  # inches
_PANEL_HEIGHT = 2.4  # inches
_COLUMNS = 2
_ONE_PERCENT = 0.01


@dataclass(frozen=True)
class Commit:
    """A commit that changed the file of figures.

    short: its hash, shortened. date: as 2026-11-30. subject: the first line of its message.
    figures: the value of each figure by its name, such as "pico_emulated us_per_report". before:
    the same before the commit.
    """

    short: str
    date: str
    subject: str
    figures: Mapping[str, float]
    before: Mapping[str, float]


def commits(path: Path) -> list[Commit]:
    """Read the figures of each commit that changed the file at `path`, the oldest first.

    Merges are left out. Raises UsageError if the file is in no Git repository, or if no commit has it.
    """
    options = ("--reverse", "--topo-order", "--no-merges", "--format=%h\t%cs\t%s")
    log = _git(path, "log", *options, "--", path.name)
    found = []
    for line in log.splitlines():
        short, date, subject = line.split("\t", 2)
        figures = _figures_at(short, path)
        if figures:
            found.append(Commit(short, date, subject, figures, _figures_at(f"{short}^", path)))
    if not found:
        hint = "clone the whole repository, and run the command in the clone"
        raise UsageError(f"no commit has {path.name}", hint)
    return found


def _figures_at(revision: str, path: Path) -> dict[str, float]:
    """Return the figures of a revision, and none if it does not have the file or does not exist."""
    try:
        text = _git(path, "show", f"{revision}:./{path.name}")
    except UsageError:
        return {}
    return dict(_flat(json.loads(text)))


def _git(path: Path, *arguments: str) -> str:
    """Return what git prints when it runs in the folder of `path`. Raises UsageError."""
    command = ["git", "-C", str(path.parent), *arguments]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        hint = "git must be installed, and the folder must be a clone of tern"
        raise UsageError(f"git gives no history of {path.name}", hint) from error


def _flat(figures: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each figure of a file.

    The sizes of a board's modules become one figure, which is their sum.
    """
    for board, values in figures.items():
        for name, value in values.items():
            if isinstance(value, dict):
                yield f"{name} {board}", sum(value.values())
            elif isinstance(value, (int, float)):
                yield f"{board} {name}", value


def changes(history: Sequence[Commit]) -> Iterator[str]:
    """Yield a line for each commit that changed a figure by at least 1 %, and for each such figure."""
    for commit in history:
        changed = []
        for name, value in commit.figures.items():
            old = commit.before.get(name)
            if old and abs(value / old - 1) >= _ONE_PERCENT:
                changed.append(f"    {name}: {old:,.7g} -> {value:,.7g} ({value / old - 1:+.1%})")
        if changed:
            yield f"{commit.short} {commit.date} {commit.subject}"
            yield from changed


def draw(history: Sequence[Commit]) -> Figure:
    """Draw a panel for each figure that the last commit has.

    The horizontal axis has the commits in their order. A dashed line shows the best value so far.
    """
    names = list(history[-1].figures)
    rows = math.ceil(len(names) / _COLUMNS)
    figure = canvas.blank(_PANEL_WIDTH * _COLUMNS, _PANEL_HEIGHT * rows)
    panels = figure.subplots(rows, _COLUMNS, squeeze=False).flat
    for axes in panels:
        axes.set_visible(False)

    last = len(history) - 1
    ticks = sorted({0, last // 2, last})
    labels = [f"{history[tick].short}\n{history[tick].date}" for tick in ticks]
    for axes, name in zip(figure.axes, names, strict=False):
        axes.set_visible(True)
        canvas.dress(axes)
        values = [commit.figures.get(name, math.nan) for commit in history]
        axes.plot(values, drawstyle="steps-post", color=canvas.DARK)
        best = min(value for value in values if not math.isnan(value))
        axes.axhline(best, linestyle="--", color=canvas.MIDDLE)
        axes.set_xlim(-0.5, last + 0.5)
        axes.set_xticks(ticks, labels, fontsize="small")
        axes.set_title(f"{name}: {values[-1]:,.7g}, best {best:,.7g}", loc="left", fontsize="small")
    return figure
