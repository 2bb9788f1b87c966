"""The bound that a site or a run sets to what the counts of a gateway disclose to the owner of the
server (shared_specs/gateways.md, Toward the owner of the server).

Nothing here protects from a gateway that lies: its devices trust it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

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
_DELTA = 1e-6  # of a site's bound, by default
_COVER = 0.9  # of a device's first round: later ones may have so many fewer reports
# of reports that are said to be enough: the filters round less finely than the search for them
_SPARE = 1.01
_WHOLE_DEVICE = 10**6 * MICRO  # stands for a report that no bound allows
_MEMBERS = ("toward_server", "delta", "honest")
_EXAMPLE = 'such as {"toward_server": 1, "delta": 1e-6, "honest": 0.9}'

Answered = Sequence[tuple[ReportKind, Integers]]
"""For each cohort of a round, a report among as many as there are, and the devices of the cohort."""


@dataclass(frozen=True)
class Bound:
    """What the counts of all rounds may tell about a device: epsilon (micro) at delta.

    honest: the share of a site's devices that the owner of the server does not control.
    """

    epsilon: int
    delta: float = _DELTA
    honest: float = 1.0

    @classmethod
    def parse(cls, epsilon: str, delta: str, honest: float) -> Self:
        """Parse the options of a run or the members of a site.json. Raises UsageError."""
        require(0 < honest <= 1, "honest", "a share above 0 and at most 1", honest)
        micro_epsilon = parse_epsilon(epsilon, ledger.MAX_BUDGET, "--toward-server")
        return cls(micro_epsilon, sums.parse_delta(delta), honest)

    @classmethod
    def read(cls, fields: Sequence[float] | None) -> Self | None:
        """Return the bound in the `fields` of a message, or None if the message has none."""
        return None if fields is None else cls(int(fields[0]), *fields[1:])

    @property
    def fields(self) -> list[float]:
        """The bound as a list for JSON messages, which `read` turns back into a Bound."""
        return [self.epsilon, self.delta, self.honest]

    @classmethod
    def of_site(cls, directory: Path) -> Self | None:
        """Return the bound in a site's site.json, or None if the site has no such file.

        Raises UsageError for a member that is unknown or wrong, and StorageError.
        """
        path = directory / FILE
        if not path.exists():
            return None
        members = read_object(path)
        if unknown := members.keys() - set(_MEMBERS):
            hint = f"it may have {', '.join(_MEMBERS)}"
            raise UsageError(f"{path}: unknown {', '.join(sorted(unknown))}", hint)
        try:
            return cls._of_members(members)
        except (UsageError, TypeError, ValueError) as error:
            message = error.message if isinstance(error, UsageError) else error
            raise UsageError(f"{path}: {message}", _EXAMPLE) from error

    @classmethod
    def _of_members(cls, members: Mapping[str, Any]) -> Self:
        """Return the bound in the members of a site.json, with defaults for those that it lacks."""
        epsilon = str(members.get("toward_server"))
        delta = str(members.get("delta", _DELTA))
        return cls.parse(epsilon, delta, float(members.get("honest", 1)))

    def __str__(self) -> str:
        return f"epsilon {self.epsilon / MICRO:g} at delta {self.delta:g}"

    @property
    def _draws_delta(self) -> float:
        """The part of delta that is kept for the groups that a gateway draws."""
        return draws_delta(self.delta, self.honest)

    @property
    def _filter_delta(self) -> float:
        """The delta of each of the two filters that need one."""
        return (self.delta - self._draws_delta) / 2

    @cached_property
    def alpha(self) -> float:
        """The order of the Renyi divergences that are added up over the rounds.

        It follows from the bound alone, so that a host cannot choose it by earlier answers. Of 81
        orders around the best one for Gaussian noise, it is the one that allows the largest
        divergence in proportion to the order.
        """
        # Noise of zero-concentrated privacy loss rho is best converted at order
        # 1 + sqrt(log(1 / delta) / rho).
        rho = max(1, sums.rho_of(self.epsilon / MICRO, self._filter_delta)) / MICRO
        scale = math.sqrt(-math.log(self._filter_delta) / rho)
        orders = 1 + scale * np.geomspace(0.25, 4, 81)

        def allowed_divergence(alpha: float) -> float:
            return (self.epsilon / MICRO - self._epsilon_of(0.0, alpha)) / alpha

        return float(max(orders, key=allowed_divergence))

    def _epsilon_of(self, divergence: float, alpha: float) -> float:
        return sums.epsilon_of_renyi(divergence, alpha, self._filter_delta)

    # Whether it is kept

    def keeps(
        self, disclosures: Disclosures, devices: Sequence[int] | Integers | None = None
    ) -> bool:
        """Whether the disclosures stay within the bound for each of these devices.

        That holds even if a host chose its questions by earlier answers: for each device one of
        three filters holds (docs/guides/accounting.md, Theorem 5). devices: None for all.
        """
        accounts = disclosures.worst_report_counts(self.honest, devices, self._draws_delta)
        return all(self._holds(first_report, account) for first_report, account in accounts)

    def _holds(self, first_report: ReportKind | None, account: ReportCounts) -> bool:
        """Whether one of the three filters shows that a device's account is within the bound.

        account: how many reports of each kind the device has made. first_report: its first one, or
        None if the account stands for devices whose first reports differ.
        """
        # The first and third filter add up pure epsilons, which reports with such noise lack.
        has_gaussian_noise = any(report.gaussian for report in account)
        if not has_gaussian_noise and self._holds_as_sum(account):
            return True
        if self._holds_as_divergence(account):
            return True
        if has_gaussian_noise or first_report is None:
            return False
        return self._holds_under_cover(first_report, account)

    def _holds_as_sum(self, account: ReportCounts) -> bool:
        """The first filter: the local epsilons of all reports add up to no more than the bound."""
        return sum(times * report.cost for report, times in account.items()) <= self.epsilon

    def _holds_as_divergence(self, account: ReportCounts) -> bool:
        """The second filter: the Renyi divergences add up, and convert to an epsilon in the bound."""
        total = sum(times * renyi(report, self.alpha) for report, times in account.items())
        return self._epsilon_of(total, self.alpha) <= self.epsilon / MICRO

    def _holds_under_cover(self, first: ReportKind, account: ReportCounts) -> bool:
        """The third filter: as many reports like the first one compose to no more than the bound.

        The first report, among a tenth fewer others, is the cover. The filter applies only if no
        report costs more than the cover, or hides among fewer others.
        """
        cover = replace(first, mixed=math.ceil(_COVER * first.mixed))
        for report in account:
            if not (report.cost <= cover.cost and report.mixed >= cover.mixed > 0):
                return False
        together = compose_exactly({cover: sum(account.values())}, self._filter_delta)
        return together <= self.epsilon / MICRO

    # Why a round would break it

    def refuses(self, told: Disclosures, answered: Answered) -> str:
        """Return why a round's reports would break the bound, or "" if they keep it.

        told: what all earlier rounds have disclosed.
        """
        asked_devices = np.concatenate([integers(()), *(devices for _, devices in answered)])
        if self.keeps(told.with_reports(_once(answered)), asked_devices):
            return ""

        text = f"could tell the owner of the server more about a device than {self}, the bound"
        for report, devices in answered:
            if not self.keeps(Disclosures().with_reports(_once([(report, devices)]))):
                return f"the counts of this round {text}: {self._too_few(report)}"
        return f"the counts of this round and of those before it {text}"

    def refuses_for_earlier_rounds(self, told: Disclosures, answered: Answered) -> str:
        """Return why the reports break the bound only together with those of earlier rounds.

        Returns "" if they keep it, or would break it without any earlier round.
        """
        keeps_without_earlier_rounds = self.keeps(Disclosures().with_reports(_once(answered)))
        if not keeps_without_earlier_rounds:
            return ""
        return self.refuses(told, answered)

    def _too_few(self, report: ReportKind) -> str:
        """Return a sentence on how many honest reports would hide this one, and how many there are."""
        epsilon = f"a report of epsilon {report.cost / MICRO:g}"
        honest = report.among_honest(self.honest, self._draws_delta).mixed
        needed = self._enough(report) if report.mixed else None
        if needed is None:
            return f"no number of devices is enough to hide {epsilon}"
        text = f"{needed:,} honest reports are enough to hide {epsilon}, and "
        if honest == report.mixed:
            return f"{text}there are {honest:,}"
        return f"{text}of these {report.mixed:,} only {honest:,} are sure to be honest"

    def _enough(self, report: ReportKind) -> int | None:
        """Return how many honest reports are enough to hide this one, or None if no number is.

        The result may be a few per cent too large.
        """
        local = report.cost / MICRO * (1 + 1e-12)
        laws = randomised_response(report.cost / MICRO)

        def is_hidden(reports: int) -> bool:  # by the third filter, for a single round
            delta = shuffling.delta_at(laws, local, self.epsilon / MICRO, reports)
            return delta <= self._filter_delta

        # Double the number twice until it is enough, then bisect to one per cent.
        low, high = 0, 1
        while not is_hidden(high):
            low, high = high, 4 * high
            if low >= MOST_REPORTS:
                return None
        while high - low > max(1, low // 100):
            middle = (low + high) // 2
            if is_hidden(middle):
                high = middle
            else:
                low = middle
        return math.ceil(high * _SPARE / _COVER)


def _once(answered: Answered) -> list[tuple[ReportKind, Integers, int]]:
    """Return the reports as rows (report, devices, times) in which each is made once."""
    return [(report, devices, 1) for report, devices in answered]


def reports_of(
    cohorts: Sequence[StoredCohort], groups: Sequence[Group], reports: Iterable[int] | None = None
) -> list[tuple[ReportKind, Integers]]:
    """Return, for each cohort of a round, the kind of its reports and its devices.

    A cohort without a report is left out, since its counts disclose nothing. groups: who may be in
    each cohort. reports: the number of reports of each cohort; None if every device reports.
    """
    if reports is None:
        reports = [len(cohort.devices) for cohort in cohorts]
    answered = []
    for cohort, count, group in zip(cohorts, reports, groups, strict=True):
        if count:
            answered.append((_report(cohort.body, count, group), integers(cohort.devices)))
    return answered


def _report(body: bytes, reports: int, group: Group) -> ReportKind:
    """Return the kind of one report among so many. body: of the question that it answers."""
    report = ReportKind.of_question(decode_body(body))
    if report.unit:  # a sum over runs of records protects these, and a device not at all
        return ReportKind(_WHOLE_DEVICE)
    return report.among(reports, group)
