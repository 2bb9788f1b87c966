"""IPUMS International extracts: CSV files of census records, a column a variable, named in the first line.

The papers use extracts of Brazil and Mexico and predict total income. Anyone may have an extract made, with variables
of their choice; it may not be passed on, so none comes with tern.
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

FILES = ("ipums.csv", "ipums.csv.gz")
SOURCE = "https://international.ipums.org (an extract of your own, as CSV)"
INCOME = "INCTOT"
_MOST_CATEGORIES = 64


@dataclass(frozen=True)
class Numeric:
    """The domain of a numeric variable (values outside are clipped to it), and the codes that are no numbers.

    `high` None: the largest value of the extract, for amounts in a currency that had other values every year.
    """

    low: float
    high: float | None
    missing: tuple[int, ...] = ()


# Domains and codes for "unknown" and "not in universe" as in IPUMS International's variable descriptions.
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
# Identifiers and weights say nothing about a person.
TECHNICAL = {"COUNTRY", "YEAR", "SAMPLE", "SERIAL", "PERNUM", "HHWT", "PERWT", "STRATA", "CLUSTER"}


def ipums(path: Path | None = None, *, dataset: str = "ipums") -> Table:
    """All variables of an extract but the technical ones, as a table with the name `dataset`.

    The CSV may be packed with gzip. Variables of NUMERIC are numeric; all others are categorical, and their values
    those that occur. Records in which a numeric variable is missing are skipped.
    Raises UsageError if the file is missing or no such extract, or a categorical variable has more than 64 values.
    """
    import pandas

    file = find_file(dataset, path, FILES, SOURCE)
    try:
        frame = pandas.read_csv(file, compression="infer", low_memory=False)
    except (OSError, EOFError, ValueError, zlib.error) as error:  # pandas' own errors are ValueErrors
        raise bad_file(file, f"not a CSV file ({str(error).strip()})", SOURCE) from error
    frame.columns = [str(name).strip().upper() for name in frame.columns]
    names = [name for name in frame.columns if name not in TECHNICAL]
    numbers = [name for name in names if name in NUMERIC]
    groups = [name for name in names if name not in NUMERIC]
    if not numbers or not len(frame):
        raise bad_file(file, f"no records with a numeric variable such as AGE or {INCOME}", SOURCE)
    whole = _present(frame, numbers, file)
    kept = frame[whole]
    if not len(kept):
        raise bad_file(file, "no record has all of its numeric variables", SOURCE)
    columns = [_normalised(kept[name], NUMERIC[name]) for name in numbers]
    codes, categories = [], []
    for name in groups:
        values, distinct = pandas.factorize(kept[name].fillna("missing").astype(str), sort=True)
        if len(distinct) > _MOST_CATEGORIES:
            raise UsageError(
                f"{file}: {name} has {len(distinct)} different values, too many for a categorical variable",
                hint="leave it out of the extract",
            )
        codes.append(values.astype(np.int16))
        categories.append(tuple(str(value) for value in distinct))
    return Table(
        dataset,
        tuple(numbers),
        np.stack(columns, axis=1),
        tuple(groups),
        np.stack(codes, axis=1) if codes else None,
        tuple(categories),
    )


def _normalised(values: pandas.Series, domain: Numeric) -> Fixed:
    return normalised(values, domain.low, values.max() if domain.high is None else domain.high)


def _present(frame: pandas.DataFrame, names: list[str], file: Path) -> pandas.Series:
    import pandas

    whole = pandas.Series(True, index=frame.index)
    for name in names:
        values = pandas.to_numeric(frame[name], errors="coerce")
        if (values.isna() & frame[name].notna()).any():
            raise bad_file(file, f"{name} holds something that is no number", SOURCE)
        whole &= values.notna() & ~values.isin(NUMERIC[name].missing)
    return whole
