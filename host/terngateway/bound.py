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
from terngateway import estimate
from ternhost.count.disclosures import Disclosures, ReportCounts, draws_delta
from ternhost.count.members import Integers, integers
from ternhost.count.questions import decode_body
from ternhost.count.rounds import StoredCohort
from ternhost.errors import UsageError
from ternhost.files import read_object
from ternhost.options import Number, require
from ternhost.privacy import shuffling, sums
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import ReportKind, compose_exactly, renyi
from ternhost.privacy.groups import Group
from ternhost.privacy.laws import randomised_response
from ternhost.privacy.shuffling import MOST_REPORTS

FILE = "site.json"
MORE = "use more devices at a site, a smaller epsilon, or fewer rounds"  # what may help
_DELTA = 1e-6  # the default delta of a site's bound
# The third filter takes each report to be mixed with only this share of the reports with which a
# device's first one was mixed, so that later rounds may have somewhat fewer reports than the first.
_COVER = 0.9
# Factor on the number of reports that a refusal says are enough: the search for that number rounds
# more coarsely than the filters that decide.
_SPARE = 1.01
_WHOLE_DEVICE = 10**6 * MICRO  # the cost, in micro-epsilon, of a report that no bound allows
_MEMBERS = ("toward_server", "delta", "honest")
_EXAMPLE = 'such as {"toward_server": 1, "delta": 1e-6, "honest": 0.9}'

CohortReports = Sequence[tuple[ReportKind, Integers]]
"""What a round discloses: for each cohort (the devices that get the same question), the kind of one
report, which includes how many reports it is added up with, and the ids of the devices.
"""


@dataclass(frozen=True)
class Bound:
    """The largest privacy loss of a device toward the server, which sees only counts of reports.

    epsilon: in millionths; it limits the loss through all rounds together. delta: the probability
    that epsilon does not hold. honest: the share of a site's devices that the owner of the server
    does not control; only their reports hide a device's own one.
    """

    epsilon: int
    delta: float = _DELTA
    honest: float = 1.0

    @classmethod
    def parse(cls, epsilon: Number, delta: Number, honest: float) -> Self:
        """Return the bound with these values, as people write them in options or in site.json.

        epsilon: as a decimal number, such as "1.5". Raises UsageError for a value out of range.
        """
        require(0 < honest <= 1, "honest", "a share above 0 and at most 1", honest)
        micro_epsilon = parse_epsilon(epsilon, ledger.MAX_BUDGET, "--toward-server")
        return cls(epsilon=micro_epsilon, delta=sums.parse_delta(delta), honest=honest)

    @classmethod
    def read(cls, fields: Sequence[float] | None) -> Self | None:
        """Return the bound that a message holds, or None if it holds none.

        fields: epsilon (in millionths), delta and honest, as `Bound.fields` writes them.
        """
        if fields is None:
            return None
        epsilon, delta, honest = fields
        return cls(epsilon=int(epsilon), delta=delta, honest=honest)

    @property
    def fields(self) -> list[float]:
        """The bound as a list for JSON messages, which `read` turns back into a Bound."""
        return [self.epsilon, self.delta, self.honest]

    @classmethod
    def of_site(cls, directory: Path) -> Self | None:
        """Return the bound that site.json in a gateway's directory sets, or None without that file.

        Raises UsageError if a member of the file is unknown or wrong, and StorageError if the file
        cannot be read.
        """
        path = directory / FILE
        if not path.exists():
            return None
        members = read_object(path)
        unknown = members.keys() - set(_MEMBERS)
        if unknown:
            hint = f"it may have {', '.join(_MEMBERS)}"
            raise UsageError(f"{path}: unknown {', '.join(sorted(unknown))}", hint)

        try:
            return cls._of_members(members)
        except UsageError as error:
            raise UsageError(f"{path}: {error.message}", _EXAMPLE) from error
        except (TypeError, ValueError) as error:  # a member is not a number
            raise UsageError(f"{path}: {error}", _EXAMPLE) from error

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
        """The part of delta that is set aside for unlucky draws of groups.

        A group that a gateway draws at random may have fewer honest devices than is assumed.
        """
        return draws_delta(self.delta, self.honest)

    @property
    def _filter_delta(self) -> float:
        """The delta that the second and the third filter of `keeps` may use, each of them.

        They share what unlucky draws leave of delta; the first filter needs none.
        """
        return (self.delta - self._draws_delta) / 2

    @cached_property
    def alpha(self) -> float:
        """The order of the Renyi divergences that the second filter adds up over the rounds.

        A divergence D of order alpha implies an epsilon of D + c(alpha), where c is `_epsilon_of`
        at D = 0. So a bound of epsilon allows D up to epsilon - c(alpha). Since the divergence of
        Gaussian noise grows in proportion to alpha, the best order has the largest
        (epsilon - c(alpha)) / alpha. It is searched on a grid, and follows from the bound alone, so
        that a host cannot choose it by earlier answers.
        """
        # Noise of zero-concentrated privacy loss rho is best converted at order
        # 1 + sqrt(log(1 / delta) / rho). The grid goes from a quarter to four times the square root.
        micro_rho = sums.rho_of(self.epsilon / MICRO, self._filter_delta)
        rho = max(1, micro_rho) / MICRO  # not 0, by which the next line divides
        square_root = math.sqrt(-math.log(self._filter_delta) / rho)
        orders = 1 + square_root * np.geomspace(0.25, 4, num=81)

        def allowed_divergence_by_order(alpha: float) -> float:
            """Return the largest divergence of order alpha within the bound, divided by alpha."""
            allowed_divergence = self.epsilon / MICRO - self._epsilon_of(0.0, alpha)
            return allowed_divergence / alpha

        return float(max(orders, key=allowed_divergence_by_order))

    def _epsilon_of(self, divergence: float, alpha: float) -> float:
        """Return the epsilon, at the filters' delta, of a Renyi divergence of order alpha."""
        return sums.epsilon_of_renyi(divergence, alpha, self._filter_delta)

    # Whether it is kept

    def keeps(
        self, disclosures: Disclosures, devices: Sequence[int] | Integers | None = None
    ) -> bool:
        """Whether these disclosures stay within the bound, for each of these devices.

        The answer is right even if a host chose its questions by earlier answers: it is True only
        if one of three filters (rules for when to stop asking) shows it for each device, each in a
        way that allows such choices (docs/guides/accounting.md, Theorem 5). disclosures: the
        reports of all rounds. devices: the ids of the devices that matter; None means all.
        """
        accounts = disclosures.worst_report_counts(
            honest=self.honest, of=devices, delta=self._draws_delta
        )
        return all(self._holds(first_report, account) for first_report, account in accounts)

    def _holds(self, first_report: ReportKind | None, account: ReportCounts) -> bool:
        """Whether one of the three filters shows that a device's account is within the bound.

        account: how many reports of each kind the device has made. first_report: the kind of its
        first report, or None if the account stands for devices whose first reports differ.
        """
        # The first and the third filter add up epsilons without a delta (pure ones), which reports
        # with Gaussian noise do not have.
        has_gaussian_noise = any(report.gaussian for report in account)
        if not has_gaussian_noise and self._holds_as_sum(account):
            return True
        if self._holds_as_divergence(account):
            return True
        if has_gaussian_noise or first_report is None:
            return False
        return self._holds_under_cover(first_report, account)

    def _holds_as_sum(self, account: ReportCounts) -> bool:
        """The first filter: the local epsilons of all reports add up to no more than the bound.

        account: how many reports of each kind a device has made.
        """
        micro_epsilon = sum(times * report.cost for report, times in account.items())
        return micro_epsilon <= self.epsilon

    def _holds_as_divergence(self, account: ReportCounts) -> bool:
        """The second filter: the Renyi divergences of all reports add up to an allowed epsilon.

        account: how many reports of each kind a device has made.
        """
        divergence = sum(times * renyi(report, self.alpha) for report, times in account.items())
        return self._epsilon_of(divergence, self.alpha) <= self.epsilon / MICRO

    def _holds_under_cover(self, first: ReportKind, account: ReportCounts) -> bool:
        """The third filter: each report counts as if it were the first one, the cover.

        Since the first report was chosen before any answer, as many reports of that kind compose
        like reports that were all chosen beforehand. The filter applies only if no report costs
        more than the cover, or is mixed with fewer reports; so the cover is mixed with a tenth
        fewer than the first report was.

        first: the kind of the device's first report. account: how many reports of each kind the
        device has made.
        """
        cover = replace(first, mixed=math.ceil(_COVER * first.mixed))
        if cover.mixed == 0:  # nothing hides the first report
            return False
        for report in account:
            if report.cost > cover.cost or report.mixed < cover.mixed:
                return False
        number_of_reports = sum(account.values())
        epsilon = compose_exactly({cover: number_of_reports}, self._filter_delta)
        return epsilon <= self.epsilon / MICRO

    def estimated_cost(self, report: ReportKind, times: int) -> int:
        """Return about the largest cost of a report, in micro-epsilon, that keeps the bound.

        Nothing is proved about the result. report: of the kind that is meant, whose own cost does
        not matter. times: how many such reports each device makes, and no others.
        """
        honest = report.among_honest(self.honest, self._draws_delta).mixed
        epsilon = estimate.largest_epsilon(
            epsilon=self.epsilon / MICRO,
            delta=self._filter_delta,
            mixed=math.ceil(_COVER * honest),
            times=times,
        )
        return int(epsilon * MICRO)

    # Why a round would break it

    def why_refused(self, earlier: Disclosures, round_reports: CohortReports) -> str:
        """Return why a round's reports would break the bound, or "" if they keep it.

        earlier: what all earlier rounds have disclosed.
        """
        no_devices = integers(
            ()
        )  # for a round without reports, since NumPy joins at least one array
        devices_by_cohort = [devices for _, devices in round_reports]
        asked_devices = np.concatenate([no_devices, *devices_by_cohort])
        if self.keeps(earlier.with_reports(_once(round_reports)), asked_devices):
            return ""

        text = f"could tell the owner of the server more about a device than {self}, the bound"
        for report, devices in round_reports:
            cohort_alone = Disclosures().with_reports(_once([(report, devices)]))
            if not self.keeps(cohort_alone):
                return f"the counts of this round {text}: {self._too_few(report)}"
        return f"the counts of this round and of those before it {text}"

    def why_refused_after_earlier_rounds(
        self, earlier: Disclosures, round_reports: CohortReports
    ) -> str:
        """Return why a round's reports break the bound only together with those of earlier rounds.

        Returns "" if they keep the bound, and also if they would break it without any earlier
        round. earlier: what the earlier rounds have disclosed.
        """
        round_alone = Disclosures().with_reports(_once(round_reports))
        if not self.keeps(round_alone):
            return ""
        return self.why_refused(earlier, round_reports)

    def _too_few(self, report: ReportKind) -> str:
        """Return the part of a refusal that says how many honest reports would hide this report.

        It also says how many there are. report: of a kind that the bound does not allow even once.
        """
        epsilon = f"a report of epsilon {report.cost / MICRO:g}"
        needed = None
        if report.mixed:  # else its kind is hidden by no number of others
            needed = self._enough(report)
        if needed is None:
            return f"no number of devices is enough to hide {epsilon}"

        honest = report.among_honest(self.honest, self._draws_delta).mixed
        text = f"{needed:,} honest reports are enough to hide {epsilon}, and "
        if honest == report.mixed:
            return f"{text}there are {honest:,}"
        return f"{text}of these {report.mixed:,} only {honest:,} are sure to be honest"

    def _enough(self, report: ReportKind) -> int | None:
        """Return how many honest reports are enough to hide this one, or None if no number is.

        They are enough if the bound allows one round of so many such reports, by the third filter.
        The result may be a few per cent too large.
        """
        local_epsilon = report.cost / MICRO * (1 + 1e-12)  # raised above errors of rounding
        laws = randomised_response(report.cost / MICRO)  # the mechanism that discloses the most

        def is_hidden(reports: int) -> bool:
            """Whether one report among so many keeps the bound."""
            delta = shuffling.delta_at(
                laws, local=local_epsilon, epsilon=self.epsilon / MICRO, reports=reports
            )
            return delta <= self._filter_delta

        # Multiply the number by four until it is enough.
        too_few, enough = 0, 1
        while not is_hidden(enough):
            too_few = enough
            enough = 4 * enough
            if too_few >= MOST_REPORTS:
                return None
        # Then bisect, to one per cent.
        while enough - too_few > max(1, too_few // 100):
            middle = (too_few + enough) // 2
            if is_hidden(middle):
                enough = middle
            else:
                too_few = middle
        return math.ceil(enough * _SPARE / _COVER)


def _once(round_reports: CohortReports) -> list[tuple[ReportKind, Integers, int]]:
    """Return rows for `Disclosures.with_reports`, in which each device makes its report once."""
    times = 1
    return [(report, devices, times) for report, devices in round_reports]


def reports_of(
    cohorts: Sequence[StoredCohort], groups: Sequence[Group], reports: Iterable[int] | None = None
) -> list[tuple[ReportKind, Integers]]:
    """Return what a round discloses: for each cohort, the kind of its reports and its devices.

    A cohort without a report is left out, since its counts disclose nothing. cohorts: the devices
    that get the same question, with that question. groups: for each cohort, the group of devices
    that it was taken from. reports: for each cohort, how many reports came; None if every device
    reports.
    """
    if reports is None:
        reports = [len(cohort.devices) for cohort in cohorts]
    round_reports = []
    for cohort, count, group in zip(cohorts, reports, groups, strict=True):
        if count > 0:
            kind = _report(cohort.body, count, group)
            round_reports.append((kind, integers(cohort.devices)))
    return round_reports


def _report(body: bytes, reports: int, group: Group) -> ReportKind:
    """Return the kind of one report of a cohort, for the account toward the owner of the server.

    body: the question that it answers. reports: how many reports of the cohort are added up. group:
    the devices that the cohort was taken from.
    """
    report = ReportKind.of_question(decode_body(body))
    protects_single_records = report.unit > 0  # and not all records of a device together
    if protects_single_records:
        return ReportKind(_WHOLE_DEVICE)
    return report.among(reports, group)
