"""What the reports of many rounds disclose about one device, at most.

A round that does not ask a device discloses nothing about it. So the reports of a device add up, and
no other reports.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
_Share = tuple[ReportKind, Integers, int]  # a kind, the devices that made it, how many times


@dataclass
class Disclosures:
    """The reports of devices, added up by kind."""

    _times: dict[tuple[ReportKind, bytes], int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._times)

    def add(self, kind: ReportKind, devices: DeviceIds, times: int = 1) -> None:
        """Each of these devices has made a report of this kind so many times."""
        key = kind, integers(devices).tobytes()
        self._times[key] = self._times.get(key, 0) + times

    @property
    def devices(self) -> Integers:
        """All devices that have made a report, ascending."""
        groups = [np.frombuffer(ids, np.int64) for _, ids in self._times]
        return np.unique(np.concatenate([integers(()), *groups]))

    def with_reports(self, others: Iterable[tuple[ReportKind, DeviceIds, int]]) -> "Disclosures":
        """A copy with more reports: (kind, devices, times) each."""
        both = Disclosures(dict(self._times))
        for kind, devices, times in others:
            both.add(kind, devices, times)
        return both

    def of_devices(self, devices: DeviceIds) -> "Disclosures":
        """A copy with the reports of these devices alone."""
        chosen = integers(devices)
        copy = Disclosures()
        for (kind, packed_ids), times in self._times.items():
            ids = np.frombuffer(packed_ids, np.int64)
            ids = ids[np.isin(ids, chosen)]
            if len(ids):
                copy.add(kind, ids, times)
        return copy

    def report_counts(
        self, honest: float = 1.0, of: DeviceIds | None = None, delta: float = 0.0
    ) -> list[ReportCounts]:
        """The maximal counts: a device is left out if another made as many reports of every kind.

        honest: the share of a site's devices that the reader does not control. of: which devices;
        None: all. delta: the probability with which random draws of groups may have given more
        dishonest devices a place.
        """
        shares = self._shares(honest, delta)
        counts = _counts_by_device(shares, self._members(of))
        return counts.maximal_rows(np.full(len(counts.rows), True), MOST_ROWS)

    def worst_report_counts(
        self, honest: float, of: DeviceIds | None = None, delta: float = 0.0
    ) -> list[tuple[ReportKind | None, ReportCounts]]:
        """The same with mixed reports of the worst mechanism of their epsilon.

        That covers cards that are chosen by earlier answers. Beside the counts stands the first
        report of their devices, or None where too many of these differ.
        """
        shares = [(kind.worst, ids, times) for kind, ids, times in self._shares(honest, delta)]
        counts = _counts_by_device(shares, self._members(of))
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
        """What its reports have cost each of these devices in a ledger, in millionths.

        measure: of the ledger, EPSILON or RHO. A ledger in epsilon refuses Gaussian noise, and has
        not paid for it.
        """
        ids = integers(devices)
        order = np.argsort(ids, kind="stable")
        members = Members(ids[order])
        paid = np.zeros(len(ids), np.int64)
        for (kind, reporters), times in self._times.items():
            if measure == RHO or not kind.gaussian:
                at = members.find(np.frombuffer(reporters, np.int64).copy())
                paid[at[at >= 0]] += times * kind.price(measure)
        in_given_order = np.empty_like(paid)
        in_given_order[order] = paid
        return in_given_order

    def largest_loss(
        self, delta: float, honest: float = 1.0, of: DeviceIds | None = None
    ) -> PrivacyLoss:
        """The privacy loss at `delta` of the device about which the reports disclose most."""
        for_draws = draws_delta(delta, honest)
        counts = self.report_counts(honest, of, for_draws)
        return replace(largest_loss(counts, delta - for_draws), delta=delta)

    def _shares(self, honest: float, delta: float) -> list[_Share]:
        return [
            (kind.among_honest(honest, delta), np.frombuffer(ids, np.int64), times)
            for (kind, ids), times in self._times.items()
        ]

    def _members(self, of: DeviceIds | None) -> Members:
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
        """The maximal counts among the chosen rows; at most so many, which may be larger."""
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


def _counts_by_device(shares: Sequence[_Share], members: Members) -> _DeviceCounts:
    reports = list(dict.fromkeys(kind for kind, _, _ in shares))
    rounded = _rounded_sizes(reports)
    kinds = list(dict.fromkeys(rounded[report] for report in reports))
    rows = np.zeros((len(members), len(kinds)), np.int64)
    first = np.full(len(members), -1)
    for report, ids, times in shares:
        at = members.find(ids)
        at = at[at >= 0]
        rows[at, kinds.index(rounded[report])] += times
        first[at[first[at] < 0]] = reports.index(report)
    return _DeviceCounts(rows, kinds, reports, first)


def draws_delta(delta: float, honest: float) -> float:
    """The part of `delta` that is kept for random draws of groups.

    They matter only if some devices are dishonest.
    """
    return DRAWS_SHARE * delta if honest < 1 else 0.0


def largest_loss(counts: Iterable[ReportCounts], delta: float) -> PrivacyLoss:
    """The worst privacy loss at `delta` over these counts; no loss if there are none."""
    losses = [compose(each, delta) for each in counts]
    if not losses:
        return compose({}, delta)
    return max(losses, key=lambda loss: loss.epsilon)


def _rounded_sizes(reports: Iterable[ReportKind]) -> dict[ReportKind, ReportKind]:
    """For each report itself, or the same among fewer: at most MOST_SIZES of each kind."""
    by_kind: dict[ReportKind, list[ReportKind]] = {}
    for report in sorted(reports, key=lambda report: report.mixed):
        by_kind.setdefault(replace(report, mixed=0), []).append(report)
    rounded: dict[ReportKind, ReportKind] = {}
    for alike in by_kind.values():
        parts = np.array_split(np.arange(len(alike)), min(len(alike), MOST_SIZES))
        for part in parts:
            for index in part:
                rounded[alike[index]] = alike[part[0]]
    return rounded


def _maximal(rows: Integers, most: int) -> Integers:
    """The rows that no other exceeds in all columns, or, at most so many, rows that exceed them."""
    rows = rows[np.argsort(-rows.sum(axis=1), kind="stable")]
    maximal: list[Integers] = []
    for row in rows:
        if not any(np.all(other >= row) for other in maximal):
            maximal.append(row)
    joined = [np.max(maximal[i::most], axis=0) for i in range(min(most, len(maximal)))]
    return np.array(joined)
