"""Rounds: open ones, with the counts of their reports, and the results of ended ones."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import frames, ledger, wire
from ternhost import vectorised
from ternhost.count import batches
from ternhost.count.members import Integers, Keyring, Members, Positions, id_bytes, integers
from ternhost.count.questions import (
    Question,
    cost_of,
    decode_body,
    question_of,
    round_body,
    round_start,
)

# How a round ends.
COMPLETE = "complete"  # every device has reported, refused or been given up
QUORUM = "quorum"
DEADLINE = "deadline"

# States of the request to a device; 0 while its round waits for it.
WAITING, REPORTED, REFUSED, GIVEN_UP = range(4)

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cohort:
    """Devices of a round with the same question; `body` is its ROUND frame between the device and
    the tag.
    """

    body: bytes
    devices: Sequence[int] | Integers


@dataclass(frozen=True)
class Round:
    """A round: `quorum` reports or the `deadline` (seconds; None: never) end it."""

    number: int
    cohorts: Sequence[Cohort]
    quorum: int
    deadline: float | None = None
    run: str | None = None  # its run


@dataclass(frozen=True)
class Reports:
    """Reports of one round: row i of `packed` (n x bytes, uint8) holds the packed symbols of
    `devices[i]`.
    """

    round: int
    devices: Integers
    packed: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Refusal:
    """The refusal of a device to report, with the reason (an error code of wire.py); device 0 is
    the board.
    """

    device: int
    round: int
    code: int
    detail: int


@dataclass(frozen=True)
class Answers:
    """The reports of single devices: row i of `symbols` (n x k) is the report of `devices[i]`."""

    devices: npt.NDArray[np.int64]
    symbols: npt.NDArray[np.int64]


@dataclass(frozen=True)
class CohortCounts:
    """How often each symbol was reported for each coordinate: `counts` is d x card.symbols.

    A projection has one row: its symbols are about all d coordinates, and `vectors` is the sum of
    what they stand for (d, cards.md, Decoding).
    """

    card: cards.Card
    k: int
    counts: Counts
    reports: int
    question: Question
    answers: Answers | None = None  # where the reports of single devices are needed
    asked: int = 0
    supports: Counts | None = None  # of hashed answers: the reports that support each category
    vectors: Counts | None = None


@dataclass(frozen=True)
class Tally:
    """The stored counts of a cohort, and its `vectors`, as in `CohortCounts`; `body`: as in
    `Cohort`.
    """

    body: bytes
    asked: int
    reports: int
    counts: Counts
    vectors: Counts | None = None

    @property
    def question(self) -> Question:
        return question_of(decode_body(self.body))


@dataclass(frozen=True)
class RoundResult:
    """The result of an ended round, by cohort."""

    number: int
    ended: str
    asked: int
    reports: int
    refusals: dict[int, Refusal]
    cohorts: list[CohortCounts]
    unstored: Sequence[Integers] = ()  # the devices of each cohort, if no store has the round

    @property
    def reasons(self) -> dict[str, int]:
        """The number of refusals by the name of the error, the most frequent first."""
        names = Counter(wire.error_name(refusal.code) for refusal in self.refusals.values())
        return dict(names.most_common())

    @property
    def tallies(self) -> list[Tally]:
        """The counts of the cohorts for the store."""
        return [
            Tally(
                round_body(self.number, each.question),
                each.asked,
                each.reports,
                each.counts,
                each.vectors,
            )
            for each in self.cohorts
        ]


def with_answers(
    result: RoundResult,
    accepted: Sequence[Reports],
    devices_by_cohort: Sequence[Sequence[int] | Integers],
) -> RoundResult:
    """The same result with the reports of single devices. accepted: the reports of this round from
    the store.
    """
    cohorts = []
    for cohort, devices_asked in zip(result.cohorts, devices_by_cohort, strict=True):
        members = Members(devices_asked)
        reporters: list[Integers] = [integers(())]
        symbols = [np.empty((0, cohort.k), np.int64)]
        for batch in accepted:
            of_cohort = members.find(batch.devices) >= 0
            if np.any(of_cohort):
                reporters.append(batch.devices[of_cohort])
                symbols.append(
                    batches.unpack(batch.packed[of_cohort], cohort.k, cohort.card.symbols)[0]
                )
        devices = np.concatenate(reporters)
        order = np.argsort(devices)
        answers = Answers(devices[order], np.concatenate(symbols)[order])
        cohorts.append(replace(cohort, answers=answers))
    return replace(result, cohorts=cohorts)


class CohortInFlight:
    """A cohort of an open round: its question and the counts of its reports."""

    def __init__(self, body: bytes, devices: int = 0) -> None:
        """devices: their number."""
        self.body = body
        self._devices = devices
        request = decode_body(body)
        self.question = question_of(request)
        self.card = cards.decode(self.question.card)
        self.k = request.k
        self.d = request.values
        projects = self.card.shape == cards.PROJECTION
        self.rows = 1 if projects else self.d
        self.size = self.rows * self.card.symbols
        self.counts: Counts = np.zeros(self.size, np.int64)
        self.vectors: Counts | None = np.zeros(self.d, np.int64) if projects else None
        self.reports = 0
        # Of a report to a ledger of each measure, in millionths.
        self.costs = {
            measure: cost_of(request, measure) for measure in (ledger.EPSILON, ledger.RHO)
        }
        self.payload_bytes = frames.packed_size(self.card.symbols, self.k)

    def unpack(self, packed: batches.Bytes) -> tuple[Integers, batches.Flags]:
        """The symbols of reports (reports x k), and which reports are valid: none where their size
        is wrong.
        """
        if packed.shape[1] != self.payload_bytes:
            return np.zeros((len(packed), self.k), np.int64), np.zeros(len(packed), bool)
        return batches.unpack(packed, self.k, self.card.symbols)

    def cells(self, digests: batches.Bytes, symbols: Integers) -> Integers:
        """The cells (reports x k) of the count matrix that these symbols increment.

        Those of a projection are its symbols, with what each stands for (reports x (1 + d)).
        """
        if self.vectors is not None:
            rotations = vectorised.projection.signs(self.card, digests)
            vectors = vectorised.projection.decode(self.card, rotations, symbols[:, 0], self.d)
            return np.concatenate([symbols, vectors], axis=1)
        chosen = batches.choose(digests, self.d, self.k)
        return np.asarray(chosen * np.int64(self.card.symbols) + symbols)

    def add(self, cells: Integers) -> None:
        """Count these reports (reports x k)."""
        if self.vectors is not None:
            self.vectors += cells[:, 1:].sum(axis=0)
            cells = cells[:, :1]
        self.counts += np.bincount(cells.reshape(-1), minlength=self.size)
        self.reports += len(cells)

    def result(self) -> CohortCounts:
        counts = self.counts.reshape(self.rows, self.card.symbols).copy()
        vectors = None if self.vectors is None else self.vectors.copy()
        return CohortCounts(
            self.card,
            self.k,
            counts,
            self.reports,
            self.question,
            asked=self._devices,
            vectors=vectors,
        )


class RoundInFlight:
    """An open round.

    A device's place is its index in `members`; `answers` and `cohort_at` are ordered by place.
    """

    def __init__(self, stored: Round, now: float, keyring: Keyring) -> None:
        """A new key of a device is valid from the next round on.

        Raises ValueError where a device is named twice.
        """
        self.number = stored.number
        self.quorum = stored.quorum
        self.ends = None if stored.deadline is None else now + stored.deadline
        self.cohorts = [
            CohortInFlight(cohort.body, len(cohort.devices)) for cohort in stored.cohorts
        ]
        ids = [integers(cohort.devices) for cohort in stored.cohorts]
        self.members = Members(np.concatenate(ids))
        self.cohort_at = np.zeros(len(self.members), np.intp)
        for index in range(1, len(ids)):
            self.cohort_at[self.members.find(ids[index])] = index
        self._keyring = keyring
        self._key_at = keyring.members.find(self.members.ids)
        self.revoked = self._key_at < 0  # by place, whether the key was revoked
        self.answers = np.full(len(self.members), WAITING, np.uint8)
        self.refusals: dict[int, Refusal] = {}
        self.abandoned = False

    def by_cohort(self, places: Positions) -> Iterator[tuple[CohortInFlight, Positions]]:
        """Each cohort of the devices at these places, and the indices in `places` of its devices."""
        of = self.cohort_at[places]
        for index in np.unique(of).tolist():
            yield self.cohorts[index], np.flatnonzero(of == index)

    def digests(self, cohort: CohortInFlight, places: Positions) -> batches.Bytes:
        """The digests (n x 32, wire.md) of the requests to the devices at these places, of that
        cohort.
        """
        keys, devices = self._keyring.keys[self._key_at[places]], id_bytes(self.members.ids[places])
        return batches.hashes(keys, bytes((wire.ROUND,)), devices, cohort.body)

    def request(self, device: int) -> tuple[bytes, bytes]:
        """The ROUND frame for a device, and the digest of its request."""
        place = self.members.find(integers((device,)))
        cohort = self.cohorts[int(self.cohort_at[place][0])]
        digest = self.digests(cohort, place).tobytes()
        return round_start(device) + cohort.body + digest[: wire.TAG_BYTES], digest

    def costs(self, devices: Integers, measure: int = ledger.EPSILON) -> Integers:
        """The cost of a report for each of these devices, in millionths, to a ledger of this
        measure.
        """
        of_cohorts = integers([cohort.costs[measure] for cohort in self.cohorts])
        return of_cohorts[self.cohort_at[self.members.find(devices)]]

    def give_up(self, places: Positions) -> None:
        """Stop waiting for the devices at these places that have not answered."""
        self.answers[places[self.answers[places] == WAITING]] = GIVEN_UP

    @property
    def reports(self) -> int:
        return int(np.count_nonzero(self.answers == REPORTED))

    def ended(self, now: float) -> str | None:
        """How the round has ended by now; None where it goes on."""
        if self.abandoned or np.all(self.answers):
            return COMPLETE
        if self.reports >= self.quorum:
            return QUORUM
        if self.ends is not None and now >= self.ends:
            return DEADLINE
        return None

    def result(self, ended: str) -> RoundResult:
        cohorts = [cohort.result() for cohort in self.cohorts]
        return RoundResult(
            self.number, ended, len(self.members), self.reports, dict(self.refusals), cohorts
        )
