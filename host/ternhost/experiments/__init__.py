"""Experiments that reproduce the results of the papers: `tern experiment NAME` writes CSV, JSON and pictures.

The module of an experiment has `cells(options)`, the units of work, and `outcome(options, tables)`, which evaluates the
rows of these cells."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import tern
from ternhost.errors import UsageError
from ternhost.experiments.base import Contender, Options, Outcome, write
from ternhost.experiments.cells import Kept, tables

__all__ = ["COMPARING", "EXPERIMENTS", "Contender", "Options", "Outcome", "run", "write"]

EXPERIMENTS = {
    "variance": "worst-case variance of every mechanism, with a lower bound",
    "mean": "errors of estimated means",
    "erm": "models trained with every mechanism, cross-validated",
    "discretisation": "loss of PM-SUB with few outputs",
    "hiera": "HierA compared with Laplace, PM and Harmony",
    "pldp": "PLDP-FL by round, mode and tau",
    "inference": "clusters of protected inference results",
    "coordinates": "how many coordinates a report should contain",
    "frequencies": "frequencies of categories, compared with other protocols",
    "reports-needed": "reports that tern needs for the loss of the papers' learner",
    "rates": "loss by learning rate",
}
COMPARING = ("variance", "mean", "erm", "pldp")  # these compare mechanisms


def _module(name: str) -> Any:
    if name not in EXPERIMENTS:
        raise UsageError(f"there is no experiment {name!r}", hint=f"one of: {', '.join(EXPERIMENTS)}")
    return importlib.import_module(f"ternhost.experiments.{name.replace('-', '_')}")


def run(name: str, options: Options, directory: Path | None = None) -> Outcome:
    """Run an experiment on all cores. directory: stores the finished cells, and the next call continues from there.

    Raises UsageError for an invalid name or option, or a directory with cells of other options; StorageError if the
    directory cannot be read or written."""
    module = _module(name)
    if options.contender is not None and name not in COMPARING:
        hint = f"leave out --mechanism, or run one of: {', '.join(COMPARING)}"
        raise UsageError(f"the experiment {name!r} compares no mechanisms", hint)
    cells = module.cells(options)
    kept = Kept(directory, {"experiment": name, "tern": tern.__version__, **options.decisive})
    outcome: Outcome = module.outcome(options, tables(cells, kept, options.progress, options.workers))
    return replace(outcome, name=name)
