"""What the counts of a gateway tell the owner of the server, and the bound that a site or a run
sets to it (shared_specs/gateways.md, Toward the owner of the server). Nothing here protects from a
gateway that lies: its devices trust it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from tern import ledger
from ternhost.count.disclosures import Disclosures, ReportCounts, draws_delta
from ternhost.count.members import Integers, integers
from ternhost.count.questions import decode_body
from ternhost.count.rounds import StoredCohort
from ternhost.errors import UsageError
from ternhost.files import read_object
from ternhost.options import require
from ternhost.privacy import shuffling, sums
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import ReportKind, compose_exactly, renyi
from ternhost.privacy.groups import Group
from ternhost.privacy.laws import randomised_response
from ternhost.privacy.shuffling import MOST_REPORTS

FILE = "site.json"
MORE = "it takes more devices at a site, a smaller epsilon, or fewer rounds"  # what may help
_COVER = 0.9  # of a device's first round: later ones may have so many fewer reports
# of reports that are said to be enough: the filters round less finely than the search for them
_SPARE = 1.01
_ALL = 10**6 * MICRO  # stands for no bound
_MEMBERS = ("toward_server", "delta", "honest")

Answered = list[tuple[ReportKind, Integers]]
"""The reports of a round's cohorts, each among as many as there are, and the devices that were asked for them."""


@dataclass(frozen=True)
class Bound:
    """What the counts of all rounds may tell about a device: epsilon (micro) at delta. honest: the
    share of a site's devices that the owner of the server does not control.
    """

    epsilon: int
    delta: float = 1e-6
    honest: float = 1.0

    @classmethod
    def parse(cls, epsilon: str, delta: str, honest: float) -> Self:
        """Raises UsageError."""
        require(0 < honest <= 1, "honest", "a share above 0 and at most 1", honest)
        return cls(
            parse_epsilon(epsilon, ledger.MAX_BUDGET, "--toward-server"),
            sums.parse_delta(delta),
            honest,
        )

    @classmethod
    def read(cls, fields: Sequence[float] | None) -> Self | None:
        """From a message of a gateway or its host, if it has one."""
        return None if fields is None else cls(int(fields[0]), *fields[1:])

    @property
    def fields(self) -> list[float]:
        """For a message."""
        return [self.epsilon, self.delta, self.honest]

    @classmethod
    def of_site(cls, directory: Path) -> Self | None:
        """The bound of a site's site.json, if there is one. Raises UsageError, StorageError."""
        path = directory / FILE
        if not path.exists():
            return None
        found = read_object(path)
        if unknown := found.keys() - set(_MEMBERS):
            hint = f"it may have {', '.join(_MEMBERS)}"
            raise UsageError(f"{path}: unknown {', '.join(sorted(unknown))}", hint)
        try:
            delta, honest = found.get("delta", 1e-6), found.get("honest", 1)
            return cls.parse(str(found.get("toward_server")), str(delta), float(honest))
        except (UsageError, TypeError, ValueError) as error:
            hint = 'such as {"toward_server": 1, "delta": 1e-6, "honest": 0.9}'
            raise UsageError(f"{path}: {getattr(error, 'message', error)}", hint) from error

    def __str__(self) -> str:
        return f"epsilon {self.epsilon / MICRO:g} at delta {self.delta:g}"

    @property
    def _draws(self) -> float:
        """The part of delta that is kept for the draws of a gateway."""
        return draws_delta(self.delta, self.honest)

    @property
    def _half(self) -> float:
        """The delta of each of the two filters that need one."""
        return (self.delta - self._draws) / 2

    @cached_property
    def alpha(self) -> float:
        """The order of the Renyi divergences that are added up: it follows from the bound alone."""
        rho = max(1, sums.rho_of(self.epsilon / MICRO, self._half)) / MICRO
        orders = 1 + math.sqrt(-math.log(self._half) / rho) * np.geomspace(0.25, 4, 81)
        return float(
            max(orders, key=lambda a: (self.epsilon / MICRO - self._converted(0.0, a)) / a)
        )

    def _converted(self, divergence: float, alpha: float) -> float:
        return sums.epsilon_of_renyi(divergence, alpha, self._half)

    def keeps(
        self, disclosures: Disclosures, devices: Sequence[int] | Integers | None = None
    ) -> bool:
        """Whether no more was told of these devices, even if a host chose its questions by earlier
        answers: for each of them one of three filters holds (docs/guides/accounting.md, Theorem 5).
        """
        accounts = disclosures.worst_report_counts(self.honest, devices, self._draws)
        return all(self._holds(first, account) for first, account in accounts)

    def _holds(self, first: ReportKind | None, account: ReportCounts) -> bool:
        most = self.epsilon / MICRO
        exact = [report for report in account if not report.gaussian]
        if (
            len(exact) == len(account)
            and sum(n * report.cost for report, n in account.items()) <= self.epsilon
        ):
            return True
        total = sum(n * renyi(report, self.alpha) for report, n in account.items())
        if self._converted(total, self.alpha) <= most:
            return True
        if first is None or len(exact) < len(account):
            return False
        cover = replace(first, mixed=math.ceil(_COVER * first.mixed))
        if not all(each.cost <= cover.cost and each.mixed >= cover.mixed > 0 for each in exact):
            return False
        return compose_exactly({cover: sum(account.values())}, self._half) <= most

    def refuses(self, disclosures: Disclosures, answered: Answered) -> str:
        """Why these reports would break the bound, after all that was told before; "" if they keep
        it.
        """
        devices = np.concatenate([integers(()), *(ids for _, ids in answered)])
        if self.keeps(disclosures.with_reports((*each, 1) for each in answered), devices):
            return ""
        text = f"could tell the owner of the server more about a device than {self}, the bound"
        for report, ids in answered:
            if not self.keeps(Disclosures().with_reports([(report, ids, 1)])):
                return f"the counts of this round {text}: {self._too_few(report)}"
        return f"the counts of this round and of those before it {text}"

    def spent(self, disclosures: Disclosures, answered: Answered) -> str:
        """As `refuses`, where rounds before are the reason: by themselves these reports keep the
        bound.
        """
        alone = self.keeps(Disclosures().with_reports((*each, 1) for each in answered))
        return self.refuses(disclosures, answered) if alone else ""

    def _too_few(self, report: ReportKind) -> str:
        """Why one report breaks the bound by itself, in words."""
        epsilon = f"a report of epsilon {report.cost / MICRO:g}"
        honest = report.among_honest(self.honest, self._draws).mixed
        needed = self._enough(report) if report.mixed else None
        if needed is None:
            return f"no number of devices is enough to hide {epsilon}"
        text = f"{needed:,} honest reports are enough to hide {epsilon}, and "
        if honest == report.mixed:
            return f"{text}there are {honest:,}"
        return f"{text}of these {report.mixed:,} only {honest:,} are sure to be honest"

    def _enough(self, report: ReportKind) -> int | None:
        """A number of honest reports that hides this one, at most a few per cent too large; None:
        no number does.
        """
        local = report.cost / MICRO * (1 + 1e-12)
        laws = randomised_response(report.cost / MICRO)

        def hidden(n: int) -> bool:  # by the third filter, for a single round
            return shuffling.delta_at(laws, local, self.epsilon / MICRO, n) <= self._half

        low, high = 0, 1
        while not hidden(high):
            low, high = high, 4 * high
            if low >= MOST_REPORTS:
                return None
        while high - low > max(1, low // 100):
            middle = (low + high) // 2
            low, high = (low, middle) if hidden(middle) else (middle, high)
        return math.ceil(high * _SPARE / _COVER)


def reports_of(
    cohorts: Sequence[StoredCohort], groups: Sequence[Group], reports: Iterable[int] | None = None
) -> Answered:
    """groups: which devices each cohort asks. reports: of each cohort; None: every device reports.

    Counts of no report tell nothing.
    """
    numbers = [len(cohort.devices) for cohort in cohorts] if reports is None else list(reports)
    return [
        (_report(cohort.body, n, group), integers(cohort.devices))
        for cohort, n, group in zip(cohorts, numbers, groups, strict=True)
        if n
    ]


def _report(body: bytes, reports: int, group: Group) -> ReportKind:
    request = decode_body(body)
    report = ReportKind.of_question(request)
    if report.unit:  # a sum over runs of records protects these, and a device not at all
        return ReportKind(_ALL)
    return report.among(reports, group)
