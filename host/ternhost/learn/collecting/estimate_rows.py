"""What a run has collected, as rows of a table for people."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ternhost.learn.collecting.attribute_results import in_unit, most_frequent
from ternhost.learn.distributions.distribution_entries import CollectedDistribution

MOST_CATEGORIES = 5  # of an attribute, the most frequent ones


class Row(NamedTuple):
    """An estimate in words. What is not known is None."""

    what: str  # such as "delay, median"
    value: str
    interval: str | None  # of 95 %
    reports: int
    true: str | None  # among the clients


HEAD = ("attribute", "estimate", "interval of 95 %", "reports", "truly")


def rows_of(entries: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield a row for each mean and each quantile, and for the most frequent categories.

    entries: of the attributes, as in the result of a run.
    """
    for entry in entries:
        if "histogram" in entry:
            yield from quantile_rows(CollectedDistribution.of(entry))
        elif "mean" in entry:
            yield _mean_row(entry)
        else:
            yield from _category_rows(entry)


def quantile_rows(collected: CollectedDistribution) -> Iterator[Row]:
    """Yield a row for each quantile of an attribute."""
    for quantile in collected.quantiles:
        true = None
        if quantile.true is not None:
            true = collected.with_unit(quantile.true)
        yield Row(
            what=f"{collected.name}, {quantile.name}",
            value=collected.with_unit(quantile.value),
            interval=f"{quantile.low:.4g} to {quantile.high:.4g}",
            reports=collected.reports,
            true=true,
        )


def _mean_row(entry: Mapping[str, Any]) -> Row:
    """Return the row of a numeric attribute of which the mean was collected."""
    unit = entry.get("unit", "")
    interval = None
    if entry["interval"]:
        low, high = entry["interval"]
        interval = f"{in_unit(entry, low):.4g} to {in_unit(entry, high):.4g}"
    true = None
    if "true" in entry:
        true = f"{in_unit(entry, entry['true']):.4g} {unit}".rstrip()
    return Row(
        what=f"{entry['name']}, mean",
        value=f"{in_unit(entry, entry['mean']):.4g} {unit}".rstrip(),
        interval=interval,
        reports=entry["reports"],
        true=true,
    )


def _category_rows(entry: Mapping[str, Any]) -> Iterator[Row]:
    """Yield a row for each of the categories that seem to be the most frequent ones."""
    frequencies = entry["frequencies"]
    common, _ = most_frequent(entry, MOST_CATEGORIES)
    for index in common:
        interval = None
        if entry["intervals"] and entry["intervals"][index]:
            low, high = entry["intervals"][index]
            interval = f"{low:.3f} to {high:.3f}"
        true = None
        if "true" in entry:
            true = f"{entry['true'][index]:.3f}"
        yield Row(
            what=f"{entry['name']}, {entry['categories'][index]}",
            value=f"{frequencies[index]:.3f}",
            interval=interval,
            reports=entry["reports"],
            true=true,
        )
