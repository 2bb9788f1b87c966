"""What a gateway tells of a round, made from its result; and at the host, checked before anything of it counts.

A gateway may lie about its own devices: as many reports as it has devices, with any symbols. That is what the checks
leave it (shared_specs/gateways.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tern import wire
from ternhost.count import estimate
from ternhost.count.members import Integers, inflate
from ternhost.count.questions import Question
from ternhost.count.rounds import Answers, CohortInFlight, Counts, Refusal, RoundResult
from ternhost.reach.gateway.frames import MessageError
from ternhost.reach.gateway.messages import MOST_REASONS, Answer, Ask
from ternhost.store.tallies import pack_counts

Rows = npt.NDArray[np.int64]


def is_label(question: Question) -> bool:
    """Whether the counts alone say what single devices have answered: each reports the one coordinate that there is."""
    return question.model == wire.SOFTMAX and question.k == 1


def is_vector(question: Question) -> bool:
    """Whether somebody may need the result of each device by itself: only counts of its parts are told else."""
    return question.model == wire.SOFTMAX and question.k > 1


def is_hashed(question: Question) -> bool:
    """Whether a device answers by the hash of its category, which only its id and the round explain."""
    return question.model == wire.CATEGORIES and question.range > 0


# At the gateway


def answer_to(ask: Ask, result: RoundResult) -> Answer:
    """What a gateway tells of a round that has ended; single results without their devices, in no order of theirs."""
    results = [b""] * len(result.cohorts)
    for i, cohort in enumerate(result.cohorts):
        if cohort.answers is not None and is_hashed(cohort.question):
            results[i] = pack_counts(_supports(ask, cohort.answers, cohort.card.symbols, ask.categories[i]))
        elif cohort.answers is not None and is_vector(cohort.question):
            results[i] = pack_results(cohort.answers.symbols)
    return Answer(
        ask.number,
        ask.digest,
        result.ended,
        [cohort.reports for cohort in result.cohorts],
        _reasons(result.refusals),
        [pack_counts(cohort.counts) for cohort in result.cohorts],
        results if any(results) else (),
    )


def _supports(ask: Ask, answers: Answers, buckets: int, categories: int) -> Counts:
    return estimate.supports(answers.devices, answers.symbols[:, 0], ask.number, buckets, categories)


def pack_results(symbols: Rows) -> bytes:
    """Single results (reports x k), sorted, so that their order says nothing."""
    return pack_counts(symbols[np.lexsort(symbols.T[::-1])])


def _reasons(refusals: Mapping[int, Refusal]) -> list[tuple[int, int, int]]:
    # (code, detail, devices): the rarest are told by the most frequent detail of their code.
    told = Counter((refusal.code, refusal.detail) for refusal in refusals.values()).most_common()
    kept = dict(told[:MOST_REASONS])
    for (code, _), count in told[MOST_REASONS:]:
        same = next((one for one in kept if one[0] == code), next(iter(kept)))
        kept[same] += count
    return [(code, detail, count) for (code, detail), count in kept.items()]


# At the host


@dataclass(frozen=True)
class Told:
    """What a gateway has told of a cohort. results: reports x k, or None. supports: by category, of hashed answers."""

    reports: int
    counts: Counts
    results: Rows | None = None
    supports: Counts | None = None


def check(answer: Answer, ask: Ask) -> list[Told]:
    """What an answer tells of each cohort, once nothing speaks against it. Raises MessageError."""
    _require(answer.number == ask.number, "is of another round")
    _require(answer.digest == ask.digest, "answers another question")
    _require(len(answer.reports) == len(ask.cohorts), "has other cohorts")
    refusals = sum(count for _, _, count in answer.refusals)
    _require(sum(answer.reports) + refusals <= ask.asked, "tells of more devices than were asked")
    found = []
    for i, (reports, cohort) in enumerate(zip(answer.reports, ask.cohorts, strict=True)):
        _require(reports <= len(cohort.devices), "has more reports than devices were asked")
        asked = CohortInFlight(cohort.body)
        counts = _numbers(answer.counts[i], asked.size).reshape(asked.d, asked.card.symbols)
        _require(bool(np.all(counts >= 0)), "has counts below 0")
        # A report names k coordinates, none of them twice. (No sum overflows: no summand is beyond `reports`.)
        _require(bool(np.all(counts <= reports)), "has counts beyond its reports")
        of_coordinate = counts.sum(axis=1)
        _require(int(counts.sum()) == asked.k * reports, "has counts that are not those of its reports")
        _require(
            bool(np.all(of_coordinate <= reports)), "counts a coordinate more often than there are reports"
        )
        results = supports = None
        if ask.individual and is_hashed(asked.question):
            supports = _supports_of(answer, i, reports, ask.categories[i])
        elif ask.individual and is_label(asked.question):
            results = np.repeat(np.arange(asked.card.symbols), counts[0])[:, None]
        elif ask.individual and is_vector(asked.question):
            results = _results(answer, i, reports, asked, counts)
        found.append(Told(reports, counts, results, supports))
    return found


def _supports_of(answer: Answer, i: int, reports: int, categories: int) -> Counts:
    _require(bool(answer.results), "lacks what hashed answers speak for")
    supports = _numbers(answer.results[i], categories)
    in_order = bool(np.all((supports >= 0) & (supports <= reports)))
    _require(in_order, "has more speaking for a category than there are reports")
    return supports


def _results(answer: Answer, i: int, reports: int, asked: CohortInFlight, counts: Counts) -> Rows:
    _require(bool(answer.results), "lacks the single results")
    rows = _numbers(answer.results[i], reports * asked.k).reshape(reports, asked.k)
    _require(asked.d == asked.k, "has single results of coordinates that nobody knows")
    _require(bool(np.all((rows >= 0) & (rows < asked.card.symbols))), "has symbols that the card has not")
    cells = rows + np.arange(asked.k) * asked.card.symbols
    same = np.bincount(cells.reshape(-1), minlength=asked.size).reshape(counts.shape)
    _require(bool(np.all(same == counts)), "has single results that are not those of its counts")
    return rows


def _numbers(packed: bytes, count: int) -> Rows:
    try:
        data = inflate(packed, 8 * count)
    except ValueError as error:
        raise MessageError(f"it has another number of counts: {error}") from error
    _require(len(data) == 8 * count, "has another number of counts")
    return np.frombuffer(data, "<i8").astype(np.int64)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MessageError(f"it {what}")


def without_names(number: int, reasons: Sequence[Sequence[int]], first: int) -> dict[int, Refusal]:
    """Refusals of which nobody knows the devices: their keys are below 0, from `-first` down, and no device's."""
    found: dict[int, Refusal] = {}
    for code, detail, count in reasons:
        for _ in range(count):
            found[-first - len(found)] = Refusal(wire.BOARD, number, code, detail)
    return found


def answers_of(devices: Integers, results: Rows) -> Answers:
    """Single results, each with one of the devices that were asked: nobody knows which of them gave it."""
    return Answers(devices[: len(results)], results)


def together(answers: Sequence[Answers]) -> Answers | None:
    """Single results of several gateways; None where there are none."""
    if not answers:
        return None
    devices, symbols = zip(*((own.devices, own.symbols) for own in answers), strict=True)
    return Answers(np.concatenate(devices), np.concatenate(symbols))
