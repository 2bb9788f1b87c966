"""Experiments that reproduce the results of the papers: `tern experiment NAME` writes CSV, JSON and pictures.

Each module has `SUMMARY`, one line; `cells(options)`, the units of work; and `outcome(options, tables)`, the evaluation
of the rows of these cells.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import tern
from ternhost.errors import UsageError
from ternhost.experiments.base import Contender, Options, Outcome, write
from ternhost.experiments.cells import Kept, tables

__all__ = ["COMPARING", "NAMES", "Contender", "Options", "Outcome", "run", "summary", "write"]

NAMES = (
    "variance", "mean", "erm", "discretisation", "hiera", "pldp", "inference", "coordinates", "frequencies",
    "reports-needed", "rates",
)  # fmt: skip
COMPARING = ("variance", "mean", "erm", "pldp")  # those that compare mechanisms


def _module(name: str) -> Any:
    if name not in NAMES:
        raise UsageError(f"there is no experiment {name!r}", hint=f"one of: {', '.join(NAMES)}")
    return importlib.import_module(f"ternhost.experiments.{name.replace('-', '_')}")


def summary(name: str) -> str:
    """The summary of an experiment in one line."""
    text: str = _module(name).SUMMARY
    return text


def run(name: str, options: Options, directory: Path | None = None) -> Outcome:
    """Run an experiment on all cores. directory: stores finished cells, from which the next call continues.

    Raises UsageError for an invalid name or option, and for a directory with cells of other options.
    """
    module = _module(name)
    if options.contender is not None and name not in COMPARING:
        raise UsageError(
            f"the experiment {name!r} compares no mechanisms",
            hint=f"leave --mechanism out; it is for {', '.join(COMPARING)}",
        )
    cells = module.cells(options)
    kept = Kept(directory, {"experiment": name, "tern": tern.__version__, **options.decisive})
    outcome: Outcome = module.outcome(options, tables(cells, kept, options.progress, options.workers))
    return replace(outcome, name=name)
