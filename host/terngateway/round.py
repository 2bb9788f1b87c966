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
    """Whether the host may need each device's result: counts say nothing of whole vectors."""
    return question.model == wire.SOFTMAX and question.k > 1


def is_hashed(question: Question) -> bool:
    """Whether a device answers by the hash of its category, made from its id and the round."""
    return question.model == wire.CATEGORIES and question.range > 0


# At the gateway


def answer_to(ask: Ask, result: rounds.RoundResult) -> Answer:
    """The answer of a gateway from the result of its round."""
    results = [_beside_counts(ask, i, cohort) for i, cohort in enumerate(result.cohorts)]
    return Answer(
        number=ask.number,
        digest=ask.digest,
        ended=result.ended,
        reports=[cohort.reports for cohort in result.cohorts],
        refusals=_reasons(result.refusals),
        counts=[pack_counts(cohort.counts) for cohort in result.cohorts],
        results=results if any(results) else [],
    )


def _beside_counts(ask: Ask, index: int, cohort: rounds.CohortCounts) -> bytes:
    """What the answer holds about a cohort beside its counts, packed like these; or b""."""
    answers = cohort.answers
    if answers is not None and is_hashed(cohort.question):
        hashes = answers.symbols[:, 0]
        categories = ask.categories[index]
        buckets = cohort.card.symbols
        return pack_counts(
            estimate.supports(answers.devices, hashes, ask.number, buckets, categories)
        )
    if cohort.vectors is not None:
        return pack_counts(cohort.vectors)
    if answers is not None and is_vector(cohort.question):
        # Without device ids, and sorted, so that their order reveals nothing.
        order = np.lexsort(answers.symbols.T[::-1])
        return pack_counts(answers.symbols[order])
    return b""


def _reasons(refusals: Mapping[int, rounds.Refusal]) -> list[tuple[int, int, int]]:
    """(code, detail, devices), the most frequent first.

    Rare details are counted under the most frequent one of their code.
    """
    frequencies = Counter((refusal.code, refusal.detail) for refusal in refusals.values())
    by_frequency = frequencies.most_common()
    kept = dict(by_frequency[:MOST_REASONS])
    for (code, _), count in by_frequency[MOST_REASONS:]:
        of_this_code = [reason for reason in kept if reason[0] == code]
        others = of_this_code or list(kept)
        kept[others[0]] += count
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
    return [_check_cohort(answer, ask, index) for index in range(len(ask.cohorts))]


def _check_cohort(answer: Answer, ask: Ask, index: int) -> CohortAnswer:
    cohort, reports = ask.cohorts[index], answer.reports[index]
    _require(reports <= len(cohort.devices), "has more reports than devices were asked")
    asked = Cohort(cohort.body)
    counts = _checked_counts(answer.counts[index], reports, asked)

    wants_single = ask.individual and (is_hashed(asked.question) or is_vector(asked.question))
    may_have_results = wants_single or asked.vectors is not None
    has_results = any(answer.results[index : index + 1])
    _require(may_have_results or not has_results, "has single results that nobody asked for")

    results = supports = vectors = None
    if asked.vectors is not None:
        vectors = _checked_vectors(answer, index, asked)
    elif ask.individual and is_hashed(asked.question):
        supports = _checked_supports(answer, index, ask.categories[index])
    elif ask.individual and is_label(asked.question):
        results = np.repeat(np.arange(asked.card.symbols), counts[0])[:, None]
    elif ask.individual and is_vector(asked.question):
        results = _checked_results(answer, index, asked, counts)
    return CohortAnswer(reports, counts, results, supports, vectors)


def _checked_counts(packed: bytes, reports: int, asked: Cohort) -> rounds.Counts:
    """The counts (rows x symbols) of so many reports.

    Each names k coordinates, none of them twice. No sum overflows: no summand is beyond `reports`.
    """
    counts = _integers(packed, asked.size).reshape(asked.rows, asked.card.symbols)
    _require(counts >= 0, "has counts below 0")
    _require(counts <= reports, "has counts beyond its reports")
    of_all_reports = asked.k * reports
    _require(int(counts.sum()) == of_all_reports, "has counts that are not those of its reports")
    of_a_coordinate = counts.sum(axis=1)
    _require(of_a_coordinate <= reports, "counts a coordinate more often than there are reports")
    return counts


def _checked_supports(answer: Answer, index: int, categories: int) -> rounds.Counts:
    """How many of the hashed answers support each category."""
    _require(bool(answer.results), "lacks the support of hashed answers")
    supports = _integers(answer.results[index], categories)
    is_possible = (supports >= 0) & (supports <= answer.reports[index])
    _require(is_possible, "has more support for a category than reports")
    return supports


def _checked_vectors(answer: Answer, index: int, asked: Cohort) -> rounds.Counts:
    """The sum of the vectors that a projection's symbols stand for."""
    _require(bool(answer.results), "lacks the vectors of a projection")
    vectors = _integers(answer.results[index], asked.d)
    length = float(np.sqrt(np.square(vectors.astype(np.float64)).sum()))
    longest = (asked.card.symbols // 2) ** 1.5  # the length of a report's vector
    most = longest * answer.reports[index]  # if all of them have one direction
    _require(length <= most * (1 + 1e-9), "has vectors that are longer than its reports together")
    return vectors


def _checked_results(answer: Answer, index: int, asked: Cohort, counts: rounds.Counts) -> Rows:
    """The symbols of each report (reports x k), which must add up to the counts."""
    _require(bool(answer.results), "lacks the single results")
    reports = answer.reports[index]
    rows = _integers(answer.results[index], reports * asked.k).reshape(reports, asked.k)
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
    """The question to each gateway that has devices in the round.

    gateways: by name, their devices, ascending. categories: where single results are wanted, the
    number for each cohort of hashed answers, 0 for others.
    """
    cohort_devices = [np.sort(integers(cohort.devices)) for cohort in round_.cohorts]
    asks = {}
    for name, devices in gateways.items():
        members = Members(devices)
        cohorts, numbers_of_categories = [], []
        for index, ids in enumerate(cohort_devices):
            of_gateway = ids[members.find(ids) >= 0]
            if not len(of_gateway):
                continue
            cohorts.append(rounds.StoredCohort(round_.cohorts[index].body, of_gateway))
            if categories is not None:
                numbers_of_categories.append(categories[index])
        if cohorts:
            asks[name] = Ask(
                number=round_.number,
                cohorts=cohorts,
                individual=categories is not None,
                categories=numbers_of_categories,
                quorum=terms.quorum,
                deadline=terms.deadline,
            )
    return asks


class RoundAtGateways:
    """The questions of a round by gateway (`asks`), and their answers, each of which counts once."""

    def __init__(self, round_: rounds.StoredRound, asks: Mapping[str, Ask], now: float) -> None:
        self.begun = now
        self.asks = dict(asks)
        self.asked = sum(len(cohort.devices) for cohort in round_.cohorts)
        self.under_way: dict[str, int] = {}  # by gateway, its reports so far
        self.outstanding = set(self.asks)  # gateways that have neither answered nor been given up
        self.refused: dict[str, Refused] = {}
        self._round = round_
        self._devices = [Members(cohort.devices) for cohort in round_.cohorts]
        self._answers: dict[str, list[CohortAnswer]] = {}
        self._refusals: dict[int, rounds.Refusal] = {}
        self._ends: set[str] = set()  # how the round has ended at gateways

    @property
    def number(self) -> int:
        return self._round.number

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
        asks: dict[str, Ask] = {}
        answers: dict[str, bytes] = {}
        for name, exchange in exchanges.items():
            (length,) = LENGTH.unpack_from(exchange)
            end = LENGTH.size + length
            asks[name] = messages.decode_ask(exchange[LENGTH.size : end])
            if len(exchange) > end:
                answers[name] = exchange[end:]

        restored = cls(round_, asks, now)
        for name, data in answers.items():
            answer = messages.decode(data)
            if not isinstance(answer, Answer):
                raise MessageError("this is not an answer of a gateway")
            restored.take(name, answer, check(answer, asks[name]))
        return restored

    # Answers

    def take(self, gateway: str, answer: Answer, by_cohort: list[CohortAnswer]) -> None:
        """Count an answer that was checked and stored."""
        if gateway not in self._answers:
            self._answers[gateway] = by_cohort
            self._ends.add(answer.ended)
            self._refusals |= without_names(self.number, answer.refusals, len(self._refusals) + 1)
            self.give_up(gateway)

    def give_up(self, gateway: str) -> None:
        """Wait no longer for the answer of a gateway."""
        self.outstanding.discard(gateway)
        self.under_way.pop(gateway, None)

    @property
    def reports(self) -> int:
        """The number of reports that count."""
        return sum(answer.reports for by_cohort in self._answers.values() for answer in by_cohort)

    @property
    def so_far(self) -> int:
        """The number of reports that count, and of those at gateways that have not answered yet."""
        return self.reports + sum(self.under_way.values())

    def ended(self, waiting: Iterable[str]) -> str | None:
        """How the round has ended if it waits for these gateways only; None where it goes on."""
        if self._round.quorum <= self.reports < self.asked:
            return rounds.QUORUM
        if self.outstanding.intersection(waiting):
            return None
        for end in (rounds.DEADLINE, rounds.QUORUM):
            if end in self._ends:
                return end
        return rounds.COMPLETE

    def result(self, ended: str) -> rounds.RoundResult:
        """The sum of all answers that count."""
        answers: list[list[tuple[rounds.StoredCohort, CohortAnswer]]]
        answers = [[] for _ in self._round.cohorts]
        for name, by_cohort in self._answers.items():
            for cohort, answer in zip(self.asks[name].cohorts, by_cohort, strict=True):
                answers[self._index(cohort)].append((cohort, answer))

        cohorts = []
        for asked, of_cohort in zip(self._round.cohorts, answers, strict=True):
            cohorts.append(_sum_of(asked, of_cohort))
        return rounds.RoundResult(
            number=self.number,
            ended=ended,
            asked=self.asked,
            reports=self.reports,
            refusals=dict(self._refusals),
            cohorts=cohorts,
        )

    def _index(self, part: rounds.StoredCohort) -> int:
        """The cohort of the round that this part of a question belongs to.

        Two cohorts may have the same question, but never the same devices.
        """
        first_device = integers(part.devices[:1])
        for index, cohort in enumerate(self._round.cohorts):
            if cohort.body == part.body and self._devices[index].find(first_device)[0] >= 0:
                return index
        raise LookupError("a gateway was asked about a cohort that the round does not have")


def _sum_of(
    asked: rounds.StoredCohort, answers: Sequence[tuple[rounds.StoredCohort, CohortAnswer]]
) -> rounds.CohortCounts:
    """The result of a cohort from the answers of gateways, each with the devices it asked."""
    total = Cohort(asked.body, len(asked.devices))
    supports = None
    devices, symbols = [], []
    for cohort, answer in answers:
        total.counts += answer.counts.reshape(-1)
        total.reports += answer.reports
        if answer.vectors is not None and total.vectors is not None:
            total.vectors += answer.vectors
        if answer.results is not None:  # under any of the devices: their order is unknown
            devices.append(integers(cohort.devices)[: len(answer.results)])
            symbols.append(answer.results)
        if answer.supports is not None:
            supports = answer.supports if supports is None else supports + answer.supports

    single_answers = None
    if symbols:
        single_answers = rounds.Answers(np.concatenate(devices), np.concatenate(symbols))
    return replace(total.result(), answers=single_answers, supports=supports)
