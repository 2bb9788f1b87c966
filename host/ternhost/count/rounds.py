"""Rounds as a store keeps them, and the results of rounds that have ended."""

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
QUORUM = "quorum"  # there are enough reports
DEADLINE = "deadline"  # the time is over

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ending:
    """When a round ends before all devices have answered.

    quorum: it ends after so many reports; None: after all. deadline: it ends after so many seconds;
    None: never for that reason.
    """

    quorum: int | None = None
    deadline: float | None = None


@dataclass(frozen=True)
class StoredCohort:
    """The devices of a round that get the same question (a cohort).

    body: the ROUND frame of the question between the device and the tag (wire.md). devices: their
    ids.
    """

    body: bytes
    devices: Sequence[int] | Integers


@dataclass(frozen=True)
class StoredRound:
    """A round in a store, which has it before the first request is sent."""

    number: int
    cohorts: Sequence[StoredCohort]
    quorum: int  # so many reports end it
    deadline: float | None = None  # so many seconds end it; None: there is no deadline
    run: str | None = None  # the name of the run to which it belongs; None: to no run


@dataclass(frozen=True)
class Reports:
    """Reports to one round.

    packed: n x bytes; row i has the packed symbols of the report of `devices[i]`.
    """

    round: int
    devices: Integers
    packed: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Refusal:
    """A device's answer that it will not report."""

    device: int  # its id; 0: a board could not read a request, and its devices have not refused
    round: int
    code: int  # the reason: an error code of wire.py
    detail: int  # a number that explains the reason (wire.md)


@dataclass(frozen=True)
class Answers:
    """Reports of single devices: row i of `symbols` (n x k) is the report of `devices[i]`."""

    devices: npt.NDArray[np.int64]
    symbols: npt.NDArray[np.int64]


@dataclass(frozen=True)
class CohortCounts:
    """The counted reports of devices with the same question.

    A report has k symbols, each about one of d coordinates. Entry [j, s] of `counts` is how often
    symbol s was reported for coordinate j (d x symbols of the card). A report of a projection has
    one symbol, which stands for a vector of d values (cards.md, Decoding): then `counts` has one
    row, and `vectors` is the sum of these vectors.

    card: the table from which devices sample their symbols. asked: how many devices were asked.
    answers: the reports of single devices, if the algorithm needs them. supports: for each
    category, how many hashed answers may stand for it; None if answers are not hashed.
    """

    card: cards.Card
    k: int
    counts: Counts
    reports: int
    question: Question
    answers: Answers | None = None
    asked: int = 0
    supports: Counts | None = None
    vectors: Counts | None = None


@dataclass(frozen=True)
class Tally:
    """The counted reports of a cohort as a store keeps them; `CohortCounts` explains the counts.

    body: the ROUND frame of the question between the device and the tag (wire.md).
    """

    body: bytes
    asked: int
    reports: int
    counts: Counts
    vectors: Counts | None = None

    @property
    def question(self) -> Question:
        """The question, decoded."""
        return question_of(decode_body(self.body))


@dataclass(frozen=True)
class RoundResult:
    """The result of a round that has ended: its refusals, and the counted reports of each cohort.

    ended: COMPLETE, QUORUM or DEADLINE. asked: how many devices were asked. refusals: by device.
    unstored: the ids of the devices of each cohort, if no store has the round.
    """

    number: int
    ended: str
    asked: int
    reports: int
    refusals: dict[int, Refusal]
    cohorts: list[CohortCounts]
    unstored: Sequence[Integers] = ()

    @property
    def reasons(self) -> dict[str, int]:
        """The number of refusals by the name of their reason, the most frequent first."""
        names = Counter(wire.error_name(refusal.code) for refusal in self.refusals.values())
        return dict(names.most_common())

    @property
    def tallies(self) -> list[Tally]:
        """The counted reports of each cohort, as a store keeps them."""
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
    """Return a copy of a round's result that also has the reports of single devices.

    accepted: the round's reports in the store. devices_by_cohort: for each cohort of the result,
    the ids of its devices.
    """
    cohorts = []
    for cohort, devices in zip(result.cohorts, devices_by_cohort, strict=True):
        answers = _answers(cohort, accepted, Members(devices))
        cohorts.append(replace(cohort, answers=answers))
    return replace(result, cohorts=cohorts)


def _answers(cohort: CohortCounts, accepted: Sequence[Reports], members: Members) -> Answers:
    """Unpack the reports of a cohort's devices, in ascending order of their ids.

    accepted: batches of reports, also of other cohorts. members: the devices of the cohort.
    """
    # Each list begins with an empty array, so that there is something to concatenate if nobody of
    # the cohort has reported.
    reporters: list[Integers] = [integers(())]
    symbols = [np.empty((0, cohort.k), np.int64)]
    for batch in accepted:
        is_of_cohort = members.find(batch.devices) >= 0
        if np.any(is_of_cohort):
            packed = batch.packed[is_of_cohort]
            unpacked, _is_valid = batches.unpack(packed, cohort.k, cohort.card.symbols)
            reporters.append(batch.devices[is_of_cohort])
            symbols.append(unpacked)
    devices = np.concatenate(reporters)
    order = np.argsort(devices)
    return Answers(devices[order], np.concatenate(symbols)[order])
