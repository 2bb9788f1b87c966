"""Check and count the frames of devices.

The store is the only input and output, so that any link can drive this.
"""

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Protocol

import numpy as np

from tern import frames, host_frames, ledger, wire
from ternhost.count import batches
from ternhost.count.members import Devices, Integers, Keyring, integers
from ternhost.count.outcomes import Accepted, Statistics
from ternhost.count.questions import Question, round_body
from ternhost.count.round import Round
from ternhost.count.rounds import (
    Ending,
    Refusal,
    Reports,
    RoundResult,
    StoredCohort,
    StoredRound,
)
from ternhost.errors import UsageError

# Not final: the device may answer when the same request is repeated, comes later, or is sent to it
# alone.
_UNREAD = (wire.ERR_FRAME, wire.ERR_TAG, wire.ERR_TOO_SOON, wire.ERR_AHEAD)

# Offsets in REPORT, device u32 | round u32 | symbols | tag, and in REPORTS, round | size | rows.
_DEVICE_AT = 1
_ROUND_AT = 5
_SYMBOLS_AT = frames.end_of(wire.REPORT_FIELDS)
_ROWS_AT = frames.end_of(wire.REPORTS_FIELDS)
_ID_BYTES = 4
_ROW_BYTES = _ID_BYTES + wire.TAG_BYTES  # a row, device | symbols | tag, without its symbols
_unpack_reports_fields = struct.Struct(wire.REPORTS_FIELDS).unpack_from

# Rows of reports by round and by the size of their symbols.
_Rows = dict[tuple[int, int], list[bytes]]


_WHEN_ALL_HAVE_ANSWERED = Ending()


class ReportStore(Protocol):
    """The methods of a store (`ternhost.store.store`) that an aggregator uses.

    Each raises StorageError.
    """

    def keys(self) -> Mapping[int, bytes]: ...
    def keys_before(self, round_: StoredRound) -> Mapping[int, bytes]: ...
    def last_round(self) -> int: ...
    def open_round(self, round_: StoredRound) -> None: ...
    def open_rounds(self) -> Sequence[StoredRound]: ...
    def add_reports(self, reports: Iterable[Reports]) -> None: ...
    def report_batches(self, number: int) -> Sequence[Reports]: ...


class Aggregator:
    """The open rounds of a store. Not thread-safe: one driver calls it."""

    def __init__(self, store: ReportStore) -> None:
        """Begin without an open round: `resume` continues those of the store."""
        self.statistics = Statistics()
        self._denied = 0  # questions that boards rejected for the tag of another key
        self._store = store
        self._keyring = Keyring(store.keys())
        self._rounds: dict[int, Round] = {}
        self._last = store.last_round()

    @property
    def devices(self) -> Collection[int]:
        """All devices with a key."""
        return self._keyring.by_device.keys()

    @property
    def foreign(self) -> int:
        """The number of frames that the host or a board rejected for the tag of another key."""
        return self.statistics.forged + self._denied

    @property
    def last_round(self) -> int:
        """The number of the last round that was opened."""
        return self._last

    def key(self, device: int) -> bytes | None:
        """The key of a device, if it has one."""
        return self._keyring.by_device.get(device)

    def round(self, number: int) -> Round:
        """An open round."""
        return self._rounds[number]

    def in_flight(self) -> list[int]:
        """The numbers of the open rounds, oldest first."""
        return sorted(self._rounds)

    # Opening

    def open(
        self,
        number: int,
        cohorts: Sequence[tuple[Question, Devices]],
        now: float,
        ending: Ending = _WHEN_ALL_HAVE_ANSWERED,
        run: str | None = None,
    ) -> None:
        """Store and open a round, which begins at the time `now`.

        number: of the round; numbers must ascend. cohorts: the questions, each with its devices.
        ending: when the round ends before all have answered. run: the name of the run that it is
        part of. Raises UsageError for a question that no frame can carry, or for a device that is
        named twice or has no key; and StorageError.
        """
        if number <= self._last:
            raise UsageError(
                f"round {number} is not after round {self._last}", hint="count rounds upwards"
            )
        stored_cohorts = []
        for question, devices in cohorts:
            stored_cohorts.append(StoredCohort(round_body(number, question), integers(devices)))
        device_count = sum(len(cohort.devices) for cohort in stored_cohorts)
        quorum = device_count
        if ending.quorum is not None:
            quorum = max(1, min(ending.quorum, device_count))
        stored = StoredRound(number, stored_cohorts, quorum, ending.deadline, run)

        round_ = self._new_round(stored, now)
        without_key = round_.devices_without_key
        if without_key:
            raise UsageError(
                f"no key is known for device {without_key[0]}",
                hint="name the --store that it was provisioned with",
            )
        self._store.open_round(stored)
        self._rounds[number] = round_
        self._last = number

    def _new_round(self, stored: StoredRound, now: float) -> Round:
        """Begin a round. Raises UsageError for a cohort without a device, or a device named twice."""
        try:
            if not stored.cohorts or any(len(cohort.devices) == 0 for cohort in stored.cohorts):
                raise ValueError
            return Round(stored, now, self._keyring)
        except ValueError:
            raise UsageError("a round must ask at least one device, and none twice") from None

    def resume(self, now: float, run: str | None = None) -> list[int]:
        """Continue the stored open rounds (only those of `run` and of no run).

        Returns the numbers of all open rounds. Deadlines start anew, since the length of the
        interruption is unknown.
        """
        self._keyring = Keyring(self._store.keys())
        for stored in self._store.open_rounds():
            if run is None or stored.run in (None, run):
                self._rounds[stored.number] = self._resumed(stored, now)
        self._revoke()
        return self.in_flight()

    def _resumed(self, stored: StoredRound, now: float) -> Round:
        """The open round, with the keys that its devices had, and the reports in the store."""
        keyring = self._keyring
        former_keys = self._store.keys_before(stored)
        if former_keys:
            keyring = Keyring({**keyring.by_device, **former_keys})
        round_ = Round(stored, now, keyring)
        for reports in self._store.report_batches(stored.number):
            round_.count_again(reports)
        return round_

    def reload_keys(self) -> None:
        """Read the keys from the store again, and give up devices whose keys were revoked."""
        self._keyring = Keyring(self._store.keys())
        self._revoke()

    def _revoke(self) -> None:
        for round_ in self._rounds.values():
            round_.revoke_all_but(self._keyring.members)

    # Questions about open rounds

    def request(self, number: int, device: int) -> bytes:
        """The ROUND frame for a device: always the same bytes."""
        return self._rounds[number].request(device)

    def for_all(self, number: int) -> bool:
        """Whether an open round has one question for every device, so that it can be announced."""
        return self._rounds[number].asks_all(self._keyring.members)

    def announcement(self, number: int) -> bytes:
        """As `Round.announcement`."""
        return self._rounds[number].announcement()

    def unanswered(self, number: int) -> list[int]:
        """As `Round.unanswered`."""
        return self._rounds[number].unanswered

    def reports(self, number: int) -> int:
        """The number of reports of an open round so far."""
        return self._rounds[number].reports

    def asked(self, number: int) -> int:
        """The number of devices of an open round."""
        return len(self._rounds[number].members)

    def costs(
        self, number: int, devices: Sequence[int], measure: int = ledger.EPSILON
    ) -> list[int]:
        """As `Round.costs`."""
        return self._rounds[number].costs(devices, measure)

    # Answers

    def accept(self, batch: Iterable[bytes], now: float) -> Accepted:
        """Commit the new reports among frames, which may be in any order, then count them.

        Frames that are damaged, forged or of no use are only counted in `statistics`. A report
        after the deadline is late, even in an open round. Raises StorageError, and has counted
        nothing of the round: devices repeat their bytes if asked again.
        """
        accepted = Accepted()
        rows_of_reports: _Rows = {}
        for frame in batch:
            try:
                self._sort(frame, rows_of_reports, accepted)
            except frames.FrameError as error:
                if error.code == wire.ERR_TAG:
                    self.statistics.forged += 1
                else:
                    self.statistics.damaged += 1

        for (number, symbol_bytes), parts in rows_of_reports.items():
            row_bytes = _ROW_BYTES + symbol_bytes
            rows = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, row_bytes)
            devices = self._accept_rows(number, rows, now)
            accepted.reports += zip(repeat(number), devices)
        for refusal in accepted.unread:
            if refusal.code == wire.ERR_TAG:
                self._denied += 1
        return accepted

    def _sort(self, frame: bytes, rows_of_reports: _Rows, accepted: Accepted) -> None:
        """Sort a frame: add the rows of its reports to the others, or take an ERROR.

        rows_of_reports: by round and size, not yet checked. accepted: gets the refusal of an ERROR.
        Raises FrameError for a damaged or forged frame.
        """
        kind = frames.kind(frame)
        if kind == wire.REPORT:
            symbol_bytes = len(frame) - _SYMBOLS_AT - wire.TAG_BYTES
            frames.require(symbol_bytes >= 0, "frame too short")
            number = int.from_bytes(frame[_ROUND_AT:_SYMBOLS_AT], "little")
            row = frame[_DEVICE_AT:_ROUND_AT] + frame[_SYMBOLS_AT:]
            rows_of_reports.setdefault((number, symbol_bytes), []).append(row)
        elif kind == wire.REPORTS:
            number, symbol_bytes = _unpack_reports_fields(frame, 1)
            has_whole_rows = (len(frame) - _ROWS_AT) % (_ROW_BYTES + symbol_bytes) == 0
            frames.require(has_whole_rows, "not whole rows")
            rows_of_reports.setdefault((number, symbol_bytes), []).append(frame[_ROWS_AT:])
        elif kind == wire.ERROR:
            self._take_error(frame, accepted)
        else:
            self.statistics.damaged += 1

    def _accept_rows(self, number: int, rows: batches.Bytes, now: float) -> list[int]:
        """Commit and count the new valid reports among rows of a round; return their devices.

        rows: n x bytes, device | symbols | tag.
        """
        round_ = self._rounds.get(number)
        if round_ is None or round_.is_past_deadline(now):
            self.statistics.late += len(rows)
            return []
        device_bytes = np.ascontiguousarray(rows[:, :_ID_BYTES])
        devices = device_bytes.view("<u4")[:, 0].astype(np.int64)
        places = round_.places_of(devices)
        is_expected = places >= 0
        if not np.all(is_expected):
            self._count_unexpected(devices[~is_expected])
            rows, places = rows[is_expected], places[is_expected]
        return round_.accept(rows, places, self._store.add_reports, self.statistics)

    def _count_unexpected(self, devices: Integers) -> None:
        """Count reports of devices that are not part of the round."""
        has_key = self._keyring.members.find(devices) >= 0
        self.statistics.unasked += int(np.count_nonzero(has_key))
        self.statistics.unknown += int(np.count_nonzero(~has_key))

    def _take_error(self, frame: bytes, accepted: Accepted) -> None:
        """Take an ERROR frame, of a device that refuses or of a board that could not read.

        Raises FrameError for a damaged or forged frame.
        """
        device, number = frames.address(frame)
        if device == wire.BOARD:  # a board cannot speak for a device
            accepted.unread.append(Refusal(*host_frames.decode_error(frame, b"")))
            self.statistics.unread += 1
            return
        round_ = self._rounds.get(number)
        if device not in self._keyring.by_device:
            self.statistics.unknown += 1
        elif round_ is None:
            self.statistics.late += 1
        elif round_.members.find(integers((device,)))[0] < 0:
            self.statistics.unasked += 1
        else:
            self._take_refusal(frame, round_, device, accepted)

    def _take_refusal(self, frame: bytes, round_: Round, device: int, accepted: Accepted) -> None:
        """Take the ERROR frame of a device that was asked; raises FrameError if it is forged.

        A device that could not read its request may still answer; others have refused.
        """
        answer_key = frames.answer_key(round_.request_digest(device))
        refusal = Refusal(*host_frames.decode_error(frame, answer_key))
        if refusal.code in _UNREAD:
            self.statistics.unread += 1
            accepted.unread.append(refusal)
            return
        self.statistics.refused += 1
        if round_.refuse(refusal):
            accepted.refusals.append(refusal)

    # The end of a round

    def give_up(self, number: int, devices: Iterable[int]) -> None:
        """As `Round.give_up`."""
        self._rounds[number].give_up(list(devices))

    def abandon(self, number: int) -> None:
        """Let a round end with the reports so far. Safe in any thread."""
        round_ = self._rounds.get(number)
        if round_ is not None:
            round_.abandoned = True

    def ended(self, number: int, now: float) -> RoundResult | None:
        """Close a round if it has ended by now, and return its result; else return None.

        In the store it stays open until `Store.end_run_round`, so that a host that dies first
        resumes it.
        """
        round_ = self._rounds[number]
        how = round_.ended(now)
        if how is None:
            return None
        del self._rounds[number]
        return round_.result(how)
