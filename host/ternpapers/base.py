"""Options and results of experiments, and the files of the results."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tern.card import Card
from ternhost import datasets
from ternhost.errors import UsageError
from ternhost.files import storage_errors
from ternhost.planning.cells import Row, finite
from ternhost.privacy import mechanisms
from ternpapers import mechanisms as papers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASET = "flights-planned"  # the default for training
BUNDLED = (
    DATASET,
    "synthetic-logistic",
    "breast-cancer",
    "digits",
    "iris",
    "wine",
    "synthetic-linear",
    "diabetes",
)
SMALL = 2000  # a data set with fewer records is small
CLIENTS = 20_000  # so many report if the data set is small; many of them hold the same record


def others() -> list[str]:
    """Return the names of mechanisms that programs or other packages have added.

    Only those are named whose reports are numbers, so that they can be averaged.
    """
    built_in = {*mechanisms.OWN, *papers.NAMES}
    added = [name for name in mechanisms.REGISTRY if name not in built_in]
    return [name for name in added if mechanisms.REGISTRY[name].single_valued]


@dataclass(frozen=True)
class Contender:
    """A mechanism to compare.

    levels: the number of outputs; None for the default. Raises UsageError if its reports cannot be
    averaged.
    """

    name: str
    levels: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError unless the mechanism is single-valued."""
        mechanism = mechanisms.REGISTRY.named(self.name)
        if not mechanism.single_valued:
            text = f"the reports of {self.name} cannot be averaged"
            raise UsageError(text, hint="name another --mechanism")

    @property
    def label(self) -> str:
        """The name of the mechanism and its number of outputs, for tables and pictures."""
        words = [self.name]
        if self.levels is not None:
            words.append(f"{self.levels} levels")
        return ", ".join(words)

    def card(self, epsilon: int, use: str | None = None) -> Card:
        """Return the mechanism's card, which is the table from which a device draws its report.

        It is designed once. epsilon: in millionths. use: what the card is tuned for, if the
        mechanism can be tuned.
        """
        return _card(self, epsilon, use)


@dataclass(frozen=True)
class Options:
    """Options of an experiment; None means the default of the experiment.

    - data: the name of a data set
    - runs: how often it is repeated
    - quick: whether to run a small version
    - seed: that of all random numbers
    - contender: a mechanism to compare with those of the experiment
    - progress: called with a line of text after each part
    - workers: the number of processes, by default one for each processor core; the results do not
      depend on it
    - in_full: whether to run as often as the paper does

    Raises UsageError for a number that is too small.
    """

    data: str | None = None
    runs: int | None = None
    quick: bool = False
    seed: int = 1
    contender: Contender | None = None
    progress: Callable[[str], None] = lambda message: None
    workers: int | None = None
    in_full: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for a number that is too small, or options that exclude each other."""
        if self.runs is not None and self.runs < 1:
            raise UsageError(f"--runs must be 1 or more, not {self.runs}")
        if self.seed < 0:
            raise UsageError(f"--seed must be 0 or more, not {self.seed}")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers must be 1 or more, not {self.workers}")
        if self.quick and self.in_full:
            raise UsageError("--quick and --in-full exclude each other")

    @property
    def decisive(self) -> dict[str, Any]:
        """The options that determine the results, which the file of finished cells begins with."""
        names = ("data", "runs", "quick", "seed", "in_full")
        options = {name: getattr(self, name) for name in names}
        options["mechanism"] = None
        if self.contender is not None:
            options["mechanism"] = self.contender.label
        return options

    @property
    def chosen(self) -> list[str]:
        """The names of the options by which the user has chosen the data, the runs or a mechanism."""
        choices = {"data": self.data, "runs": self.runs, "mechanism": self.contender}
        return [name for name, choice in choices.items() if choice is not None]

    def require_no_runs(self) -> None:
        """Raise UsageError if the user has chosen a number of runs, for a figure that has none."""
        if self.runs is not None:
            raise UsageError("this figure is exact, and has no runs", hint="leave --runs out")

    def runs_or(self, default: int, quick: int, paper: int | None = None) -> int:
        """Return the number of runs: --runs, else `quick` with --quick, or `paper` with --in-full."""
        if self.runs is not None:
            return self.runs
        if self.quick:
            return quick
        if self.in_full and paper:
            return paper
        return default

    def seeds(self, default: int, quick: int, step: int = 1, paper: int | None = None) -> range:
        """Return the first seed of each run.

        default, quick, paper: numbers of runs, as of `runs_or`. step: how many seeds a run uses.
        """
        runs = self.runs_or(default, quick, paper)
        return range(self.seed, self.seed + step * runs, step)

    def sets(self, *names: str) -> tuple[str, ...]:
        """Return the names of the data sets: --data alone, or these.

        Raises UsageError if --data cannot be loaded.
        """
        if self.data is None:
            return names
        load(self.data)
        return (self.data,)

    def compared(self, *names: str) -> dict[str, Contender]:
        """Return the mechanisms to compare, by label.

        They are these, those of other packages, and the contender. The quick version leaves out
        mechanisms whose design is slow.
        """
        contenders: dict[str, Contender] = {}
        for name in (*names, *others()):
            is_slow = name in names and mechanisms.REGISTRY.named(name).slow
            is_left_out = self.quick and is_slow
            if not is_left_out:
                contender = Contender(name)
                contenders[contender.label] = contender
        if self.contender is not None:
            contenders[self.contender.label] = self.contender
        return contenders


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment.

    settings: what it was computed with. tables: lists of rows with the same columns, by name.
    figures: pictures by name. lines: what it says in words. name: that of the experiment.
    """

    settings: Mapping[str, Any]
    tables: Mapping[str, Sequence[Row]]
    figures: Mapping[str, "Figure"]
    lines: Sequence[str] = ()
    name: str = ""


def write(outcome: Outcome, directory: Path) -> list[Path]:
    """Write a CSV for each table, a PNG for each figure and one JSON; return their paths.

    Raises StorageError.
    """
    from ternhost.plots import canvas  # takes long to import

    paths = []
    with storage_errors("name another directory with --output", directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name, rows in outcome.tables.items():
            path = directory / f"{name}.csv"
            _write_table(path, rows)
            paths.append(path)

        path = directory / f"{outcome.name}.json"
        content = {
            "experiment": outcome.name,
            "settings": outcome.settings,
            "tables": outcome.tables,
            "lines": outcome.lines,
        }
        path.write_text(json.dumps(finite(content), indent=1) + "\n")
        paths.append(path)

    for name, figure in outcome.figures.items():
        path = directory / f"{name}.png"
        canvas.save(figure, path)
        paths.append(path)
    return paths


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write rows with the same columns as a CSV file. Raises OSError."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


@lru_cache(maxsize=8)
def load(name: str, classes: bool = False) -> datasets.Dataset:
    """Load a data set as `datasets.load` does, and cache it for the cells of a process.

    classes: whether labels are the numbers of the classes, from 0.
    """
    return datasets.load(name, classes=classes)


def two_classes(name: str) -> datasets.Dataset:
    """Load the data set of that name. Raises UsageError unless it has two classes."""
    dataset = load(name)
    if dataset.task != datasets.CLASSIFICATION:
        raise UsageError(f"the labels of {name} are not two classes", hint="name another --data")
    return dataset


@lru_cache(maxsize=512)
def _card(contender: Contender, epsilon: int, use: str | None) -> Card:
    """Design the card of `Contender.card`."""
    designed = mechanisms.design(
        contender.name, levels=contender.levels, epsilon_micro=epsilon, use=use
    )
    return designed.decode()
