"""What many reports of a device cost together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ternhost.api import arguments
from ternhost.api.cards import Card
from ternhost.api.frames import frame
from ternhost.options import Number, Option, require
from ternhost.privacy import cards, many_reports, shuffling, sums
from ternhost.privacy.base import parse_epsilon
from ternhost.privacy.many_reports import CardReports, Epsilons
from ternhost.text import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_MOST_VALUES = 10**4  # of a report
_DELTA = Option("delta", "", default="")
_EPSILON = Option("epsilon", "", default="")


@dataclass(frozen=True)
class Account(Epsilons):
    """The epsilon of a device's reports together, one in each of `rounds` rounds.

    - rounds: how many; delta: at which the epsilons hold
    - pure: the sum of the epsilons, which needs no delta; None for Gaussian noise
    - zcdp: by zero-concentrated differential privacy
    - exact: by the distributions of the privacy loss; None where that is not proved
    - shuffled: toward a reader who does not know who sent which report; None without a shuffler
    """

    delta: float
    _reports: CardReports
    _mixed: int | None  # how many reports a shuffler mixes

    def by_round(self) -> Sequence[Account]:
        """Return the accounts after about a dozen numbers of rounds, up to all of them."""
        numbers = many_reports.ladder(self.rounds)
        return [_account(n, self._reports, self.delta, self._mixed) for n in numbers]

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each account of `by_round`. Needs pandas."""
        names = ("rounds", "pure", "zcdp", "exact", "shuffled", "epsilon")
        return frame([{name: getattr(each, name) for name in names} for each in self.by_round()])

    def plot(self) -> Figure:
        """Draw the epsilons against the rounds."""
        from ternhost.plots import accounts as plots  # loads matplotlib

        columns = {"exact": "exact", "zCDP": "zcdp", "pure": "pure"}
        if self.shuffled is not None:
            columns = {"behind a shuffler": "shuffled", **columns}
        return plots.over_rounds(self.by_round(), columns, f"delta {self.delta:g}")

    def __repr__(self) -> str:
        return f"<Account of {counted(self.rounds, 'report')}: epsilon {self.epsilon:g} at {self.delta:g}>"


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
    require(1 <= values <= _MOST_VALUES, "k", f"1 to {_MOST_VALUES:,}", values)
    at_delta = sums.parse_delta(_DELTA.normalised(delta))
    many_reports.require_delta(at_delta)
    reports = _reports_of(card, values, number)
    if shuffled is not None:
        shuffled = arguments.whole(shuffled, "shuffled")
        most = shuffling.MOST_REPORTS
        require(1 <= shuffled <= most, "shuffled", f"1 to {most:,}", shuffled)
        many_reports.require_shufflable([reports], shuffled, at_delta)
    return _account(number, reports, at_delta, shuffled)


def _reports_of(card: Card | Number, values: int, rounds: int) -> CardReports:
    """Return the reports from a card, or from any mechanism with an epsilon."""
    if not isinstance(card, Card):
        return CardReports(None, parse_epsilon(_EPSILON.normalised(card)), values, rounds)
    decoded = cards.decode(card.data)
    certified = card.to_dict()[f"{cards.measure(decoded)}_certified"]
    return CardReports.of_card(decoded, certified, values, rounds)


def _account(rounds: int, reports: CardReports, delta: float, shuffled: int | None) -> Account:
    """Return what the first of these reports cost. shuffled: how many are mixed in each round."""
    epsilons = many_reports.epsilons_after(rounds, [reports], delta, shuffled)
    return Account(**vars(epsilons), delta=delta, _reports=reports, _mixed=shuffled)
