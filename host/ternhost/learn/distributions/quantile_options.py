"""Options of quantiles and histograms: which ones, of which attributes, and what is protected."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import ClassVar

from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn.collecting.collect import ClientOptions
from ternhost.learn.designs import DeviceClass, in_privacy
from ternhost.learn.record_bound import records_option
from ternhost.learn.sums.fedsum import RECORDS, UnitOptions
from ternhost.options import Number, elements_of, flag, joined, option, require
from ternhost.privacy.base import parse_epsilon
from ternhost.text import one_of

BINS = (16, 64, 256, 1024)  # of a histogram
_MEDIAN = "median"
_GROUP = "what to collect"  # of options, in the help
_what = partial(option, group=_GROUP)


@dataclass(frozen=True)
class DistributionOptions(UnitOptions, ClientOptions):
    """Options of quantiles and histograms of numbers, for collecting them and for plans.

    At the device's unit, each device reports at `epsilon`, as in `Values`. At another unit the run
    spends `run_epsilon` at `delta`, as in `Means`.
    """

    # Options that only one of the two units has, as of `ternhost.options.check_named`.
    ONLY_WITH: ClassVar[Mapping[str, tuple[str, str]]] = {
        "epsilon": ("unit", "device"),
        "clients": ("unit", "device"),
    }
    NOT_WITH: ClassVar[Mapping[str, tuple[str, str]]] = {
        "run_epsilon": ("unit", "device"),
        "records": ("unit", "device"),
    }

    quantiles: str | Number | Sequence[str | Number] = _what(
        "0.5,0.9,0.99",
        "quantiles to estimate: numbers between 0 and 1, median, or p90",
        accepts=joined,
        metavar="LIST",
    )
    attributes: str | Sequence[str] = _what(
        "",
        "names of the numbers to ask for",
        accepts=joined,
        metavar="NAMES",
        shown="all numbers of the table",
    )
    bins: int | None = _what(
        None,
        f"number of bins of the histogram: {', '.join(map(str, BINS))}",
        metavar="N",
        shown="by the number of devices and epsilon",
    )
    publish: Number | None = _what(
        None,
        "the quantile that boards get as limits: above them, a value is unusual",
        metavar="Q",
        shown="none",
    )
    epsilon: Number = in_privacy("2", metavar="E")
    unit: str | int = in_privacy("device", metavar="UNIT")
    run_epsilon: Number = in_privacy("1", metavar="E", shown="1, unless --unit is device")
    records: int | None = records_option(RECORDS, group=_GROUP)

    def check(self) -> None:
        """Raise UsageError for quantiles, bins or an epsilon that cannot be."""
        self.parsed_quantiles()
        self.device_class()
        in_order = self.bins is None or self.bins in BINS
        require(in_order, "bins", f"one of {', '.join(map(str, BINS))}", self.bins)

    def parsed_quantiles(self) -> tuple[float, ...]:
        """Return the quantiles as numbers between 0 and 1, each once, in ascending order.

        The one that boards get is among them. Raises UsageError if one of them cannot be, or if
        there is none.
        """
        texts = elements_of(joined(self.quantiles), "quantiles")
        if not texts:
            raise UsageError("--quantiles names no quantile", hint="such as 0.5,0.9 or median,p90")
        quantiles = {_quantile(text) for text in texts}
        published = self.published_quantile()
        if published is not None:
            quantiles.add(published)
        return tuple(sorted(quantiles))

    def published_quantile(self) -> float | None:
        """Return the quantile that boards get as limits; None for none. Raises UsageError."""
        if self.publish is None:
            return None
        return _quantile(str(self.publish), option_name="publish")

    def device_class(self) -> DeviceClass:
        """Return the one class of devices at the device's unit. Raises UsageError."""
        return DeviceClass(parse_epsilon(self.epsilon))

    def columns_of(self, table: Table) -> tuple[int, ...]:
        """Return the numbers of the columns of a table whose quantiles are wanted, in its order.

        Raises UsageError if the table has no number, or if an attribute that the user named is not
        there, or has categories.
        """
        names = table.numeric_names
        if not names:
            hint = "the shares of categories are collected by 'tern collect values'"
            raise UsageError(f"{table.name} has no numbers, which quantiles are of", hint)
        wanted = elements_of(joined(self.attributes), "attributes")
        for name in wanted:
            if name in table.categorical_names:
                hint = "leave it out; 'tern collect values' collects the shares of its categories"
                raise UsageError(f"--attributes: {name} has categories, and no quantiles", hint)
            if name not in names:
                hint = one_of(name, names)
                raise UsageError(f"--attributes: {table.name} has no number {name!r}", hint)
        if not wanted:
            return tuple(range(len(names)))
        return tuple(column for column, name in enumerate(names) if name in wanted)


@dataclass(frozen=True)
class Options(DistributionOptions):
    """Options of quantiles and histograms of numbers."""


def _quantile(text: str, option_name: str = "quantiles") -> float:
    """Return the quantile that a text names: 0.9 for "0.9" and "p90", 0.5 for "median".

    option_name: the option that has it. Raises UsageError if it names none.
    """
    if text.lower() == _MEDIAN:
        return 0.5
    number, scale = text, 0  # a quantile is number * 10**scale
    if text[:1] in ("p", "P"):
        number, scale = text[1:], -2
    value = -1.0  # refused below
    with suppress(ArithmeticError, ValueError):  # no number, or too large a one
        value = float(Decimal(number).scaleb(scale))
    if not 0 < value < 1:
        must = "a number above 0 and below 1, median, or a percentile such as p90"
        raise UsageError(f"{flag(option_name)} must be {must}, not {text!r}", _hint(text))
    return value


def _hint(text: str) -> str | None:
    """Return how to write a percentile that somebody wrote as "90" or "90%"; None for others."""
    percentile = text.removesuffix("%").strip()
    with suppress(ArithmeticError, ValueError):
        if 1 < Decimal(percentile) < 100:
            return f"did you mean p{percentile}?"
    return None


def name_of(quantile: float) -> str:
    """Return the name of a quantile for people: median for 0.5, p90 for 0.9."""
    if quantile == 0.5:
        return _MEDIAN
    percent = Decimal(repr(quantile)).scaleb(2).normalize()
    return f"p{percent:f}"
