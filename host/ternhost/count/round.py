"""An open round: which device was asked what, who has answered, and the counts so far."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tern import ledger, wire
from ternhost.count import batches
from ternhost.count.cohort import Cohort
from ternhost.count.members import (
    Integers,
    Keyring,
    Members,
    Positions,
    distinct,
    id_bytes,
    integers,
)
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

# What a device has answered, as an entry of an array.
WAITING, REPORTED, REFUSED, GIVEN_UP = range(4)

_ID_BYTES = 4  # of a device id in a frame
_REPORTS_AT_ONCE = 1 << 16  # stored reports that are counted at a time, to save memory


@dataclass(frozen=True)
class _NewReports:
    """Valid reports to one question, by devices that had not reported, before they are stored.

    cohort: the devices with this question. places: of the reporting devices in `Round.members`.
    increments: what the reports add to the counts (`Cohort.increments`).
    """

    cohort: Cohort
    reports: Reports
    places: Positions
    increments: Integers


class Round:
    """An open round: which device is asked what, who has answered, and the counts so far.

    The devices are in ascending order in `members`. A device's place is its index there; arrays
    named `..._at` have an entry for each place.
    """

    def __init__(self, stored: StoredRound, now: float, keyring: Keyring) -> None:
        """Begin a round at the time `now`, with no answer yet.

        stored: the round as its store has it. keyring: the keys of all devices; a key that a device
        gets later is valid from the next round on. Raises ValueError if a device is named twice.
        """
        self.number = stored.number
        self.quorum = stored.quorum  # so many reports end the round
        self.ends = None  # when it ends in any case; None: it has no deadline
        if stored.deadline is not None:
            self.ends = now + stored.deadline
        self.abandoned = False  # whether it is to end with the reports that it has
        self.refusals: dict[int, Refusal] = {}  # by device

        self.cohorts = []
        device_ids = []  # of each cohort
        for cohort in stored.cohorts:
            self.cohorts.append(Cohort(cohort.body, len(cohort.devices)))
            device_ids.append(integers(cohort.devices))
        self.members = Members(np.concatenate(device_ids))
        self._cohort_at = np.zeros(len(self.members), np.intp)  # the index of the device's cohort
        for index, ids in enumerate(device_ids):
            if index > 0:  # for cohort 0, the entries are 0 already
                self._cohort_at[self.members.find(ids)] = index

        self._keyring = keyring
        self._key_at = keyring.members.find(self.members.ids)  # row of `keyring.keys`; -1: no key
        self._revoked_at = self._key_at < 0  # whether the device has no valid key
        self._answer_at = np.full(len(self.members), WAITING, np.uint8)

    # Questions

    def request(self, device: int) -> bytes:
        """Return the ROUND frame for a device; it always has the same bytes."""
        cohort, digest = self._question_to(device)
        return round_start(device) + cohort.body + digest[: wire.TAG_BYTES]

    def request_digest(self, device: int) -> bytes:
        """Return the digest (32 bytes, wire.md) of the request to a device."""
        _cohort, digest = self._question_to(device)
        return digest

    def _question_to(self, device: int) -> tuple[Cohort, bytes]:
        """Return the cohort of a device, which has its question, and the digest of its request."""
        place = self.members.find(integers((device,)))
        cohort = self.cohorts[int(self._cohort_at[place][0])]
        return cohort, self._digests(cohort, place).tobytes()

    def announcement(self) -> bytes:
        """Return the ROUND frame that asks all devices at once (wire.md), without its tag.

        Only for a round in which all devices get the same question.
        """
        (cohort,) = self.cohorts
        return round_start(wire.FLEET) + cohort.body

    def asks_all(self, devices: Members) -> bool:
        """Return whether the round asks each of these devices, and all the same question."""
        has_one_question = len(self.cohorts) == 1
        return has_one_question and bool(np.all(self.members.find(devices.ids) >= 0))

    def costs(self, devices: Sequence[int], measure: int = ledger.EPSILON) -> list[int]:
        """Return what a report costs each of these devices, in millionths of the measure.

        measure: what their ledgers count, EPSILON or RHO.
        """
        cost_of_cohort = integers([cohort.cost_by_measure[measure] for cohort in self.cohorts])
        places = self.members.find(integers(devices))
        costs: list[int] = cost_of_cohort[self._cohort_at[places]].tolist()
        return costs

    # Answers

    @property
    def devices_without_key(self) -> list[int]:
        """The ids of the round's devices whose key is not known or was revoked, ascending."""
        ids: list[int] = self.members.ids[self._revoked_at].tolist()
        return ids

    def places_of(self, devices: Integers) -> Positions:
        """Return the place of each device, or -1 if it may not report to this round.

        A device may not if it was not asked, or if its key was revoked.
        """
        places = self.members.find(devices)
        # An entry of -1 looks up the last place, and stays -1 whatever is found there.
        places[self._revoked_at[places]] = -1
        return places

    def accept(
        self,
        rows: batches.Bytes,
        places: Positions,
        commit: Callable[[list[Reports]], None],
        statistics: Statistics,
    ) -> list[int]:
        """Store the new valid reports among some rows, then count them; return their devices.

        rows: n x bytes, each device id | packed symbols | tag. places: of the rows' devices (n).
        commit: is called to store the reports before they are counted; if it raises an error,
        nothing is counted, and the error is raised here. statistics: the outcome of each row is
        counted in it.
        """
        new_reports = self._check(rows, places, statistics)
        if new_reports:
            commit([new.reports for new in new_reports])
        device_ids: list[int] = []
        for new in new_reports:
            new.cohort.count(new.increments)
            self._answer_at[new.places] = REPORTED
            device_ids += new.reports.devices.tolist()
        if self.refusals:
            for device in device_ids:
                self.refusals.pop(device, None)  # a report replaces an earlier refusal
        statistics.accepted += len(device_ids)
        return device_ids

    def _check(
        self, rows: batches.Bytes, places: Positions, statistics: Statistics
    ) -> list[_NewReports]:
        """Return the new valid reports among some rows, by cohort; count why others are rejected.

        rows: n x bytes, each device id | packed symbols | tag. places: of the rows' devices in
        `members` (n). statistics: the rejected rows are counted in it.
        """
        packed = rows[:, _ID_BYTES : -wire.TAG_BYTES]
        new_reports = []
        for cohort, indices in self._by_cohort(places):
            digests = self._digests(cohort, places[indices])
            is_authentic = batches.verify(
                digests,
                self.number,
                devices=rows[indices, :_ID_BYTES],
                packed=packed[indices],
                tags=rows[indices, -wire.TAG_BYTES :],
            )
            symbols, is_valid = cohort.unpack(packed[indices])
            # `valid` and `new` are indices into `indices`.
            valid = np.flatnonzero(is_authentic & is_valid)
            new = valid[self._first_reports(places[indices[valid]])]
            statistics.forged += int(np.count_nonzero(~is_authentic))
            statistics.damaged += int(np.count_nonzero(is_authentic & ~is_valid))
            statistics.duplicate += len(valid) - len(new)
            if not len(new):
                continue

            new_rows = indices[new]
            new_places = places[new_rows]
            new_reports.append(
                _NewReports(
                    cohort=cohort,
                    reports=Reports(self.number, self.members.ids[new_places], packed[new_rows]),
                    places=new_places,
                    increments=cohort.increments(digests[new], symbols[new]),
                )
            )
        return new_reports

    def _first_reports(self, places: Positions) -> Positions:
        """Return the indices of those reports that are the first ones of their devices.

        places: of the reports' devices; a device may be there several times, or have reported
        before.
        """
        distinct_places, first_indices = np.unique(places, return_index=True)
        has_not_reported = self._answer_at[distinct_places] != REPORTED
        return np.asarray(first_indices[has_not_reported])

    def count_again(self, stored: Reports) -> None:
        """Count reports that the store had before this host was started."""
        places = self.members.find(stored.devices)
        self._answer_at[places] = REPORTED
        for cohort, indices in self._by_cohort(places):
            for start in range(0, len(indices), _REPORTS_AT_ONCE):
                part = indices[start : start + _REPORTS_AT_ONCE]
                symbols, _is_valid = cohort.unpack(stored.packed[part])  # all were checked before
                digests = self._digests(cohort, places[part])
                cohort.count(cohort.increments(digests, symbols))

    def refuse(self, refusal: Refusal) -> bool:
        """Note that a device will not report, and return True.

        If it has reported already, nothing changes, and the result is False.
        """
        place = self.members.find(integers((refusal.device,)))[0]
        if self._answer_at[place] == REPORTED:
            return False
        self._answer_at[place] = REFUSED
        self.refusals[refusal.device] = refusal
        return True

    def give_up(self, devices: Sequence[int] | Integers) -> None:
        """Stop waiting for these devices. Their reports still count if they come before the end."""
        places = self.members.find(integers(devices))
        self._give_up_at(places[places >= 0])

    def revoke_all_but(self, devices: Members) -> None:
        """Accept no more reports of devices other than these, and stop waiting for them.

        A device whose key was revoked stays out of this round even if it gets a new one.
        """
        self._revoked_at |= devices.find(self.members.ids) < 0
        self._give_up_at(np.flatnonzero(self._revoked_at))

    def _give_up_at(self, places: Positions) -> None:
        """Stop waiting for those devices at these places that have not answered."""
        is_waiting = self._answer_at[places] == WAITING
        self._answer_at[places[is_waiting]] = GIVEN_UP

    def _by_cohort(self, places: Positions) -> Iterator[tuple[Cohort, Positions]]:
        """Divide devices by cohort, since those of a cohort have the same question.

        Yield each cohort that has some, and their indices in `places`.
        """
        if len(self.cohorts) == 1 and len(places):  # as in most rounds
            yield self.cohorts[0], np.arange(len(places))
            return
        cohort_indices = self._cohort_at[places]
        for index in np.unique(cohort_indices).tolist():
            yield self.cohorts[index], np.flatnonzero(cohort_indices == index)

    def _digests(self, cohort: Cohort, places: Positions) -> batches.Bytes:
        """Return the digests (n x 32, wire.md) of the requests to the devices at n places.

        Each is the hash of the device's key and of the ROUND frame. cohort: of these devices.
        """
        keys = self._keyring.keys[self._key_at[places]]
        devices = id_bytes(self.members.ids[places])
        return batches.hashes(keys, bytes((wire.ROUND,)), devices, cohort.body)

    # The end

    @property
    def reports(self) -> int:
        """The number of reports so far."""
        return int(np.count_nonzero(self._answer_at == REPORTED))

    def unanswered(self, among: Sequence[int] | None = None) -> list[int]:
        """Return the ids of the devices for whose answer the round waits, ascending.

        among: only these devices matter; None: all.
        """
        places: Positions = np.arange(len(self.members))
        if among is not None:
            places = self.members.find(distinct([among]))
            places = places[places >= 0]  # of those that are in the round
        is_waiting = self._answer_at[places] == WAITING
        waiting: list[int] = self.members.ids[places[is_waiting]].tolist()
        return waiting

    def is_past_deadline(self, now: float) -> bool:
        """Return whether the round has a deadline, and it has passed at the time `now`."""
        return self.ends is not None and now >= self.ends

    def ended(self, now: float) -> str | None:
        """Return how the round has ended at the time `now`: COMPLETE, QUORUM or DEADLINE.

        Return None if it goes on.
        """
        waits_for_nobody = np.all(self._answer_at != WAITING)
        if self.abandoned or waits_for_nobody:
            return COMPLETE
        if self.reports >= self.quorum:
            return QUORUM
        if self.is_past_deadline(now):
            return DEADLINE
        return None

    def result(self, ended: str) -> RoundResult:
        """Return the counts and refusals of the round. ended: how it has ended (`Round.ended`)."""
        return RoundResult(
            number=self.number,
            ended=ended,
            asked=len(self.members),
            reports=self.reports,
            refusals=dict(self.refusals),
            cohorts=[cohort.result() for cohort in self.cohorts],
        )
