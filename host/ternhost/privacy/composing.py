"""The privacy loss of many reports together.

The reader knows the sender of each, or sees only sums over several devices.

Three accounts of the same reports: pure epsilons add up; so do rhos of zCDP; and the distributions
of the privacy loss, made from the cards' integers, compose exactly (docs/guides/accounting.md has
the theorems and their conditions).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np

from tern import card as cards
from tern import frames, ledger, wire
from ternhost.privacy import gaussian_curve, projection, shuffling, sums
from ternhost.privacy.base import MICRO
from ternhost.privacy.groups import Group
from ternhost.privacy.laws import (
    Part,
    are_known,
    greatest_ratio,
    parts,
    profile,
    randomised_response,
)
from ternhost.privacy.losses import (
    FLOAT_ERROR,
    LARGEST_LOSS,
    LossDistribution,
    bisect_least,
    both_sides,
    epsilon,
    exp_of_steps,
)

# The grid of privacy losses. Each kind of report has a largest loss; the grid has this many cells up
# to the smallest of these, but not more than _MOST_CELLS up to the largest.
_CELLS = 96
_MOST_CELLS = 4096
_FEWER_CELLS = 32  # the same for a Renyi divergence, which needs less precision
_MOST_POINTS = 2 * _CELLS  # of a privacy profile, about; straight lines between them are above it
# The standard deviation of the sum of losses, in grid steps: about a twentieth of the size of the
# Fourier transform that computes the sum.
_MOST_SPREAD = 400_000
_TAIL = 1e-3  # the share of delta that losses beyond the grid of mixed reports may take
_ROUNDED_UP = 1 + 1e-12  # a factor above the errors of floats in a logarithm


@dataclass(frozen=True)
class ReportKind:
    """A kind of report, as privacy accounting sees it: what it costs and how it is drawn.

    cost: the price of the whole report in micro-epsilon, or in micro-rho if it is `gaussian`.
    card: the certified table from which each value is drawn; empty where only the cost is known.
    values: how many values the report has.
    gaussian: whether it is a sum under Gaussian noise.
    mixed: how many reports an intermediary adds up, this one among them, so that the reader sees
    only their sum; 0 if the reader knows who sent it.
    alone: whether adding it to others would hide nothing of it.
    unit: how many consecutive records it protects, if it is a sum over records; 0: the whole
    device.
    normal: the micro-rho of normal noise that discloses at least as much as its Gaussian noise; 0
    if none is known.
    group: the devices that were asked for the mixed reports, some of which may be dishonest; None
    if all of them are honest.
    """

    cost: int
    card: bytes = b""
    values: int = 1
    gaussian: bool = False
    mixed: int = 0
    alone: bool = False
    unit: int = 0
    normal: int = 0
    group: Group | None = None

    @classmethod
    def of(cls, card: cards.Card, values: int = 1, whole: bool = False) -> Self:
        """Return the kind of report that a device draws from a card (a table of probabilities).

        A kind has the cost of a report and, where they are known, the probabilities it is drawn
        with, by which many reports together can be accounted for more exactly.

        values: how many values a report has, each drawn by the card. whole: the card's epsilon
        covers all of them together, so only the cost is known.
        """
        cost = int(card.epsilon)  # in millionths
        if card.shape == cards.SUM:  # a noisy sum over a device's records
            body = sums.of(card)
            return cls(
                cost,
                gaussian=body.norm == sums.L2,
                alone=True,  # adding it to the reports of others is not counted on to hide it
                unit=body.unit,  # how many consecutive records are protected together
                normal=gaussian_curve.rho_of_card(body),
            )
        if whole:
            return cls(cost)
        if card.shape == cards.PROJECTION:
            # The radius changes no probability: all cards that differ only in it are one kind.
            return cls(cost, card=projection.with_radius(card, 1))
        known_card = card.data if are_known(card) else b""
        return cls(values * cost, card=known_card, values=values)

    @classmethod
    def of_question(cls, question: frames.Round) -> Self:
        """Return the kind of report that a question (the request of a round) asks for."""
        # All classes of softmax regression are drawn from one budget.
        whole = question.model == wire.SOFTMAX and question.k > 1
        card = cards.decode(bytes(question.card))
        kind = cls.of(card, values=int(question.k), whole=whole)
        # Each device then hashes its category by a hash function of its own. So the reports of
        # others are not alike, and mixing is not counted on to hide anything.
        is_hashed = question.model == wire.CATEGORIES and question.range > 0
        return replace(kind, alone=kind.alone or is_hashed)

    def among(self, reports: int, group: Group | None = None) -> Self:
        """Return this report as one of `reports` that an intermediary adds up.

        The reader sees only their sum, in which the other reports hide this one.

        group: the devices that were asked for them, some of which may be dishonest; None if all are
        honest. A report that mixing does not hide, or that costs too much, stays as it is.
        """
        can_be_hidden = not self.alone and self.cost <= LARGEST_LOSS * MICRO
        if not can_be_hidden:
            return self
        mixed = min(max(0, reports), shuffling.MOST_REPORTS)
        return replace(self, mixed=mixed, group=group)

    def among_honest(self, share: float, delta: float) -> Self:
        """Return this report as mixed with only the honest reports of its group.

        share: the share of the site's devices that are honest. delta: the probability that fewer
        reports are honest than the result says, over all random draws of groups.
        """
        if self.group is None:
            return self
        return replace(self, mixed=self.group.honest(self.mixed, share, delta), group=None)

    def as_json(self) -> dict[str, Any]:
        """Return the fields, ready for JSON; `from_json` reads them."""
        return {**asdict(self), "card": self.card.hex()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the kind of report that `as_json` turned into these fields."""
        group = None
        if fields["group"]:
            group = Group(**fields["group"])
        card = bytes.fromhex(fields["card"])
        return cls(**{**fields, "card": card, "group": group})

    @property
    def worst(self) -> Self:
        """This report, if it is mixed, with the mechanism that discloses most at its cost."""
        if not self.mixed:
            return self
        return replace(self, card=b"", values=1)

    @property
    def rho(self) -> int:
        """What it costs in zero-concentrated differential privacy (zCDP), in micro-rho."""
        if self.gaussian:
            return self.cost
        cost_of_value = self.cost // self.values
        return self.values * sums.rho_of_pure(cost_of_value)

    def price(self, measure: int) -> int:
        """Return what a ledger in this measure (epsilon or rho) pays, in millionths.

        A report with Gaussian noise has its price in rho in either case: a ledger in epsilon
        refuses it.
        """
        return self.rho if measure == ledger.RHO else self.cost

    def for_steps(self, steps: int) -> Self:
        """Return the report at its cost for data sets that are `steps` neighbours apart.

        Neighbours differ in one run of records: one of them has it, and the other does not. So a
        run is replaced in two steps, of taking out and of putting in.

        A report about the whole device costs the same for any two data sets of that device. A sum
        over runs of records costs `steps` times its epsilon, or steps**2 times its rho (ledger.md,
        Neighbours).
        """
        if not self.unit:
            return self
        if self.gaussian:
            return replace(self, cost=steps**2 * self.cost, normal=steps**2 * self.normal)
        # Beyond one step only the epsilon is known, not the probabilities.
        return replace(self, cost=steps * self.cost, card=b"", values=1)

    @property
    def laws(self) -> list[Part]:
        """The laws of one draw at extreme inputs.

        If they are unknown, these are the laws of the mechanism that discloses most at this cost.
        """
        if self.card and self.times == self.values:
            return parts(cards.decode(self.card))
        return randomised_response(self.cost / self.times / MICRO)

    @property
    def times(self) -> int:
        """How many independent draws one report consists of, as accounting counts them.

        A mixed report counts as one draw, since reports are mixed as a whole.
        """
        return 1 if self.mixed else self.values

    def largest(self, tail: float) -> float:
        """Return a privacy loss that one draw exceeds with probability `tail` at most."""
        return _largest_loss(self, tail)

    def losses(self, step: float, tail: float) -> LossDistribution:
        """Return the law of one draw's privacy loss on a grid of this step. Not for Gaussian noise.

        tail: the probability of losses that may be left out of the grid, and count as infinite.
        """
        return _losses(self, step, tail)


@lru_cache(maxsize=256)
def _largest_loss(report: ReportKind, tail: float) -> float:
    """Return a privacy loss that one draw of a report exceeds with probability `tail` at most.

    The privacy loss of an outcome is the logarithm of the ratio of its probabilities for two
    inputs. A report is mixed if an intermediary adds it to others. A report that is not mixed with
    others never exceeds its local epsilon; for mixed ones the loss is found by bisection.
    """
    # `exp_of_steps` rounds a ratio down by up to FLOAT_ERROR; this is beyond that.
    local_epsilon = _local_epsilon(report.laws) + 2 * FLOAT_ERROR
    if not report.mixed:
        return local_epsilon

    def is_beyond(loss: float) -> bool:
        """Whether this loss is exceeded with probability `tail` at most."""
        return shuffling.delta_at(report.laws, local_epsilon, loss, report.mixed) <= tail

    if is_beyond(0.0):
        return 0.0
    relative_error = 0.02  # of a loss that only sets where the grid ends
    return bisect_least(0.0, local_epsilon, relative_error, is_beyond)


def _local_epsilon(laws: Sequence[Part]) -> float:
    """Return the largest privacy loss of a draw that is not mixed with others, rounded up.

    laws: those of the draw at its extreme inputs.
    """
    return math.log(greatest_ratio(laws)) * _ROUNDED_UP


@lru_cache(maxsize=256)
def _losses(report: ReportKind, step: float, tail: float) -> LossDistribution:
    """Return the law of one draw's privacy loss on a grid of this step.

    tail: the probability of losses that are left out of the grid, and count as infinite.
    """
    points = both_sides(_points(report, step, tail), step)
    return LossDistribution.of_profile(points, step)


def _points(report: ReportKind, step: float, tail: float) -> list[tuple[int, Fraction]]:
    """Return points (i, delta) of a draw's privacy profile: delta at epsilon = i step, rounded up.

    The privacy profile is the least delta as a function of epsilon. A report is mixed if an
    intermediary adds it to others, which hides it.

    i goes from 0 to a loss that is exceeded with probability `tail` at most. If that takes many
    steps, only some points are computed: straight lines between points are an upper bound, since
    the profile is convex.
    """
    laws = report.laws
    local_epsilon = _local_epsilon(laws)
    # Rounded up, but not by the errors of floats where the last loss is a whole number of steps.
    last = math.ceil(report.largest(tail) / step * (1 - 1e-12))
    stride = max(1, last // _MOST_POINTS)

    points = []
    for i in (*range(0, last, stride), last):
        exp_epsilon = exp_of_steps(i, step)
        delta: float | Fraction
        if report.mixed:
            delta = shuffling.delta_of(laws, local_epsilon, exp_epsilon, report.mixed)
        else:
            delta = profile(laws, exp_epsilon)
        points.append((i, min(Fraction(1), Fraction(delta))))
    return points


@lru_cache(maxsize=4096)
def renyi(report: ReportKind, alpha: float) -> float:
    """Return an upper bound of a report's Renyi divergence of order `alpha`, at any two inputs.

    It is the least of the bounds by epsilon, by rho of zCDP and, for a mixed report, by the
    distribution of its privacy loss L: the divergence is ln E[exp((alpha - 1) L)] / (alpha - 1). A
    report is mixed if an intermediary adds it to others. L is the logarithm of the ratio of the
    probabilities at two inputs.
    """
    unmixed = alpha * report.rho / MICRO
    if not report.gaussian:
        unmixed = min(report.cost / MICRO, unmixed)
    if not report.mixed:
        return unmixed

    # The grid ends at a loss that is exceeded with the probability `tail`. What is beyond it must
    # not be infinite here. So one point is added where the profile is 0: just above the local
    # epsilon, the largest loss there is. The tail is so small that these losses count for nothing.
    local_epsilon = _local_epsilon(report.laws)
    tail = max(shuffling.LEAST_DELTA, _TAIL * math.exp(-alpha * local_epsilon) / report.mixed)
    step = max(report.largest(tail) / _FEWER_CELLS, local_epsilon / _MOST_SPREAD)
    end_of_profile = (math.ceil(local_epsilon / step) + 1, Fraction(0))
    points = [*_points(report, step, tail), end_of_profile]
    losses = LossDistribution.of_profile(both_sides(points, step), step)

    # The logarithm of E[exp((alpha - 1) L)].
    draws = losses.draws(1)
    log_terms = np.log(draws.masses) + (alpha - 1) * step * draws.values
    log_moment = float(np.logaddexp.reduce(log_terms))
    # Raised by more than the errors of floats.
    divergence = log_moment / (alpha - 1) * (1 + 1e-9) + 1e-12
    return min(unmixed, divergence)


@dataclass(frozen=True)
class PrivacyLoss:
    """The epsilon of many reports together, by three accounts.

    pure: the sum of their epsilons, which needs no delta; None if some have Gaussian noise.
    zcdp: the epsilon at `delta` by zero-concentrated differential privacy (zCDP).
    exact: the epsilon at `delta` by the distributions of the privacy loss; None where that is not
    proved, because Gaussian noise is rounded to a coarse grid. If only some of the reports have
    Gaussian noise, it is the sum of what is proved for those and for the others.
    """

    pure: float | None
    zcdp: float
    exact: float | None
    delta: float

    @property
    def epsilon(self) -> float:
        """The least epsilon that is proved at delta by any of the accounts."""
        proved = (self.pure, self.zcdp, self.exact)
        return min(each for each in proved if each is not None)


def compose(reports: Mapping[ReportKind, int], delta: float) -> PrivacyLoss:
    """Return the privacy loss of many reports together, by three accounts (`PrivacyLoss`).

    They are the plain sum of all epsilons (pure), the total in zero-concentrated differential
    privacy converted to an epsilon at `delta` (zcdp), and the distribution of the total privacy
    loss (exact). Reports with Gaussian noise have no pure epsilon.

    reports: how many reports of each kind, mixed or not. Raises UsageError for a delta that is not
    between 0 and 1.
    """
    zcdp = sums.epsilon_of(_rho_sum(reports), delta)
    gaussian = {report: times for report, times in reports.items() if report.gaussian}
    others = {report: times for report, times in reports.items() if not report.gaussian}
    if not gaussian:  # none has Gaussian noise
        exact = compose_exactly(reports, delta)
        return PrivacyLoss(pure=pure_sum(reports), zcdp=zcdp, exact=exact, delta=delta)

    if not others:  # all have Gaussian noise
        exact_gaussian = None
        # Exact only if it is known which normal noise discloses at least as much as each of them.
        if all(report.normal for report in gaussian):
            exact_gaussian = _epsilon_of_gaussian(gaussian, delta)
        return PrivacyLoss(pure=None, zcdp=zcdp, exact=exact_gaussian, delta=delta)

    # Of both kinds together the epsilons add up, and so do the deltas. The reports without Gaussian
    # noise get either nothing of delta or half of it, whichever is better.
    half = delta / 2
    without_delta = pure_sum(others) + _epsilon_of_gaussian(gaussian, delta)
    with_half = compose_exactly(others, half) + _epsilon_of_gaussian(gaussian, half)
    exact = min(without_delta, with_half)
    return PrivacyLoss(pure=None, zcdp=zcdp, exact=exact, delta=delta)


def pure_sum(reports: Mapping[ReportKind, int]) -> float:
    """Return the sum of the epsilons of reports without Gaussian noise."""
    return sum(times * report.cost for report, times in reports.items()) / MICRO


def _rho_sum(reports: Mapping[ReportKind, int]) -> int:
    """Return the sum of what the reports cost in zCDP, in micro-rho."""
    return sum(times * report.rho for report, times in reports.items())


def _epsilon_of_gaussian(reports: Mapping[ReportKind, int], delta: float) -> float:
    """Return the least proved epsilon at `delta` of reports that all have Gaussian noise.

    It follows from their total in zCDP (rho). If it is known for all of them which normal noise
    discloses at least as much, it also follows from that (Theorem 6 of docs/guides/accounting.md),
    and the lesser of the two is returned. reports: how many of each kind.
    """
    by_rho = sums.epsilon_of(_rho_sum(reports), delta)
    if not all(report.normal for report in reports):
        return by_rho
    rho_of_normal = sum(times * report.normal for report, times in reports.items())
    return min(by_rho, gaussian_curve.epsilon_of(rho_of_normal, delta))


def for_steps(reports: Mapping[ReportKind, int], steps: int) -> dict[ReportKind, int]:
    """Return the reports at their cost for data sets that are `steps` neighbours apart.

    Neighbours differ in one run of records, which one of them has and the other does not.

    reports: how many there are of each kind. Kinds that become equal are counted together.
    """
    changed: dict[ReportKind, int] = {}
    for report, times in reports.items():
        changed_report = report.for_steps(steps)
        changed[changed_report] = changed.get(changed_report, 0) + times
    return changed


def compose_exactly(reports: Mapping[ReportKind, int], delta: float) -> float:
    """Return the epsilon at `delta` of many reports together, by their privacy losses.

    reports: how many of each kind, mixed or not, none of them with Gaussian noise.
    """
    return _compose_exactly(frozenset(reports.items()), delta)


@lru_cache(maxsize=1024)
def _compose_exactly(kinds: frozenset[tuple[ReportKind, int]], delta: float) -> float:
    """Return the epsilon at `delta` of many reports together, by the laws of their privacy losses.

    kinds: pairs of a kind of report and how many there are. (A set of pairs can be cached, a
    mapping cannot.)
    """
    reports = dict(kinds)
    # A report consists of one or several independent draws from a table of probabilities.
    draws = {report: times * report.times for report, times in reports.items() if times}
    pure = pure_sum(reports)  # the plain sum of all epsilons, which always holds
    # Losses beyond LARGEST_LOSS are not computed: floats would not be exact enough.
    if any(report.cost > report.times * LARGEST_LOSS * MICRO for report in draws):
        return pure
    if not draws:
        return 0.0

    # The losses beyond the grid take at most the share _TAIL of delta, all draws together. That is
    # rounded down to a power of ten, so that similar plans share the cached distributions.
    tail_of_draw = _TAIL * delta / sum(draws.values())
    tail = 10.0 ** math.floor(math.log10(tail_of_draw))
    step = _common_step(draws, tail)
    if not step:
        return 0.0

    distributions: dict[LossDistribution, int] = {}
    for report, times in draws.items():
        losses = report.losses(step, tail)
        distributions[losses] = distributions.get(losses, 0) + times
    return min(epsilon(distributions, delta), pure)


def _common_step(draws: Mapping[ReportKind, int], tail: float) -> float:
    """Return a grid step that suits the losses of all these draws; 0 if no loss is above 0.

    The step is fine enough for the draws with the smallest losses, unless the grid or the range of
    the sum would get too large. draws: how many of each kind. tail: the probability of losses that
    may be left out of the grid.
    """
    largest_of_draw = {report: report.largest(tail) for report in draws}
    largest = max(largest_of_draw.values())
    if not largest:
        return 0.0
    smallest = min(loss for loss in largest_of_draw.values() if loss)
    # The variance of the sum of all losses is at most this.
    variance = sum(times * largest_of_draw[report] ** 2 for report, times in draws.items())
    return max(
        smallest / _CELLS,
        largest / _MOST_CELLS,  # so that the grid of a draw has not too many cells
        math.sqrt(variance) / _MOST_SPREAD,  # nor that of the sum
    )
