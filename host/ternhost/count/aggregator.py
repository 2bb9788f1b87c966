"""Checks and counts the frames of devices.

Frames come as bytes, over whatever link, and all that lasts is in a store.
"""

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
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

# After these errors a device may still answer: if the same request is repeated, comes later, or is
# sent to this device alone.
_UNREAD = (wire.ERR_FRAME, wire.ERR_TAG, wire.ERR_TOO_SOON, wire.ERR_AHEAD)

# Offsets of parts of frames (wire.md), behind the type in byte 0:
# REPORT is type u8 | device u32 | round u32 | packed symbols | tag.
_DEVICE_AT = 1
_ROUND_AT = 5
_SYMBOLS_AT = frames.end_of(wire.REPORT_FIELDS)
# REPORTS is type u8 | round | bytes of the packed symbols of a row | rows.
_ROWS_AT = frames.end_of(wire.REPORTS_FIELDS)
_unpack_reports_fields = struct.Struct(wire.REPORTS_FIELDS).unpack_from
# A row is device u32 | packed symbols | tag.
_ID_BYTES = 4
_ROW_BYTES = _ID_BYTES + wire.TAG_BYTES  # without the symbols

# Rows of reports by round and by the number of bytes of their symbols.
_Rows = defaultdict[tuple[int, int], list[bytes]]

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
    """Opens rounds, and counts the reports of devices to them.

    The open rounds are in a store, so that a host that ends in between can `resume` them. Not
    thread-safe: one driver calls it.
    """

    def __init__(self, store: ReportStore) -> None:
        """Begin without an open round; `resume` reads those of the store."""
        self.statistics = Statistics()
        self._foreign_requests = 0  # that a board rejected, because they were under another key
        self._store = store
        self._keyring = Keyring(store.keys())
        self._rounds: dict[int, Round] = {}  # the open rounds, by number
        self._last = store.last_round()

    @property
    def devices(self) -> Collection[int]:
        """The ids of all devices with a key."""
        return self._keyring.by_device.keys()

    @property
    def foreign(self) -> int:
        """How many frames the host or a board rejected, because they were under another key."""
        return self.statistics.forged + self._foreign_requests

    @property
    def last_round(self) -> int:
        """The number of the last round that was opened."""
        return self._last

    def key(self, device: int) -> bytes | None:
        """Return the key of a device, or None if it has none."""
        return self._keyring.by_device.get(device)

    def round(self, number: int) -> Round:
        """Return an open round."""
        return self._rounds[number]

    def in_flight(self) -> list[int]:
        """Return the numbers of the open rounds, oldest first."""
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
        """Store and open a round.

        number: of the round, larger than all earlier ones. cohorts: the questions, each with the
        ids of the devices that it is for. now: the time by the caller's clock. ending: when the
        round ends, if not all devices answer. run: the name of the run to which it belongs; None:
        to no run.

        Raises UsageError for a question that does not fit in a frame, and for a device that is
        named twice or has no key; StorageError.
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
                f"device {without_key[0]} has no key in this store",
                hint="name the --store that it was provisioned with",
            )
        self._store.open_round(stored)
        self._rounds[number] = round_
        self._last = number

    def _new_round(self, stored: StoredRound, now: float) -> Round:
        """Return a round that begins at the time `now`.

        Raises UsageError for a cohort without a device, and for a device that is named twice.
        """
        has_empty_cohort = any(len(cohort.devices) == 0 for cohort in stored.cohorts)
        text = "a round must ask at least one device, and none twice"
        if not stored.cohorts or has_empty_cohort:
            raise UsageError(text)
        try:
            return Round(stored, now, self._keyring)
        except ValueError:
            raise UsageError(text) from None

    def resume(self, now: float, run: str | None = None) -> list[int]:
        """Continue the open rounds of the store, with the reports that it has of them.

        Return the numbers of all open rounds, oldest first. Deadlines are counted from `now`, since
        nobody knows how long the interruption was. run: continue only the rounds of this run and
        those that belong to no run; None: all.
        """
        self._keyring = Keyring(self._store.keys())
        for stored in self._store.open_rounds():
            if run is None or stored.run in (None, run):
                self._rounds[stored.number] = self._resumed(stored, now)
        self._revoke()
        return self.in_flight()

    def _resumed(self, stored: StoredRound, now: float) -> Round:
        """Return a stored round as an open one, with its reports counted.

        Its devices may have got new keys since it was opened; it takes their reports under the old
        ones, which they had then.
        """
        keyring = self._keyring
        former_keys = self._store.keys_before(stored)
        if former_keys:
            keyring = Keyring({**keyring.by_device, **former_keys})
        round_ = Round(stored, now, keyring)
        for reports in self._store.report_batches(stored.number):
            round_.count_again(reports)
        return round_

    def reload_keys(self) -> None:
        """Read the keys from the store again, and stop waiting for devices without one."""
        self._keyring = Keyring(self._store.keys())
        self._revoke()

    def _revoke(self) -> None:
        """Have each open round reject reports of devices whose key was revoked."""
        for round_ in self._rounds.values():
            round_.revoke_all_but(self._keyring.members)

    # Questions about open rounds

    def request(self, number: int, device: int) -> bytes:
        """Return the ROUND frame of a round for a device; it always has the same bytes."""
        return self._rounds[number].request(device)

    def for_all(self, number: int) -> bool:
        """Return whether a round asks every device the same, so that one frame can ask all."""
        return self._rounds[number].asks_all(self._keyring.members)

    def announcement(self, number: int) -> bytes:
        """Return the ROUND frame that asks all devices at once, without its tag.

        Only for a round in which all devices get the same question.
        """
        return self._rounds[number].announcement()

    def unanswered(self, number: int, among: Sequence[int] | None = None) -> list[int]:
        """Return the devices for whose answer a round waits, ascending.

        among: only these devices matter; None: all. In a large fleet, few are far quicker.
        """
        return self._rounds[number].unanswered(among)

    def reports(self, number: int) -> int:
        """Return how many reports an open round has so far."""
        return self._rounds[number].reports

    def asked(self, number: int) -> int:
        """Return how many devices an open round asks."""
        return len(self._rounds[number].members)

    def costs(
        self, number: int, devices: Sequence[int], measure: int = ledger.EPSILON
    ) -> list[int]:
        """Return what a report to a round costs each of these devices, in millionths.

        measure: what their ledgers count, EPSILON or RHO.
        """
        return self._rounds[number].costs(devices, measure)

    # Answers

    def accept(self, batch: Iterable[bytes], now: float) -> Accepted:
        """Store the new valid reports among some frames, then count them, and return what was new.

        Frames that are damaged, forged or not needed are only counted in `statistics`, and so is a
        report after the deadline of its round. Raises StorageError; then no report of that round
        was counted, and devices will send the same bytes if they are asked again.

        batch: frames of devices in any order. now: the time by the caller's clock.
        """
        accepted = Accepted()
        rows_of_reports: _Rows = defaultdict(list)
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
            accepted.reports += [(number, device) for device in devices]
        for refusal in accepted.unread:
            if refusal.code == wire.ERR_TAG:
                self._foreign_requests += 1
        return accepted

    def _sort(self, frame: bytes, rows_of_reports: _Rows, accepted: Accepted) -> None:
        """Take the reports out of a frame, unchecked, or handle it at once if it is an ERROR.

        rows_of_reports: gets the reports as rows of bytes, by their round and by the length of
        their symbols, so that rows of the same length are checked together. accepted: gets the
        refusal of an ERROR. Raises FrameError for a damaged or forged frame.
        """
        kind = frames.kind(frame)
        if kind == wire.REPORT:  # of one device
            symbol_bytes = len(frame) - _SYMBOLS_AT - wire.TAG_BYTES
            frames.require(symbol_bytes >= 0, "frame too short")
            number = int.from_bytes(frame[_ROUND_AT:_SYMBOLS_AT], "little")
            row = frame[_DEVICE_AT:_ROUND_AT] + frame[_SYMBOLS_AT:]
            rows_of_reports[number, symbol_bytes].append(row)
        elif kind == wire.REPORTS:  # of several devices of a board
            number, symbol_bytes = _unpack_reports_fields(frame, 1)  # behind the type
            has_whole_rows = (len(frame) - _ROWS_AT) % (_ROW_BYTES + symbol_bytes) == 0
            frames.require(has_whole_rows, "not whole rows")
            rows_of_reports[number, symbol_bytes].append(frame[_ROWS_AT:])
        elif kind == wire.ERROR:
            self._take_error(frame, accepted)
        else:
            self.statistics.damaged += 1

    def _accept_rows(self, number: int, rows: batches.Bytes, now: float) -> list[int]:
        """Store and count the new valid reports among rows of bytes; return their devices.

        number: of the round that they name. rows: n x bytes, each device id | packed symbols | tag.
        """
        round_ = self._rounds.get(number)
        if round_ is None or round_.is_past_deadline(now):
            self.statistics.late += len(rows)
            return []
        device_bytes = np.ascontiguousarray(rows[:, :_ID_BYTES])
        devices = device_bytes.view("<u4")[:, 0].astype(np.int64)  # little-endian, 32 bits
        places = round_.places_of(devices)
        is_expected = places >= 0
        if not np.all(is_expected):
            self._count_unexpected(devices[~is_expected])
            rows = rows[is_expected]
            places = places[is_expected]
        return round_.accept(rows, places, self._store.add_reports, self.statistics)

    def _count_unexpected(self, devices: Integers) -> None:
        """Count in `statistics` the reports of devices that their round did not ask."""
        has_key = self._keyring.members.find(devices) >= 0
        self.statistics.unasked += int(np.count_nonzero(has_key))
        self.statistics.unknown += int(np.count_nonzero(~has_key))

    def _take_error(self, frame: bytes, accepted: Accepted) -> None:
        """Handle an ERROR frame: a device refuses, or a board could not read a request.

        accepted: gets the refusal. Raises FrameError for a damaged or forged frame.
        """
        device, number = frames.address(frame)
        if device == wire.BOARD:
            # A board has no key, so it cannot refuse for a device; its devices may still report.
            no_key = b""
            accepted.unread.append(Refusal(*host_frames.decode_error(frame, no_key)))
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
        """Handle the ERROR frame of a device that an open round has asked.

        accepted: gets the refusal, as final, or as `unread` if the device may still answer. Raises
        FrameError for a forged frame.
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
        """Have an open round stop waiting for these devices; late reports of them still count."""
        self._rounds[number].give_up(list(devices))

    def abandon(self, number: int) -> None:
        """Have an open round end with the reports that it has. Safe in any thread."""
        round_ = self._rounds.get(number)
        if round_ is not None:
            round_.abandoned = True

    def ended(self, number: int, now: float) -> RoundResult | None:
        """Close an open round and return its result, if it has ended by now; else return None.

        In the store the round stays open until `Store.end_run_round`, so that a host that is killed
        before then resumes it.
        """
        round_ = self._rounds[number]
        how = round_.ended(now)
        if how is None:
            return None
        del self._rounds[number]
        return round_.result(how)
