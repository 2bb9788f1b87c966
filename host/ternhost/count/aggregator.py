"""Check and count the frames of devices.

The store is the only input and output, so that any link can drive this.
"""

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Protocol

import numpy as np

from tern import frames, host_frames, ledger, wire
from ternhost.count import batches, rounds
from ternhost.count.members import Devices, Integers, Keyring, Positions, integers
from ternhost.count.questions import Question, round_body, round_start
from ternhost.errors import UsageError

# Not final: the device may answer when the same request is repeated, comes later, or is sent to it
# alone.
_UNREAD = (wire.ERR_FRAME, wire.ERR_TAG, wire.ERR_TOO_SOON, wire.ERR_AHEAD)

_SYMBOLS_AT = frames.end_of(wire.REPORT_FIELDS)
_ROWS_AT = frames.end_of(wire.REPORTS_FIELDS)
_ROW_BYTES = 4 + wire.TAG_BYTES  # a row of REPORTS (device | symbols | tag) without its symbols
_AT_ONCE = 1 << 16  # reports that are counted again at a time
_rows_of = struct.Struct(wire.REPORTS_FIELDS).unpack_from


@dataclass
class Accepted:
    """The new reports (round, device), refusals and unread requests in a batch of frames."""

    reports: list[tuple[int, int]] = field(default_factory=list)
    refusals: list[rounds.Refusal] = field(default_factory=list)
    unread: list[rounds.Refusal] = field(default_factory=list)


@dataclass
class Statistics:
    """Outcomes of `Aggregator.accept`: counts of reports, and of frames that hold no report."""

    accepted: int = 0
    duplicate: int = 0  # a second report of this device in this round: repeated or replayed
    late: int = 0  # the round has ended, or was never opened
    unknown: int = 0  # no such device
    unasked: int = 0  # the device is not part of this round
    forged: int = 0  # the tag does not verify: another key, or the answer to another question
    damaged: int = 0  # not a frame, or fields out of bounds
    refused: int = 0  # an ERROR that ends a device's part in the round
    unread: int = 0  # an ERROR after a frame that was damaged on its way to the device: ask again


@dataclass
class _Taken:
    """The new reports of a batch for one cohort of a round, before they are committed."""

    round: rounds.RoundInFlight
    cohort: rounds.CohortInFlight
    places: Positions
    reports: rounds.Reports
    cells: Integers


class ReportStore(Protocol):
    """The methods of a store (`ternhost.store.store`) that an aggregator uses: each raises
    StorageError.
    """

    def keys(self) -> Mapping[int, bytes]: ...
    def keys_before(self, round_: rounds.Round) -> Mapping[int, bytes]: ...
    def last_round(self) -> int: ...
    def open_round(self, round_: rounds.Round) -> None: ...
    def open_rounds(self) -> Sequence[rounds.Round]: ...
    def add_reports(self, reports: Iterable[rounds.Reports]) -> None: ...
    def report_batches(self, number: int) -> Sequence[rounds.Reports]: ...


class Aggregator:
    """Rounds in flight over a store. Not thread-safe: one driver calls it."""

    def __init__(self, store: ReportStore) -> None:
        self.statistics = Statistics()
        self._denied = 0  # questions that boards rejected for the tag of another key
        self._store = store
        self._keyring = Keyring(store.keys())
        self._rounds: dict[int, rounds.RoundInFlight] = {}
        self._last = store.last_round()

    @property
    def devices(self) -> Collection[int]:
        """All devices with a known key."""
        return self._keyring.by_device.keys()

    @property
    def foreign(self) -> int:
        """The number of frames that the host or a board rejected for the tag of another key."""
        return self.statistics.forged + self._denied

    def key(self, device: int) -> bytes | None:
        return self._keyring.by_device.get(device)

    def in_flight(self) -> list[int]:
        """The numbers of the rounds that have not ended, oldest first."""
        return sorted(self._rounds)

    def open(
        self,
        number: int,
        cohorts: Sequence[tuple[Question, Devices]],
        now: float,
        quorum: int | None = None,
        deadline: float | None = None,
        run: str | None = None,
    ) -> None:
        """Store and open a round, which `quorum` reports (default: all) or `deadline` seconds from
        `now` end.

        Numbers must ascend. Raises UsageError for a question that no frame can carry, and
        StorageError.
        """
        if number <= self._last:
            raise UsageError(
                f"round {number} is not after round {self._last}", hint="count rounds upwards"
            )
        asked = [
            rounds.Cohort(round_body(number, each), integers(devices)) for each, devices in cohorts
        ]
        count = sum(len(cohort.devices) for cohort in asked)
        quorum = count if quorum is None else max(1, min(quorum, count))
        stored = rounds.Round(number, asked, quorum, deadline, run)
        try:
            if not asked or not all(len(cohort.devices) for cohort in asked):
                raise ValueError
            in_flight = rounds.RoundInFlight(stored, now, self._keyring)
        except ValueError:
            raise UsageError("a round must ask at least one device, and none twice") from None
        if np.any(in_flight.revoked):
            text = f"no key is known for device {in_flight.members.ids[in_flight.revoked][0]}"
            raise UsageError(text, "name the --store that it was provisioned with")
        self._store.open_round(stored)
        self._rounds[number] = in_flight
        self._last = number

    def resume(self, now: float, run: str | None = None) -> list[int]:
        """Continue the stored open rounds (only those of `run` and of no run) and return their
        numbers. Deadlines start anew, since the length of the interruption is unknown.
        """
        self._keyring = Keyring(self._store.keys())
        for stored in self._store.open_rounds():
            if run is not None and stored.run not in (None, run):
                continue
            before = self._store.keys_before(stored)
            keyring = Keyring({**self._keyring.by_device, **before}) if before else self._keyring
            round_ = rounds.RoundInFlight(stored, now, keyring)
            for reports in self._store.report_batches(stored.number):
                places = round_.members.find(reports.devices)
                round_.answers[places] = rounds.REPORTED
                for cohort, of_cohort in round_.by_cohort(places):
                    for start in range(0, len(of_cohort), _AT_ONCE):
                        part = of_cohort[start : start + _AT_ONCE]
                        symbols, _ = cohort.unpack(reports.packed[part])
                        cohort.add(cohort.cells(round_.digests(cohort, places[part]), symbols))
            self._rounds[stored.number] = round_
        self._look_for_revoked()
        return self.in_flight()

    def unanswered(self, number: int) -> list[int]:
        """The devices of a round that have neither reported nor refused nor been given up,
        ascending.
        """
        round_ = self._rounds[number]
        waiting: list[int] = round_.members.ids[round_.answers == rounds.WAITING].tolist()
        return waiting

    def reports(self, number: int) -> int:
        return self._rounds[number].reports

    def asked(self, number: int) -> int:
        return len(self._rounds[number].members)

    def for_all(self, number: int) -> bool:
        """Whether an open round has one question for every device, so that it can be announced."""
        round_ = self._rounds[number]
        every = self._keyring.members.ids
        return len(round_.cohorts) == 1 and bool(np.all(round_.members.find(every) >= 0))

    def request(self, number: int, device: int) -> bytes:
        """The ROUND frame for a device: always the same bytes."""
        return self._rounds[number].request(device)[0]

    def costs(
        self, number: int, devices: Sequence[int], measure: int = ledger.EPSILON
    ) -> list[int]:
        """The cost of a report for each of these devices of an open round, in millionths, to a
        ledger of this measure.
        """
        costs: list[int] = self._rounds[number].costs(integers(devices), measure).tolist()
        return costs

    @property
    def last_round(self) -> int:
        """The number of the last round that was opened."""
        return self._last

    def announcement(self, number: int) -> bytes:
        """The ROUND frame for the whole fleet (wire.md) in a round of one cohort, without its tag."""
        (cohort,) = self._rounds[number].cohorts
        return round_start(wire.FLEET) + cohort.body

    def reload_keys(self) -> None:
        """Read the keys from the store again, and give up devices whose keys were revoked."""
        self._keyring = Keyring(self._store.keys())
        self._look_for_revoked()

    def _look_for_revoked(self) -> None:
        for round_ in self._rounds.values():
            # A device with a new key stays revoked in this round, which was opened with its former
            # key.
            round_.revoked |= self._keyring.members.find(round_.members.ids) < 0
            round_.give_up(np.flatnonzero(round_.revoked))

    def accept(self, batch: Iterable[bytes], now: float) -> Accepted:
        """Commit the new reports among frames in any order, then count them.

        A report after the deadline is late, even in an open round. Raises StorageError, and has
        counted nothing: devices repeat their bytes if asked again.
        """
        result = Accepted()
        # Rows of REPORTS frames, by round and by bytes of symbols.
        rows: dict[tuple[int, int], list[bytes]] = {}
        for frame in batch:
            try:
                kind = frames.kind(frame)
                if kind == wire.REPORT:
                    size = len(frame) - _SYMBOLS_AT - wire.TAG_BYTES
                    frames.require(size >= 0, "frame too short")
                    number = int.from_bytes(frame[5:_SYMBOLS_AT], "little")
                    rows.setdefault((number, size), []).append(frame[1:5] + frame[_SYMBOLS_AT:])
                elif kind == wire.REPORTS:
                    number, size = _rows_of(frame, 1)
                    frames.require(
                        (len(frame) - _ROWS_AT) % (_ROW_BYTES + size) == 0, "not whole rows"
                    )
                    rows.setdefault((number, size), []).append(frame[_ROWS_AT:])
                elif kind == wire.ERROR:
                    self._take_error(frame, result)
                else:
                    self.statistics.damaged += 1
            except frames.FrameError as error:
                forged = error.code == wire.ERR_TAG
                self.statistics.forged += forged
                self.statistics.damaged += not forged
        taken: list[_Taken] = []
        for (number, size), parts in rows.items():
            of_round = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, _ROW_BYTES + size)
            taken += self._take_rows(number, of_round, now)
        if taken:
            self._commit(taken, result)
        self._denied += sum(refusal.code == wire.ERR_TAG for refusal in result.unread)
        return result

    def _take_rows(self, number: int, rows: batches.Bytes, now: float) -> list[_Taken]:
        # rows: reports of one round, all of one size. Returns the new ones.
        round_ = self._rounds.get(number)
        statistics = self.statistics
        if round_ is None or (round_.ends is not None and now >= round_.ends):
            statistics.late += len(rows)
            return []
        devices = np.ascontiguousarray(rows[:, :4]).view("<u4")[:, 0].astype(np.int64)
        places = round_.members.find(devices)
        if not np.all(expected := (places >= 0) & ~round_.revoked[places]):
            known = self._keyring.members.find(devices[~expected]) >= 0
            statistics.unasked += int(np.count_nonzero(known))
            statistics.unknown += int(np.count_nonzero(~known))
            rows, devices, places = rows[expected], devices[expected], places[expected]
        packed, tags = rows[:, 4 : -wire.TAG_BYTES], rows[:, -wire.TAG_BYTES :]
        taken = []
        for cohort, of_cohort in round_.by_cohort(places):
            digests = round_.digests(cohort, places[of_cohort])
            right = batches.verify(
                digests, number, rows[of_cohort, :4], packed[of_cohort], tags[of_cohort]
            )
            statistics.forged += int(np.count_nonzero(~right))
            symbols, good = cohort.unpack(packed[of_cohort])
            statistics.damaged += int(np.count_nonzero(right & ~good))
            fit = np.flatnonzero(right & good)
            new, first = np.unique(places[of_cohort[fit]], return_index=True)
            first = fit[first[round_.answers[new] != rounds.REPORTED]]
            statistics.duplicate += len(fit) - len(first)
            if len(first):
                cells = cohort.cells(digests[first], symbols[first])
                chosen = of_cohort[first]
                reports = rounds.Reports(number, devices[chosen], packed[chosen])
                taken.append(_Taken(round_, cohort, places[chosen], reports, cells))
        return taken

    def _commit(self, taken: list[_Taken], result: Accepted) -> None:
        self._store.add_reports([new.reports for new in taken])
        for new in taken:
            new.cohort.add(new.cells)
            new.round.answers[new.places] = rounds.REPORTED
            devices = new.reports.devices.tolist()
            if new.round.refusals:
                for device in new.round.refusals.keys() & devices:
                    del new.round.refusals[device]
            result.reports += zip(repeat(new.round.number), devices)
            self.statistics.accepted += len(devices)

    def _take_error(self, frame: bytes, result: Accepted) -> None:
        device, number = frames.address(frame)
        if device == wire.BOARD:  # a board cannot speak for a device
            result.unread.append(rounds.Refusal(*host_frames.decode_error(frame, b"")))
            self.statistics.unread += 1
            return
        round_ = self._rounds.get(number)
        place = -1 if round_ is None else int(round_.members.find(integers((device,)))[0])
        if device not in self._keyring.by_device:
            self.statistics.unknown += 1
        elif round_ is None:
            self.statistics.late += 1
        elif place < 0:
            self.statistics.unasked += 1
        else:
            _, digest = round_.request(device)
            refusal = rounds.Refusal(*host_frames.decode_error(frame, frames.answer_key(digest)))
            if refusal.code in _UNREAD:
                self.statistics.unread += 1
                result.unread.append(refusal)
                return
            self.statistics.refused += 1
            if round_.answers[place] != rounds.REPORTED:
                round_.answers[place] = rounds.REFUSED
                round_.refusals[device] = refusal
                result.refusals.append(refusal)

    def give_up(self, number: int, devices: Iterable[int]) -> None:
        """Stop waiting for these devices; their reports still count until the round ends."""
        round_ = self._rounds[number]
        places = round_.members.find(integers(devices))
        round_.give_up(places[places >= 0])

    def abandon(self, number: int) -> None:
        """Let a round end with the reports so far. Safe in any thread."""
        if round_ := self._rounds.get(number):
            round_.abandoned = True

    def ended(self, number: int, now: float) -> rounds.RoundResult | None:
        """The result of a round, closed if it has ended by now. In the store it stays open until
        `ReportStore.end_run_round`, so that a host that dies first resumes it."""
        round_ = self._rounds[number]
        if (how := round_.ended(now)) is None:
            return None
        del self._rounds[number]
        return round_.result(how)
