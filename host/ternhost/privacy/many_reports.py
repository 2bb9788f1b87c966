"""What many reports of a device cost together: in epsilon, also behind a shuffler, and to a ledger.

`CardReports` says which reports a device makes of one card. `epsilons_after` composes the reports of
several cards, `one_round` accounts for a single report behind a shuffler, and `ledger_costs` tells
what all of them cost a ledger in rho (zCDP).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tern.card import PROJECTION, SUM, Card
from ternhost.errors import UsageError
from ternhost.options import require
from ternhost.privacy import cards, certify, composing, shuffling, sums
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import PrivacyLoss, ReportKind
from ternhost.privacy.shuffling import Shuffled
from ternhost.privacy.units import DEVICE

MOST_ROUNDS = 10**6


@dataclass(frozen=True)
class CardReports:
    """The reports that a device draws from a card, one in each of a number of rounds.

    - card: from which each value is drawn; None: any mechanism of this cost
    - cost: what a value costs, as certified, in millionths of epsilon, or of rho for Gaussian noise
    - values: how many values a report has
    - rounds: in how many rounds the device reports

    Raises UsageError for numbers that are out of bounds, and for several values in a report where
    the card is about all values at once.
    """

    card: Card | None
    cost: int
    values: int = 1
    rounds: int = 1

    def __post_init__(self) -> None:
        """Raise UsageError for numbers that make no sense."""
        require_rounds(self.rounds)
        if self.card is not None and self.card.shape >= SUM:
            require(self.values == 1, "k", "1 with a card that is about all values", self.values)

    @classmethod
    def of_card(cls, card: Card, certified: float | None, values: int, rounds: int) -> CardReports:
        """Return the reports of a card.

        certified: its epsilon or rho, as its description has it; None if none is proved, for which
        UsageError is raised. values, rounds: as the fields.
        """
        if certified is None:
            measure = cards.measure(card)  # "epsilon" or "rho"
            hint = "look at its distribution with 'tern card show', or Card.plot() in Python"
            raise UsageError(f"this card keeps no {measure} up to 20", hint)
        return cls(card, round(certified * MICRO), values, rounds)

    def kind(self, values: int) -> ReportKind:
        """Return what accounting has to know of a report of this many values.

        It has the cost that was certified, since a card may claim a larger one.
        """
        if self.card is None:
            return ReportKind(values * self.cost, values=values)
        kind = ReportKind.of(self.card, values)
        return replace(kind, cost=kind.values * self.cost)

    def _card_of_values(self) -> Card | None:
        """Return the card, if its symbols stand for values: then its exact distribution counts.

        Return None if there is no card, or one of projections: these are accounted for by their
        epsilon alone. Raises UsageError for the card of a sum.
        """
        if self.card is None or self.card.shape == PROJECTION:
            return None
        return certify.valued(self.card)

    def one_round(self, shuffled: int, delta: float) -> Shuffled:
        """Return the bounds of one report behind a shuffler.

        shuffled: how many honest reports hide each other. delta: at which the bounds hold. Raises
        UsageError if the card cannot be accounted for behind a shuffler.
        """
        return shuffling.account(self.cost, shuffled, delta, self._card_of_values(), self.values)


@dataclass(frozen=True)
class Epsilons:
    """The epsilons of a device's reports together, each of which holds.

    - rounds: in how many rounds the device has reported, over all cards
    - pure: the sum of the epsilons, which needs no delta; None for Gaussian noise
    - zcdp: by zero-concentrated differential privacy
    - exact: by the distributions of the privacy loss; None where that is not proved
    - shuffled: toward a reader who does not know who sent which; None without a shuffler
    """

    rounds: int
    pure: float | None
    zcdp: float
    exact: float | None
    shuffled: float | None

    @property
    def epsilon(self) -> float:
        """The least of the epsilons."""
        bounds = (self.pure, self.zcdp, self.exact, self.shuffled)
        return min(bound for bound in bounds if bound is not None)


def require_rounds(rounds: int) -> None:
    """Raise UsageError for a number of rounds that is not possible."""
    allowed = f"from 1 to {MOST_ROUNDS:,}"
    require(1 <= rounds <= MOST_ROUNDS, "rounds", allowed, f"{rounds:,}")


def require_delta(delta: float) -> None:
    """Raise UsageError for a delta that is too small to compute with."""
    least = shuffling.LEAST_DELTA
    require(delta >= least, "delta", f"{least:g} or more", f"{delta:g}")


def require_shufflable(reports: Sequence[CardReports], shuffled: int, delta: float) -> None:
    """Raise UsageError if the reports of one of these cards cannot be shuffled."""
    for of_card in reports:
        of_card.one_round(shuffled, delta)


def epsilons_after(
    rounds: int, reports: Sequence[CardReports], delta: float, shuffled: int | None = None
) -> Epsilons:
    """Return the epsilons after a number of rounds of the card that has the most rounds.

    Of each other card the same share of its rounds is over, and at least one round.

    reports: those of each card. delta: at which the epsilons hold. shuffled: how many honest reports
    a shuffler mixes in each round; None without one. Raises UsageError.
    """
    most_rounds = max(of_card.rounds for of_card in reports)
    local: Counter[ReportKind] = Counter()
    mixed: Counter[ReportKind] = Counter()
    rounds_of_all = 0
    for of_card in reports:
        rounds_of_card = -(-of_card.rounds * rounds // most_rounds)  # -(-a // b) rounds up
        rounds_of_all += rounds_of_card
        # A report of several values counts as several reports of one value; only a shuffler mixes
        # whole reports.
        local[of_card.kind(values=1)] += rounds_of_card * of_card.values
        if shuffled is not None:
            mixed[of_card.kind(of_card.values).among(shuffled)] += rounds_of_card
    loss = composing.compose(local, delta)
    central = None
    if shuffled is not None:
        # A shuffler never makes it worse.
        central = min(composing.compose_exactly(mixed, delta), loss.epsilon)
        if rounds_of_all == 1:  # of one card: that can be computed more exactly
            central = min(central, reports[0].one_round(shuffled, delta).epsilon)
    return Epsilons(rounds_of_all, loss.pure, loss.zcdp, loss.exact, central)


def ladder(last: int) -> list[int]:
    """Return about a dozen numbers of rounds from 1 up to `last`, evenly spaced in the logarithm.

    They have the leading digits 1, 2, 5 or 1, 3; up to 12 all numbers are returned.
    """
    if last <= 12:
        return list(range(1, last + 1))
    leading_digits = (1, 2, 5) if last <= 10**4 else (1, 3)
    numbers = []
    for power in range(7):  # up to MOST_ROUNDS, 10**6
        for digit in leading_digits:
            number = digit * 10**power
            if number < last:
                numbers.append(number)
    return [*numbers, last]


@dataclass(frozen=True)
class LedgerCosts:
    """What reports cost a ledger in rho, and which epsilons that means.

    - rounds: into how many equal parts the rho is divided
    - rho: of all reports; rho_each: of one; None where different cards cost differently
    - epsilon_each_pure: the epsilon of a pure mechanism that costs as much as one report
    - unit: how many records are protected together; 0: all of a device
    - units: how many units a device holds
    - loss: the privacy loss of a unit: whether it was there; loss_content: what it says. A whole
      device has only the first, since its presence is no secret
    - loss_device, loss_device_content: the same of all units of a device together (group privacy)
    """

    rounds: int
    rho: float
    rho_each: float | None
    epsilon_each_pure: float | None
    unit: int
    units: int
    loss: PrivacyLoss
    loss_content: PrivacyLoss | None
    loss_device: PrivacyLoss
    loss_device_content: PrivacyLoss | None


def units_of(records: int | None, unit: int) -> int:
    """Return how many units the records of a device are; 1 if their number is not known.

    unit: the number of records in a unit; 0 for the whole device. Raises UsageError for a number
    of records that is not possible, or that would change nothing.
    """
    if records is None:
        return 1
    require(records >= 1, "records", "1 or more", records)
    if unit == DEVICE:
        text = "--records would change nothing: the whole device is protected"
        raise UsageError(text, "name what is protected, such as --unit record")
    return -(-records // unit)  # rounded up


def unit_of_cards(reports: Sequence[CardReports]) -> int | None:
    """Return how many records these cards protect together; 0: a whole device; None: they differ.

    A card of whole devices fits to all others.
    """
    units = set()
    for of_card in reports:
        if of_card.card is not None:
            units.add(cards.unit_of(of_card.card.data))
    units.discard(DEVICE)
    if len(units) > 1:
        return None
    return max(units, default=DEVICE)


def costs_of_cards(
    reports: Sequence[CardReports], delta: float, unit: int | None, records: int | None
) -> LedgerCosts:
    """Return what the reports of these cards cost a ledger in rho.

    unit: how many records are protected together; 0: a whole device; None: as the cards say.
    records: how many a device holds; None: one unit. Raises UsageError, also if the cards protect
    different numbers of records and the unit does not say which of them is meant.
    """
    of_cards = unit_of_cards(reports)
    if unit is None:
        unit = of_cards
    if unit is None:
        hint = "account for each, or name one with --unit"
        raise UsageError("these cards protect different units", hint)
    kinds: Counter[ReportKind] = Counter()
    for of_card in reports:
        kinds[of_card.kind(of_card.values)] += of_card.rounds
    hides_presence = of_cards != DEVICE
    units = units_of(records, unit)
    costs = _ledger_costs(kinds, delta, unit=unit, units=units, hides_presence=hides_presence)
    if len(reports) > 1:  # the reports of different cards cost differently
        return replace(costs, rho_each=None, epsilon_each_pure=None)
    return costs


def costs_of_budget(
    micro_epsilon: int, rounds: int, delta: float, unit: int, records: int | None
) -> LedgerCosts:
    """Return what each of a number of reports may cost, if all of them share a budget.

    micro_epsilon: the budget at delta, in millionths of epsilon. rounds: the number of reports.
    unit, records: as of `costs_of_cards`, but for a unit that is always known. Raises UsageError.
    """
    total = ReportKind(sums.rho_of(micro_epsilon / MICRO, delta), gaussian=True)
    units = units_of(records, unit)
    costs = _ledger_costs({total: 1}, delta, unit=unit, units=units, hides_presence=True)
    return _divided(costs, total.rho, rounds)


def _ledger_costs(
    kinds: Mapping[ReportKind, int], delta: float, unit: int, units: int, hides_presence: bool
) -> LedgerCosts:
    """Return what reports cost a ledger in rho, in all and each.

    kinds: how many reports of each kind a device makes. unit, units: as the fields of the result.
    hides_presence: the reports hide whether a unit is there. Then data without the unit are one
    step away, and data in which it says something else are two steps away (ledger.md, Neighbours).
    Raises UsageError for a rho that is not possible.
    """
    kinds_of_unit = {replace(kind, unit=unit): times for kind, times in kinds.items()}

    def loss(steps: int) -> PrivacyLoss:
        """Return the privacy loss between data that are this many steps apart."""
        return composing.compose(composing.for_steps(kinds_of_unit, steps), delta)

    # Of a whole device only one loss is given, since its presence is no secret.
    loss_content = None
    loss_device_content = None
    if hides_presence and unit != DEVICE:
        loss_content = loss(steps=2)
        loss_device_content = loss(steps=2 * units)
    micro_rho = sum(times * kind.rho for kind, times in kinds.items())
    rounds = sum(kinds.values())
    costs = LedgerCosts(
        rounds=rounds,
        rho=micro_rho / MICRO,
        rho_each=None,
        epsilon_each_pure=None,
        unit=unit,
        units=units,
        loss=loss(steps=1),
        loss_content=loss_content,
        loss_device=loss(steps=units),
        loss_device_content=loss_device_content,
    )
    return _divided(costs, micro_rho, rounds)


def _divided(costs: LedgerCosts, micro_rho: int, rounds: int) -> LedgerCosts:
    """Return these costs divided by a number of rounds. Raises UsageError if nothing is left."""
    of_each = micro_rho // rounds
    if of_each == 0:
        hint = "let each report spend from 0.000001 to 20"
        raise UsageError("the rho of a report is out of bounds", hint)
    pure = sums.pure_of(of_each) / MICRO
    return replace(costs, rounds=rounds, rho_each=of_each / MICRO, epsilon_each_pure=pure)
