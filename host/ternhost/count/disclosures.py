"""What reports of many rounds tell about one device, at most.

A round that does not ask a device tells nothing about it. So the reports of a device add up, and no
other reports.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tern.ledger import RHO
from ternhost.count.members import Integers, Members, integers
from ternhost.privacy.composing import PrivacyLoss, ReportKind, compose
from ternhost.privacy.groups import DRAWS_SHARE

_MOST_SIZES = 12  # numbers of mixed reports of one kind; more are rounded down
_MOST_ROWS = 16  # accounts to compare; more are joined

ReportCounts = Mapping[ReportKind, int]  # how many reports of each kind a device has made


@dataclass
class Disclosures:
    """The reports of devices, added up by kind."""

    _shares: dict[tuple[ReportKind, bytes], int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._shares)

    def add(self, report: ReportKind, devices: Sequence[int] | Integers, times: int = 1) -> None:
        """Each of these devices has made this report so many times."""
        key = report, integers(devices).tobytes()
        self._shares[key] = self._shares.get(key, 0) + times

    @property
    def devices(self) -> Integers:
        """All devices that have made a report, ascending."""
        found = [np.frombuffer(ids, np.int64) for _, ids in self._shares]
        return np.unique(np.concatenate([integers(()), *found]))

    def also(
        self, others: Iterable[tuple[ReportKind, Sequence[int] | Integers, int]]
    ) -> "Disclosures":
        """The same with (report, devices, times) in addition."""
        both = Disclosures(dict(self._shares))
        for report, devices, times in others:
            both.add(report, devices, times)
        return both

    def accounts(
        self, honest: float = 1.0, of: Sequence[int] | Integers | None = None, delta: float = 0.0
    ) -> list[ReportCounts]:
        """Accounts of devices, without those that another one exceeds in all kinds. honest: the
        share of a site's devices that the reader does not control. of: which devices; None: all.
        delta: the probability with which a gateway's draws may have given more dishonest devices a
        place.
        """
        return [account for _, account in self._accounts(honest, of, delta, worst=False)]

    def worst(
        self, honest: float, of: Sequence[int] | Integers | None = None, delta: float = 0.0
    ) -> list[tuple[ReportKind | None, ReportCounts]]:
        """The same with mixed reports of the worst mechanism of their epsilon, which covers cards
        that are chosen by earlier answers. Each account has the first report of its devices, or
        None where too many of these differ.
        """
        return self._accounts(honest, of, delta, worst=True)

    def _accounts(
        self, honest: float, of: Sequence[int] | Integers | None, delta: float, worst: bool
    ) -> list[tuple[ReportKind | None, ReportCounts]]:
        shares = [
            (report.among_honest(honest, delta), np.frombuffer(ids, np.int64), times)
            for (report, ids), times in self._shares.items()
        ]
        if worst:
            shares = [(report.worst, ids, times) for report, ids, times in shares]
        members = Members(
            self.devices if of is None else np.intersect1d(self.devices, integers(of))
        )
        reports = list(dict.fromkeys(report for report, _, _ in shares))
        sizes = _sizes(reports)
        kinds = list(dict.fromkeys(sizes[report] for report in reports))
        counts = np.zeros((len(members), len(kinds)), np.int64)
        first = np.full(len(members), -1)
        for report, ids, times in shares:
            at = members.find(ids)
            at = at[at >= 0]
            counts[at, kinds.index(sizes[report])] += times
            first[at[first[at] < 0]] = reports.index(report)
        if not worst or len(np.unique(first)) > _MOST_ROWS:
            first[:] = -1
        firsts = np.unique(first).tolist()
        found: list[tuple[ReportKind | None, ReportCounts]] = []
        for one in firsts:
            rows = _largest(
                np.unique(counts[first == one], axis=0), max(1, _MOST_ROWS // len(firsts))
            )
            accounts = [
                {kind: int(n) for kind, n in zip(kinds, row, strict=True) if n} for row in rows
            ]
            found += [(None if one < 0 else reports[one], account) for account in accounts]
        return found

    def prices(self, devices: Sequence[int] | Integers, measure: int) -> Integers:
        """What its reports have cost each of these devices, in millionths, to a ledger of this
        measure. One in epsilon refuses Gaussian noise, and has not paid for it.
        """
        ids = integers(devices)
        order = np.argsort(ids, kind="stable")
        members = Members(ids[order])
        paid = np.zeros(len(ids), np.int64)
        for (report, reporters), times in self._shares.items():
            if measure == RHO or not report.gaussian:
                at = members.find(np.frombuffer(reporters, np.int64).copy())
                paid[at[at >= 0]] += times * report.price(measure)
        found = np.empty_like(paid)
        found[order] = paid
        return found

    def of(self, devices: Sequence[int] | Integers) -> "Disclosures":
        """The same of these devices alone."""
        found = Disclosures()
        for (report, ids), times in self._shares.items():
            known = np.frombuffer(ids, np.int64)
            if len(inside := known[np.isin(known, integers(devices))]):
                found.add(report, inside, times)
        return found

    def most(
        self, delta: float, honest: float = 1.0, of: Sequence[int] | Integers | None = None
    ) -> PrivacyLoss:
        """What the reports tell of the device of which they tell most, at `delta`."""
        draws = draws_delta(delta, honest)
        found = most(self.accounts(honest, of, draws), delta - draws)
        return replace(found, delta=delta)


def draws_delta(delta: float, honest: float) -> float:
    """The part of `delta` that is kept for the draws of gateways: they matter only if some devices
    are dishonest.
    """
    return DRAWS_SHARE * delta if honest < 1 else 0.0


def most(accounts: Iterable[ReportCounts], delta: float) -> PrivacyLoss:
    """Of these accounts, what the one tells that tells most at `delta`."""
    found = [compose(account, delta) for account in accounts] or [compose({}, delta)]
    return max(found, key=lambda each: each.epsilon)


def _sizes(reports: Iterable[ReportKind]) -> dict[ReportKind, ReportKind]:
    """For each report itself, or the same among fewer: at most _MOST_SIZES of each kind."""
    by_kind: dict[ReportKind, list[ReportKind]] = {}
    for report in sorted(reports, key=lambda report: report.mixed):
        by_kind.setdefault(replace(report, mixed=0), []).append(report)
    found: dict[ReportKind, ReportKind] = {}
    for same in by_kind.values():
        for part in np.array_split(np.arange(len(same)), min(len(same), _MOST_SIZES)):
            found |= {same[i]: same[part[0]] for i in part}
    return found


def _largest(rows: Integers, most: int) -> Integers:
    """The rows that no other exceeds in all columns, or, at most so many, rows that exceed them."""
    rows = rows[np.argsort(-rows.sum(axis=1), kind="stable")]
    kept: list[Integers] = []
    for row in rows:
        if not any(np.all(other >= row) for other in kept):
            kept.append(row)
    return np.array([np.max(kept[i::most], axis=0) for i in range(min(most, len(kept)))])
