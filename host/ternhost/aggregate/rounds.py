"""Rounds: one in flight, as its reports come in, and what it has told when it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tern import card as cards
from ternhost.aggregate import batches
from ternhost.aggregate.questions import Question, decode_body, question_of
from ternhost.aggregate.store import Cohort, Round, Store

# How a round ends.
COMPLETE = "complete"  # every device asked has reported, refused or been given up
QUORUM = "quorum"
DEADLINE = "deadline"

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Refusal:
    """A device's answer that it will not report, and why (an error code of wire.py); device 0 is the board."""

    device: int
    round: int
    code: int
    detail: int


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


class CohortInFlight:
    """A cohort of a round: what it is asked, and the counts of what it has reported."""

    def __init__(self, cohort: Cohort) -> None:
        asked = decode_body(cohort.body)
        self.body = cohort.body
        self.question = question_of(asked)
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

    def result(self) -> CohortCounts:
        """What it has told so far."""
        counts = self.counts.reshape(self.d, self.card.symbols).copy()
        return CohortCounts(self.card, self.k, counts, self.reports, self.question)


class Taken:
    """The new reports of a batch for one cohort of a round, before they are committed."""

    def __init__(self) -> None:
        self.devices: list[int] = []
        self.keys: list[bytes] = []
        self.payloads: list[bytes] = []


class RoundInFlight:
    """A round that has not ended: who was asked what, and who has answered."""

    def __init__(self, asked: Round, now: float, keys: Mapping[int, bytes]) -> None:
        self.keys = keys  # a device's new key is good from the next round on
        self.number = asked.number
        self.quorum = asked.quorum
        self.ends = None if asked.deadline is None else now + asked.deadline
        self.cohorts = [CohortInFlight(cohort) for cohort in asked.cohorts]
        self.cohort_of = {
            device: cohort
            for cohort, asked_of in zip(self.cohorts, asked.cohorts, strict=True)
            for device in asked_of.devices
        }
        self.reported: set[int] = set()
        self.refusals: dict[int, Refusal] = {}
        self.given_up: set[int] = set()

    def ended(self, now: float) -> str | None:
        """How the round has ended by now; None where it goes on."""
        if len(self.reported) + len(self.refusals) + len(self.given_up) >= len(self.cohort_of):
            return COMPLETE
        if len(self.reported) >= self.quorum:
            return QUORUM
        if self.ends is not None and now >= self.ends:
            return DEADLINE
        return None

    def result(self, ended: str) -> RoundResult:
        """What it has told."""
        return RoundResult(
            self.number,
            ended,
            len(self.cohort_of),
            len(self.reported),
            dict(self.refusals),
            [cohort.result() for cohort in self.cohorts],
        )
