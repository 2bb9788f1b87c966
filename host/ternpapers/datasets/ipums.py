"""Extracts of IPUMS International: CSV files of census records, whose first line names the
variables.

Anyone can order an extract with variables of their choice. Extracts may not be passed on, so tern
brings none. The papers do not name the variables of theirs, except for the total income, which
their models predict. In order of the columns: who used it, the country, millions of records, and
how many of the attributes are numbers and how many are categories.

    Zhao et al.  Brazil         4     6  10
    Zhao et al.  Mexico         4     5  14
    Hao et al.   Brazil         3.86  4   6   (2010)
    Hao et al.   United States  1.52  5   5   (2010)
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ternhost.datasets.base import Fixed, Table, bad_file, find_file, normalised
from ternhost.errors import UsageError

if TYPE_CHECKING:
    import pandas

NAME = "ipums"  # of the data set
FILES = ("ipums.csv", "ipums.csv.gz")
SOURCE = "https://international.ipums.org (an extract of your own, as CSV)"
INCOME = "INCTOT"
_MOST_CATEGORIES = 64


@dataclass(frozen=True)
class Numeric:
    """The domain of a numeric variable, and its codes for missing values.

    low, high: the domain, to which values are clipped. high is None for amounts of money, since the
    value of a currency changes; then the largest value of the extract is the upper end. missing:
    the codes that stand for "unknown" or "not in universe".
    """

    low: float
    high: float | None
    missing: tuple[int, ...] = ()


# Domains and codes for "unknown" and "not in universe" as in IPUMS International's variable
# descriptions.
NUMERIC = {
    "AGE": Numeric(0, 100, (999,)),
    "FAMSIZE": Numeric(1, 30),
    "NCHILD": Numeric(0, 9),
    "NCHLT5": Numeric(0, 9),
    "CHBORN": Numeric(0, 30, (98, 99)),
    "CHSURV": Numeric(0, 30, (98, 99)),
    "YRSCHOOL": Numeric(0, 18, tuple(range(90, 100))),
    "HRSWORK1": Numeric(0, 140, (998, 999)),
    "HRSMAIN": Numeric(0, 140, (998, 999)),
    "ROOMS": Numeric(0, 30, (98, 99)),
    "PERSONS": Numeric(1, 30),
    "INCTOT": Numeric(0, None, (9999998, 9999999)),
    "INCEARN": Numeric(0, None, (99999998, 99999999)),
    "INCWAGE": Numeric(0, None, (99999998, 99999999, 9999998, 9999999)),
}
# Categorical variables whose codes are in an order, such as from no school to university.
ORDERED = ("EDATTAIN", "LIT", "SPEAKENG")
# Identifiers and weights say nothing about a person.
TECHNICAL = {"COUNTRY", "YEAR", "SAMPLE", "SERIAL", "PERNUM", "HHWT", "PERWT", "STRATA", "CLUSTER"}


def ipums(path: Path | None = None, *, dataset: str = NAME) -> Table:
    """Read all variables of an extract but the technical ones, as a table named `dataset`.

    The CSV may be packed with gzip. Variables of NUMERIC are numeric. All others are categorical,
    with the categories that occur. Records without a numeric variable are skipped. Raises
    UsageError if the file is missing or no such extract, or a categorical variable has more than 64
    categories.
    """
    file = find_file(dataset, path, FILES, SOURCE)
    frame = _read_frame(file)
    numeric, categorical = [], []
    for name in frame.columns:
        if name in NUMERIC:
            numeric.append(name)
        elif name not in TECHNICAL:
            categorical.append(name)
    if not numeric or not len(frame):
        raise bad_file(file, f"no records with a numeric variable such as AGE or {INCOME}", SOURCE)
    frame = frame[_is_complete(frame, numeric, file)]
    if not len(frame):
        raise bad_file(file, "no record has all of its numeric variables", SOURCE)

    columns = [_scaled(frame, name) for name in numeric]
    codes, categories = _coded(frame, categorical, file)
    return Table(
        name=dataset,
        numeric_names=tuple(numeric),
        numeric=np.stack(columns, axis=1),
        categorical_names=tuple(categorical),
        codes=codes,
        categories=categories,
    )


def variable(name: str, path: Path | None = None) -> Fixed:
    """Read one variable of an extract, of all records that have it, wherever its column stands.

    name: one of NUMERIC. Raises UsageError if the file is missing, or it has no such values.
    """
    file = find_file(NAME, path, FILES, SOURCE)
    frame = _read_frame(file)
    if name not in frame:
        raise UsageError(
            f"{file} has no variable {name}", f"order an extract with it from {SOURCE}"
        )
    frame = frame[_is_complete(frame, [name], file)]
    if not len(frame):
        raise bad_file(file, f"no record has the variable {name}", SOURCE)
    return _scaled(frame, name)


def _scaled(frame: pandas.DataFrame, name: str) -> Fixed:
    """Return a numeric variable of complete records in Q1.14, scaled by its domain."""
    low, high = NUMERIC[name].low, NUMERIC[name].high
    if high is None:
        high = frame[name].max()
    return normalised(frame[name], low, high)


def _read_frame(file: Path) -> pandas.DataFrame:
    """Read the CSV file, with its variables in upper case. Raises UsageError."""
    import pandas

    try:
        frame = pandas.read_csv(file, compression="infer", low_memory=False)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        # The errors of pandas are ValueErrors.
        raise bad_file(file, f"not a CSV file ({str(error).strip()})", SOURCE) from error
    frame.columns = [str(name).strip().upper() for name in frame.columns]
    return frame


def _coded(
    frame: pandas.DataFrame, names: list[str], file: Path
) -> tuple[Fixed | None, tuple[tuple[str, ...], ...]]:
    """Return the codes of categorical variables (n x variables), and the categories of each.

    The codes are None if there are no variables. Raises UsageError for too many categories.
    """
    import pandas

    codes, categories = [], []
    for name in names:
        values = frame[name].fillna("missing").astype(str)
        positions, distinct = pandas.factorize(values, sort=True)
        if len(distinct) > _MOST_CATEGORIES:
            text = f"{file}: {name} has {len(distinct)} different values, too many for a categorical variable"
            raise UsageError(text, f"leave {name} out of the extract")
        codes.append(positions.astype(np.int16))
        categories.append(tuple(str(value) for value in distinct))
    if not codes:
        return None, ()
    return np.stack(codes, axis=1), tuple(categories)


def _is_complete(frame: pandas.DataFrame, names: list[str], file: Path) -> pandas.Series:
    """Return, for each record, whether it has all of these numeric variables.

    Raises UsageError for a value that is not a number.
    """
    import pandas

    complete = pandas.Series(True, index=frame.index)
    for name in names:
        values = pandas.to_numeric(frame[name], errors="coerce")  # no number becomes nan
        is_no_number = values.isna() & frame[name].notna()
        if is_no_number.any():
            raise bad_file(file, f"{name} has values that are not numbers", SOURCE)
        complete &= values.notna() & ~values.isin(NUMERIC[name].missing)
    return complete
