"""Experiments that reproduce the results of the papers.

`tern papers NAME` runs one, and writes CSV, JSON and pictures. An experiment is a module, or a
figure of a paper. It has the function `cells(options)`, which returns the independent parts of the
work, and `outcome(options, tables)`, which makes the result of their rows. Another package
registers a module, which also has a `SUMMARY` for the help, by an entry point of the group
`tern.experiments`.
"""

import importlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import tern
from ternhost.errors import UsageError
from ternhost.planning.cells import Cell, FinishedCells, Tables, run_cells
from ternhost.registry import Registry
from ternpapers.base import Contender, Options, Outcome, write
from ternpapers.figure import Figure

__all__ = [
    "COMPARING",
    "EXPERIMENTS",
    "PAPERS",
    "Contender",
    "Options",
    "Outcome",
    "figures",
    "named",
    "run",
    "summaries",
    "write",
]

PAPERS = {
    "zhao": "figures of Zhao et al. 2021: Three-Outputs, PM-SUB, HM-TP",
    "wang": "figures of Wang et al. 2019: PM, HM",
    "hao": "figures of Hao et al. 2023: HierA",
    "shen": "figures of Shen et al. 2023: PLDP-FL",
    "mindspore": "figures of MindSpore's guide to protected inference results",
}
COMPARING = ("variance", "mean", "erm", "zhao", "wang")  # these compare mechanisms


class Computed(Protocol):
    """What `run` computes: an experiment, or a figure of a paper."""

    def cells(self, options: Options) -> list[Cell]:
        """Return the independent parts of the work. Raises UsageError for options that do not fit."""

    def outcome(self, options: Options, tables: Tables) -> Outcome:
        """Return the result. tables: the rows that all cells made, by table."""


class Experiment(Computed, Protocol):
    """The module of an experiment of another package."""

    SUMMARY: str  # a line for the help


# The experiments here, each in the module of its name. Those of other packages say their summaries.
_SUMMARIES = {
    "variance": "worst-case variance of every mechanism, with a lower bound",
    "mean": "errors of estimated means",
    "erm": "models trained with every mechanism, cross-validated",
    "coordinates": "how many coordinates a report should contain",
    "frequencies": "frequencies of categories, compared with other protocols",
    "reports-needed": "reports that tern needs for the loss of the papers' learner",
    "rates": "loss by learning rate",
    "statements": "whether the papers' statements about all their figures hold here",
}
_MODULES = {name: f"{__name__}.{name.replace('-', '_')}" for name in _SUMMARIES}
EXPERIMENTS: Registry[Experiment] = Registry("experiment", "tern.experiments", _MODULES)


def summaries() -> dict[str, str]:
    """Return a line about each paper and each experiment, by name."""
    lines = {**PAPERS, **_SUMMARIES}
    for name in EXPERIMENTS:
        if name not in lines:
            with suppress(ModuleNotFoundError):  # its package is not installed
                lines[name] = EXPERIMENTS[name].SUMMARY
    return lines


def figures(paper: str) -> dict[str, Figure]:
    """Return the figures and tables of a paper, by number."""
    module = importlib.import_module(f"ternpapers.papers.{paper}")
    numbered: dict[str, Figure] = module.FIGURES
    return numbered


def named(name: str, figure: str | None = None) -> Computed:
    """Return the experiment of that name, or a figure of the paper of that name.

    figure: the number of the figure, for a paper alone. Raises UsageError if there is none.
    """
    if name in PAPERS:
        numbered = figures(name)
        if figure not in numbered:
            text = f"name a figure of {name}"
            if figure:
                text = f"{name} has no figure {figure}"
            raise UsageError(text, hint=f"with --figure, one of: {', '.join(numbered)}")
        return numbered[figure]
    if name not in EXPERIMENTS:
        names = ", ".join((*PAPERS, *EXPERIMENTS))
        raise UsageError(f"there is no experiment {name!r}", hint=f"one of: {names}")
    if figure is not None:
        hint = f"leave --figure out, or name {', '.join(PAPERS)}"
        raise UsageError(f"the experiment {name!r} is of no paper", hint)
    return EXPERIMENTS[name]


def run(
    name: str, options: Options, directory: Path | None = None, figure: str | None = None
) -> Outcome:
    """Run an experiment, or compute a figure of a paper, on all processor cores.

    name, figure: as of `named`. directory: stores the results of finished cells, and the next call
    continues from there; None to store nothing. Raises UsageError for an invalid name or option, or
    a directory with cells of other options; StorageError if the directory cannot be read or
    written.
    """
    computed = named(name, figure)
    if options.contender is not None and name not in COMPARING:
        hint = f"leave out --mechanism, or run one of: {', '.join(COMPARING)}"
        raise UsageError(f"the experiment {name!r} compares no mechanisms", hint)
    if options.in_full and name not in PAPERS:
        text = f"the experiment {name!r} is of no paper, and has no --in-full"
        raise UsageError(text, hint="use --runs")

    cells = computed.cells(options)  # refuses wrong options before anything is written
    identity = {"experiment": name, "figure": figure, "tern": tern.__version__}
    finished = FinishedCells(directory, {**identity, **options.decisive})
    rows = run_cells(cells, finished, options.progress, options.workers)
    outcome = computed.outcome(options, rows)
    outcome_name = name
    if figure:
        outcome_name = f"{name}-{figure}"
    return replace(outcome, name=outcome_name)
