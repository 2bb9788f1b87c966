"""How exact a statistic will be: the interval to expect, and how far liars can move it.

At the device's unit, means, shares and histograms follow from the variance of a report, and the
intervals of quantiles from counts that are drawn as often as reports would give them. At another
unit, the collection itself is simulated. In all cases the cards and the levels of bins are those
that `tern collect` chooses for so many devices.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tern.card import Card
from tern.fixed import ONE
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Table
from ternhost.learn import liars
from ternhost.learn.base import Learner, Population, report_summary
from ternhost.learn.collecting import estimate
from ternhost.learn.collecting.attribute_results import unit_of
from ternhost.learn.collecting.attributes import Part
from ternhost.learn.collecting.collect import Values
from ternhost.learn.collecting.estimate import LARGE, CategoryReports, frequency_law
from ternhost.learn.collecting.means import Means
from ternhost.learn.distributions.bin_tree import Distribution, ReportedLevel
from ternhost.learn.distributions.quantile_options import name_of
from ternhost.learn.distributions.quantile_results import HeldValues
from ternhost.learn.distributions.quantiles import Quantiles
from ternhost.planning.assumed import Assumed, dealt
from ternhost.planning.simulation import fleet_of, rounds, simulate
from ternhost.planning.statistic_options import HISTOGRAM, MEAN, QUANTILE, SHARE, Options
from ternhost.privacy import certify, sums

Floats = npt.NDArray[np.float64]

_RANGE = 2  # the length of [-1, 1], to which numbers are scaled
_RANKS = 400  # of a normal distribution, over which is averaged
_FEW_BINS = 64  # of a distribution: with more, fewer draws are enough, and each takes longer


@dataclass(frozen=True)
class Expected:
    """What to expect of one estimate from so many devices.

    Lengths are shares of the public range of a number, or differences of the shares of categories
    and of bins. For the latter they are means over all categories or bins.

    - attribute: what the estimate is about
    - statistic: what it is, such as "mean", "p90" or "share of 16 bins"
    - assumed: which values were assumed
    - half: half the length of the 95 % interval; infinite if it has no end
    - worst: the same with the least favourable values; None if that is not known
    - moved: how far liars can move the estimate; None if all devices are honest
    - unit: of a number, with its bounds, as of `attribute_results.unit_of`
    """

    attribute: str
    statistic: str
    assumed: str
    half: float
    worst: float | None
    moved: float | None
    unit: Mapping[str, Any]

    @property
    def half_in_unit(self) -> float | None:
        """Half the length of the interval in the unit of the number; None if it has none."""
        if not self.unit or not math.isfinite(self.half):
            return None
        return float(self.half * (self.unit["high"] - self.unit["low"]))


def expected(options: Options, assumed: Assumed, devices: int) -> list[Expected]:
    """Return what to expect of all estimates of a plan. Raises UsageError.

    assumed: what devices hold. devices: how many report.
    """
    if options.is_of_records:
        return list(_of_records(options, assumed, devices))
    of_statistic = {MEAN: _means, SHARE: _shares, QUANTILE: _quantiles, HISTOGRAM: _histograms}
    return list(of_statistic[options.statistic](options, assumed, devices))


def reports_of(options: Options, assumed: Assumed, devices: int) -> list[dict[str, Any]]:
    """Return what the reports of a plan are, as in the result of collecting: cards and bytes.

    There is an entry for each kind of report, as of `report_summary`. Arguments as of `expected`.
    """
    learner = _learner(options, assumed, devices)
    if isinstance(learner, Values):
        parts = learner.plan[0]
        return [report_summary(part.design, learner.question(part)) for part in parts]
    simulated = simulate(learner, options.seed)
    summaries: list[dict[str, Any]] = simulated.result([])["parts"]
    return summaries


def _learner(options: Options, assumed: Assumed, devices: int) -> Learner:
    """Return the learner that `tern collect` chooses for the statistic, before its first round."""
    population = Population(clients=devices)
    of_all = {"data": options.data, "seed": options.seed}
    table = assumed.table
    of_bins = {"bins": options.planned_bins, "attributes": options.attributes}
    is_of_bins = options.statistic in (QUANTILE, HISTOGRAM)
    if not options.is_of_records:
        if not is_of_bins:
            return Values(Values.Options(**of_all, epsilon=options.epsilon), population, table)
        chosen = Quantiles.Options(
            **of_all, **of_bins, epsilon=options.epsilon, quantiles=options.quantiles
        )
        return Quantiles(chosen, population, table)

    table = dealt(table, devices * options.most_records, options.seed)
    of_unit = {name: getattr(options, name) for name in ("unit", "run_epsilon", "delta", "records")}
    if not is_of_bins:
        return Means(Means.Options(**of_all, **of_unit), population, table)
    chosen = Quantiles.Options(**of_all, **of_bins, **of_unit, quantiles=options.quantiles)
    return Quantiles.suited(chosen, population, table)


# Means and shares, at the device's unit


class _Asked(NamedTuple):
    """An attribute, and the reports that devices make about it."""

    column: int
    part: Part
    reports: int


def _asked(options: Options, assumed: Assumed, devices: int) -> Iterator[_Asked]:
    """Yield all attributes with their reports, one for each part that has the attribute.

    A part is a set of attributes that one question covers. Devices are divided among the parts in
    proportion to the number of their attributes.
    """
    learner = _learner(options, assumed, devices)
    assert isinstance(learner, Values)
    parts = learner.plan[0]
    attributes = sum(len(part.columns) for part in parts)
    for part in parts:
        for column in part.columns:
            yield _Asked(column, part, max(1, round(devices * part.design.k / attributes)))


def _means(options: Options, assumed: Assumed, devices: int) -> Iterator[Expected]:
    """Yield what to expect of the mean of each number."""
    table = assumed.table
    for column, part, reports in _asked(options, assumed, devices):
        if part.categories:
            continue
        card = part.design.card
        moments = certify.moments(card)
        values = table.numeric[:, column] / ONE
        mean = float(values.mean())
        # The variance of what a report stands for. Of few reports, the interval takes the largest.
        largest = float(moments.worst_second_moment())
        variance = largest
        if reports >= LARGE:
            variance = moments.mean_second_moment(values) - mean**2
        moved = None
        if options.share_of_liars:
            kind = liars.kind_of_means(card, [reports])
            bound = liars.before([kind], [mean], options.share_of_liars)
            moved = _finite(bound.most[0]) / _RANGE
        name = table.numeric_names[column]
        yield Expected(
            name,
            MEAN,
            assumed.name,
            half=_half(variance, reports) / _RANGE,
            worst=_half(largest, reports) / _RANGE,
            moved=moved,
            unit=unit_of(name, table),
        )


def _shares(options: Options, assumed: Assumed, devices: int) -> Iterator[Expected]:
    """Yield what to expect of the shares of the categories of each attribute."""
    table = assumed.table
    numbers = len(table.numeric_names)  # they come before the attributes with categories
    for column, part, reports in _asked(options, assumed, devices):
        if not part.categories:
            continue
        assert table.codes is not None
        codes = table.codes[:, column - numbers]
        shares = np.bincount(codes, minlength=part.categories) / len(codes)
        same, other = frequency_law(part.design.card, hashed=part.hashed)
        # The variance of whether a report supports a category. Of few reports, the interval takes
        # the largest.
        support = other + (same - other) * shares
        variances = np.full(part.categories, 0.25)
        if reports >= LARGE:
            variances = support * (1 - support)
        halves = estimate.QUANTILE * np.sqrt(variances / reports) / (same - other)
        moved = None
        if options.share_of_liars:
            kind = liars.kind_of_categories(
                part.design.card, reports, part.categories, hashed=part.hashed
            )
            bound = liars.before([kind], shares, options.share_of_liars)
            moved = _finite(bound.most.mean())
        yield Expected(
            table.categorical_names[column - numbers],
            f"share of {part.categories} categories",
            assumed.name,
            half=float(halves.mean()),
            worst=None,
            moved=moved,
            unit={},
        )


def _half(variance: float, reports: int) -> float:
    """Return half the length of the 95 % interval of a mean. variance: of a single report."""
    return estimate.QUANTILE * math.sqrt(variance / reports)


def _finite(bound: float) -> float:
    """Return a bound, with infinity for one that is not known, as nobody honest reports."""
    if math.isnan(bound):
        return math.inf
    return float(bound)


# Quantiles and histograms, at the device's unit


@dataclass(frozen=True)
class _Level:
    """The reports about a level of bins of one number, and the true shares of its bins."""

    card: Card
    hashed: bool
    reports: int
    shares: Floats  # bins

    def drawn(self, random: np.random.Generator) -> ReportedLevel:
        """Return what so many reports would give, at random."""
        same, other = frequency_law(self.card, hashed=self.hashed)
        if not self.hashed:  # a report supports a single bin
            counts = random.multinomial(self.reports, other + (same - other) * self.shares)
            return ReportedLevel(CategoryReports(self.card, counts, None))
        # A report supports its sender's bin, and each of the others, with these probabilities.
        senders = random.multinomial(self.reports, self.shares)
        counts = random.binomial(senders, same) + random.binomial(self.reports - senders, other)
        return ReportedLevel(CategoryReports(self.card, counts, self.reports))

    def as_expected(self) -> ReportedLevel:
        """Return what so many reports would give on average, in whole numbers."""
        same, other = frequency_law(self.card, hashed=self.hashed)
        counts = np.rint(self.reports * (other + (same - other) * self.shares)).astype(np.int64)
        hashed_reports = self.reports if self.hashed else None
        return ReportedLevel(CategoryReports(self.card, counts, hashed_reports))

    def told(self, coefficients: Floats) -> liars.LevelReports:
        """Return the reports for `liars`. coefficients: as of `liars.LevelReports`."""
        return liars.LevelReports(
            self.card, self.hashed, self.reports, self.shares, coefficients=coefficients
        )


def _levels(options: Options, assumed: Assumed, devices: int) -> Mapping[int, list[_Level]]:
    """Return the levels of the bins of each number, by its column."""
    levels: dict[int, list[_Level]] = {}
    for column, part, reports in _asked(options, assumed, devices):
        held = _held(assumed.table, column)
        level = _Level(part.design.card, part.hashed, reports, held.histogram(part.categories))
        levels.setdefault(column, []).append(level)
    return levels


def _held(table: Table, column: int) -> HeldValues:
    """Return the values of a column of numbers, which all count the same."""
    values = table.numeric[:, column]
    return HeldValues(values, np.ones(len(values)))


def _quantiles(options: Options, assumed: Assumed, devices: int) -> Iterator[Expected]:
    """Yield what to expect of each quantile of each number: the mean of several drawn intervals."""
    for column, levels in _levels(options, assumed, devices).items():
        finest = max(len(level.shares) for level in levels)
        draws = max(2, min(options.simulated_runs, options.simulated_runs * _FEW_BINS // finest))
        random = np.random.default_rng([options.seed, column])
        halves: dict[float, list[float]] = {}
        for _ in range(draws):
            distribution = Distribution(_drawn(levels, random))
            for share in options.parsed_quantiles():
                quantile = distribution.quantile(share)
                halves.setdefault(share, []).append((quantile.high - quantile.low) / 2)

        moved: Mapping[float, float] = {}
        if options.share_of_liars:
            moved = _moved_quantiles(options, levels)
        name = assumed.table.numeric_names[column]
        for share, of_share in halves.items():
            yield Expected(
                name,
                name_of(share),
                assumed.name,
                half=float(np.mean(of_share)) / _RANGE,
                worst=None,
                moved=moved.get(share),
                unit=unit_of(name, assumed.table),
            )


def _drawn(levels: Sequence[_Level], random: np.random.Generator) -> list[ReportedLevel]:
    """Return what the devices would report about all levels, among which they are divided at random."""
    reports = np.array([level.reports for level in levels])
    divided = random.multinomial(reports.sum(), reports / reports.sum())
    drawn = []
    for level, number in zip(levels, divided, strict=True):
        if number:
            drawn.append(replace(level, reports=int(number)).drawn(random))
    return drawn


def _moved_quantiles(options: Options, levels: Sequence[_Level]) -> Mapping[float, float]:
    """Return how far liars can move each quantile, in shares of the range."""
    assert options.share_of_liars
    distribution = Distribution([level.as_expected() for level in levels])
    told = []
    for level, coefficients in zip(levels, distribution.coefficients, strict=True):
        up_to_each_edge = np.cumsum(coefficients, axis=0)[:-1]
        told.append(level.told(up_to_each_edge))
    bound = liars.levels_before(told, options.share_of_liars)
    # Where the cumulative shares are raised, the quantile falls.
    moves = [np.zeros(distribution.bins - 1), bound.up, -bound.down]
    moved = {}
    for share in options.parsed_quantiles():
        value, low, high = distribution.quantiles_if_moved(share, moves)
        moved[share] = max(value - low, high - value) / _RANGE
    return moved


def _histograms(options: Options, assumed: Assumed, devices: int) -> Iterator[Expected]:
    """Yield what to expect of the histogram of each number."""
    for column, levels in _levels(options, assumed, devices).items():
        distribution = Distribution([level.as_expected() for level in levels])
        errors = distribution.histogram(distribution.bins).errors
        shares = max((level.shares for level in levels), key=len)
        moved = None
        if options.share_of_liars:
            told = []
            for level, coefficients in zip(levels, distribution.coefficients, strict=True):
                told.append(level.told(coefficients))
            bound = liars.levels_before(told, options.share_of_liars)
            moved = _finite(bound.most.mean())
        yield Expected(
            assumed.table.numeric_names[column],
            f"share of {distribution.bins} bins",
            assumed.name,
            half=_mean_half_of_shares(shares, errors),
            worst=None,
            moved=moved,
            unit={},
        )


def _mean_half_of_shares(shares: Floats, errors: Floats) -> float:
    """Return half the mean length of the intervals of estimated shares, which are cut to [0, 1].

    shares: the true ones (bins). errors: the standard errors of the estimates, which are about
    normal (bins).
    """
    ranks = (np.arange(_RANKS) + 0.5) / _RANKS
    deviates = np.array([NormalDist().inv_cdf(rank) for rank in ranks])
    estimates = shares + errors * deviates[:, None]  # ranks x bins
    halves = estimate.QUANTILE * errors
    low, high = np.clip(estimates - halves, 0, 1), np.clip(estimates + halves, 0, 1)
    return float((high - low).mean() / 2)


# Sums over records


def _of_records(options: Options, assumed: Assumed, devices: int) -> list[Expected]:
    """Return what to expect where devices sum over many records: the mean of simulated intervals."""
    halves: dict[tuple[str, str], list[float]] = {}
    moved: dict[tuple[str, str], list[float]] = {}
    learner = _learner(options, assumed, devices)
    initial = learner.state()
    for run in range(options.simulated_runs):
        learner.restore(initial)
        results = list(rounds(learner, fleet_of(learner, options.seed + run)))
        result = learner.result([])
        bounds = _moved_means(options, assumed.table, results)
        for entry in result["attributes"]:
            for statistic, intervals in _intervals(options.statistic, entry):
                key = entry["name"], statistic
                halves.setdefault(key, []).append(_mean_half(intervals))
                if bounds:
                    moved.setdefault(key, []).append(bounds[entry["name"]])
    expectations = []
    for (name, statistic), of_runs in halves.items():
        scale, unit = 1, {}
        if options.statistic in (MEAN, QUANTILE):
            scale, unit = _RANGE, unit_of(name, assumed.table)
        by_liars = None
        if (name, statistic) in moved:
            by_liars = float(np.mean(moved[name, statistic])) / scale
        expectations.append(
            Expected(
                name,
                statistic,
                assumed.name,
                half=float(np.mean(of_runs)) / scale,
                worst=None,
                moved=by_liars,
                unit=unit,
            )
        )
    return expectations


def _intervals(
    wanted: str, entry: Mapping[str, Any]
) -> Iterator[tuple[str, Sequence[Sequence[float] | None] | None]]:
    """Yield the statistics of an attribute's entry that are wanted, each with its intervals."""
    if wanted == MEAN and "mean" in entry:
        yield MEAN, [entry["interval"]]
    elif wanted == SHARE and "frequencies" in entry:
        yield f"share of {len(entry['frequencies'])} categories", entry["intervals"]
    elif wanted == QUANTILE and "quantiles" in entry:
        for quantile in entry["quantiles"]:
            yield name_of(quantile["quantile"]), [quantile["interval"]]
    elif wanted == HISTOGRAM and "histogram" in entry:
        histogram = entry["histogram"]
        yield f"share of {len(histogram['shares'])} bins", histogram["intervals"]


def _mean_half(intervals: Sequence[Sequence[float] | None] | None) -> float:
    """Return half the mean length of intervals; infinity if one of them has no end."""
    if intervals is None:
        return math.inf
    halves = []
    for interval in intervals:
        if interval is None:
            return math.inf
        low, high = interval
        halves.append((high - low) / 2)
    return float(np.mean(halves))


def _moved_means(
    options: Options, table: Table, results: Sequence[RoundResult]
) -> Mapping[str, float]:
    """Return how far liars can move the mean of each number, or the shares of each attribute.

    An estimate is the quotient of a noisy sum and the noisy number of records. A liar can report any
    symbol for both, and a symbol has room for the noise. The bound is for the estimates from these
    rounds, in which all devices were honest. It is empty if nobody lies.

    results: of rounds in which all devices answered a question about sums.
    """
    if not options.share_of_liars:
        return {}
    names = (*table.numeric_names, *table.categorical_names)
    bounds = {}
    for result in results:
        (cohort,) = result.cohorts
        body = sums.of(cohort.card)
        totals, _ = estimate.sums_of(cohort)
        of_symbol = liars.range_of_sums(body)
        # The last total is the tally, which counts records in steps of its own.
        records = cohort.reports * options.most_records
        count = liars.Total(float(records), of_symbol.times(records / totals[-1]))
        grid_step = sums.grid(body, cohort.question.range)
        columns = np.flatnonzero(cohort.question.parameters)
        for column, of_column in zip(columns, np.split(totals[:-1], len(columns)), strict=True):
            of_values = []
            for total in of_column:
                of_sum = liars.Total(float(total), of_symbol.times(grid_step))
                of_values.append(
                    liars.quotient(of_sum, count, cohort.reports, options.share_of_liars)
                )
            bounds[names[column]] = _finite(float(np.mean(of_values)))
    return bounds
