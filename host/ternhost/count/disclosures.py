"""Which reports devices have made over many rounds, and the most privacy that one of them loses.

A round that does not ask a device discloses nothing about it, so each device loses privacy only by
its own reports.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tern.ledger import RHO
from ternhost.count.members import Integers, Members, distinct, integers
from ternhost.privacy.composing import PrivacyLoss, ReportKind, compose
from ternhost.privacy.groups import DRAWS_SHARE

# Accounting takes time for each set of counts and each kind of report in it, so both are limited.
MOST_SIZES = 12  # distinct numbers of mixed reports for otherwise equal kinds
MOST_ROWS = 16  # sets of counts

ReportCounts = Mapping[ReportKind, int]  # how many reports of each kind a device has made
DeviceIds = Sequence[int] | Integers


class _Group(NamedTuple):
    """Devices that have each made the same number of reports of one kind."""

    kind: ReportKind
    devices: Integers  # their ids
    times: int  # how many reports each has made


@dataclass
class Disclosures:
    """Which reports devices have made: how many of each kind.

    Reports of the same kind by the same devices are added up, so that many rounds need little
    memory and time.
    """

    # How many reports each device has made, by their kind and the ids of the devices, as bytes.
    _times: dict[tuple[ReportKind, bytes], int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there are any reports."""
        return bool(self._times)

    def add(self, kind: ReportKind, devices: DeviceIds, times: int = 1) -> None:
        """Add `times` reports of one kind by each of these devices."""
        key = kind, integers(devices).tobytes()
        self._times[key] = self._times.get(key, 0) + times

    @property
    def devices(self) -> Integers:
        """The ids of all devices that have made a report, ascending."""
        return distinct(np.frombuffer(packed_ids, np.int64) for _kind, packed_ids in self._times)

    def with_reports(self, others: Iterable[tuple[ReportKind, DeviceIds, int]]) -> "Disclosures":
        """Return a copy with more reports.

        others: for each kind of report, the ids of devices, and how many reports each has made.
        """
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
        """Return how many reports of each kind those devices have made that may lose most privacy.

        One of the results belongs to the device with the largest privacy loss. A device is left out
        if another one has made at least as many reports of every kind.

        honest: the share of a site's devices that are honest, which means that the reader of the
        counts does not control them. Only honest reports hide a report in a sum. of: the ids of the
        devices that matter; None: all. delta: the probability with which a randomly drawn group of
        devices may have fewer honest ones than is assumed.
        """
        counts = _counts_by_device(self._groups(honest, delta), self._members(of))
        all_rows = np.full(len(counts.rows), True)
        return counts.maximal_rows(all_rows, MOST_ROWS)

    def worst_report_counts(
        self, honest: float, of: DeviceIds | None = None, delta: float = 0.0
    ) -> list[tuple[ReportKind | None, ReportCounts]]:
        """Return `report_counts` as if each report came from the worst mechanism of its epsilon.

        This covers mechanisms that the host chooses after it has seen earlier answers. Each result
        comes with the kind of the devices' first report, which was chosen before any answer; it is
        None if there are too many such kinds to tell them apart.

        honest: the share of a site's devices that are honest, which means that the reader of the
        counts does not control them. of: the ids of the devices that matter; None: all. delta: the
        probability with which a randomly drawn group of devices may have fewer honest ones than is
        assumed.
        """
        groups = []
        for group in self._groups(honest, delta):
            groups.append(group._replace(kind=group.kind.worst))
        counts = _counts_by_device(groups, self._members(of))
        first_kinds = np.unique(counts.first)
        if len(first_kinds) > MOST_ROWS:
            all_rows = np.full(len(counts.rows), True)
            return [(None, row) for row in counts.maximal_rows(all_rows, MOST_ROWS)]

        worst: list[tuple[ReportKind | None, ReportCounts]] = []
        for first in first_kinds.tolist():
            most_rows = max(1, MOST_ROWS // len(first_kinds))
            for row in counts.maximal_rows(counts.first == first, most_rows):
                worst.append((counts.reports[first], row))
        return worst

    def prices(self, devices: DeviceIds, measure: int) -> Integers:
        """Return what each device has spent on its reports, in millionths of the measure.

        The result is in the order of `devices`. measure: what the devices' ledgers count, EPSILON
        or RHO. A ledger that counts epsilon refuses reports with Gaussian noise, so nothing was
        spent on them.
        """
        ids = integers(devices)
        order = np.argsort(ids, kind="stable")
        members = Members(ids[order])
        spent = np.zeros(len(ids), np.int64)  # in ascending order of the ids
        for (kind, packed_ids), times in self._times.items():
            if kind.gaussian and measure != RHO:
                continue
            indices = members.find(np.frombuffer(packed_ids, np.int64).copy())
            is_member = indices >= 0
            spent[indices[is_member]] += times * kind.price(measure)
        in_given_order = np.empty_like(spent)
        in_given_order[order] = spent
        return in_given_order

    def largest_loss(
        self, delta: float, honest: float = 1.0, of: DeviceIds | None = None
    ) -> PrivacyLoss:
        """Return the privacy loss at `delta`, by all reports, of the device that loses most.

        honest: the share of a site's devices that are honest, which means that the reader of the
        counts does not control them. of: the ids of the devices that matter; None: all.
        """
        # A part of delta is set aside for random draws of groups that have too few honest devices.
        delta_of_draws = draws_delta(delta, honest)
        counts = self.report_counts(honest, of, delta_of_draws)
        loss = largest_loss(counts, delta - delta_of_draws)
        return replace(loss, delta=delta)

    def _groups(self, honest: float, delta: float) -> list[_Group]:
        """Return all reports, each as mixed only with the reports of honest devices.

        An intermediary may publish only sums of the reports of a group of devices. A report is
        hidden among the others in such a sum, but only among those that the reader does not know.

        honest: the share of a site's devices that are honest, which means that the reader of the
        counts does not control them. delta: the probability with which a randomly drawn group may
        have fewer honest devices than is assumed.
        """
        groups = []
        for (kind, packed_ids), times in self._times.items():
            ids = np.frombuffer(packed_ids, np.int64)
            groups.append(_Group(kind.among_honest(honest, delta), ids, times))
        return groups

    def _members(self, of: DeviceIds | None) -> Members:
        """Return those devices among `of` (None: among all) that have made a report."""
        if of is None:
            return Members(self.devices)
        devices = self.devices
        is_wanted = Members(distinct([of])).find(devices) >= 0
        return Members(devices[is_wanted])


@dataclass(frozen=True)
class _DeviceCounts:
    """How many reports of each kind each device has made."""

    rows: Integers  # devices x kinds
    kinds: list[ReportKind]  # of the columns; their mixing sizes are rounded (`_rounded_sizes`)
    reports: list[ReportKind]  # the kinds before rounding
    first: Integers  # of each device's first report, the index in `reports`; -1: it has none

    def maximal_rows(self, chosen: npt.NDArray[np.bool_], most: int) -> list[ReportCounts]:
        """Return the rows that no other row exceeds in every kind, as counts by kind.

        chosen: a mask of the rows that matter. most: the largest number of results; if there are
        more, several rows are joined into their maximum, which can only overestimate the privacy
        loss.
        """
        rows = self.rows[chosen]
        if not len(rows):
            return []
        distinct_rows = rows[:1]
        if np.any(rows != rows[0]):  # far quicker than to sort rows that are all equal
            distinct_rows = np.unique(rows, axis=0)
        maximal: list[ReportCounts] = []
        for row in _maximal(distinct_rows, most):
            counts: dict[ReportKind, int] = {}
            for kind, times in zip(self.kinds, row, strict=True):
                if times:
                    counts[kind] = int(times)
            maximal.append(counts)
        return maximal


def _counts_by_device(groups: Sequence[_Group], members: Members) -> _DeviceCounts:
    """Count how many reports of each kind each member (one of the devices that matter) has made.

    Kinds may differ only in how many reports an intermediary mixes before a reader sees them. These
    numbers are rounded down to few distinct ones (`_rounded_sizes`), so that few kinds remain.

    groups: who has made which reports, in the order in which they were made.
    """
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
    """Return the part of `delta` that is set aside for groups that are drawn with bad luck.

    A report is mixed with those of a randomly drawn group of devices, and only honest ones hide it.
    With this probability, a group may have fewer of them than is assumed. honest: the share of all
    devices that are honest. If all are, nothing is set aside.
    """
    if honest >= 1:
        return 0.0
    return DRAWS_SHARE * delta


def largest_loss(counts: Iterable[ReportCounts], delta: float) -> PrivacyLoss:
    """Return the largest privacy loss at `delta` of several devices; no loss if there are none.

    counts: for each device, how many reports of each kind it has made.
    """
    losses = [compose(report_counts, delta) for report_counts in counts]
    if not losses:
        no_reports: ReportCounts = {}
        return compose(no_reports, delta)
    return max(losses, key=lambda loss: loss.epsilon)


def _rounded_sizes(reports: Iterable[ReportKind]) -> dict[ReportKind, ReportKind]:
    """Return for each kind of report one that stands for it, so that few kinds remain.

    An intermediary mixes a report with a number of others (`mixed`). Of kinds that differ only in
    this number, at most MOST_SIZES stay distinct: they are divided into so many parts, and each
    part gets its smallest number. A report that is mixed with fewer others discloses more, so this
    never underestimates the privacy loss.
    """
    by_unmixed: dict[ReportKind, list[ReportKind]] = defaultdict(list)
    for report in sorted(reports, key=lambda report: report.mixed):
        by_unmixed[replace(report, mixed=0)].append(report)

    rounded: dict[ReportKind, ReportKind] = {}
    for alike in by_unmixed.values():  # each in ascending order of `mixed`
        part_count = min(len(alike), MOST_SIZES)
        for part in np.array_split(np.arange(len(alike)), part_count):
            smallest = alike[part[0]]
            for index in part:
                rounded[alike[index]] = smallest
    return rounded


def _maximal(rows: Integers, most: int) -> Integers:
    """Return the rows of a matrix that no other row equals or exceeds in all columns.

    If there are more than `most`, the result has `most` rows instead, each of which is the maximum
    of several.
    """
    # A row can only be exceeded by one with a larger sum, so those come first.
    rows = rows[np.argsort(-rows.sum(axis=1), kind="stable")]
    maximal: list[Integers] = []
    for row in rows:
        is_exceeded = any(np.all(other >= row) for other in maximal)
        if not is_exceeded:
            maximal.append(row)
    joined = []
    for start in range(min(most, len(maximal))):
        every_most_th = maximal[start::most]
        joined.append(np.max(every_most_th, axis=0))
    return np.array(joined)
