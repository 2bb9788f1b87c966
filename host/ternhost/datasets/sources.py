"""Where data sets come from, by name, and the sources of tern's own.

Another package registers a `Source` by an entry point of the group `tern.datasets`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ternhost.datasets.base import CLASSIFICATION, REGRESSION, Dataset, Table
from ternhost.datasets.shipped import bundled, nycflights, synthetic


@dataclass(frozen=True)
class Source:
    """A data set for training: how it is read, and what it is for.

    - read: called with the path of its file, or None to search for it; raises UsageError for a
      missing or malformed file
    - task: that of the data set that `ternhost.datasets.load` makes of it
    - positive: if it has several classes, those that a two-class model tells from the rest
    - has_file: whether users must get a file themselves
    - table: reads the attributes for collecting, if these are not the features
    - about: a line for lists of data sets: what is to be told from what
    """

    read: Callable[[Path | None], Dataset]
    task: str = CLASSIFICATION
    positive: tuple[str, ...] = ()
    has_file: bool = False
    table: Callable[[Path | None], Table] | None = None
    about: str = ""


def _without_file(read: Callable[[], Dataset], about: str, task: str = CLASSIFICATION) -> Source:
    """Return the source of a data set that is read without a path, which is ignored."""
    return Source(lambda _: read(), task, about=about)


def _bundled(name: str, positive: tuple[str, ...], about: str) -> Source:
    """Return the source of a data set of several classes that comes with scikit-learn."""
    read = partial(bundled.multiclass, name)
    return Source(lambda _: read(), positive=positive, about=about)


FLIGHTS = _without_file(
    nycflights.flights, "whether a flight of New York in 2013 arrives late, known at departure"
)
FLIGHTS_PLANNED = _without_file(
    nycflights.planned_flights, "the same, from the plan and the weather alone"
)
DIABETES = _without_file(
    bundled.diabetes, "the progress of diabetes in a year, from ten measurements", REGRESSION
)
SYNTHETIC_LINEAR = _without_file(
    synthetic.linear, "a hidden linear rule of 15 uniform features, with little noise", REGRESSION
)
SYNTHETIC_LOGISTIC = _without_file(
    synthetic.logistic, "the noisy sign of a hidden linear rule of 15 uniform features"
)
BREAST_CANCER = _bundled(
    "breast-cancer", ("benign",), "whether a tumour is benign, from 30 measurements of cells"
)
DIGITS = _bundled("digits", ("1", "3", "5", "7", "9"), "a digit in a picture of 8 x 8 pixels")
IRIS = _bundled("iris", ("virginica",), "the species of an iris, from four lengths")
WINE = _bundled("wine", ("class_0",), "the cultivar of a wine, from 13 measurements")
