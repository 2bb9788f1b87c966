"""What the reports of many rounds disclose about one device, at most.

A round that does not ask a device discloses nothing about it. So the reports of a device add up, and
no other reports.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tern.ledger import RHO
from ternhost.count.members import Integers, Members, integers
from ternhost.privacy.composing import PrivacyLoss, ReportKind, compose
from ternhost.privacy.groups import DRAWS_SHARE

MOST_SIZES = 12  # numbers of mixed reports of one kind; larger ones are rounded down
MOST_ROWS = 16  # sets of counts to compare; more are joined

ReportCounts = Mapping[ReportKind, int]  # how many reports of each kind a device has made
DeviceIds = Sequence[int] | Integers


class _Group(NamedTuple):
    """Devices that have each made a number of reports of one kind."""

    kind: ReportKind
    devices: Integers
    times: int


@dataclass
class Disclosures:
    """The reports of devices, added up by kind."""

    _times: dict[tuple[ReportKind, bytes], int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._times)

    def add(self, kind: ReportKind, devices: DeviceIds, times: int = 1) -> None:
        """Add reports of one kind, so many of each of these devices."""
        key = kind, integers(devices).tobytes()
        self._times[key] = self._times.get(key, 0) + times

    @property
    def devices(self) -> Integers:
        """All devices that have made a report, ascending."""
        groups = [np.frombuffer(ids, np.int64) for _, ids in self._times]
        return np.unique(np.concatenate([integers(()), *groups]))

    def with_reports(self, others: Iterable[tuple[ReportKind, DeviceIds, int]]) -> "Disclosures":
        """Return a copy with more reports: a kind, the devices, and how many of each of them."""
        both = Disclosures(dict(self._times))
        for kind, devices, times in others:
            both.add(kind, devices, times)
        return both

    def of_devices(self, devices: DeviceIds) -> "Disclosures":
        """Return a copy that has only the reports of these devices."""
        wanted_ids = integers(devices)
        copy = Disclosures()
        for (kind, packed_ids), times in self._times.items():
            ids = np.frombuffer(packed_ids, np.int64)
            ids = ids[np.isin(ids, wanted_ids)]
            if len(ids):
                copy.add(kind, ids, times)
        return copy

    def report_counts(
        self, honest: float = 1.0, of: DeviceIds | None = None, delta: float = 0.0
    ) -> list[ReportCounts]:
        """Return the counts of reports of the devices about which most may be disclosed.

        A device is left out if another one made as many reports of every kind, so that its privacy
        loss cannot be larger.

        honest: the share of a site's devices that the reader does not control. of: which devices;
        None: all. delta: the probability with which random draws of groups may have given more
        dishonest devices a place.
        """
        counts = _counts_by_device(self._groups(honest, delta), self._members(of))
        everybody = np.full(len(counts.rows), True)
        return counts.maximal_rows(everybody, MOST_ROWS)

    def worst_report_counts(
        self, honest: float, of: DeviceIds | None = None, delta: float = 0.0
    ) -> list[tuple[ReportKind | None, ReportCounts]]:
        """Return what `report_counts` returns, for the worst mechanism of each report's epsilon.

        That covers cards that are chosen by earlier answers. Before the counts stands the kind of
        their devices' first report, or None if there are too many such kinds.
        """
        groups = []
        for group in self._groups(honest, delta):
            groups.append(group._replace(kind=group.kind.worst))
        counts = _counts_by_device(groups, self._members(of))
        first_kinds = np.unique(counts.first)
        if len(first_kinds) > MOST_ROWS:
            everybody = np.full(len(counts.rows), True)
            return [(None, row) for row in counts.maximal_rows(everybody, MOST_ROWS)]

        worst: list[tuple[ReportKind | None, ReportCounts]] = []
        for first in first_kinds.tolist():
            most_rows = max(1, MOST_ROWS // len(first_kinds))
            for row in counts.maximal_rows(counts.first == first, most_rows):
                worst.append((counts.reports[first], row))
        return worst

    def prices(self, devices: DeviceIds, measure: int) -> Integers:
        """Return what the ledger of each of these devices has paid for its reports, in millionths.

        measure: of the ledgers, EPSILON or RHO. A ledger in epsilon refuses Gaussian noise, and has
        not paid for it. The result is in the order of `devices`.
        """
        ids = integers(devices)
        order = np.argsort(ids, kind="stable")
        members = Members(ids[order])
        paid = np.zeros(len(ids), np.int64)  # in ascending order of the ids
        for (kind, packed_ids), times in self._times.items():
            if kind.gaussian and measure != RHO:
                continue
            indices = members.find(np.frombuffer(packed_ids, np.int64).copy())
            is_member = indices >= 0
            paid[indices[is_member]] += times * kind.price(measure)
        in_given_order = np.empty_like(paid)
        in_given_order[order] = paid
        return in_given_order

    def largest_loss(
        self, delta: float, honest: float = 1.0, of: DeviceIds | None = None
    ) -> PrivacyLoss:
        """Return the privacy loss at `delta` of the device about which the reports disclose most.

        honest, of: as of `report_counts`.
        """
        delta_of_draws = draws_delta(delta, honest)
        counts = self.report_counts(honest, of, delta_of_draws)
        return replace(largest_loss(counts, delta - delta_of_draws), delta=delta)

    def _groups(self, honest: float, delta: float) -> list[_Group]:
        """Return all reports, hidden among the honest devices alone: see `report_counts`."""
        groups = []
        for (kind, packed_ids), times in self._times.items():
            ids = np.frombuffer(packed_ids, np.int64)
            groups.append(_Group(kind.among_honest(honest, delta), ids, times))
        return groups

    def _members(self, of: DeviceIds | None) -> Members:
        """Return those of these devices that have made a report; None: of all devices."""
        if of is None:
            return Members(self.devices)
        return Members(np.intersect1d(self.devices, integers(of)))


@dataclass(frozen=True)
class _DeviceCounts:
    """How many reports of each kind each device has made: a row a device, a column a kind.

    first: the index in `reports` of each device's first report; -1 where it has none.
    """

    rows: Integers
    kinds: list[ReportKind]
    reports: list[ReportKind]
    first: Integers

    def maximal_rows(self, chosen: npt.NDArray[np.bool_], most: int) -> list[ReportCounts]:
        """Return the counts of the chosen rows that no other row exceeds in every kind.

        If there are more than `most`, some are joined into counts that exceed all of theirs.
        """
        if not len(self.rows):
            return []
        maximal: list[ReportCounts] = []
        for row in _maximal(np.unique(self.rows[chosen], axis=0), most):
            counts: dict[ReportKind, int] = {}
            for kind, times in zip(self.kinds, row, strict=True):
                if times:
                    counts[kind] = int(times)
            maximal.append(counts)
        return maximal


def _counts_by_device(groups: Sequence[_Group], members: Members) -> _DeviceCounts:
    """Count the reports of each member by kind, where the sizes of mixed reports are rounded."""
    reports = _distinct(group.kind for group in groups)
    rounded = _rounded_sizes(reports)
    kinds = _distinct(rounded[report] for report in reports)
    rows = np.zeros((len(members), len(kinds)), np.int64)
    first = np.full(len(members), -1)
    for group in groups:
        indices = members.find(group.devices)
        indices = indices[indices >= 0]  # of the devices that are members
        rows[indices, kinds.index(rounded[group.kind])] += group.times
        without_report = indices[first[indices] < 0]
        first[without_report] = reports.index(group.kind)
    return _DeviceCounts(rows, kinds, reports, first)


def _distinct(kinds: Iterable[ReportKind]) -> list[ReportKind]:
    """Return each kind once, in the order in which they first appear."""
    return list(dict.fromkeys(kinds))


def draws_delta(delta: float, honest: float) -> float:
    """Return the part of `delta` that is kept for random draws of groups.

    They matter only if some devices are dishonest: `honest` is the share of those that are not.
    """
    if honest >= 1:
        return 0.0
    return DRAWS_SHARE * delta


def largest_loss(counts: Iterable[ReportCounts], delta: float) -> PrivacyLoss:
    """Return the worst privacy loss at `delta` over these counts; no loss if there are none."""
    losses = [compose(report_counts, delta) for report_counts in counts]
    if not losses:
        return compose({}, delta)
    return max(losses, key=lambda loss: loss.epsilon)


def _rounded_sizes(reports: Iterable[ReportKind]) -> dict[ReportKind, ReportKind]:
    """Round down the number of reports that each report is mixed with, to few distinct numbers.

    Reports that differ in nothing else keep at most MOST_SIZES numbers. A report that is mixed with
    fewer others discloses more, so rounding down is safe. Returns the rounded report by report.
    """
    by_kind: dict[ReportKind, list[ReportKind]] = {}
    for report in sorted(reports, key=lambda report: report.mixed):
        by_kind.setdefault(replace(report, mixed=0), []).append(report)
    rounded: dict[ReportKind, ReportKind] = {}
    for alike in by_kind.values():  # in ascending order of `mixed`
        parts = np.array_split(np.arange(len(alike)), min(len(alike), MOST_SIZES))
        for part in parts:
            smallest = alike[part[0]]
            for index in part:
                rounded[alike[index]] = smallest
    return rounded


def _maximal(rows: Integers, most: int) -> Integers:
    """Return the rows that no other row exceeds in all columns.

    If there are more than `most`, the result has `most` rows instead, each of which is the maximum
    of several.
    """
    # A row can only be exceeded by one with a larger sum.
    rows = rows[np.argsort(-rows.sum(axis=1), kind="stable")]
    maximal: list[Integers] = []
    for row in rows:
        is_exceeded = any(np.all(other >= row) for other in maximal)
        if not is_exceeded:
            maximal.append(row)
    joined = []
    for start in range(min(most, len(maximal))):
        joined.append(np.max(maximal[start::most], axis=0))
    return np.array(joined)
