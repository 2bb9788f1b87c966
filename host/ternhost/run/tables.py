"""The tables of a result as CSV files, which lie in the run's directory beside result.json."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from ternhost.files import storage_errors, write_file
from ternhost.learn.distributions.distribution_entries import (
    CollectedDistribution,
    Shares,
    distributions_of,
)

HISTOGRAM_NAME = "histogram.csv"
QUANTILES_NAME = "quantiles.csv"
_HISTOGRAM_HEAD = (
    "attribute",
    "unit",
    "bin_low",
    "bin_high",
    "share",
    "share_low",
    "share_high",
    "share_true",
    "cumulative",
    "cumulative_low",
    "cumulative_high",
    "cumulative_true",
)
_QUANTILES_HEAD = ("attribute", "unit", "quantile", "value", "low", "high", "true", "reports")

Cell = str | float | None  # None is an empty cell


def write(result: Mapping[str, Any], directory: Path, afterwards: str) -> list[Path]:
    """Write the tables of a result into the run's directory, and return their paths.

    The result of a run that has collected quantiles has two tables: its quantiles, and its
    histograms with the cumulative distributions. Other results have none.

    afterwards: what the user can do once the reason of a failure is gone, as in `storage_errors`.
    Raises StorageError; then an older table stays.
    """
    distributions = distributions_of(result.get("attributes", ()))
    if not distributions:
        return []
    rows_by_name = {
        QUANTILES_NAME: (_QUANTILES_HEAD, *_quantile_rows(distributions)),
        HISTOGRAM_NAME: (_HISTOGRAM_HEAD, *_histogram_rows(distributions)),
    }
    paths = []
    for name, rows in rows_by_name.items():
        path = directory / name
        with storage_errors(what=path, afterwards=afterwards):
            write_file(path, _csv(rows))
        paths.append(path)
    return paths


def _csv(rows: Iterable[Sequence[Cell]]) -> bytes:
    """Return rows of cells as the bytes of a CSV file."""
    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([_text(cell) for cell in row])
    # A name in which a byte of a file was not UTF-8 has surrogates, which cannot be encoded.
    return text.getvalue().encode(errors="backslashreplace")


def _text(cell: Cell) -> str:
    """Write a cell; a number has ten digits, so that it shows no errors of rounding."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    return f"{cell:.10g}"


def _quantile_rows(distributions: Iterable[CollectedDistribution]) -> Iterator[Sequence[Cell]]:
    """Yield a row for each quantile of each distribution, with the cells of `_QUANTILES_HEAD`."""
    for distribution in distributions:
        for quantile in distribution.quantiles:
            yield (
                distribution.name,
                distribution.unit,
                quantile.level,
                quantile.value,
                quantile.low,
                quantile.high,
                quantile.true,
                distribution.reports,
            )


def _histogram_rows(distributions: Iterable[CollectedDistribution]) -> Iterator[Sequence[Cell]]:
    """Yield a row for each bin of each distribution, with the cells of `_HISTOGRAM_HEAD`."""
    for distribution in distributions:
        edges = distribution.histogram.edges.tolist()
        for index, (low, high) in enumerate(pairwise(edges)):
            yield (
                distribution.name,
                distribution.unit,
                low,
                high,
                *_cells(distribution.histogram, index),
                *_cells(distribution.cumulative, index),
            )


def _cells(shares: Shares, index: int) -> Sequence[Cell]:
    """Return four cells about a bin: its share, both ends of the interval, and the true share."""
    low, high = shares.interval[:, index].tolist()
    true = None
    if shares.true is not None:
        true = float(shares.true[index])
    return float(shares.shares[index]), low, high, true
