"""An open round: which device was asked what, who has answered, and the counts so far."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tern import ledger, wire
from ternhost.count import batches
from ternhost.count.cohort import Cohort
from ternhost.count.members import Integers, Keyring, Members, Positions, id_bytes, integers
from ternhost.count.outcomes import Statistics
from ternhost.count.questions import round_start
from ternhost.count.rounds import (
    COMPLETE,
    DEADLINE,
    QUORUM,
    Refusal,
    Reports,
    RoundResult,
    StoredRound,
)

# What a device has answered.
WAITING, REPORTED, REFUSED, GIVEN_UP = range(4)

_ID_BYTES = 4
_REPORTS_AT_ONCE = 1 << 16  # counted at a time, so that they take little memory


@dataclass(frozen=True)
class _NewReports:
    """Valid reports of one cohort that no device has sent before, not yet committed.

    places: of the devices in `Round.members`. increments: as `Cohort.increments` returns them.
    """

    cohort: Cohort
    reports: Reports
    places: Positions
    increments: Integers


class Round:
    """An open round.

    A device's place is its index in `members`.
    """

    def __init__(self, stored: StoredRound, now: float, keyring: Keyring) -> None:
        """Begin a round at the time `now`, with no answer yet.

        keyring: of the fleet; a new key of a device is valid from the next round on. Raises
        ValueError if a device is named twice.
        """
        self.number = stored.number
        self.quorum = stored.quorum
        self.ends = None
        if stored.deadline is not None:
            self.ends = now + stored.deadline
        self.cohorts = []
        device_ids = []  # of each cohort
        for cohort in stored.cohorts:
            self.cohorts.append(Cohort(cohort.body, len(cohort.devices)))
            device_ids.append(integers(cohort.devices))
        self.members = Members(np.concatenate(device_ids))
        self.refusals: dict[int, Refusal] = {}
        self.abandoned = False
        self._cohort_at = np.zeros(len(self.members), np.intp)  # index of the cohort, by place
        for index, ids in enumerate(device_ids):
            if index > 0:
                self._cohort_at[self.members.find(ids)] = index
        self._keyring = keyring
        self._key_at = keyring.members.find(self.members.ids)  # row of `keyring.keys`, by place
        self._revoked = self._key_at < 0  # by place
        self._answers = np.full(len(self.members), WAITING, np.uint8)  # by place

    # Questions

    def request(self, device: int) -> bytes:
        """The ROUND frame for a device: always the same bytes."""
        cohort, digest = self._question_to(device)
        return round_start(device) + cohort.body + digest[: wire.TAG_BYTES]

    def request_digest(self, device: int) -> bytes:
        """The digest (32 bytes, wire.md) of the request to a device."""
        return self._question_to(device)[1]

    def _question_to(self, device: int) -> tuple[Cohort, bytes]:
        """Return the cohort of a device, and the digest of the request to it."""
        place = self.members.find(integers((device,)))
        cohort = self.cohorts[int(self._cohort_at[place][0])]
        return cohort, self._digests(cohort, place).tobytes()

    def announcement(self) -> bytes:
        """The ROUND frame for the whole fleet (wire.md), without its tag.

        The round must have one cohort.
        """
        (cohort,) = self.cohorts
        return round_start(wire.FLEET) + cohort.body

    def asks_all(self, devices: Members) -> bool:
        """Whether there is one question for every one of these devices."""
        return len(self.cohorts) == 1 and bool(np.all(self.members.find(devices.ids) >= 0))

    def costs(self, devices: Sequence[int], measure: int = ledger.EPSILON) -> list[int]:
        """Return what a report costs each of these devices, in millionths.

        measure: of their ledgers, EPSILON or RHO.
        """
        cost_of_cohort = integers([cohort.cost_by_measure[measure] for cohort in self.cohorts])
        places = self.members.find(integers(devices))
        costs: list[int] = cost_of_cohort[self._cohort_at[places]].tolist()
        return costs

    # Answers

    @property
    def devices_without_key(self) -> list[int]:
        """The devices of the round whose key is not known or was revoked, ascending."""
        ids: list[int] = self.members.ids[self._revoked].tolist()
        return ids

    def places_of(self, devices: Integers) -> Positions:
        """The place of each device that may report; -1 for others, and where the key was revoked."""
        places = self.members.find(devices)
        places[self._revoked[places]] = -1
        return places

    def accept(
        self,
        rows: batches.Bytes,
        places: Positions,
        commit: Callable[[list[Reports]], None],
        statistics: Statistics,
    ) -> list[int]:
        """Commit the new valid reports among rows, then count them; return their devices.

        rows: n x bytes, device | packed symbols | tag. places: of the devices of the rows (n).
        commit: stores reports before they are counted. statistics: counts the outcome of each row.
        Raises the errors of `commit`, and then has counted nothing.
        """
        new_reports = self._check(rows, places, statistics)
        if new_reports:
            commit([new.reports for new in new_reports])
        device_ids: list[int] = []
        for new in new_reports:
            new.cohort.count(new.increments)
            self._answers[new.places] = REPORTED
            device_ids += new.reports.devices.tolist()
        if self.refusals:
            for device in device_ids:
                self.refusals.pop(device, None)  # a report replaces an earlier refusal
        statistics.accepted += len(device_ids)
        return device_ids

    def _check(
        self, rows: batches.Bytes, places: Positions, statistics: Statistics
    ) -> list[_NewReports]:
        """Find the new valid reports, by cohort, and count in `statistics` why others are not.

        rows, places: as of `accept`.
        """
        packed = rows[:, _ID_BYTES : -wire.TAG_BYTES]
        new_reports = []
        for cohort, indices in self._by_cohort(places):
            digests = self._digests(cohort, places[indices])
            authentic = batches.verify(
                digests,
                self.number,
                devices=rows[indices, :_ID_BYTES],
                packed=packed[indices],
                tags=rows[indices, -wire.TAG_BYTES :],
            )
            symbols, is_valid = cohort.unpack(packed[indices])
            accepted = np.flatnonzero(authentic & is_valid)  # indices into `indices`
            new = accepted[self._first_reports(places[indices[accepted]])]
            statistics.forged += int(np.count_nonzero(~authentic))
            statistics.damaged += int(np.count_nonzero(authentic & ~is_valid))
            statistics.duplicate += len(accepted) - len(new)
            if not len(new):
                continue
            new_rows = indices[new]
            device_ids = self.members.ids[places[new_rows]]
            new_reports.append(
                _NewReports(
                    cohort=cohort,
                    reports=Reports(self.number, device_ids, packed[new_rows]),
                    places=places[new_rows],
                    increments=cohort.increments(digests[new], symbols[new]),
                )
            )
        return new_reports

    def _first_reports(self, places: Positions) -> Positions:
        """Return the indices in `places` of devices that have not reported, each device once."""
        distinct_places, first_indices = np.unique(places, return_index=True)
        has_not_reported = self._answers[distinct_places] != REPORTED
        return np.asarray(first_indices[has_not_reported])

    def count_again(self, stored: Reports) -> None:
        """Count reports that the store had accepted before this host was started."""
        places = self.members.find(stored.devices)
        self._answers[places] = REPORTED
        for cohort, indices in self._by_cohort(places):
            for start in range(0, len(indices), _REPORTS_AT_ONCE):
                part = indices[start : start + _REPORTS_AT_ONCE]
                symbols, _ = cohort.unpack(stored.packed[part])
                digests = self._digests(cohort, places[part])
                cohort.count(cohort.increments(digests, symbols))

    def refuse(self, refusal: Refusal) -> bool:
        """Note that a device will not report. False if it has reported: then nothing changes."""
        place = self.members.find(integers((refusal.device,)))[0]
        if self._answers[place] == REPORTED:
            return False
        self._answers[place] = REFUSED
        self.refusals[refusal.device] = refusal
        return True

    def give_up(self, devices: Sequence[int] | Integers) -> None:
        """Stop waiting for these devices; their reports still count until the round ends."""
        places = self.members.find(integers(devices))
        self._give_up_at(places[places >= 0])

    def revoke_all_but(self, devices: Members) -> None:
        """Take no report of other devices. One with a new key stays revoked in this round."""
        self._revoked |= devices.find(self.members.ids) < 0
        self._give_up_at(np.flatnonzero(self._revoked))

    def _give_up_at(self, places: Positions) -> None:
        """Stop waiting for the devices at these places that have not answered."""
        is_waiting = self._answers[places] == WAITING
        self._answers[places[is_waiting]] = GIVEN_UP

    def _by_cohort(self, places: Positions) -> Iterator[tuple[Cohort, Positions]]:
        """Each cohort of the devices at these places, and the indices in `places` of its devices."""
        cohort_indices = self._cohort_at[places]
        for index in np.unique(cohort_indices).tolist():
            yield self.cohorts[index], np.flatnonzero(cohort_indices == index)

    def _digests(self, cohort: Cohort, places: Positions) -> batches.Bytes:
        """The digests (n x 32, wire.md) of the requests to these devices of a cohort."""
        keys = self._keyring.keys[self._key_at[places]]
        devices = id_bytes(self.members.ids[places])
        return batches.hashes(keys, bytes((wire.ROUND,)), devices, cohort.body)

    # The end

    @property
    def reports(self) -> int:
        """The number of reports so far."""
        return int(np.count_nonzero(self._answers == REPORTED))

    @property
    def unanswered(self) -> list[int]:
        """The devices that have neither reported nor refused nor been given up, ascending."""
        waiting: list[int] = self.members.ids[self._answers == WAITING].tolist()
        return waiting

    def is_past_deadline(self, now: float) -> bool:
        """Whether the round has a deadline that has passed by now."""
        return self.ends is not None and now >= self.ends

    def ended(self, now: float) -> str | None:
        """How the round has ended by now; None where it goes on."""
        if self.abandoned or np.all(self._answers != WAITING):
            return COMPLETE
        if self.reports >= self.quorum:
            return QUORUM
        if self.is_past_deadline(now):
            return DEADLINE
        return None

    def result(self, ended: str) -> RoundResult:
        """Return the counts and refusals of the round.

        ended: how it has ended, as of the method of this name.
        """
        return RoundResult(
            number=self.number,
            ended=ended,
            asked=len(self.members),
            reports=self.reports,
            refusals=dict(self.refusals),
            cohorts=[cohort.result() for cohort in self.cohorts],
        )
