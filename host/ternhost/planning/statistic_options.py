"""What a plan for a statistic is asked: which statistic, of what, by whom, and how protected."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from ternhost import datasets
from ternhost.errors import UsageError
from ternhost.learn.distributions.quantile_options import DistributionOptions
from ternhost.options import Number, flag, option, options_of, require
from ternhost.planning.whole_devices import MOST_HELD
from ternhost.privacy.units import DEVICE, parse_unit

MEAN, SHARE, QUANTILE, HISTOGRAM = "mean", "share", "quantile", "histogram"
STATISTICS = (MEAN, SHARE, QUANTILE, HISTOGRAM)
RUNS = 100  # simulated estimates: intervals of quantiles differ much between runs
_RUNS_OF_RECORDS = 8  # collections of sums, whose intervals hardly differ
MOST_CATEGORIES = 1000
_BINS = 16  # of a histogram, unless the user says how many
_OF_BINS = (QUANTILE, HISTOGRAM)
# Options that only some of the statistics have.
_ONLY_OF: Mapping[str, tuple[str, ...]] = {
    "quantiles": (QUANTILE,),
    "attributes": _OF_BINS,
    "bins": _OF_BINS,
    "categories": (SHARE,),
}

# Devices that report once about a single value, and devices that sum over many records.
LADDER = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
LADDER_OF_RECORDS = (10, 20, 50, 100, 200)
MOST_DEVICES = 100_000_000  # that a plan tries


def parse_liars(text: Number) -> Fraction:
    """Return the share of the devices that lie, exactly as it was written. Raises UsageError."""
    number, scale = str(text), 1
    if number.endswith("%"):
        number, scale = number.removesuffix("%"), 100
    share = Fraction(-1)  # refused below
    with suppress(ValueError, ZeroDivisionError):
        share = Fraction(number) / scale
    must = "a share above 0 and below 0.5, such as 0.01 or 1%"
    require(0 < share < Fraction(1, 2), "liars", must, repr(text))
    return share


def is_simulated(statistic: str, *, of_records: bool) -> bool:
    """Return whether a plan draws random numbers, and does not follow from the cards alone."""
    return of_records or statistic == QUANTILE


def refuse_of_others(statistic: str, names: Iterable[str]) -> None:
    """Raise UsageError if one of these options is for other statistics."""
    for name in names:
        statistics = _ONLY_OF.get(name, STATISTICS)
        if statistic not in statistics:
            text = f"{flag(name)} would change nothing: it is for a {' or a '.join(statistics)}"
            raise UsageError(text, hint="leave it out, or choose another --statistic")


@dataclass(frozen=True)
class Options(DistributionOptions):
    """Options of a plan for a statistic.

    `data` is empty for distributions that the plan assumes. At the device's unit each device reports
    about one value at `epsilon`; at another unit each sums over its `records`, and the run spends
    `run_epsilon`.
    """

    statistic: str = option(QUANTILE, "what to plan for", choices=STATISTICS, shown="a model")
    data: str = option("", metavar="D")
    categories: int | None = option(
        None, "number of categories of a share, without a table", metavar="N", shown="2"
    )
    goal: float | None = option(None, "wanted half-length of a 95 % interval", metavar="X")
    liars: Number | None = option(None, "share of lying devices", metavar="SHARE")
    runs: int | None = option(None, metavar="R", shown=str(RUNS))

    def check(self) -> None:
        """Raise UsageError for options that make no sense, or that would change nothing."""
        refuse_of_others(self.statistic, self._changed(_ONLY_OF))
        for name in self._changed(("by", "time", "clients", "publish")):
            text = f"{flag(name)} would change nothing: a plan deals the values to its devices"
            raise UsageError(text, hint="leave it out")
        unit_options = ["run_epsilon", "records", "delta"]
        reason = "the unit device spends epsilon"
        if self.is_of_records:
            unit_options, reason = ["epsilon"], "a unit of records spends run_epsilon"
        for name in self._changed(unit_options):
            raise UsageError(f"{flag(name)} would change nothing: {reason}", hint="leave it out")
        self._check_data()
        self._check_numbers()

    def _changed(self, names: Iterable[str]) -> list[str]:
        """Return those of the named options that have another value than by default."""
        declared = {each.name: each for each in options_of(self)}
        return [name for name in names if not declared[name].is_default(getattr(self, name))]

    def _check_data(self) -> None:
        """Raise UsageError for a table that cannot be used, or for what it has no place for."""
        if self.attributes and not self.data:
            text = "--attributes would change nothing: without --data the plan is for one number"
            raise UsageError(text, hint="name the table that has them: --data my.csv")
        if self.categories is not None and self.data:
            text = "--categories would change nothing: the table has its categories"
            raise UsageError(text, hint="leave out --categories or --data")
        if self.data and datasets.on_devices.parse(self.data) is not None:
            text = f"only the devices know the values of {self.data}"
            hint = "name a table with similar ones; or leave out --data, for assumed distributions"
            raise UsageError(text, hint=hint)

    def _check_numbers(self) -> None:
        """Raise UsageError for numbers that are out of bounds."""
        if self.categories is not None:
            in_order = 2 <= self.categories <= MOST_CATEGORIES
            require(in_order, "categories", f"2 to {MOST_CATEGORIES}", self.categories)
        if self.goal is not None:
            require(0 < self.goal < 1, "goal", "above 0 and below 1, a share", self.goal)
        if self.runs is not None:
            if not is_simulated(self.statistic, of_records=self.is_of_records):
                text = f"--runs would change nothing: a {self.statistic} follows from the cards"
                raise UsageError(text, hint="leave it out")
            require(self.runs >= 2, "runs", "2 or more", self.runs)
        if self.share_of_liars and self.is_of_records and self.statistic in _OF_BINS:
            text = f"no bound is known on how far liars can move a {self.statistic} of records"
            raise UsageError(text, hint="plan for the unit device, or leave out --liars")

    @property
    def is_of_records(self) -> bool:
        """Whether devices sum over many records, of which a part is protected."""
        return parse_unit(self.unit) != DEVICE

    @property
    def simulated_runs(self) -> int:
        """How many estimates are simulated."""
        if self.runs is not None:
            return self.runs
        if self.is_of_records:
            return _RUNS_OF_RECORDS
        return RUNS

    @property
    def share_of_liars(self) -> Fraction | None:
        """The share of the devices that lie; None if all are honest. Raises UsageError."""
        if self.liars is None:
            return None
        return parse_liars(self.liars)

    @property
    def planned_bins(self) -> int | None:
        """The number of bins to plan for; None if `tern collect` chooses it by the devices.

        That of a histogram is the same for all numbers of devices, so that they can be compared.
        """
        if self.statistic == HISTOGRAM and self.bins is None:
            return _BINS
        return self.bins

    @property
    def most_devices(self) -> int:
        """The largest number of devices that the plan tries."""
        if self.is_of_records:
            return MOST_HELD // self.most_records
        return MOST_DEVICES

    @property
    def ladder(self) -> tuple[int, ...]:
        """The numbers of devices to try, if the user names none."""
        if not self.is_of_records:
            return LADDER
        return tuple(devices for devices in LADDER_OF_RECORDS if devices <= self.most_devices)

    def checked_devices(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Return these numbers of devices, each once, ascending. Raises UsageError."""
        numbers = tuple(sorted(set(devices)))
        require(len(numbers) > 0, "devices", "one number or more", "none")
        require(numbers[0] >= 1, "devices", "numbers of 1 or more", numbers[0])
        must = f"numbers of {self.most_devices:,} or less"
        require(numbers[-1] <= self.most_devices, "devices", must, f"{numbers[-1]:,}")
        return numbers
