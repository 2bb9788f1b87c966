"""The aggregator: what becomes of every frame that devices send.

It does no input or output but to the store: a driver hands it frames in batches with the time, and sends what it
is told to. So one core serves serial ports and brokers, and is tested without either. Nothing is counted before
the store has committed it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tern import frames, host_frames, wire
from ternhost.aggregate import batches
from ternhost.aggregate.questions import Question, round_body, round_start
from ternhost.aggregate.rounds import CohortInFlight, Refusal, RoundInFlight, RoundResult, Taken
from ternhost.aggregate.store import Cohort, Round, Store
from ternhost.errors import UsageError

# Not the last word: the same request, sent again, or later, or to this device alone, may be answered.
_UNREAD = (wire.ERR_FRAME, wire.ERR_TAG, wire.ERR_TOO_SOON, wire.ERR_AHEAD)

_REPORT_BYTES = frames.end_of(wire.REPORT_FIELDS) + wire.TAG_BYTES  # a REPORT frame without its symbols
_address = struct.Struct(wire.REPORT_FIELDS).unpack_from


@dataclass
class Accepted:
    """What a batch of frames said: (round, device) of new reports, refusals, and requests that were not understood."""

    reports: list[tuple[int, int]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    unread: list[Refusal] = field(default_factory=list)


@dataclass
class Statistics:
    """What became of the frames. Their sum is the number of frames given to `Aggregator.accept`."""

    accepted: int = 0
    duplicate: int = 0  # this device has reported in this round already: repeated, or replayed
    late: int = 0  # the round has ended
    unknown: int = 0  # no such device
    unasked: int = 0  # the device was not asked in this round
    forged: int = 0  # the tag does not verify
    damaged: int = 0  # not a frame, or with fields out of bounds
    refused: int = 0  # an ERROR that ends a device's part in the round
    unread: int = 0  # an ERROR that says that a frame was damaged on its way down: ask again


class Aggregator:
    """Rounds in flight over a store. Not thread-safe: one driver calls it."""

    def __init__(self, store: Store) -> None:
        self.statistics = Statistics()
        self._store = store
        self._keys = store.keys()
        self._tags = batches.Tags()
        self._rounds: dict[int, RoundInFlight] = {}
        self._last = store.last_round()

    @property
    def devices(self) -> Collection[int]:
        """Every device whose key is known."""
        return self._keys.keys()

    def in_flight(self) -> list[int]:
        """The numbers of the rounds that have not ended, oldest first."""
        return sorted(self._rounds)

    def open(
        self,
        number: int,
        cohorts: Sequence[tuple[Question, Sequence[int]]],
        now: float,
        quorum: int | None = None,
        deadline: float | None = None,
        run: str | None = None,
    ) -> None:
        """Begin a round that asks each cohort's devices its question, and write it down before anybody hears of it.

        `number` must be larger than any before. `quorum` reports (default: all) or `deadline` seconds from `now` end
        it. Raises UsageError for what no frame can carry, and StorageError.
        """
        if number <= self._last:
            raise UsageError(f"round {number} is not after round {self._last}", hint="count rounds upwards")
        asked = [Cohort(round_body(number, question), devices) for question, devices in cohorts]
        count = sum(len(cohort.devices) for cohort in asked)
        every = {device for cohort in asked for device in cohort.devices}
        if not every or len(every) < count or not all(len(cohort.devices) for cohort in asked):
            raise UsageError("a round must ask at least one device, and none twice")
        if strangers := every - self._keys.keys():
            raise UsageError(
                f"no key is known for device {min(strangers)}",
                hint="name the --store that it was provisioned with",
            )
        stored = Round(number, asked, count if quorum is None else max(1, min(quorum, count)), deadline, run)
        in_flight = RoundInFlight(stored, now, self._keys)
        self._store.open_round(stored)
        self._rounds[number] = in_flight
        self._last = number

    def resume(self, now: float, run: str | None = None) -> list[int]:
        """Take up the rounds that the store holds open, with the reports accepted so far; return their numbers.

        run: only those that it has asked, or nobody by name.
        A deadline begins again, since nobody knows how long the host was gone.
        """
        for asked in self._store.open_rounds():
            if run is not None and asked.run not in (None, run):
                continue
            round_ = RoundInFlight(asked, now, self._store.keys_when(asked))
            taken: dict[CohortInFlight, Taken] = {}
            for device, payload in self._store.reports(asked.number):
                of_cohort = taken.setdefault(round_.cohort_of[device], Taken())
                of_cohort.keys.append(round_.keys[device])
                of_cohort.payloads.append(payload)
                round_.reported.add(device)
            for cohort, reports in taken.items():
                cohort.add(cohort.cells(reports.keys, asked.number, reports.payloads)[0])
            self._rounds[asked.number] = round_
        self.reload_keys()
        return self.in_flight()

    def unanswered(self, number: int) -> list[int]:
        """The devices asked in a round that have neither reported nor refused nor been given up."""
        round_ = self._rounds[number]
        return [
            device
            for device in round_.cohort_of
            if device not in round_.reported
            and device not in round_.refusals
            and device not in round_.given_up
        ]

    def reports(self, number: int) -> int:
        """How many reports a round in flight has so far."""
        return len(self._rounds[number].reported)

    def asked(self, number: int) -> int:
        """How many devices were asked in a round in flight."""
        return len(self._rounds[number].cohort_of)

    def for_all(self, number: int) -> bool:
        """Whether a round in flight asks every device the same, so that it can be announced."""
        round_ = self._rounds[number]
        return len(round_.cohorts) == 1 and round_.cohort_of.keys() >= self._keys.keys()

    def progress(self, number: int) -> tuple[int, int]:
        """How many reports and how many refusals a round in flight has so far."""
        round_ = self._rounds[number]
        return len(round_.reported), len(round_.refusals)

    def request(self, number: int, device: int) -> bytes:
        """The ROUND frame for a device: the same bytes whenever it is asked for."""
        round_ = self._rounds[number]
        out = bytearray(round_start(device) + round_.cohort_of[device].body)
        frames.seal(round_.keys[device], out, len(out))
        return bytes(out)

    def announcement(self, number: int, fleet_key: bytes) -> bytes:
        """The ROUND frame for the whole fleet (wire.md), of a round of one cohort."""
        (cohort,) = self._rounds[number].cohorts
        out = bytearray(round_start(wire.FLEET) + cohort.body)
        frames.seal(fleet_key, out, len(out))
        return bytes(out)

    def reload_keys(self) -> None:
        """Take the keys from the store anew; of devices that have none any more nothing is expected."""
        self._keys = self._store.keys()
        for round_ in self._rounds.values():
            self.give_up(round_.number, round_.cohort_of.keys() - self._keys.keys())

    def accept(self, batch: Iterable[bytes], now: float) -> Accepted:
        """Take frames of devices, in any order; commit the new reports, then count them.

        Raises StorageError, and then has counted nothing of the batch: the devices, asked again, send the same
        bytes again. A report that comes after its round's deadline is late even if `tick` was not called yet.
        """
        result = Accepted()
        taken: dict[tuple[int, CohortInFlight], Taken] = {}
        new: set[tuple[int, int]] = set()
        statistics = self.statistics
        for frame in batch:
            if len(frame) >= _REPORT_BYTES and frame[0] == wire.REPORT:
                self._take_report(frame, now, taken, new)
                continue
            try:
                if frames.kind(frame) == wire.ERROR:
                    self._take_error(frame, result)
                else:
                    statistics.damaged += 1
            except frames.FrameError as error:
                if error.code == wire.ERR_TAG:
                    statistics.forged += 1
                else:
                    statistics.damaged += 1
        if taken:
            self._commit(taken, result)
        return result

    def _take_report(
        self,
        frame: bytes,
        now: float,
        taken: dict[tuple[int, CohortInFlight], Taken],
        new: set[tuple[int, int]],
    ) -> None:
        address: tuple[int, int] = _address(frame, 1)
        device, number = address
        key = self._keys.get(device)
        if key is None:
            self.statistics.unknown += 1
            return
        round_ = self._rounds.get(number)
        if round_:
            key = round_.keys.get(device, key)
        if not self._tags.verify(key, frame):
            self.statistics.forged += 1
        elif round_ is None or (round_.ends is not None and now >= round_.ends):
            self.statistics.late += 1
        elif (cohort := round_.cohort_of.get(device)) is None:
            self.statistics.unasked += 1
        elif device in round_.reported or address in new:
            self.statistics.duplicate += 1
        elif len(frame) != _REPORT_BYTES + cohort.payload_bytes:
            self.statistics.damaged += 1
        else:
            new.add(address)
            of_cohort = taken.get((number, cohort))
            if of_cohort is None:
                of_cohort = taken[number, cohort] = Taken()
            of_cohort.devices.append(device)
            of_cohort.keys.append(key)
            of_cohort.payloads.append(bytes(frame[9 : -wire.TAG_BYTES]))

    def _commit(self, taken: dict[tuple[int, CohortInFlight], Taken], result: Accepted) -> None:
        rows: list[tuple[int, int, bytes]] = []
        counted = []
        for (number, cohort), reports in taken.items():
            cells, good = cohort.cells(reports.keys, number, reports.payloads)
            if not good.all():
                self.statistics.damaged += len(good) - int(good.sum())
                cells = cells[good]
            kept = good.tolist()
            rows += [
                (number, device, payload)
                for device, payload, in_order in zip(reports.devices, reports.payloads, kept, strict=True)
                if in_order
            ]
            counted.append((cohort, cells))
        if not rows:
            return
        self._store.add_reports(sorted(rows))  # in the order of its table, so that it writes each page once
        for cohort, cells in counted:
            cohort.add(cells)
        for number, device, _ in rows:
            round_ = self._rounds[number]
            round_.reported.add(device)
            if round_.refusals or round_.given_up:
                round_.refusals.pop(device, None)
                round_.given_up.discard(device)
            result.reports.append((number, device))
        self.statistics.accepted += len(rows)

    def _take_error(self, frame: bytes, result: Accepted) -> None:
        device, number = frames.address(frame)
        key = b"" if device == wire.BOARD else self._keys.get(device)
        if key is None:
            self.statistics.unknown += 1
            return
        round_ = self._rounds.get(number)
        if round_ and device != wire.BOARD:
            key = round_.keys.get(device, key)
        refusal = Refusal(*host_frames.decode_error(frame, key))
        if refusal.code in _UNREAD or device == wire.BOARD:  # a board's word about a device proves nothing
            self.statistics.unread += 1
            result.unread.append(refusal)
            return
        self.statistics.refused += 1
        if round_ is not None and device in round_.cohort_of and device not in round_.reported:
            round_.refusals[device] = refusal
            result.refusals.append(refusal)

    def give_up(self, number: int, devices: Iterable[int]) -> None:
        """Expect no answer of these devices; a report that comes nevertheless, before the round ends, counts."""
        round_ = self._rounds[number]
        round_.given_up.update(
            device
            for device in devices
            if device in round_.cohort_of and device not in round_.reported and device not in round_.refusals
        )

    def tick(self, now: float) -> list[RoundResult]:
        """Close the rounds that have ended by now and return what they told; what still comes for them is late.

        They stay open in the store until `Store.end_run_round`: a host that dies before resumes them as they are.
        """
        ended = [(round_, how) for round_ in self._rounds.values() if (how := round_.ended(now))]
        for round_, _ in ended:
            del self._rounds[round_.number]
        return [round_.result(how) for round_, how in ended]
