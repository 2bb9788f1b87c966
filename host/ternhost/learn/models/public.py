"""Public rows: the features of records, without labels, that are nobody's secret."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tern.fixed import ONE
from ternhost.datasets import Dataset, Indices, own
from ternhost.datasets.base import CONSTANT
from ternhost.datasets.schemas.schema import Schema
from ternhost.datasets.tables import reading
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError
from ternhost.learn.parameters import Floats
from ternhost.text import counted, whole_number

METAVAR = "FILE|N|none"
_NARROW = 0.02  # a hundredth of [-1, 1]: 1 % of the steps of Q1.14
_TIMES_WIDER = 10  # so much wider than the rows half of the records are, if the units differ
# The shares of rows and of records at the bounds of a column, if the units differ: values beyond the
# bounds become these.
_CLIPPED_ROWS, _CLIPPED_RECORDS = 0.9, 0.1
_SEED_OF_ROWS = 7  # beside the run's seed, so that the choice depends on nothing else


@dataclass(frozen=True)
class PublicRows:
    """Public rows of d features."""

    rows: Floats | None = None  # n x d real numbers; None: there are none
    # Positions of those rows that are records of the data set: no device gets them.
    reserved: Indices = field(default_factory=lambda: np.arange(0))
    name: str = ""  # in words


def declared(dataset: Dataset | None, enough: int = 1) -> str:
    """Return the value of --public for the rows that a data set declares to be public.

    It is their number; "none" if there are fewer than `enough`, or if no data set is known.
    """
    if dataset is None or len(dataset.public) < enough:
        return "none"
    return str(len(dataset.public))


def parse(
    text: str, dataset: Dataset | None, d: int, seed: int, schema: Schema | None = None
) -> PublicRows:
    """Find the public rows, features of records that are nobody's secret, for the option --public.

    text: the value of the option: the name of a CSV file, a number of rows of the data set, or
        "none".
    dataset: the data set that devices hold records of; None if only they know their records.
    d: the number of features.
    seed: the seed of the run; the choice among the data set's records depends on it.
    schema: of the records; a file that has its columns is scaled by it, as the records are.
    Raises UsageError for fewer rows than features, or for a file that cannot be used.
    """
    if text in ("", "none"):
        return PublicRows()
    number = whole_number(text)
    if number is None:
        has_constant = dataset is None or dataset.feature_names[0] == CONSTANT
        rows = read(Path(text), d, constant=has_constant, schema=schema)
        _require_enough(rows, d)
        _require_same_units(rows, dataset, text)
        if dataset is not None:
            _require_within_bounds(rows, dataset, text)
        return PublicRows(rows, name=f"the rows of {text}")

    if dataset is None:
        raise UsageError("--public needs a file where only the devices know the records")
    # First the rows that are declared public, then up to a third of the training records.
    order = np.random.default_rng([seed, _SEED_OF_ROWS]).permutation(dataset.training)
    available = np.append(dataset.public, order[: len(order) // 3])
    reserved = available[:number]
    rows = dataset.features[reserved] / ONE
    _require_enough(rows, d)
    return PublicRows(rows, reserved, f"{len(rows):,} public rows of {dataset.name}")


def _require_enough(rows: Floats, d: int) -> None:
    """Raise UsageError for fewer rows than features: they show no second moment."""
    if len(rows) < d:
        text = f"{counted(len(rows), 'public row')} for {d} features"
        raise UsageError(text, f"{d} or more, better 300, or none")


def _require_same_units(rows: Floats, dataset: Dataset | None, file: str) -> None:
    """Raise UsageError for public rows that are probably in other units than the records of the run.

    The values of such a column lie in a hundredth of [-1, 1] or less, or are all the same, and those
    of the records do not. A column whose records are nearly all the same as well, such as a rare
    category, is left out of the comparison. Where only the devices know their records, all columns
    must be like that: a single one may be so in the records, too.

    rows: n x d. dataset: of the records; None if only the devices know them. file: of the rows, for
    the message.
    """
    spans = np.ptp(rows, axis=0)
    is_narrow = spans < _NARROW
    if dataset is None:
        names = [f"column {number}" for number in range(1, rows.shape[1] + 1)]
        is_compared = ~(rows == 1).all(axis=0)  # all but the constant
        if not is_narrow[is_compared].all():
            return
        wrong = np.flatnonzero(is_narrow & is_compared)
    else:
        names = list(dataset.feature_names)
        records = dataset.features[dataset.training] / ONE
        first_quarter, last_quarter = np.quantile(records, (0.25, 0.75), axis=0)
        spans_of_records = last_quarter - first_quarter
        is_wide = spans_of_records >= np.maximum(_NARROW, _TIMES_WIDER * spans)
        wrong = np.flatnonzero(is_narrow & is_wide)
    if not len(wrong):
        return

    first = wrong[0]
    span = f"is {rows[0, first]:.3g} in every row"
    if spans[first] > 0:
        span = f"is only from {rows[:, first].min():.3g} to {rows[:, first].max():.3g}"
    more = ""
    if len(wrong) > 1:
        more = f", and {counted(len(wrong) - 1, 'other column')} as narrow"
    raise UsageError(
        f"{file}: {names[first]} {span}, of -1 to 1{more}, and in the records it varies more: "
        "these rows are in another unit, or from a small part of what the devices see",
        hint="use rows in the units of the records and from all of their range, or --public none",
    )


def _require_within_bounds(rows: Floats, dataset: Dataset, file: str) -> None:
    """Raise UsageError for public rows with values that are probably too large for their bounds.

    Such values are clipped to the bounds -1 and 1. Nearly all rows have these in some column, and
    nearly none of the records do.

    rows: n x d. dataset: of the records. file: of the rows, for the message.
    """
    records = dataset.features[dataset.training] / ONE
    is_clipped = (np.abs(rows) == 1).mean(axis=0) >= _CLIPPED_ROWS
    is_within = (np.abs(records) == 1).mean(axis=0) <= _CLIPPED_RECORDS
    wrong = np.flatnonzero(is_clipped & is_within)
    if len(wrong):
        raise UsageError(
            f"{file}: nearly all values of {dataset.feature_names[wrong[0]]} are at its bounds or "
            "beyond, and in the records they are not: these rows are probably in another unit",
            hint="use rows in the units of the records, or --public none",
        )


def read(path: Path, d: int, constant: bool = True, schema: Schema | None = None) -> Floats:
    """Read rows of d features each (n x d) from a table; a label after them is left out.

    constant: whether the first feature must be the constant 1.
    schema: of the records of the run. A table that names its columns is scaled by it. The
        values of any other table are features already.
    Raises UsageError if the first feature is another one, or if the file cannot be used.
    """
    table = reading.read(path)
    if schema is not None and _has_columns_of(schema, table):
        features = own.public_features_by(schema, table, constant=constant)
    else:
        features = own.public_features(table, d, constant=constant)
    return features / ONE


def _has_columns_of(schema: Schema, table: RawTable) -> bool:
    """Return whether a table names all columns that are features by a schema."""
    names = {column.name for column in schema.features}
    return table.has_header and names <= {*table.columns}
