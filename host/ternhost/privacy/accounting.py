"""The privacy cost of a client's reports, and whether its budget covers a plan.

Costs add up by sequential composition.

*User level*: an attacker who sees all reports of a client cannot tell its whole data from any other
data. The losses of all its reports add up. *Record level*: the attacker cannot tell one record of
the client from another one, the rest being known. Only reports computed from that record add up, so
the user level bounds it. A person with several clients is protected at the sum of their user
levels. Amounts are integers in millionths of the ledger's measure, epsilon or rho (ledger.md), as
on the device. With sums over units, what is protected is a unit, not the client.
"""

from dataclasses import dataclass
from typing import Any

from tern import ledger
from ternhost.errors import RefusedError, UsageError
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO

MEASURES = ("epsilon", "rho")  # by tern.ledger.EPSILON and RHO


@dataclass(frozen=True)
class Release:
    """Something that a client reports several times, and what its ledger pays for it.

    what: one value, in words; the first word takes the plural, as in "value of a gradient".
    epsilon: the price of each value, in micro-epsilon.
    values: how many values a report has; a vector that is protected as a whole counts as one.
    times: how many reports the client sends.
    measure: what the paying ledger counts: `ledger.EPSILON` or `ledger.RHO`.
    gaussian: whether the noise is Gaussian; then `epsilon` is micro-rho, which only a ledger in rho
    can pay.
    total: the price of all reports together where their prices differ; 0: it is epsilon times
    values times times.
    can_grow: whether there may be more reports than `times`, at the same price of all together.

    Raises RefusedError for Gaussian noise and a ledger in epsilon.
    """

    what: str
    epsilon: int
    values: int = 1
    times: int = 1
    measure: int = ledger.EPSILON
    gaussian: bool = False
    total: int = 0
    can_grow: bool = False

    def __post_init__(self) -> None:
        if self.gaussian and self.measure != ledger.RHO:
            raise RefusedError(
                "a sum with Gaussian noise costs rho, and the ledgers count epsilon",
                hint="provision the devices with a budget in rho, or use Laplace noise",
            )

    @property
    def each(self) -> int:
        """The price of one value in one report, in millionths of the measure."""
        is_pure = not self.gaussian
        if is_pure and self.measure == ledger.RHO:
            return sums.rho_of_pure(self.epsilon)
        return self.epsilon

    @property
    def user_level(self) -> int:
        """The price of all reports, in millionths of the measure."""
        if self.total:
            return self.total
        return self.each * self.values * self.times

    @property
    def words(self) -> str:
        """The release in words, such as "2 reports of 3 values, each value at epsilon 0.5".

        The text says how often something is reported, what, and at which price. It goes into
        messages.
        """
        reports = "one report"
        if self.times > 1:
            reports = f"{self.times} reports"
        if self.can_grow:
            reports += " or more"
        if self.total:
            return f"{reports} of {self.what}"

        # Only the first word of `what` takes the plural: "3 values of a gradient".
        noun, *rest_of_what = self.what.split()
        values = f"one {noun}"
        if self.values > 1:
            values = f"{self.values} {noun}s"
        text = " ".join([f"{reports} of {values}", *rest_of_what])
        if self.values > 1:
            text += f", each {noun}"
        elif self.times > 1:
            text += ", each"
        return f"{text} at {MEASURES[self.measure]} {self.each / MICRO:g}"


@dataclass
class PrivacyAccount:
    """The releases of a client in a run (of each client, if all are alike), and its budget.

    releases: what the client reports; all are paid in one measure.
    budget: what its ledger has left, in millionths of that measure; None: no limit is known.
    who: the client, in words. delta: at which a total in rho is converted to an epsilon.

    An account is made before a run starts. Raises RefusedError if the budget does not cover the
    releases.
    """

    releases: tuple[Release, ...]
    budget: int | None = None
    who: str = "each client"
    delta: float = 1e-6

    def __post_init__(self) -> None:
        """Check that the releases have one measure, and that the budget covers them.

        The measure is what the ledger of a device counts: epsilon, or rho of zCDP. Raises
        RefusedError if the budget is too small.
        """
        measures = {release.measure for release in self.releases}
        if len(measures) > 1:
            raise ValueError("some releases count epsilon, and others rho")
        if self.budget is not None and self.user_level > self.budget:
            raise RefusedError(
                f"{self.who} would spend {self._amount}, and its budget has "
                f"{self.budget / MICRO:g} left: {self._releases_in_words}",
                hint=f"use fewer rounds or values, use a smaller {self.measure}, or raise the budget",
            )

    @property
    def measure(self) -> str:
        """What the ledger counts: "epsilon" or "rho"."""
        if not self.releases:
            return "epsilon"
        return MEASURES[self.releases[0].measure]

    @property
    def user_level(self) -> int:
        """The cost of all releases together, in millionths of the measure."""
        return sum(release.user_level for release in self.releases)

    @property
    def _amount(self) -> str:
        """The cost of all releases together in words, such as "epsilon 1.5"."""
        return f"{self.measure} {self.user_level / MICRO:g}"

    @property
    def _releases_in_words(self) -> str:
        return ", ".join(release.words for release in self.releases)

    def words(self, span: str = "in total") -> str:
        """Return a sentence on what the ledger pays: the total and the releases.

        span: the period of time, in words. What this protects, and how well, is stated by
        `guarantee`.
        """
        return f"{self.who} spends {self._amount} {span}: {self._releases_in_words}"

    @property
    def epsilon(self) -> float:
        """The total cost as an epsilon; if the ledger counts rho, as the epsilon at `delta`."""
        if self.measure == "rho":
            return sums.epsilon_of(self.user_level, self.delta)
        return self.user_level / MICRO

    def summary(self) -> dict[str, Any]:
        """Return the releases, their total and the budget, for JSON and reports.

        Keys begin with the ledger's measure. A ledger in rho also has its total and its budget
        converted to an epsilon at `delta`.
        """
        measure = self.measure
        releases = []
        for release in self.releases:
            fields = {
                "what": release.what,
                "values": release.values,
                "times": release.times,
                f"{measure}_each_value": release.each / MICRO,
                f"{measure}_user_level": release.user_level / MICRO,
            }
            releases.append(fields)

        budget = None
        epsilon_of_budget = None
        if self.budget is not None:
            budget = self.budget / MICRO
            if measure == "rho":
                epsilon_of_budget = sums.epsilon_of(self.budget, self.delta)
        summary: dict[str, Any] = {
            "releases": releases,
            f"{measure}_user_level": self.user_level / MICRO,
            f"{measure}_budget": budget,
        }
        if measure == "rho":
            summary["delta"] = self.delta
            summary["epsilon_user_level"] = self.epsilon
            summary["epsilon_budget"] = epsilon_of_budget
        return summary


@dataclass(frozen=True)
class Policy:
    """The limits that every client enforces, in millionths of the measure.

    largest: the largest cost of one report. budget: the total cost of all reports for life.
    measure: what the ledger counts: `ledger.EPSILON` or `ledger.RHO`. Raises UsageError if a limit
    is out of bounds.
    """

    largest: int
    budget: int
    measure: int = ledger.EPSILON

    def __post_init__(self) -> None:
        for limit in (self.budget, self.largest):
            if not 0 < limit <= ledger.MAX_BUDGET:
                text = "a budget must be more than 0 and at most an epsilon of 1000"
                raise UsageError(text, "give a larger or a smaller epsilon")
