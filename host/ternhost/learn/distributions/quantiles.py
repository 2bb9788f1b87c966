"""Quantiles and histograms of the numbers that devices hold, from reports of bins.

The public range of a number is divided into bins several times, by levels: into 4 bins, into 16,
and so on. Each device reports, under noise, the bin of a single number at a single level, with its
whole epsilon. The host makes the levels consistent (bin_tree.py), so that a share of many bins,
and thus a quantile, has less noise than the sum of that many fine bins.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

from ternhost.count.questions import Averaged
from ternhost.datasets import Table
from ternhost.learn import liar_results, liars
from ternhost.learn.base import Learner, Population
from ternhost.learn.collecting import attributes
from ternhost.learn.collecting.attribute_results import unit_of
from ternhost.learn.collecting.attributes import Part
from ternhost.learn.collecting.collect import Reports, Values
from ternhost.learn.distributions.bin_levels import bits_for, levels_of
from ternhost.learn.distributions.bin_tree import Distribution, ReportedLevel
from ternhost.learn.distributions.quantile_options import Options
from ternhost.learn.distributions.quantile_results import (
    HeldValues,
    estimates_of,
    liar_lines,
    quantile_lines,
)
from ternhost.learn.distributions.quantiles_of_records import QuantilesOfRecords
from ternhost.learn.models.limits import publication_of, published_lines
from ternhost.privacy.units import DEVICE, parse_unit
from ternhost.text import counted


class _Estimated(NamedTuple):
    """What was estimated after so many rounds."""

    round: int
    entries: list[dict[str, Any]]


class Quantiles(Values):
    """Asks every client once, for the bin of one number at one level; a served fleet over and over.

    The attributes of a result have the form that quantile_results.py describes.
    """

    name = "quantiles"
    collects = "quantiles and histograms"
    about = "medians, other quantiles and histograms of numbers"
    example = "--quantiles median,p90 --clients 10000"
    Options: ClassVar[Any] = Options

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        """Plan the levels of bins, and the rounds. Arguments and errors are those of `Values`."""
        self._population = population
        self._estimated: _Estimated | None = None
        super().__init__(options, population, data)
        self._publication = publication_of(options.published_quantile(), self._data)
        bins = 2 ** self._exponents[-1]
        numbers = counted(len(self._columns), "number")
        levels = counted(len(self._exponents), "level")
        self.notes += (
            f"{bins:,} bins of {numbers}, in {levels}: "
            "each device answers about one number at one level",
        )

    @classmethod
    def suited(cls, options: Any, population: Population, data: Table | None = None) -> Learner:
        """Return this learner, or the one that protects records, if the unit is no device.

        Parameters and errors are those of the class itself.
        """
        if parse_unit(options.unit) == DEVICE:
            return cls(options, population, data)
        return QuantilesOfRecords(options, population, data)

    def make_plan(self, table: Table) -> list[list[Part]]:
        """Return, for the one class of devices, the parts: bins of numbers at each level."""
        device_class = self.options.device_class()
        self._columns = self.options.columns_of(table)

        @cache
        def variance_of(exponent: int) -> float:
            """Return the variance of the share of a bin at a level, from one report."""
            return attributes.variance_of_bins(device_class, exponent)

        if self.options.bins is not None:
            finest = self.options.bins.bit_length() - 1
        else:
            clients = self.clients or self._population.known_clients
            if clients is not None:  # those that answer about the same number
                clients = max(1, clients // len(self._columns))
            finest = bits_for(clients, variance_of)
        return self._plan_of_levels(table, levels_of(finest, variance_of))

    def _plan_of_levels(self, table: Table, exponents: tuple[int, ...]) -> list[list[Part]]:
        """Return the plan with these levels, of 2**exponent bins each. table: of the attributes."""
        self._exponents = exponents
        device_class = self.options.device_class()
        return [attributes.parts_of_bins(table, self._columns, exponents, device_class)]

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, and the levels, which the first devices decided."""
        return {**super().state(), "levels": list(self._exponents)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`: also to its levels, although a fleet may have grown."""
        exponents = tuple(state["levels"])
        if exponents != self._exponents:
            self.begin_with(self._plan_of_levels(self._data.table, exponents))
        super().restore(state)
        self._estimated = None

    def entries(self) -> list[dict[str, Any]]:
        """Return the quantiles and the histogram of each number that somebody reported, for JSON.

        They take a while, and so they are computed once for each round.
        """
        if self._estimated is None or self._estimated.round != self._round:
            self._estimated = _Estimated(self._round, self._estimate())
        return self._estimated.entries

    def _estimate(self) -> list[dict[str, Any]]:
        """Return what `entries` does, from the counts as they are now."""
        entries = []
        for column in self._columns:
            answers = self.answers_about(column)  # an element for each level
            distribution = self._distribution_of(column)
            if distribution is None:
                continue
            name = self._data.table.numeric_names[column]
            reports = sum(answer.reports for answer in answers)
            entry = {
                "name": name,
                "reports": reports,
                **unit_of(name, self._data.table),
                **estimates_of(
                    distribution,
                    self.options.parsed_quantiles(),
                    self._held_values(column),
                ),
                "levels": [_level_summary(answer) for answer in answers],
            }
            entries.append(entry)
        return entries

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of `Values`, and what boards get as limits, if they get any."""
        result = super().result(history)
        if self._publication is not None:
            result["published"] = self._publication.summary(result["attributes"])
        return result

    @property
    def published(self) -> Averaged | None:
        """The limits that boards get; None if they get none, or if nobody has reported."""
        if self._publication is None:
            return None
        return self._publication.limits(self.entries())

    def _distribution_of(self, column: int) -> Distribution | None:
        """Return the distribution of a number by all reports so far; None if nobody reported it."""
        reported = [reports for reports in self.reports_about(column) if reports.reports]
        if not reported:
            return None
        return Distribution([ReportedLevel(reports) for reports in reported])

    def moved_attributes(self, entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return how far lying devices can have moved the quantiles of numbers, for JSON.

        entries: not needed, as the reports are there.
        """
        moved = []
        for column in self._columns:
            distribution = self._distribution_of(column)
            if distribution is None:
                continue
            moved.append(
                liar_results.of_quantiles(
                    self._data.table.numeric_names[column],
                    distribution,
                    bound=liars.cumulative(distribution),
                    quantiles=self.options.parsed_quantiles(),
                )
            )
        return moved

    def _held_values(self, column: int) -> HeldValues | None:
        """Return what clients hold of a number; None where the host does not know it."""
        if self._holders is None:
            return None
        return HeldValues(self._data.records[:, column], self._holders)

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the quantiles, and how many clients reported, in lines for people."""
        if "unit" in result:  # of sums over records
            return QuantilesOfRecords.summary(result)
        reports = counted(result["reports"], "report")
        clients = counted(result["clients"], "client")
        return [
            *quantile_lines(result),
            *published_lines(result),
            *liar_lines(result),
            f"{reports} of {clients} in {result['seconds']:.1f} s",
        ]


def _level_summary(answer: Reports) -> dict[str, Any]:
    """Describe a level of a number for JSON: its bins, how many reported, and how."""
    return {
        "bins": answer.part.categories,
        "reports": answer.reports,
        "mechanism": answer.part.design.mechanism,
    }
