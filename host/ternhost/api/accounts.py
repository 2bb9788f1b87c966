"""What many reports of a device cost together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tern import card as tern_cards
from ternhost.api import arguments
from ternhost.api.cards import Card
from ternhost.api.frames import frame
from ternhost.errors import UsageError
from ternhost.options import Number, Option, require
from ternhost.privacy import cards, certify, composing, shuffling, sums
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import ReportKind

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_MOST_ROUNDS = 10**6
_MOST_VALUES = 10**4  # of a report
_DELTA = Option("delta", "", default="")
_EPSILON = Option("epsilon", "", default="")


@dataclass(frozen=True)
class Account:
    """The epsilon of a device's reports together, one in each of `rounds` rounds.

    - rounds: how many; delta: at which the epsilons hold
    - pure: the sum of the epsilons, which needs no delta; None for Gaussian noise
    - zcdp: by zero-concentrated differential privacy
    - exact: by the distributions of the privacy loss; None where that is not proved
    - shuffled: toward a reader who does not know who sent which report; None without a shuffler
    """

    rounds: int
    delta: float
    pure: float | None
    zcdp: float
    exact: float | None
    shuffled: float | None
    _reports: _Reports

    @property
    def epsilon(self) -> float:
        """The least of the epsilons, each of which holds."""
        bounds = (self.pure, self.zcdp, self.exact, self.shuffled)
        return min(bound for bound in bounds if bound is not None)

    def by_round(self) -> Sequence[Account]:
        """Return the accounts after about a dozen numbers of rounds, up to all of them."""
        numbers = {1, self.rounds}
        for power in range(7):
            numbers |= {10**power, 3 * 10**power}
        return [self._reports.account(n, self.delta) for n in sorted(numbers) if n <= self.rounds]

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each account of `by_round`. Needs pandas."""
        names = ("rounds", "pure", "zcdp", "exact", "shuffled", "epsilon")
        return frame([{name: getattr(each, name) for name in names} for each in self.by_round()])

    def plot(self) -> Figure:
        """Draw the epsilons against the rounds."""
        from ternhost.plots import accounts as plots  # loads matplotlib

        steps = self.by_round()
        curves: Mapping[str, Sequence[float | None]] = {
            "exact": [step.exact for step in steps],
            "zCDP": [step.zcdp for step in steps],
            "pure": [step.pure for step in steps],
        }
        if self.shuffled is not None:
            curves = {"behind a shuffler": [step.shuffled for step in steps], **curves}
        title = f"delta {self.delta:g}"
        rounds = [step.rounds for step in steps]
        return plots.epsilons(rounds, "reports of a device", "epsilon", curves, title)

    def __repr__(self) -> str:
        return f"<Account of {self.rounds:,} reports: epsilon {self.epsilon:g} at {self.delta:g}>"


@dataclass(frozen=True)
class _Reports:
    """Reports of one kind. k: values of a report. shuffled: how many are mixed; None: none are."""

    kind: ReportKind  # of one value
    whole: ReportKind  # of all values of a report
    card: tern_cards.Card | None  # whose symbols stand for values
    k: int
    shuffled: int | None

    def account(self, rounds: int, delta: float) -> Account:
        """Return what a number of these reports costs at delta."""
        loss = composing.compose({self.kind: rounds * self.k}, delta)
        behind = None
        if self.shuffled is not None:
            mixed = {self.whole.among(self.shuffled): rounds}
            behind = min(composing.compose_exactly(mixed, delta), loss.epsilon)
            if rounds == 1:  # which can be computed more exactly
                once = shuffling.account(self.kind.cost, self.shuffled, delta, self.card, self.k)
                behind = min(behind, once.epsilon)
        return Account(rounds, delta, loss.pure, loss.zcdp, loss.exact, behind, self)


def account(
    card: Card | Number,
    rounds: int = 1,
    *,
    delta: Number = "1e-6",
    k: int = 1,
    shuffled: int | None = None,
) -> Account:
    """Account for the reports of a device together, as `tern card account` does.

    - card: from which each value is drawn, or an epsilon, for any mechanism that keeps it
    - rounds: how many reports a device makes
    - delta: at which the epsilons hold
    - k: values of a report, each at the epsilon of the card
    - shuffled: how many honest reports a shuffler mixes in each round; None: there is none

    Raises UsageError.
    """
    number = arguments.whole(rounds, "rounds")
    values = arguments.whole(k, "k")
    require(1 <= number <= _MOST_ROUNDS, "rounds", f"1 to {_MOST_ROUNDS:,}", number)
    require(1 <= values <= _MOST_VALUES, "k", f"1 to {_MOST_VALUES:,}", values)
    at_delta = sums.parse_delta(_DELTA.normalised(delta))
    least = shuffling.LEAST_DELTA
    require(at_delta >= least, "delta", f"{least:g} or more", f"{at_delta:g}")
    if shuffled is not None:
        shuffled = arguments.whole(shuffled, "shuffled")
        most = shuffling.MOST_REPORTS
        require(1 <= shuffled <= most, "shuffled", f"1 to {most:,}", shuffled)
    return _reports_of(card, values, shuffled).account(number, at_delta)


def _reports_of(card: Card | Number, k: int, shuffled: int | None) -> _Reports:
    """Return what accounting has to know of the reports from a card, or of any with an epsilon."""
    if not isinstance(card, Card):
        epsilon = parse_epsilon(_EPSILON.normalised(card))
        whole = ReportKind(k * epsilon, values=k)
        return _Reports(ReportKind(epsilon), whole, None, k, shuffled)

    decoded = cards.decode(card.data)
    is_about_all_values = decoded.shape >= tern_cards.SUM
    if is_about_all_values:
        require(k == 1, "k", "1 with a card that is about all values", k)
    measure = cards.measure(decoded)
    certified = card.to_dict()[f"{measure}_certified"]
    if certified is None:
        raise UsageError(f"this card keeps no {measure} up to 20", "see its plot()")
    cost = round(certified * MICRO)
    valued = None
    if decoded.shape < tern_cards.SUM:
        valued = certify.valued(decoded)
    elif shuffled is not None and decoded.shape == tern_cards.SUM:
        raise UsageError("a shuffler does not hide the noise of a sum", "leave out shuffled")
    kind = replace(ReportKind.of(decoded, 1), cost=cost)
    whole = ReportKind.of(decoded, k)
    return _Reports(kind, replace(whole, cost=whole.values * cost), valued, k, shuffled)
