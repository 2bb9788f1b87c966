"""What reports tell together: to a reader who knows the sender of each, or who sees the counts of a
gateway alone.

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
from ternhost.privacy.losses import LESS, MOST, LossDistribution, at, both_sides, epsilon, least

_CELLS = 96  # of a grid, up to the least of the largest losses
_FEWER_CELLS = 32  # of one for a Renyi divergence
_MOST_CELLS = 4096  # up to the largest
_MOST_POINTS = 2 * _CELLS  # of a profile, about; straight lines between them are above it
_MOST_SPREAD = 400_000  # of the sum, about a twentieth of its transform
_TAIL = 1e-3  # the share of delta that losses beyond a gateway's grid may take


@dataclass(frozen=True)
class ReportKind:
    """A report that costs `cost`, micro-epsilon (gaussian: micro-rho), for all its `values`
    together.

    card: of each value, or none where all that is known is the cost. mixed: how many reports a
    gateway adds up, this one among them; 0: the reader knows who sent it. group: the devices that
    were asked for these, some of which may be dishonest; None: all of `mixed` are honest. alone:
    mixing hides nothing of it. unit: of a sum, the records of a run that it protects; 0: the whole
    device. normal: the micro-rho of normal noise that tells at least as much as its Gaussian noise;
    0: none is known.
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
        """A report of so many values. whole: the card's epsilon covers all values together."""
        if card.shape == cards.SUM:
            body = sums.of(card)
            normal = gaussian_curve.rho_of_card(body)
            return cls(
                int(card.epsilon),
                gaussian=body.norm == 2,
                alone=True,
                unit=body.unit,
                normal=normal,
            )
        if whole:
            return cls(int(card.epsilon))
        if card.shape == cards.PROJECTION:
            return cls(
                int(card.epsilon), projection.with_radius(card, 1)
            )  # the radius tells nothing
        return cls(values * int(card.epsilon), card.data if are_known(card) else b"", values)

    @classmethod
    def of_question(cls, request: frames.Round) -> Self:
        """The report that a question wants."""
        whole = request.model == wire.SOFTMAX and request.k > 1
        found = cls.of(cards.decode(bytes(request.card)), int(request.k), whole)
        hashed = (
            request.model == wire.CATEGORIES and request.range > 0
        )  # by a hash of each device's own
        return replace(found, alone=found.alone or hashed)

    def among(self, reports: int, group: Group | None = None) -> Self:
        """The same behind a gateway that adds up so many reports. group: of whom; None: all of them
        are honest.
        """
        hidden = not self.alone and self.cost <= MOST * MICRO
        if not hidden:
            return self
        return replace(self, mixed=min(max(0, reports), shuffling.MOST_REPORTS), group=group)

    def among_honest(self, share: float, delta: float) -> Self:
        """The same among the reports that are honest if this share of a site's devices is, but with
        a probability of `delta` over all draws of a gateway.
        """
        if self.group is None:
            return self
        return replace(self, mixed=self.group.honest(self.mixed, share, delta), group=None)

    def as_json(self) -> dict[str, Any]:
        """For JSON; `from_json` takes it back."""
        return {**asdict(self), "card": self.card.hex()}

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> Self:
        group = known["group"] and Group(**known["group"])
        return cls(**{**known, "card": bytes.fromhex(known["card"]), "group": group})

    @property
    def worst(self) -> Self:
        """A mixed report of the worst mechanism that costs as much; others are as they are."""
        return replace(self, card=b"", values=1) if self.mixed else self

    @property
    def rho(self) -> int:
        """Micro-rho."""
        each = self.cost // self.values
        return self.cost if self.gaussian else self.values * sums.rho_of_pure(each)

    def price(self, measure: int) -> int:
        """What a ledger of this measure pays, in millionths.

        Of Gaussian noise that is rho in either case: a ledger in epsilon refuses it.
        """
        return self.rho if measure == ledger.RHO else self.cost

    def for_steps(self, steps: int) -> Self:
        """What it costs data sets that are so many neighbours apart (ledger.md, Neighbours).

        A report about the whole device costs any two data sets of the device the same. A sum over
        runs of records costs so many times its epsilon, or so many times squared its rho.
        """
        if not self.unit:
            return self
        if not self.gaussian:  # all that is known then is the epsilon
            return replace(self, cost=steps * self.cost, card=b"", values=1)
        return replace(self, cost=steps**2 * self.cost, normal=steps**2 * self.normal)

    @property
    def _laws(self) -> list[Part]:
        if self.card and self.times == self.values:
            return parts(cards.decode(self.card))
        return randomised_response(self.cost / self.times / MICRO)

    @property
    def times(self) -> int:
        """How many draws of `losses` one report is."""
        return 1 if self.mixed else self.values

    def largest(self, tail: float) -> float:
        """A loss beyond which one draw has at most `tail`."""
        return _largest(self, tail)

    def losses(self, step: float, tail: float) -> LossDistribution:
        """The privacy losses of one draw, on a grid. Not for Gaussian noise."""
        return _losses(self, step, tail)


@lru_cache(maxsize=256)
def _largest(report: ReportKind, tail: float) -> float:
    laws = report._laws
    local = math.log(greatest_ratio(laws)) * (1 + 1e-12) + 2 * LESS
    if not report.mixed:
        return local
    if shuffling.delta_at(laws, local, 0.0, report.mixed) <= tail:
        return 0.0
    return least(
        0.0, local, 0.02, lambda e: shuffling.delta_at(laws, local, e, report.mixed) <= tail
    )


@lru_cache(maxsize=256)
def _losses(report: ReportKind, step: float, tail: float) -> LossDistribution:
    return LossDistribution.of_profile(both_sides(_points(report, step, tail), step), step)


def _points(report: ReportKind, step: float, tail: float) -> list[tuple[int, Fraction]]:
    """The profile's points at losses of 0 and more, up to one that has at most `tail` beyond it."""
    laws, last = report._laws, math.ceil(report.largest(tail) / step * (1 - 1e-12))
    local = math.log(greatest_ratio(laws)) * (1 + 1e-12)
    points = []
    for i in (*range(0, last, max(1, last // _MOST_POINTS)), last):
        g = at(i, step)
        delta = (
            shuffling.delta_of(laws, local, g, report.mixed) if report.mixed else profile(laws, g)
        )
        points.append((i, min(Fraction(1), Fraction(delta))))
    return points


@lru_cache(maxsize=4096)
def renyi(report: ReportKind, alpha: float) -> float:
    """At least the Renyi divergence of order `alpha` that a report can have between two inputs of
    its device.
    """
    zcdp = alpha * report.rho / MICRO
    plain = zcdp if report.gaussian else min(report.cost / MICRO, zcdp)
    if not report.mixed:
        return plain
    laws = report._laws
    local = math.log(greatest_ratio(laws)) * (1 + 1e-12)
    # Beyond the grid the profile is a line to the largest loss, which is to count for nothing.
    tail = max(shuffling.LEAST_DELTA, _TAIL * math.exp(-alpha * local) / report.mixed)
    step = max(report.largest(tail) / _FEWER_CELLS, local / _MOST_SPREAD)
    points = _points(report, step, tail)
    losses = LossDistribution.of_profile(
        both_sides([*points, (math.ceil(local / step) + 1, Fraction(0))], step), step
    )
    draws = losses.draws(1)
    moment = float(np.logaddexp.reduce(np.log(draws.masses) + (alpha - 1) * step * draws.at))
    return min(plain, moment / (alpha - 1) * (1 + 1e-9) + 1e-12)


@dataclass(frozen=True)
class PrivacyLoss:
    """The epsilon of reports together: pure (None with Gaussian noise), and at delta by zCDP and
    exactly (None: not known, where the grid of Gaussian noise is coarse). Of Gaussian noise and
    other reports together, "exactly" is the sum of what is proved of each kind.
    """

    pure: float | None
    zcdp: float
    exact: float | None
    delta: float

    @property
    def epsilon(self) -> float:
        """At delta, the least that is proved."""
        return min(each for each in (self.pure, self.zcdp, self.exact) if each is not None)


def compose(reports: Mapping[ReportKind, int], delta: float) -> PrivacyLoss:
    """What so many reports of each kind tell, mixed or not.

    Raises UsageError for a delta beyond 0 and 1.
    """
    zcdp = sums.epsilon_of(sum(times * report.rho for report, times in reports.items()), delta)
    noise = {report: times for report, times in reports.items() if report.gaussian}
    if not noise:
        return PrivacyLoss(pure_sum(reports), zcdp, compose_exactly(reports, delta), delta)
    others = {report: times for report, times in reports.items() if not report.gaussian}
    if not others:
        is_known = all(report.normal for report in noise)
        return PrivacyLoss(None, zcdp, _of_gaussian(noise, delta) if is_known else None, delta)
    half = delta / 2
    apart = (
        pure_sum(others) + _of_gaussian(noise, delta),
        compose_exactly(others, half) + _of_gaussian(noise, half),
    )
    return PrivacyLoss(None, zcdp, min(apart), delta)


def pure_sum(reports: Mapping[ReportKind, int]) -> float:
    """The epsilon at delta 0 of reports without Gaussian noise."""
    return sum(times * report.cost for report, times in reports.items()) / MICRO


def _of_gaussian(reports: Mapping[ReportKind, int], delta: float) -> float:
    """The epsilon at `delta` of reports with Gaussian noise: by Theorem 6 where it can be, else by
    their rho.
    """
    by_rho = sums.epsilon_of(sum(times * report.rho for report, times in reports.items()), delta)
    if not all(report.normal for report in reports):
        return by_rho
    normal = sum(times * report.normal for report, times in reports.items())
    return min(by_rho, gaussian_curve.epsilon_of(normal, delta))


def for_steps(reports: Mapping[ReportKind, int], steps: int) -> dict[ReportKind, int]:
    """The reports, each as `ReportKind.for_steps`."""
    changed: dict[ReportKind, int] = {}
    for report, times in reports.items():
        apart = report.for_steps(steps)
        changed[apart] = changed.get(apart, 0) + times
    return changed


def compose_exactly(reports: Mapping[ReportKind, int], delta: float) -> float:
    """The epsilon at `delta` of so many reports of each kind, mixed or not, none of them Gaussian."""
    return _compose_exactly(frozenset(reports.items()), delta)


@lru_cache(maxsize=1024)
def _compose_exactly(kinds: frozenset[tuple[ReportKind, int]], delta: float) -> float:
    reports = dict(kinds)
    draws = {report: times * report.times for report, times in reports.items() if times}
    pure = sum(times * report.cost for report, times in reports.items()) / MICRO
    if any(report.cost > report.times * MOST * MICRO for report in draws):
        return pure
    if not draws:
        return 0.0
    tail = 10.0 ** math.floor(math.log10(_TAIL * delta / sum(draws.values())))
    extents = [report.largest(tail) for report in draws]
    if not max(extents):
        return 0.0
    spread = math.sqrt(
        sum(draws[report] * each**2 for report, each in zip(draws, extents, strict=True))
    )
    step = max(
        min(filter(None, extents)) / _CELLS, max(extents) / _MOST_CELLS, spread / _MOST_SPREAD
    )
    found: dict[LossDistribution, int] = {}
    for report, times in draws.items():
        losses = report.losses(step, tail)
        found[losses] = found.get(losses, 0) + times
    return min(epsilon(found, delta), pure)
