"""The aggregator: rounds in flight, and what becomes of every frame that devices send.

It does no input or output but to the store: a driver hands it frames in batches with the time, and sends what it
is told to. So one core serves serial ports and brokers, and is tested without either. Nothing is counted before
the store has committed it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import frames, host_frames, wire
from ternhost.aggregate import batches
from ternhost.aggregate.store import Cohort, Round, Store
from ternhost.errors import UsageError

# How a round ends.
COMPLETE = "complete"  # every device asked has reported, refused or been given up
QUORUM = "quorum"
DEADLINE = "deadline"

# Not the last word: the same request, sent again, or later, or to this device alone, may be answered.
_UNREAD = (wire.ERR_FRAME, wire.ERR_TAG, wire.ERR_TOO_SOON, wire.ERR_AHEAD)

_BODY_AT = 5  # a ROUND frame is `type u8 | device u32 | body | tag`
_REPORT_BYTES = frames.end_of(wire.REPORT_FIELDS) + wire.TAG_BYTES  # a REPORT frame without its symbols
_address = struct.Struct(wire.REPORT_FIELDS).unpack_from

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Question:
    """What a cohort is asked: the fields of a ROUND (wire.md) without the device and the round.

    `parameters` are d int16 mantissas of `2**exponent`; `batch` 0 means all records; `local` is (epochs, rate, tau) for
    local training.
    """

    model: int
    parameters: Sequence[int]
    exponent: int
    card: bytes
    k: int
    batch: int = 0
    local: tuple[int, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """A device's answer that it will not report, and why (an error code of wire.py); device 0 is the board."""

    device: int
    round: int
    code: int
    detail: int


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


@dataclass(frozen=True)
class Answers:
    """The reports of single devices: `symbols` is n x k, the i-th row that of the i-th of `devices`."""

    devices: npt.NDArray[np.int64]
    symbols: npt.NDArray[np.int64]


@dataclass(frozen=True)
class CohortCounts:
    """How often each symbol was reported for each coordinate: `counts` is d x card.symbols, `reports` their number.

    `question` is what was asked; `answers` is there where the reports of single devices were wanted.
    """

    card: cards.Card
    k: int
    counts: Counts
    reports: int
    question: Question
    answers: Answers | None = None


@dataclass(frozen=True)
class RoundResult:
    """A round that has ended: all that it has told, cohort by cohort."""

    number: int
    ended: str
    asked: int
    reports: int
    refusals: dict[int, Refusal]
    cohorts: list[CohortCounts]


def decode_body(body: bytes) -> frames.Round:
    """A cohort's question, from its body in the store."""
    asked = frames.Round()
    asked.decode(_round_start(1) + body + bytes(wire.TAG_BYTES))
    return asked


class _CohortInFlight:
    def __init__(self, cohort: Cohort) -> None:
        asked = decode_body(cohort.body)
        self.body = cohort.body
        self.question = Question(
            asked.model, asked.parameters, asked.exponent, asked.card, asked.k, asked.batch, asked.local
        )
        self.card = cards.decode(asked.card)
        self.k = asked.k
        self.d = asked.values
        self.size = self.d * self.card.symbols
        self.counts: Counts = np.zeros(self.size, np.int64)
        self.reports = 0
        self.payload_bytes = batches.packed_size(self.card.symbols, self.k)

    def cells(
        self, keys: Sequence[bytes], number: int, payloads: Sequence[bytes]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The cells of the count matrix that each report adds one to (reports x k), and which reports are in order."""
        symbols, good = batches.unpack(payloads, self.k, self.card.symbols)
        chosen = batches.choose(keys, number, self.d, self.k)
        return chosen * np.int64(self.card.symbols) + symbols, good

    def add(self, cells: npt.NDArray[np.int64]) -> None:
        """Count these reports (reports x k)."""
        self.counts += np.bincount(cells.reshape(-1), minlength=self.size)
        self.reports += len(cells)


class _Taken:
    """The new reports of a batch for one cohort of a round, before they are committed."""

    def __init__(self) -> None:
        self.devices: list[int] = []
        self.keys: list[bytes] = []
        self.payloads: list[bytes] = []


class _RoundInFlight:
    def __init__(self, asked: Round, now: float, keys: Mapping[int, bytes]) -> None:
        self.keys = keys  # a device's new key is good from the next round on
        self.number = asked.number
        self.quorum = asked.quorum
        self.ends = None if asked.deadline is None else now + asked.deadline
        self.cohorts = [_CohortInFlight(cohort) for cohort in asked.cohorts]
        self.cohort_of = {
            device: cohort
            for cohort, asked_of in zip(self.cohorts, asked.cohorts, strict=True)
            for device in asked_of.devices
        }
        self.reported: set[int] = set()
        self.refusals: dict[int, Refusal] = {}
        self.given_up: set[int] = set()

    def ended(self, now: float) -> str | None:
        if len(self.reported) + len(self.refusals) + len(self.given_up) >= len(self.cohort_of):
            return COMPLETE
        if len(self.reported) >= self.quorum:
            return QUORUM
        if self.ends is not None and now >= self.ends:
            return DEADLINE
        return None


def _round_start(device: int) -> bytes:
    return bytes([wire.ROUND]) + device.to_bytes(4, "little")


def round_body(number: int, question: Question, deadline: float | None) -> bytes:
    """All of a ROUND frame between the device and the tag. Raises UsageError for what no frame can carry."""
    out = bytearray(wire.MAX_FRAME)
    try:
        n = host_frames.encode_round(
            out,
            bytes(wire.KEY_BYTES),
            1,
            number,
            question.model,
            question.exponent,
            question.k,
            question.batch,
            0 if deadline is None else min(0xFFFF, max(1, round(deadline))),
            question.parameters,
            question.card,
            question.local,
        )
        if n > wire.MAX_FRAME:
            raise frames.FrameError(wire.ERR_FRAME, "d and the card are too long together")
        cards.decode(question.card)
    except ValueError as error:
        raise UsageError(f"this round cannot be asked: {error}") from error
    return bytes(out[_BODY_AT : n - wire.TAG_BYTES])


def with_answers(store: Store, result: RoundResult) -> RoundResult:
    """The same result with the reports of single devices, as the store has accepted them."""
    payloads = dict(store.reports(result.number))
    cohort_of = store.round_devices(result.number)
    cohorts = []
    for cohort, devices in zip(result.cohorts, cohort_of, strict=True):
        heard = [device for device in devices if device in payloads]
        symbols, _ = batches.unpack([payloads[device] for device in heard], cohort.k, cohort.card.symbols)
        cohorts.append(replace(cohort, answers=Answers(np.array(heard, np.int64), symbols)))
    return replace(result, cohorts=cohorts)


def report_bytes(symbols: int) -> int:
    """How long a REPORT frame is whose packed symbols take so many bytes."""
    return 1 + 8 + symbols + wire.TAG_BYTES  # type, device and round


def request_bytes(question: Question) -> int:
    """How long the ROUND frame of a question is."""
    return _BODY_AT + len(round_body(1, question, None)) + wire.TAG_BYTES


class Aggregator:
    """Rounds in flight over a store. Not thread-safe: one driver calls it."""

    def __init__(self, store: Store) -> None:
        self.statistics = Statistics()
        self._store = store
        self._keys = store.keys()
        self._tags = batches.Tags()
        self._rounds: dict[int, _RoundInFlight] = {}
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
        asked = [Cohort(round_body(number, question, deadline), devices) for question, devices in cohorts]
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
        in_flight = _RoundInFlight(stored, now, self._keys)
        self._store.open_round(stored)
        self._rounds[number] = in_flight
        self._last = number

    def resume(self, now: float) -> list[int]:
        """Take up the rounds that the store holds open, with the reports accepted so far; return their numbers.

        A deadline begins again, since nobody knows how long the host was gone.
        """
        for asked in self._store.open_rounds():
            round_ = _RoundInFlight(asked, now, self._store.keys_when(asked))
            taken: dict[_CohortInFlight, _Taken] = {}
            for device, payload in self._store.reports(asked.number):
                of_cohort = taken.setdefault(round_.cohort_of[device], _Taken())
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
        out = bytearray(_round_start(device) + round_.cohort_of[device].body)
        frames.seal(round_.keys[device], out, len(out))
        return bytes(out)

    def announcement(self, number: int, fleet_key: bytes) -> bytes:
        """The ROUND frame for the whole fleet (wire.md), of a round of one cohort."""
        (cohort,) = self._rounds[number].cohorts
        out = bytearray(_round_start(wire.FLEET) + cohort.body)
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
        taken: dict[tuple[int, _CohortInFlight], _Taken] = {}
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
        taken: dict[tuple[int, _CohortInFlight], _Taken],
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
                of_cohort = taken[number, cohort] = _Taken()
            of_cohort.devices.append(device)
            of_cohort.keys.append(key)
            of_cohort.payloads.append(bytes(frame[9 : -wire.TAG_BYTES]))

    def _commit(self, taken: dict[tuple[int, _CohortInFlight], _Taken], result: Accepted) -> None:
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
        return [self._result(round_, how) for round_, how in ended]

    @staticmethod
    def _result(round_: _RoundInFlight, ended: str) -> RoundResult:
        cohorts = [
            CohortCounts(
                cohort.card,
                cohort.k,
                cohort.counts.reshape(cohort.d, cohort.card.symbols).copy(),
                cohort.reports,
                cohort.question,
            )
            for cohort in round_.cohorts
        ]
        return RoundResult(
            round_.number, ended, len(round_.cohort_of), len(round_.reported), dict(round_.refusals), cohorts
        )
