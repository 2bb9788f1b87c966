"""The privacy cost of a client's reports, by sequential composition, and whether its budget covers a plan.

*User level*: an attacker who sees all reports of a client cannot tell its whole data from any other data. The losses
of all its reports add up. *Record level*: the attacker cannot tell one record of the client from another one, the
rest being known. Only reports computed from that record add up, so the user level bounds it. A person with several
clients is protected at the sum of their user levels. Amounts are integers in micro-epsilon, as on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tern import ledger
from ternhost.errors import RefusedError, UsageError
from ternhost.privacy.base import MICRO

MEASURES = ("epsilon", "rho")  # by tern.ledger.EPSILON and RHO


@dataclass(frozen=True)
class Release:
    """Something that a client reports several times, at `epsilon` (micro) for each of its `values`. A vector that is
    protected as a whole is one value. `what` names one value; its first word takes the plural."""

    what: str
    epsilon: int
    values: int = 1
    times: int = 1

    @property
    def user_level(self) -> int:
        return self.epsilon * self.values * self.times


@dataclass
class Account:
    """The releases of a client in a run (of each client, if all are alike), and its budget if it has one.

    Raises RefusedError where the budget does not cover it: an account is made before a run starts.
    """

    releases: tuple[Release, ...]
    budget: int | None = None
    who: str = "each client"

    def __post_init__(self) -> None:
        if self.budget is not None and self.user_level > self.budget:
            raise RefusedError(
                f"{self.who} would spend epsilon {self.user_level / MICRO:g}, and its budget has "
                f"{self.budget / MICRO:g} left: {self._listed}",
                hint="ask for fewer rounds or values, use a smaller epsilon, or raise the budget",
            )

    @property
    def user_level(self) -> int:
        return sum(release.user_level for release in self.releases)

    @property
    def _listed(self) -> str:
        return ", ".join(map(_of_release, self.releases))

    def words(self, span: str = "in total") -> str:
        """The account as a sentence. span: the time that it covers."""
        return f"{self.who} spends epsilon {self.user_level / MICRO:g} {span}: {self._listed}"

    def summary(self) -> dict[str, Any]:
        """For JSON and reports."""
        return {
            "releases": [
                {
                    "what": release.what,
                    "epsilon_each_value": release.epsilon / MICRO,
                    "values": release.values,
                    "times": release.times,
                    "epsilon_user_level": release.user_level / MICRO,
                }
                for release in self.releases
            ],
            "epsilon_user_level": self.user_level / MICRO,
            "epsilon_budget": None if self.budget is None else self.budget / MICRO,
        }


def _of_release(release: Release) -> str:
    noun, *rest = release.what.split()
    reports = "one report" if release.times == 1 else f"{release.times} reports"
    values = f"one {noun}" if release.values == 1 else f"{release.values} {noun}s"
    one = release.times == release.values == 1
    each = "" if one else f", each {noun}" if release.values > 1 else ", each"
    return " ".join([f"{reports} of {values}", *rest]) + f"{each} at epsilon {release.epsilon / MICRO:g}"


@dataclass(frozen=True)
class Policy:
    """The limits of every client, in millionths of the measure: the largest cost of one report, the lifetime budget."""

    largest: int
    budget: int
    measure: int = ledger.EPSILON

    def __post_init__(self) -> None:
        if not (0 < self.budget <= ledger.MAX_BUDGET and 0 < self.largest <= ledger.MAX_BUDGET):
            hint = "name a larger or a smaller epsilon"
            raise UsageError("a budget must be more than 0 and at most an epsilon of 1000", hint)
