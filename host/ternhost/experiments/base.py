"""What all experiments share: their options, what they give, and how that is written down."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tern.card import Card, decode
from ternhost import datasets
from ternhost.errors import StorageError, UsageError
from ternhost.experiments.cells import Row, finite
from ternhost.privacy import mechanisms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASET = "flights-planned"  # where nobody names another
BUNDLED = (
    DATASET, "synthetic-logistic", "breast-cancer", "digits", "iris", "wine", "synthetic-linear", "diabetes",
)  # fmt: skip
SMALL = 2000  # records of a set that is small
CLIENTS = 20_000  # that hold the records of a small set, many of them the same


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

    `contender` is compared with those of the experiment. `progress` hears how far it is. `workers` are the processes
    that it may use, by default one a core; they change no figure.
    """

    dataset: str | None = None
    runs: int | None = None
    quick: bool = False
    seed: int = 1
    contender: Contender | None = None
    progress: Callable[[str], None] = lambda message: None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.runs is not None and self.runs < 1:
            raise UsageError(f"--runs must be 1 or more, not {self.runs}")
        if self.seed < 0:
            raise UsageError(f"--seed must be 0 or more, not {self.seed}")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers must be 1 or more, not {self.workers}")

    @property
    def asked(self) -> dict[str, Any]:
        """What decides the figures, for the record of what is kept."""
        own = {"dataset": self.dataset, "runs": self.runs, "quick": self.quick, "seed": self.seed}
        return {**own, "mechanism": self.contender and self.contender.label}

    def runs_or(self, full: int, quick: int) -> int:
        """The number of runs asked for, or a default."""
        if self.runs is not None:
            return self.runs
        return quick if self.quick else full

    def sets(self, *names: str) -> tuple[str, ...]:
        """The data set asked for, or these. Raises UsageError where the one asked for cannot be loaded."""
        if self.dataset is None:
            return names
        load(self.dataset)
        return (self.dataset,)

    def compared(self, *names: str) -> dict[str, Contender]:
        """The mechanisms to compare, by label: these, what other packages have added, and the one asked for.

        A quick look leaves out those that take long to design.
        """
        slow = {name for name in names if self.quick and mechanisms.REGISTRY.named(name).slow}
        found = [Contender(name) for name in (*names, *mechanisms.added()) if name not in slow]
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
    from ternhost.run.report import plots  # takes long to import

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
        path.write_text(json.dumps(finite(whole), indent=1) + "\n")
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


@lru_cache(maxsize=8)
def load(name: str) -> datasets.Dataset:
    """`datasets.load`, for cells: they share a process."""
    return datasets.load(name)


def two_classes(name: str) -> datasets.Dataset:
    """The data set of that name, for an experiment that tells two classes apart. Raises UsageError for another."""
    dataset = load(name)
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
