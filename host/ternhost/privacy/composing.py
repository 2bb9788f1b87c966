"""The privacy loss of many reports together.

The reader knows the sender of each, or sees only sums over several devices.

Three accounts of the same reports: pure epsilons add up; so do rhos of zCDP; and the distributions
of the privacy loss, made from the cards' integers, compose exactly (docs/guides/accounting.md has
the theorems and their conditions).
"""

import math
from collections.abc import Mapping
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
    LESS,
    MOST,
    LossDistribution,
    at,
    both_sides,
    epsilon,
    least,
)

_CELLS = 96  # of a grid, up to the least of the largest losses
_FEWER_CELLS = 32  # of one for a Renyi divergence
_MOST_CELLS = 4096  # up to the largest
_MOST_POINTS = 2 * _CELLS  # of a profile, about; straight lines between them are above it
_MOST_SPREAD = 400_000  # of the sum, about a twentieth of its transform
_TAIL = 1e-3  # the share of delta that losses beyond the grid of mixed reports may take
_ROUNDED_UP = 1 + 1e-12  # above the errors of floats in a logarithm


@dataclass(frozen=True)
class ReportKind:
    """A kind of report, as accounting sees it: what it costs and how it is drawn.

    cost: of all its `values` together, in micro-epsilon (gaussian: micro-rho). card: of each value,
    or empty where only the cost is known. mixed: how many reports an intermediary adds up, this one
    among them; 0: the reader knows who sent it. alone: mixing hides nothing of it. unit: of a sum,
    the records of a run that it protects; 0: the whole device. normal: the micro-rho of normal
    noise that discloses at least as much as its Gaussian noise; 0: none is known. group: the
    devices that were asked for these, some of which may be dishonest; None: all of `mixed` are
    honest.
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
        """Return the kind of report that a card makes.

        values: how many values a report has, each drawn by the card. whole: the card's epsilon
        covers all of them together, so only the cost is known.
        """
        cost = int(card.epsilon)
        if card.shape == cards.SUM:
            body = sums.of(card)
            normal = gaussian_curve.rho_of_card(body)
            return cls(
                cost, gaussian=body.norm == sums.L2, alone=True, unit=body.unit, normal=normal
            )
        if whole:
            return cls(cost)
        if card.shape == cards.PROJECTION:
            # The radius changes no probability: all cards that differ in it are one kind.
            return cls(cost, projection.with_radius(card, 1))
        known_card = card.data if are_known(card) else b""
        return cls(values * cost, known_card, values)

    @classmethod
    def of_question(cls, question: frames.Round) -> Self:
        """Return the kind of report that a question asks for."""
        # All classes of softmax regression are drawn from one budget.
        whole = question.model == wire.SOFTMAX and question.k > 1
        kind = cls.of(cards.decode(bytes(question.card)), int(question.k), whole)
        # Each device then hashes its category by a hash of its own.
        hashed = question.model == wire.CATEGORIES and question.range > 0
        return replace(kind, alone=kind.alone or hashed)

    def among(self, reports: int, group: Group | None = None) -> Self:
        """Return this report as one of `reports` that an intermediary adds up.

        group: the devices that were asked for them, some of which may be dishonest; None if all are
        honest. A report that mixing does not hide, or that costs too much, stays as it is.
        """
        is_hidden = not self.alone and self.cost <= MOST * MICRO
        if not is_hidden:
            return self
        mixed = min(max(0, reports), shuffling.MOST_REPORTS)
        return replace(self, mixed=mixed, group=group)

    def among_honest(self, share: float, delta: float) -> Self:
        """Return this report as mixed with the honest reports of its group alone.

        share: of the site's devices that are honest. delta: the probability that fewer reports are
        honest, over all random draws of groups.
        """
        if self.group is None:
            return self
        return replace(self, mixed=self.group.honest(self.mixed, share, delta), group=None)

    def as_json(self) -> dict[str, Any]:
        """For JSON; `from_json` takes it back."""
        return {**asdict(self), "card": self.card.hex()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The kind of which `as_json` gave these fields."""
        group = None
        if fields["group"]:
            group = Group(**fields["group"])
        return cls(**{**fields, "card": bytes.fromhex(fields["card"]), "group": group})

    @property
    def worst(self) -> Self:
        """A mixed report of the worst mechanism that costs as much; others are as they are."""
        if not self.mixed:
            return self
        return replace(self, card=b"", values=1)

    @property
    def rho(self) -> int:
        """Its cost in micro-rho."""
        if self.gaussian:
            return self.cost
        cost_of_value = self.cost // self.values
        return self.values * sums.rho_of_pure(cost_of_value)

    def price(self, measure: int) -> int:
        """What a ledger of this measure pays, in millionths.

        Of Gaussian noise that is rho in either case: a ledger in epsilon refuses it.
        """
        return self.rho if measure == ledger.RHO else self.cost

    def for_steps(self, steps: int) -> Self:
        """Return the report at its cost for data sets that are `steps` neighbours apart.

        A report about the whole device costs the same for any two data sets of that device. A sum
        over runs of records costs `steps` times its epsilon, or steps**2 times its rho (ledger.md,
        Neighbours).
        """
        if not self.unit:
            return self
        if not self.gaussian:  # beyond one step only the epsilon is known, not the law
            return replace(self, cost=steps * self.cost, card=b"", values=1)
        return replace(self, cost=steps**2 * self.cost, normal=steps**2 * self.normal)

    @property
    def laws(self) -> list[Part]:
        """The laws of one draw at extreme inputs; if unknown, those of the worst mechanism."""
        if self.card and self.times == self.values:
            return parts(cards.decode(self.card))
        return randomised_response(self.cost / self.times / MICRO)

    @property
    def times(self) -> int:
        """How many draws of `losses` one report is."""
        return 1 if self.mixed else self.values

    def largest(self, tail: float) -> float:
        """A loss beyond which one draw has at most the probability `tail`."""
        return _largest(self, tail)

    def losses(self, step: float, tail: float) -> LossDistribution:
        """The privacy losses of one draw, on a grid. Not for Gaussian noise."""
        return _losses(self, step, tail)


@lru_cache(maxsize=256)
def _largest(report: ReportKind, tail: float) -> float:
    """Return a privacy loss that one draw of a report exceeds with probability `tail` at most."""
    laws = report.laws
    local_epsilon = math.log(greatest_ratio(laws)) * _ROUNDED_UP + 2 * LESS
    if not report.mixed:
        return local_epsilon

    def is_beyond(loss: float) -> bool:
        """Whether this loss is exceeded with probability `tail` at most."""
        return shuffling.delta_at(laws, local_epsilon, loss, report.mixed) <= tail

    if is_beyond(0.0):
        return 0.0
    return least(0.0, local_epsilon, 0.02, is_beyond)


@lru_cache(maxsize=256)
def _losses(report: ReportKind, step: float, tail: float) -> LossDistribution:
    """Return the distribution of the privacy loss of one draw, on a grid of this step."""
    return LossDistribution.of_profile(both_sides(_points(report, step, tail), step), step)


def _points(report: ReportKind, step: float, tail: float) -> list[tuple[int, Fraction]]:
    """Return points (i, delta) of a draw's privacy profile: delta at epsilon = i step, rounded up.

    i goes from 0 to a loss that is exceeded with probability `tail` at most. Large ranges are
    sampled: straight lines between points are an upper bound, since the profile is convex.
    """
    laws = report.laws
    local_epsilon = math.log(greatest_ratio(laws)) * _ROUNDED_UP
    last = math.ceil(report.largest(tail) / step * (1 - 1e-12))
    stride = max(1, last // _MOST_POINTS)

    points = []
    for i in (*range(0, last, stride), last):
        exp_epsilon = at(i, step)
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

    It is the least of the bounds by epsilon, by rho and, for a mixed report, by the distribution of
    its privacy loss.
    """
    unmixed = alpha * report.rho / MICRO
    if not report.gaussian:
        unmixed = min(report.cost / MICRO, unmixed)
    if not report.mixed:
        return unmixed

    local_epsilon = math.log(greatest_ratio(report.laws)) * _ROUNDED_UP
    # Beyond the grid the profile is a line to the largest loss, which is to count for nothing.
    tail = max(shuffling.LEAST_DELTA, _TAIL * math.exp(-alpha * local_epsilon) / report.mixed)
    step = max(report.largest(tail) / _FEWER_CELLS, local_epsilon / _MOST_SPREAD)
    beyond = (math.ceil(local_epsilon / step) + 1, Fraction(0))
    points = [*_points(report, step, tail), beyond]
    losses = LossDistribution.of_profile(both_sides(points, step), step)
    draws = losses.draws(1)
    # ln E[exp((alpha - 1) loss)], from the losses' masses.
    log_terms = np.log(draws.masses) + (alpha - 1) * step * draws.at
    log_moment = float(np.logaddexp.reduce(log_terms))
    with_rounding = log_moment / (alpha - 1) * (1 + 1e-9) + 1e-12
    return min(unmixed, with_rounding)


@dataclass(frozen=True)
class PrivacyLoss:
    """The epsilon of reports together, by three accounts.

    pure: at delta 0; None with Gaussian noise. zcdp: at `delta` by zCDP. exact: at `delta` by the
    distributions of the loss; None where the grid of Gaussian noise is coarse. Of Gaussian noise
    and other reports together, `exact` is the sum of what is proved of each kind.
    """

    pure: float | None
    zcdp: float
    exact: float | None
    delta: float

    @property
    def epsilon(self) -> float:
        """At delta, the least that is proved."""
        proved = (self.pure, self.zcdp, self.exact)
        return min(each for each in proved if each is not None)


def compose(reports: Mapping[ReportKind, int], delta: float) -> PrivacyLoss:
    """Return the privacy loss of many reports together, by three accounts (`PrivacyLoss`).

    reports: how many reports of each kind, mixed or not. Raises UsageError for a delta that is not
    between 0 and 1.
    """
    zcdp = sums.epsilon_of(_rho_sum(reports), delta)
    gaussian = {report: times for report, times in reports.items() if report.gaussian}
    pure = {report: times for report, times in reports.items() if not report.gaussian}
    if not gaussian:
        return PrivacyLoss(pure_sum(reports), zcdp, compose_exactly(reports, delta), delta)

    if not pure:
        exact = None
        if all(report.normal for report in gaussian):
            exact = _epsilon_of_gaussian(gaussian, delta)
        return PrivacyLoss(None, zcdp, exact, delta)

    # Of both kinds the epsilons add up, and so do the deltas. The pure reports take either nothing
    # of delta or half of it, whichever is better.
    half = delta / 2
    without_delta = pure_sum(pure) + _epsilon_of_gaussian(gaussian, delta)
    with_half = compose_exactly(pure, half) + _epsilon_of_gaussian(gaussian, half)
    return PrivacyLoss(None, zcdp, min(without_delta, with_half), delta)


def pure_sum(reports: Mapping[ReportKind, int]) -> float:
    """The epsilon at delta 0 of reports without Gaussian noise."""
    return sum(times * report.cost for report, times in reports.items()) / MICRO


def _rho_sum(reports: Mapping[ReportKind, int]) -> int:
    return sum(times * report.rho for report, times in reports.items())


def _epsilon_of_gaussian(reports: Mapping[ReportKind, int], delta: float) -> float:
    """Return the least proved epsilon at `delta` of reports that all have Gaussian noise.

    It follows from their rho and, if all have a known normal bound, from Theorem 6 of
    docs/guides/accounting.md.
    """
    by_rho = sums.epsilon_of(_rho_sum(reports), delta)
    if not all(report.normal for report in reports):
        return by_rho
    normal = sum(times * report.normal for report, times in reports.items())
    return min(by_rho, gaussian_curve.epsilon_of(normal, delta))


def for_steps(reports: Mapping[ReportKind, int], steps: int) -> dict[ReportKind, int]:
    """Return the reports at their cost for data sets that are `steps` neighbours apart.

    Kinds that become equal are counted together.
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
    """Compute `compose_exactly`. kinds: pairs of a report and its number, which can be cached."""
    reports = dict(kinds)
    draws = {report: times * report.times for report, times in reports.items() if times}
    pure = pure_sum(reports)
    # Losses beyond MOST are not computed: floats would not be exact enough.
    if any(report.cost > report.times * MOST * MICRO for report in draws):
        return pure
    if not draws:
        return 0.0

    # A power of ten, so that similar plans share the cached distributions.
    tail = 10.0 ** math.floor(math.log10(_TAIL * delta / sum(draws.values())))
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

    draws: how many of each kind. tail: the probability of a loss that the grid may leave out. The
    step is fine for the smallest losses, unless the grid or the sum's range would get too large.
    """
    extents = [report.largest(tail) for report in draws]
    largest = max(extents)
    if not largest:
        return 0.0
    smallest = min(extent for extent in extents if extent)
    variance = sum(draws[report] * extent**2 for report, extent in zip(draws, extents, strict=True))
    return max(
        smallest / _CELLS,
        largest / _MOST_CELLS,
        math.sqrt(variance) / _MOST_SPREAD,
    )
