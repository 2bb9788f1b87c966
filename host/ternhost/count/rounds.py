"""Rounds as a store keeps them, and the results of ended ones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import wire
from ternhost.count import batches
from ternhost.count.members import Integers, Members, integers
from ternhost.count.questions import Question, decode_body, question_of, round_body

# How a round ends.
COMPLETE = "complete"  # every device has reported, refused or been given up
QUORUM = "quorum"
DEADLINE = "deadline"

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ending:
    """When a round ends before all devices have answered.

    quorum: after so many reports; None: all. deadline: after so many seconds; None: never.
    """

    quorum: int | None = None
    deadline: float | None = None


@dataclass(frozen=True)
class StoredCohort:
    """Devices of a round with the same question.

    body: its ROUND frame between the device and the tag.
    """

    body: bytes
    devices: Sequence[int] | Integers


@dataclass(frozen=True)
class StoredRound:
    """A round as a store keeps it, from before its first request is sent.

    quorum: so many reports end it. deadline: as many seconds end it, too; None: never.
    """

    number: int
    cohorts: Sequence[StoredCohort]
    quorum: int
    deadline: float | None = None
    run: str | None = None  # its run


@dataclass(frozen=True)
class Reports:
    """Reports of one round.

    Row i of `packed` (n x bytes, uint8) holds the packed symbols of `devices[i]`.
    """

    round: int
    devices: Integers
    packed: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Refusal:
    """The refusal of a device to report, with the reason: an error code of wire.py.

    Device 0 is the board.
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
    """The stored counts of a cohort, and its `vectors`, as in `CohortCounts`.

    body: as in `Cohort`.
    """

    body: bytes
    asked: int
    reports: int
    counts: Counts
    vectors: Counts | None = None

    @property
    def question(self) -> Question:
        """The question to the cohort."""
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
        tallies = []
        for cohort in self.cohorts:
            tally = Tally(
                body=round_body(self.number, cohort.question),
                asked=cohort.asked,
                reports=cohort.reports,
                counts=cohort.counts,
                vectors=cohort.vectors,
            )
            tallies.append(tally)
        return tallies


def with_answers(
    result: RoundResult,
    accepted: Sequence[Reports],
    devices_by_cohort: Sequence[Sequence[int] | Integers],
) -> RoundResult:
    """Return a result that also has the reports of single devices.

    accepted: the reports of this round from the store. devices_by_cohort: the devices of each
    cohort of the result.
    """
    cohorts = []
    for cohort, cohort_devices in zip(result.cohorts, devices_by_cohort, strict=True):
        answers = _answers(cohort, accepted, Members(cohort_devices))
        cohorts.append(replace(cohort, answers=answers))
    return replace(result, cohorts=cohorts)


def _answers(cohort: CohortCounts, accepted: Sequence[Reports], members: Members) -> Answers:
    """Unpack the reports of a cohort's members, in ascending order of the devices.

    accepted: batches of reports, also of other cohorts of the round.
    """
    # Each begins with an empty array, so that a cohort without a report has arrays, too.
    reporters: list[Integers] = [integers(())]
    symbols = [np.empty((0, cohort.k), np.int64)]
    for batch in accepted:
        is_of_cohort = members.find(batch.devices) >= 0
        if np.any(is_of_cohort):
            packed = batch.packed[is_of_cohort]
            unpacked, _ = batches.unpack(packed, cohort.k, cohort.card.symbols)
            reporters.append(batch.devices[is_of_cohort])
            symbols.append(unpacked)
    devices = np.concatenate(reporters)
    order = np.argsort(devices)
    return Answers(devices[order], np.concatenate(symbols)[order])
