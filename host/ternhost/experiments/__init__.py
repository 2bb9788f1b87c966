"""Experiments that reproduce the results of the papers: `tern experiment NAME` writes CSV, JSON and
pictures.

An experiment, a module or a figure of a paper, has `cells(options)`, the units of work, and
`outcome(options, tables)`, which evaluates the rows of these cells.
"""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import tern
from ternhost.errors import UsageError
from ternhost.experiments.base import Contender, Options, Outcome, write
from ternhost.experiments.cells import Kept, tables
from ternhost.experiments.figure import Figure
from ternhost.registry import Registry

__all__ = [
    "COMPARING",
    "EXPERIMENTS",
    "PAPERS",
    "Contender",
    "Options",
    "Outcome",
    "figures",
    "run",
    "write",
]

PAPERS = {
    "zhao": "figures of Zhao et al. 2021: Three-Outputs, PM-SUB, HM-TP",
    "wang": "figures of Wang et al. 2019: PM, HM",
    "hao": "figures of Hao et al. 2023: HierA",
    "shen": "figures of Shen et al. 2023: PLDP-FL",
    "mindspore": "figures of MindSpore's guide to protected inference results",
}
EXPERIMENTS = {
    "variance": "worst-case variance of every mechanism, with a lower bound",
    "mean": "errors of estimated means",
    "erm": "models trained with every mechanism, cross-validated",
    "coordinates": "how many coordinates a report should contain",
    "frequencies": "frequencies of categories, compared with other protocols",
    "reports-needed": "reports that tern needs for the loss of the papers' learner",
    "rates": "loss by learning rate",
}
# Experiments of other packages: modules with a SUMMARY in addition.
OTHERS: Registry[Any] = Registry("experiment", "tern.experiments", {})
COMPARING = ("variance", "mean", "erm", "zhao", "wang")  # these compare mechanisms


def summaries() -> dict[str, str]:
    """What each experiment is about, by its name."""
    others = {name: experiment.SUMMARY for name, experiment in OTHERS.items()}
    return {**PAPERS, **EXPERIMENTS, **others}


def figures(paper: str) -> dict[str, Figure]:
    """The figures and tables of a paper, by number."""
    found: dict[str, Figure] = importlib.import_module(
        f"ternhost.experiments.papers.{paper}"
    ).FIGURES
    return found


def _experiment(name: str, figure: str | None) -> Any:
    if name in PAPERS:
        known = figures(name)
        if figure not in known:
            text = f"{name} has no figure {figure}" if figure else f"name a figure of {name}"
            raise UsageError(text, hint=f"with --figure, one of: {', '.join(known)}")
        return known[figure]
    if name not in EXPERIMENTS and name not in OTHERS:
        names = ", ".join((*PAPERS, *EXPERIMENTS, *OTHERS))
        raise UsageError(f"there is no experiment {name!r}", hint=f"one of: {names}")
    if figure is not None:
        raise UsageError(
            f"the experiment {name!r} is of no paper",
            hint=f"leave --figure out, or name {', '.join(PAPERS)}",
        )
    if name in OTHERS:
        return OTHERS[name]
    return importlib.import_module(f"ternhost.experiments.{name.replace('-', '_')}")


def run(
    name: str, options: Options, directory: Path | None = None, figure: str | None = None
) -> Outcome:
    """Run an experiment, or compute a figure of a paper, on all cores. directory: stores the
    finished cells, and the next call continues from there.

    Raises UsageError for an invalid name or option, or a directory with cells of other options;
    StorageError if the directory cannot be read or written.
    """
    experiment = _experiment(name, figure)
    if options.contender is not None and name not in COMPARING:
        hint = f"leave out --mechanism, or run one of: {', '.join(COMPARING)}"
        raise UsageError(f"the experiment {name!r} compares no mechanisms", hint)
    if options.in_full and name not in PAPERS:
        raise UsageError(
            f"the experiment {name!r} is of no paper, and has no --in-full", hint="use --runs"
        )
    cells = experiment.cells(options)
    kept = Kept(
        directory,
        {"experiment": name, "figure": figure, "tern": tern.__version__, **options.decisive},
    )
    outcome: Outcome = experiment.outcome(
        options, tables(cells, kept, options.progress, options.workers)
    )
    return replace(outcome, name=f"{name}-{figure}" if figure else name)
