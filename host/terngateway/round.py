"""A round over gateways: the host checks their answers and adds them up.

A gateway can lie about its own devices, but the checks allow no more than a report of each, with
any symbols (shared_specs/gateways.md).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from tern import wire
from terngateway import messages
from terngateway.messages import LENGTH, MOST_REASONS, Answer, Ask, MessageError, Refused
from ternhost.count import rounds
from ternhost.count.cohort import Cohort
from ternhost.count.members import Integers, Members, inflate, integers
from ternhost.count.questions import Question
from ternhost.learn import estimate
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import is_label
from ternhost.store.tallies import pack_counts

Rows = npt.NDArray[np.int64]


def is_vector(question: Question) -> bool:
    """Whether the host may need the result of each device by itself: counts say nothing of whole
    vectors.
    """
    return question.model == wire.SOFTMAX and question.k > 1


def is_hashed(question: Question) -> bool:
    """Whether a device answers by the hash of its category, which depends on its id and the round."""
    return question.model == wire.CATEGORIES and question.range > 0


# At the gateway


def answer_to(ask: Ask, result: rounds.RoundResult) -> Answer:
    """The answer of a gateway from the result of its round; single results without device ids,
    sorted.
    """
    results = [b""] * len(result.cohorts)
    for i, cohort in enumerate(result.cohorts):
        answers = cohort.answers
        if answers is not None and is_hashed(cohort.question):
            hashes, buckets, categories = (
                answers.symbols[:, 0],
                cohort.card.symbols,
                ask.categories[i],
            )
            supports = estimate.supports(answers.devices, hashes, ask.number, buckets, categories)
            results[i] = pack_counts(supports)
        elif cohort.vectors is not None:
            results[i] = pack_counts(cohort.vectors)
        elif answers is not None and is_vector(
            cohort.question
        ):  # sorted: their order is to reveal nothing
            results[i] = pack_counts(answers.symbols[np.lexsort(answers.symbols.T[::-1])])
    reports = [cohort.reports for cohort in result.cohorts]
    counts = [pack_counts(cohort.counts) for cohort in result.cohorts]
    reasons, results = _reasons(result.refusals), results if any(results) else []
    return Answer(ask.number, ask.digest, result.ended, reports, reasons, counts, results)


def _reasons(refusals: Mapping[int, rounds.Refusal]) -> list[tuple[int, int, int]]:
    # (code, detail, devices): rare details are counted under the most frequent one of their code.
    by_frequency = Counter(
        (refusal.code, refusal.detail) for refusal in refusals.values()
    ).most_common()
    kept = dict(by_frequency[:MOST_REASONS])
    for (code, _), count in by_frequency[MOST_REASONS:]:
        same = next((reason for reason in kept if reason[0] == code), next(iter(kept)))
        kept[same] += count
    return [(code, detail, count) for (code, detail), count in kept.items()]


# At the host


@dataclass(frozen=True)
class CohortAnswer:
    """A gateway's answer for a cohort."""

    reports: int
    counts: rounds.Counts
    results: Rows | None = None  # reports x k
    supports: rounds.Counts | None = None  # by category, for hashed answers
    vectors: rounds.Counts | None = None  # of a projection


def check(answer: Answer, ask: Ask) -> list[CohortAnswer]:
    """An answer by cohort, checked. Raises MessageError."""
    _require(answer.number == ask.number, "is of another round")
    _require(answer.digest == ask.digest, "answers another question")
    _require(len(answer.reports) == len(ask.cohorts), "has other cohorts")
    refusals = sum(count for _, _, count in answer.refusals)
    _require(sum(answer.reports) + refusals <= ask.asked, "tells of more devices than were asked")
    checked = []
    for i, (reports, cohort) in enumerate(zip(answer.reports, ask.cohorts, strict=True)):
        _require(reports <= len(cohort.devices), "has more reports than devices were asked")
        empty = Cohort(cohort.body)
        counts = _integers(answer.counts[i], empty.size).reshape(empty.rows, empty.card.symbols)
        _require(counts >= 0, "has counts below 0")
        # A report names k coordinates, none of them twice. (No sum overflows: no summand is beyond
        # `reports`.)
        _require(counts <= reports, "has counts beyond its reports")
        _require(
            int(counts.sum()) == empty.k * reports, "has counts that are not those of its reports"
        )
        _require(
            counts.sum(axis=1) <= reports, "counts a coordinate more often than there are reports"
        )
        single = ask.individual and (is_hashed(empty.question) or is_vector(empty.question))
        single |= empty.vectors is not None
        _require(
            single or not any(answer.results[i : i + 1]), "has single results that nobody asked for"
        )
        results = supports = vectors = None
        if empty.vectors is not None:
            vectors = _vectors(answer, i, reports, empty)
        elif ask.individual and is_hashed(empty.question):
            supports = _supports(answer, i, reports, ask.categories[i])
        elif ask.individual and is_label(empty.question):
            results = np.repeat(np.arange(empty.card.symbols), counts[0])[:, None]
        elif ask.individual and is_vector(empty.question):
            results = _results(answer, i, reports, empty, counts)
        checked.append(CohortAnswer(reports, counts, results, supports, vectors))
    return checked


def _supports(answer: Answer, i: int, reports: int, categories: int) -> rounds.Counts:
    _require(bool(answer.results), "lacks the support of hashed answers")
    supports = _integers(answer.results[i], categories)
    _require(
        (supports >= 0) & (supports <= reports), "has more support for a category than reports"
    )
    return supports


def _vectors(answer: Answer, i: int, reports: int, asked: Cohort) -> rounds.Counts:
    _require(bool(answer.results), "lacks the vectors of a projection")
    vectors = _integers(answer.results[i], asked.d)
    length = float(np.sqrt(np.square(vectors.astype(np.float64)).sum()))
    most = (
        asked.card.symbols // 2
    ) ** 1.5 * reports  # the length of as many vectors of one direction
    _require(length <= most * (1 + 1e-9), "has vectors that are longer than its reports together")
    return vectors


def _results(answer: Answer, i: int, reports: int, asked: Cohort, counts: rounds.Counts) -> Rows:
    _require(bool(answer.results), "lacks the single results")
    rows = _integers(answer.results[i], reports * asked.k).reshape(reports, asked.k)
    _require(asked.d == asked.k, "has single results of unknown coordinates")
    _require((rows >= 0) & (rows < asked.card.symbols), "has symbols that the card has not")
    cells = rows + np.arange(asked.k) * asked.card.symbols
    recounted = np.bincount(cells.reshape(-1), minlength=asked.size).reshape(counts.shape)
    _require(recounted == counts, "has single results that are not those of its counts")
    return rows


def _integers(packed: bytes, count: int) -> Rows:
    try:
        data = inflate(packed, 8 * count)
    except ValueError as error:
        raise MessageError(f"it has another number of counts: {error}") from error
    _require(len(data) == 8 * count, "has another number of counts")
    return np.frombuffer(data, "<i8").astype(np.int64)


def _require(condition: bool | npt.NDArray[np.bool_], what: str) -> None:
    if not np.all(condition):
        raise MessageError(f"it {what}")


def without_names(
    number: int, reasons: Sequence[Sequence[int]], first: int
) -> dict[int, rounds.Refusal]:
    """Refusals of unknown devices, by keys that no device has: from `-first` down."""
    refusals: dict[int, rounds.Refusal] = {}
    for code, detail, count in reasons:
        for _ in range(count):
            refusals[-first - len(refusals)] = rounds.Refusal(wire.BOARD, number, code, detail)
    return refusals


def parts(
    round_: rounds.StoredRound,
    gateways: Mapping[str, Integers],
    terms: Terms,
    categories: Sequence[int] | None = None,
) -> dict[str, Ask]:
    """The question to each gateway. gateways: by name, their devices, ascending. categories: where
    single results are wanted, the number for each cohort of hashed answers, 0 for others.
    """
    wanted = [np.sort(integers(cohort.devices)) for cohort in round_.cohorts]
    asks = {}
    for name, devices in gateways.items():
        members = Members(devices)
        by_cohort = [cohort[members.find(cohort) >= 0] for cohort in wanted]
        if there := [i for i, ids in enumerate(by_cohort) if len(ids)]:
            cohorts = [rounds.StoredCohort(round_.cohorts[i].body, by_cohort[i]) for i in there]
            sizes = [] if categories is None else [categories[i] for i in there]
            single = categories is not None
            asks[name] = Ask(round_.number, cohorts, single, sizes, terms.quorum, terms.deadline)
    return asks


class RoundAtGateways:
    """The questions of a round by gateway (`asks`), and their answers, each of which counts once."""

    def __init__(self, round_: rounds.StoredRound, asks: Mapping[str, Ask], now: float) -> None:
        self.number = round_.number
        self.begun = now
        self.asks = dict(asks)
        self.asked = sum(len(cohort.devices) for cohort in round_.cohorts)
        self._quorum = round_.quorum
        self._cohorts = round_.cohorts
        self._devices = [Members(cohort.devices) for cohort in round_.cohorts]
        self._answers: dict[str, list[CohortAnswer]] = {}
        self._refusals: dict[int, rounds.Refusal] = {}
        self._ended: set[str] = set()
        self.under_way: dict[str, int] = {}  # by gateway, its reports so far
        self.outstanding = set(self.asks)  # gateways that have neither answered nor been given up
        self.refused: dict[str, Refused] = {}

    # In a store

    def exchange(self, gateway: str, answer: bytes = b"") -> bytes:
        """A gateway's question in this round and its answer, in the format of the store."""
        ask = self.asks[gateway].encode()
        return LENGTH.pack(len(ask)) + ask + answer

    @classmethod
    def stored(cls, round_: rounds.StoredRound, exchanges: Mapping[str, bytes], now: float) -> Self:
        """The round from its exchanges in the store.

        Raises MessageError for data of another version.
        """
        ends = {name: LENGTH.size + LENGTH.unpack_from(kept)[0] for name, kept in exchanges.items()}
        asks = {
            name: messages.decode_ask(kept[LENGTH.size : ends[name]])
            for name, kept in exchanges.items()
        }
        restored = cls(round_, asks, now)
        for name, kept in exchanges.items():
            if answer := kept[ends[name] :]:
                message = messages.decode(answer)
                if not isinstance(message, Answer):
                    raise MessageError("this is not an answer of a gateway")
                restored.take(name, message, check(message, asks[name]))
        return restored

    # Answers

    def take(self, gateway: str, answer: Answer, by_cohort: list[CohortAnswer]) -> None:
        """Count an answer that was checked and stored."""
        if gateway not in self._answers:
            self._answers[gateway] = by_cohort
            self._ended.add(answer.ended)
            self._refusals |= without_names(self.number, answer.refusals, len(self._refusals) + 1)
            self.give_up(gateway)

    def give_up(self, gateway: str) -> None:
        self.outstanding.discard(gateway)
        self.under_way.pop(gateway, None)

    @property
    def reports(self) -> int:
        return sum(answer.reports for by_cohort in self._answers.values() for answer in by_cohort)

    @property
    def so_far(self) -> int:
        """The number of reports that count, and of those at gateways that have not answered yet."""
        return self.reports + sum(self.under_way.values())

    def ended(self, waiting: Iterable[str]) -> str | None:
        """How the round has ended if it waits for these gateways only; None where it goes on."""
        if self.reports >= self._quorum and self.reports < self.asked:
            return rounds.QUORUM
        if self.outstanding.intersection(waiting):
            return None
        return next(
            (how for how in (rounds.DEADLINE, rounds.QUORUM) if how in self._ended), rounds.COMPLETE
        )

    def result(self, ended: str) -> rounds.RoundResult:
        by_index: list[list[tuple[rounds.StoredCohort, CohortAnswer]]] = [[] for _ in self._cohorts]
        for name, by_cohort in self._answers.items():
            for cohort, answer in zip(self.asks[name].cohorts, by_cohort, strict=True):
                by_index[self._index(cohort)].append((cohort, answer))
        cohorts = []
        for asked, answers in zip(self._cohorts, by_index, strict=True):
            total = Cohort(asked.body, len(asked.devices))
            single, supports = [], None
            for cohort, answer in answers:
                total.counts += answer.counts.reshape(-1)
                total.reports += answer.reports
                if answer.vectors is not None and total.vectors is not None:
                    total.vectors += answer.vectors
                if answer.results is not None:  # under any of the devices: their order is unknown
                    single.append((integers(cohort.devices)[: len(answer.results)], answer.results))
                if answer.supports is not None:
                    supports = answer.supports + (0 if supports is None else supports)
            joined = (
                rounds.Answers(*map(np.concatenate, zip(*single, strict=True))) if single else None
            )
            cohorts.append(replace(total.result(), answers=joined, supports=supports))
        return rounds.RoundResult(
            self.number, ended, self.asked, self.reports, dict(self._refusals), cohorts
        )

    def _index(self, cohort: rounds.StoredCohort) -> int:
        # Two cohorts may have the same question, but never the same devices.
        first = integers(cohort.devices[:1])
        return next(
            i
            for i, asked in enumerate(self._cohorts)
            if asked.body == cohort.body and self._devices[i].find(first)[0] >= 0
        )
