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
_ROUNDING = 1e-9  # relative, of the length of a vector


def is_vector(question: Question) -> bool:
    """Whether the host may need each device's result: counts say nothing of whole vectors."""
    return question.model == wire.SOFTMAX and question.k > 1


def is_hashed(question: Question) -> bool:
    """Whether a device answers by the hash of its category, made from its id and the round."""
    return question.model == wire.CATEGORIES and question.range > 0


# At the gateway


def answer_to(ask: Ask, result: rounds.RoundResult) -> Answer:
    """Return the answer of a gateway to the host, from the result of its round."""
    reports, counts, results = [], [], []
    for index, cohort in enumerate(result.cohorts):
        reports.append(cohort.reports)
        counts.append(pack_counts(cohort.counts))
        results.append(_beside_counts(ask, index, cohort))
    if not any(results):
        results = []
    return Answer(
        number=ask.number,
        digest=ask.digest,
        ended=result.ended,
        reports=reports,
        refusals=_refusal_counts(result.refusals),
        counts=counts,
        results=results,
    )


def _beside_counts(ask: Ask, index: int, cohort: rounds.CohortCounts) -> bytes:
    """Return what the answer holds about a cohort beside its counts, packed alike; b"" for nothing.

    That is the support of each category for hashed answers, the sum of vectors for a projection,
    and otherwise the single results, if the host has asked for them.
    """
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


def _refusal_counts(refusals: Mapping[int, rounds.Refusal]) -> list[tuple[int, int, int]]:
    """Count the devices for each reason to refuse: (code, detail, devices), most frequent first.

    There are at most MOST_REASONS. Rarer ones are counted under the most frequent reason with the
    same code, or under the most frequent of all if there is none.
    """
    frequencies = Counter((refusal.code, refusal.detail) for refusal in refusals.values())
    by_frequency = frequencies.most_common()
    devices_by_reason = dict(by_frequency[:MOST_REASONS])
    for (rare_code, _detail), devices in by_frequency[MOST_REASONS:]:
        substitute = by_frequency[0][0]
        for reason in devices_by_reason:
            code, _ = reason
            if code == rare_code:
                substitute = reason
                break
        devices_by_reason[substitute] += devices

    return [(code, detail, devices) for (code, detail), devices in devices_by_reason.items()]


# At the host


@dataclass(frozen=True)
class CohortAnswer:
    """A gateway's checked answer for a cohort."""

    reports: int
    counts: rounds.Counts
    results: Rows | None = None  # reports x k
    supports: rounds.Counts | None = None  # by category, for hashed answers
    vectors: rounds.Counts | None = None  # of a projection


def check(answer: Answer, ask: Ask) -> list[CohortAnswer]:
    """Check a gateway's answer to a question; return it by cohort. Raises MessageError."""
    _require(answer.number == ask.number, "is of another round")
    _require(answer.digest == ask.digest, "answers another question")
    _require(len(answer.reports) == len(ask.cohorts), "has other cohorts")
    refusals = sum(count for _, _, count in answer.refusals)
    _require(sum(answer.reports) + refusals <= ask.asked, "tells of more devices than were asked")
    return [_check_cohort(answer, ask, index) for index in range(len(ask.cohorts))]


def _check_cohort(answer: Answer, ask: Ask, index: int) -> CohortAnswer:
    """Check what an answer says about the cohort at `index`, and return that.

    Beside its counts, an answer has vectors for a projection; and if the host has asked for single
    results, the support of categories for hashed answers, or the symbols of each device.
    """
    cohort = ask.cohorts[index]
    reports = answer.reports[index]
    _require(reports <= len(cohort.devices), "has more reports than devices were asked")
    expected = Cohort(cohort.body)  # of the question, with the sizes of its counts
    question = expected.question
    counts = _checked_counts(answer.counts[index], reports, expected)

    if expected.vectors is not None:
        vectors = _checked_vectors(answer, index, expected)
        return CohortAnswer(reports, counts, vectors=vectors)
    if ask.individual and is_hashed(question):
        supports = _checked_supports(answer, index, ask.categories[index])
        return CohortAnswer(reports, counts, supports=supports)
    if ask.individual and is_vector(question):
        results = _checked_results(answer, index, expected, counts)
        return CohortAnswer(reports, counts, results=results)

    # All other answers have counts alone.
    has_results = bool(answer.results) and bool(answer.results[index])
    _require(not has_results, "has single results that nobody asked for")
    if ask.individual and is_label(question):
        # The counts of one symbol from each device are its single results, in any order.
        symbols = np.repeat(np.arange(expected.card.symbols), counts[0])
        return CohortAnswer(reports, counts, results=symbols.reshape(-1, 1))
    return CohortAnswer(reports, counts)


def _checked_counts(packed: bytes, reports: int, expected: Cohort) -> rounds.Counts:
    """Return the counts (rows x symbols) of so many reports, checked. Raises MessageError.

    A report names k coordinates, none of them twice. No sum overflows, since no summand is above
    `reports`.
    """
    counts = _integers(packed, expected.size).reshape(expected.rows, expected.card.symbols)
    _require(counts >= 0, "has counts below 0")
    _require(counts <= reports, "has counts beyond its reports")
    total = expected.k * reports
    _require(int(counts.sum()) == total, "has counts that are not those of its reports")
    reports_of_coordinate = counts.sum(axis=1)
    within_reports = reports_of_coordinate <= reports
    _require(within_reports, "counts a coordinate more often than there are reports")
    return counts


def _checked_supports(answer: Answer, index: int, categories: int) -> rounds.Counts:
    """Return how many of the hashed answers support each category. Raises MessageError."""
    _require(bool(answer.results), "lacks the support of hashed answers")
    supports = _integers(answer.results[index], categories)
    is_possible = (supports >= 0) & (supports <= answer.reports[index])
    _require(is_possible, "has more support for a category than reports")
    return supports


def _checked_vectors(answer: Answer, index: int, expected: Cohort) -> rounds.Counts:
    """Return the sum of the vectors that a projection's symbols stand for. Raises MessageError."""
    _require(bool(answer.results), "lacks the vectors of a projection")
    vector_sum = _integers(answer.results[index], expected.d)
    length = float(np.sqrt(np.square(vector_sum.astype(np.float64)).sum()))
    length_of_report = (expected.card.symbols // 2) ** 1.5
    longest = length_of_report * answer.reports[index]  # if all of them have one direction
    is_possible = length <= longest * (1 + _ROUNDING)
    _require(is_possible, "has vectors that are longer than its reports together")
    return vector_sum


def _checked_results(answer: Answer, index: int, expected: Cohort, counts: rounds.Counts) -> Rows:
    """Return the symbols of each report (reports x k), which must add up to the counts.

    Raises MessageError.
    """
    _require(bool(answer.results), "lacks the single results")
    reports, symbols = answer.reports[index], expected.card.symbols
    rows = _integers(answer.results[index], reports * expected.k).reshape(reports, expected.k)
    _require(expected.d == expected.k, "has single results of unknown coordinates")
    _require((rows >= 0) & (rows < symbols), "has symbols that the card has not")
    cells = rows + np.arange(expected.k) * symbols  # of the counts, numbered row by row
    recounted = np.bincount(cells.reshape(-1), minlength=expected.size).reshape(counts.shape)
    _require(recounted == counts, "has single results that are not those of its counts")
    return rows


def _integers(packed: bytes, count: int) -> Rows:
    """Unpack exactly `count` numbers (int64, little-endian, deflated). Raises MessageError."""
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
    """Return refusals of unknown devices, by keys that no device has: from `-first` down.

    number: of the round. reasons: (code, detail, devices) each.
    """
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
    """Return the question to each gateway that has devices in the round, by name.

    gateways: by name, their devices, ascending. categories: if single results are wanted, the
    number of categories for each cohort of hashed answers, and 0 for others; else None.
    """
    cohort_devices = [np.sort(integers(cohort.devices)) for cohort in round_.cohorts]
    asks = {}
    for name, devices in gateways.items():
        members = Members(devices)
        cohorts, numbers_of_categories = [], []
        for index, ids in enumerate(cohort_devices):
            gateway_ids = ids[members.find(ids) >= 0]
            if not len(gateway_ids):
                continue
            cohorts.append(rounds.StoredCohort(round_.cohorts[index].body, gateway_ids))
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
        """Begin with no answers. asks: by gateway. now: of the monotonic clock."""
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
        """Return a gateway's question in this round and its answer, in the format of the store."""
        ask = self.asks[gateway].encode()
        return LENGTH.pack(len(ask)) + ask + answer

    @classmethod
    def stored(cls, round_: rounds.StoredRound, exchanges: Mapping[str, bytes], now: float) -> Self:
        """Return the round as its exchanges in the store (by gateway) describe it.

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
        """Return how the round has ended, or None if it goes on.

        waiting: the gateways whose answers it still waits for.
        """
        if self._round.quorum <= self.reports < self.asked:
            return rounds.QUORUM
        if self.outstanding.intersection(waiting):
            return None
        # It ends like its part at any gateway that has not heard every device.
        for end in (rounds.DEADLINE, rounds.QUORUM):
            if end in self._ends:
                return end
        return rounds.COMPLETE

    def result(self, ended: str) -> rounds.RoundResult:
        """Return the sum of all answers that count. ended: how the round has ended."""
        answers: list[list[tuple[rounds.StoredCohort, CohortAnswer]]]
        answers = [[] for _ in self._round.cohorts]
        for name, by_cohort in self._answers.items():
            for cohort, answer in zip(self.asks[name].cohorts, by_cohort, strict=True):
                answers[self._index(cohort)].append((cohort, answer))

        cohorts = []
        for whole_cohort, cohort_answers in zip(self._round.cohorts, answers, strict=True):
            cohorts.append(_sum_of(whole_cohort, cohort_answers))
        return rounds.RoundResult(
            number=self.number,
            ended=ended,
            asked=self.asked,
            reports=self.reports,
            refusals=dict(self._refusals),
            cohorts=cohorts,
        )

    def _index(self, part: rounds.StoredCohort) -> int:
        """Return the index of the round's cohort that a cohort of a gateway's question is part of.

        Two cohorts may have the same question, but never the same devices.
        """
        first_device = integers(part.devices[:1])
        for index, cohort in enumerate(self._round.cohorts):
            if cohort.body == part.body and self._devices[index].find(first_device)[0] >= 0:
                return index
        raise LookupError("a gateway was asked about a cohort that the round does not have")


def _sum_of(
    whole_cohort: rounds.StoredCohort, answers: Sequence[tuple[rounds.StoredCohort, CohortAnswer]]
) -> rounds.CohortCounts:
    """Add up the answers of gateways, each with its part of a cohort, to the result of the cohort."""
    total = Cohort(whole_cohort.body, len(whole_cohort.devices))
    supports = None
    devices, symbols = [], []
    for cohort, answer in answers:
        total.counts += answer.counts.reshape(-1)
        total.reports += answer.reports
        if answer.vectors is not None and total.vectors is not None:
            total.vectors += answer.vectors
        if (
            answer.results is not None
        ):  # whose device is unknown: any of the gateway's stands for it
            devices.append(integers(cohort.devices)[: len(answer.results)])
            symbols.append(answer.results)
        if answer.supports is not None:
            supports = answer.supports if supports is None else supports + answer.supports

    single_answers = None
    if symbols:
        single_answers = rounds.Answers(np.concatenate(devices), np.concatenate(symbols))
    return replace(total.result(), answers=single_answers, supports=supports)
