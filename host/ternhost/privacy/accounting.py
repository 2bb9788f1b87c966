"""The privacy cost of a client's reports, by sequential composition, and whether its budget covers
a plan.

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
    """Something that a client reports several times, at `epsilon` (micro) for each of its `values`.

    A vector that is protected as a whole is one value. `what` names one value; its first word takes
    the plural.

    measure: of the ledger that pays. gaussian: `epsilon` is micro-rho, which only a ledger in rho
    can pay. total: of all reports where they differ, else 0.
    """

    what: str
    epsilon: int
    values: int = 1
    times: int = 1
    measure: int = ledger.EPSILON
    gaussian: bool = False
    total: int = 0

    def __post_init__(self) -> None:
        if self.gaussian and self.measure != ledger.RHO:
            hint = "provision the devices with a budget in rho, or use Laplace noise"
            raise RefusedError(
                "a sum with Gaussian noise costs rho, and the ledgers count epsilon", hint
            )

    @property
    def each(self) -> int:
        """The price of one value in one report, in millionths of the measure."""
        pure = self.measure == ledger.RHO and not self.gaussian
        return sums.rho_of_pure(self.epsilon) if pure else self.epsilon

    @property
    def user_level(self) -> int:
        return self.total or self.each * self.values * self.times


@dataclass
class PrivacyAccount:
    """The releases of a client in a run (of each client, if all are alike), and its budget if it
    has one. All are in one measure; `delta` is that of a total in rho.

    Raises RefusedError where the budget does not cover it: an account is made before a run starts.
    """

    releases: tuple[Release, ...]
    budget: int | None = None
    who: str = "each client"
    delta: float = 1e-6

    def __post_init__(self) -> None:
        if len({release.measure for release in self.releases}) > 1:
            raise ValueError("releases in two measures")
        if self.budget is not None and self.user_level > self.budget:
            raise RefusedError(
                f"{self.who} would spend {self.measure} {self.user_level / MICRO:g}, and its budget has "
                f"{self.budget / MICRO:g} left: {self._listed}",
                hint=f"ask for fewer rounds or values, use a smaller {self.measure}, or raise the budget",
            )

    @property
    def measure(self) -> str:
        """What the ledger counts: "epsilon" or "rho"."""
        return MEASURES[self.releases[0].measure] if self.releases else "epsilon"

    @property
    def user_level(self) -> int:
        return sum(release.user_level for release in self.releases)

    @property
    def _listed(self) -> str:
        return ", ".join(map(_of_release, self.releases))

    def words(self, span: str = "in total") -> str:
        """What ledgers pay, as a sentence. span: the time that it covers.

        What that protects, and how well, is for `guarantee` to say."""
        return (
            f"{self.who} spends {self.measure} {self.user_level / MICRO:g} {span}: {self._listed}"
        )

    @property
    def epsilon(self) -> float:
        """The total as an epsilon: of a ledger in rho at `delta`."""
        if self.measure == "rho":
            return sums.epsilon_of(self.user_level, self.delta)
        return self.user_level / MICRO

    def summary(self) -> dict[str, Any]:
        """For JSON and reports.

        A ledger in rho has its own amounts beside the epsilons, which are then at `delta`.
        """
        name, budget = self.measure, self.budget
        found: dict[str, Any] = {
            "releases": [
                {
                    "what": release.what,
                    "values": release.values,
                    "times": release.times,
                    f"{name}_each_value": release.each / MICRO,
                    f"{name}_user_level": release.user_level / MICRO,
                }
                for release in self.releases
            ],
            f"{name}_user_level": self.user_level / MICRO,
            f"{name}_budget": None if budget is None else budget / MICRO,
        }
        if name == "rho":
            found |= {"delta": self.delta, "epsilon_user_level": self.epsilon}
            found["epsilon_budget"] = (
                None if budget is None else sums.epsilon_of(budget, self.delta)
            )
        return found


def _of_release(release: Release) -> str:
    noun, *rest = release.what.split()
    reports = "one report" if release.times == 1 else f"{release.times} reports"
    values = f"one {noun}" if release.values == 1 else f"{release.values} {noun}s"
    if release.total:
        return f"{reports} of {release.what}"
    one = release.times == release.values == 1
    each = "" if one else f", each {noun}" if release.values > 1 else ", each"
    price = f"{MEASURES[release.measure]} {release.each / MICRO:g}"
    return " ".join([f"{reports} of {values}", *rest]) + f"{each} at {price}"


@dataclass(frozen=True)
class Policy:
    """The limits of every client, in millionths of the measure: the largest cost of one report, the
    lifetime budget.
    """

    largest: int
    budget: int
    measure: int = ledger.EPSILON

    def __post_init__(self) -> None:
        if not (0 < self.budget <= ledger.MAX_BUDGET and 0 < self.largest <= ledger.MAX_BUDGET):
            hint = "name a larger or a smaller epsilon"
            raise UsageError("a budget must be more than 0 and at most an epsilon of 1000", hint)
