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
from ternhost.learn.collecting import estimate
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import is_label
from ternhost.store.tallies import pack_counts

Rows = npt.NDArray[np.int64]
_ROUNDING = 1e-9  # the relative error that the computed length of a vector may have


def is_vector(question: Question) -> bool:
    """Whether a device answers with several values that belong together.

    Then the host may need the result of each device, since counts of the single values do not say
    which of them came from the same device.
    """
    return question.model == wire.SOFTMAX and question.k > 1


def is_hashed(question: Question) -> bool:
    """Whether a device answers with a hash of its category, made from its id and the round.

    Only who knows the id of the device can tell which categories the answer may stand for.
    """
    return question.model == wire.CATEGORIES and question.range > 0


# At the gateway


def answer_to(ask: Ask, result: rounds.RoundResult) -> Answer:
    """Return the message that a gateway sends to the host after a round.

    ask: the question of the host. result: the counted reports of the gateway's devices.
    """
    reports = []
    counts = []
    beside_counts = []
    for index, cohort in enumerate(result.cohorts):
        reports.append(cohort.reports)
        counts.append(pack_counts(cohort.counts))
        beside_counts.append(_beside_counts(ask, index, cohort))
    if not any(beside_counts):
        beside_counts = []
    return Answer(
        number=ask.number,
        digest=ask.digest,
        ended=result.ended,
        reports=reports,
        refusals=_refusal_counts(result.refusals),
        counts=counts,
        results=beside_counts,
    )


def _beside_counts(ask: Ask, index: int, cohort: rounds.CohortCounts) -> bytes:
    """Return what an answer holds about a cohort beside its counts; b"" for nothing.

    That is how many hashed answers support each category, or the sum of the vectors of a
    projection, or else the results of single devices, if the host has asked for them. It is packed
    like counts. index: the position of the cohort in the question.
    """
    answers = cohort.answers
    if answers is not None and is_hashed(cohort.question):
        supports = estimate.supports(
            devices=answers.devices,
            symbols=answers.symbols[:, 0],
            number=ask.number,
            buckets=cohort.card.symbols,
            categories=ask.categories[index],
        )
        return pack_counts(supports)
    if cohort.vectors is not None:
        return pack_counts(cohort.vectors)
    if answers is not None and is_vector(cohort.question):
        # Without device ids, and sorted, so that the order tells nothing about who reported. The
        # last key of lexsort counts most, so the columns are reversed.
        columns = answers.symbols.T
        order = np.lexsort(columns[::-1])
        return pack_counts(answers.symbols[order])
    return b""


def _refusal_counts(refusals: Mapping[int, rounds.Refusal]) -> list[tuple[int, int, int]]:
    """Count the devices that refused for each reason; return rows (code, detail, devices).

    A reason is a code with a detail. The most frequent reasons come first, and there are at most
    MOST_REASONS. Devices with a rarer reason are counted under the most frequent one with the same
    code, or under the most frequent of all if no other has that code.

    refusals: by device, why it refused.
    """
    devices_by_reason = Counter((refusal.code, refusal.detail) for refusal in refusals.values())
    by_frequency = devices_by_reason.most_common()
    kept_reasons = dict(by_frequency[:MOST_REASONS])  # most frequent first
    rare_reasons = by_frequency[MOST_REASONS:]
    for (rare_code, _detail), devices in rare_reasons:
        substitute, _ = by_frequency[0]
        for reason in kept_reasons:
            code, _ = reason
            if code == rare_code:
                substitute = reason
                break
        kept_reasons[substitute] += devices

    return [(code, detail, devices) for (code, detail), devices in kept_reasons.items()]


# At the host


@dataclass(frozen=True)
class CohortAnswer:
    """What a gateway's answer says about a cohort, after it was checked.

    reports: how many devices have reported. counts: how often each symbol was reported (coordinates
    x symbols). Of the others, at most one is there:
    results: the k symbols of each report (reports x k).
    supports: how many hashed answers support each category.
    vectors: the sum of the vectors of a projection (d values).
    """

    reports: int
    counts: rounds.Counts
    results: Rows | None = None
    supports: rounds.Counts | None = None
    vectors: rounds.Counts | None = None


def check_answer(answer: Answer, ask: Ask) -> list[CohortAnswer]:
    """Check a gateway's answer to a question; return what it says about each cohort.

    Raises MessageError if no gateway that is honest could send it.
    """
    _require(answer.number == ask.number, "is of another round")
    _require(answer.digest == ask.digest, "answers another question")
    _require(len(answer.reports) == len(ask.cohorts), "has other cohorts")
    refusals = sum(devices for _code, _detail, devices in answer.refusals)
    devices_heard = sum(answer.reports) + refusals
    _require(devices_heard <= ask.asked, "reports more devices than were asked")
    return [_check_cohort(answer, ask, index) for index in range(len(ask.cohorts))]


def _check_cohort(answer: Answer, ask: Ask, index: int) -> CohortAnswer:
    """Check what an answer says about the cohort at `index`, and return that.

    Beside its counts, an answer has vectors for a projection. If the host has asked for single
    results, it has the support of categories for hashed answers, or the symbols of each device for
    answers of several values. Raises MessageError.
    """
    cohort = ask.cohorts[index]
    reports = answer.reports[index]
    _require(reports <= len(cohort.devices), "has more reports than devices were asked")
    expected = Cohort(cohort.body)  # knows how many counts the question has
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
    _require(not has_results, "has single results that the question did not want")
    if ask.individual and is_label(question):
        # Each device reports one symbol. So the counts say what the single results are, but for
        # their order, which does not matter.
        symbols = np.repeat(np.arange(expected.card.symbols), counts[0])
        return CohortAnswer(reports, counts, results=symbols.reshape(-1, 1))
    return CohortAnswer(reports, counts)


def _checked_counts(packed: bytes, reports: int, expected: Cohort) -> rounds.Counts:
    """Unpack and check how often each symbol was reported for each coordinate.

    A report names k coordinates, none of them twice, and a symbol for each. The result has a row
    for each coordinate and a column for each symbol. reports: how many reports were counted.
    expected: a cohort with the same question. Raises MessageError if no such reports could have
    these counts.
    """
    counts = _integers(packed, expected.size).reshape(expected.rows, expected.card.symbols)
    _require(counts >= 0, "has counts below 0")
    # From here on no sum overflows, since no summand is above the number of reports.
    _require(counts <= reports, "has counts beyond its reports")
    total = expected.k * reports
    _require(int(counts.sum()) == total, "has counts that are not those of its reports")
    reports_by_coordinate = counts.sum(axis=1)
    within_reports = reports_by_coordinate <= reports
    _require(within_reports, "counts a coordinate more often than there are reports")
    return counts


def _checked_supports(answer: Answer, index: int, categories: int) -> rounds.Counts:
    """Unpack and check how many hashed answers support each category.

    index: the position of the cohort in the question. categories: how many there are. Raises
    MessageError.
    """
    _require(bool(answer.results), "lacks the support of hashed answers")
    supports = _integers(answer.results[index], categories)
    is_possible = (supports >= 0) & (supports <= answer.reports[index])
    _require(is_possible, "has more support for a category than reports")
    return supports


def _checked_vectors(answer: Answer, index: int, expected: Cohort) -> rounds.Counts:
    """Unpack and check the sum of the vectors of a projection (d values).

    Each symbol of a projection stands for a vector. All of them have the length N^1.5, where the
    card has 2 N symbols (cards.md, Decoding). The sum is longest if they have one direction.

    index: the position of the cohort in the question. expected: a cohort with the same question.
    Raises MessageError.
    """
    _require(bool(answer.results), "lacks the vectors of a projection")
    vector_sum = _integers(answer.results[index], expected.d)
    squares = np.square(vector_sum.astype(np.float64))
    length = float(np.sqrt(squares.sum()))
    length_of_one = (expected.card.symbols // 2) ** 1.5
    longest = length_of_one * answer.reports[index]
    is_possible = length <= longest * (1 + _ROUNDING)
    _require(is_possible, "has vectors that are longer than its reports together")
    return vector_sum


def _checked_results(answer: Answer, index: int, expected: Cohort, counts: rounds.Counts) -> Rows:
    """Unpack the symbols of each report (reports x k), and check that they add up to the counts.

    index: the position of the cohort in the question. expected: a cohort with the same question.
    counts: how often each symbol was reported for each coordinate (k x symbols). Raises
    MessageError.
    """
    _require(bool(answer.results), "lacks the single results")
    reports = answer.reports[index]
    symbols = expected.card.symbols
    rows = _integers(answer.results[index], reports * expected.k).reshape(reports, expected.k)
    # Each report is about all coordinates: else nobody knows to which one a symbol belongs.
    _require(expected.d == expected.k, "has single results of unknown coordinates")
    _require((rows >= 0) & (rows < symbols), "has symbols that the card has not")

    # Number the entries of the matrix of counts row by row, and count how often each occurs.
    first_entries = np.arange(expected.k) * symbols  # of each row of the matrix
    entries = rows + first_entries
    recounted = np.bincount(entries.reshape(-1), minlength=expected.size).reshape(counts.shape)
    _require(recounted == counts, "has single results that are not those of its counts")
    return rows


def _integers(packed: bytes, count: int) -> Rows:
    """Return exactly `count` numbers from deflated bytes (little-endian int64).

    Raises MessageError if there are more or fewer.
    """
    bytes_expected = 8 * count
    try:
        data = inflate(packed, bytes_expected)
    except ValueError as error:
        raise MessageError(f"it has another number of counts: {error}") from error
    _require(len(data) == bytes_expected, "has another number of counts")
    return np.frombuffer(data, "<i8").astype(np.int64)


def _require(condition: bool | npt.NDArray[np.bool_], what: str) -> None:
    """Raise MessageError unless a condition holds, for each entry if it is an array.

    what: the error, a phrase of which the answer is the subject.
    """
    if not np.all(condition):
        raise MessageError(f"it {what}")


def without_names(
    number: int, reasons: Sequence[Sequence[int]], first: int
) -> dict[int, rounds.Refusal]:
    """Return the refusals of devices that a gateway has counted but not named, by made-up ids.

    The ids go from `-first` down; no device has such an id. number: that of the round. reasons:
    rows (code, detail, devices): why so many devices refused.
    """
    refusals: dict[int, rounds.Refusal] = {}
    for code, detail, devices in reasons:
        for _ in range(devices):
            made_up_id = -first - len(refusals)
            refusals[made_up_id] = rounds.Refusal(wire.BOARD, number, code, detail)
    return refusals


def questions_by_gateway(
    round_: rounds.StoredRound,
    gateways: Mapping[str, Integers],
    terms: Terms,
    categories: Sequence[int] | None = None,
) -> dict[str, Ask]:
    """Return the question to each gateway that has devices in the round, by its name.

    gateways: by name, the ids of their devices, ascending. terms: when the round ends. categories:
    if single results are wanted, for each cohort the number of categories that devices answer with
    a hash of, or 0 if they do not hash; None if no single results are wanted.
    """
    cohort_devices = [np.sort(integers(cohort.devices)) for cohort in round_.cohorts]
    asks = {}
    for name, gateway_devices in gateways.items():
        members = Members(gateway_devices)
        cohorts = []
        numbers_of_categories = []
        for index, device_ids in enumerate(cohort_devices):
            ids_at_gateway = device_ids[members.find(device_ids) >= 0]  # others are not found: -1
            if not len(ids_at_gateway):
                continue
            cohorts.append(rounds.StoredCohort(round_.cohorts[index].body, ids_at_gateway))
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
    """A round at the host: its question to each gateway, and the answers that have come so far.

    The answer of a gateway counts only once, however often it comes.
    """

    def __init__(self, round_: rounds.StoredRound, asks: Mapping[str, Ask], now: float) -> None:
        """Begin with no answers.

        asks: the question to each gateway, by its name. now: the time of the monotonic clock.
        """
        self.begun = now
        self.asks = dict(asks)
        self.asked = sum(len(cohort.devices) for cohort in round_.cohorts)  # devices
        # Gateways that have neither answered nor been given up, and what some of them have so far.
        self.outstanding = set(self.asks)
        self.under_way: dict[str, int] = {}  # by gateway, its number of reports
        self.refused: dict[str, Refused] = {}  # by gateway, why it does not ask its devices

        self._round = round_
        self._members = [Members(cohort.devices) for cohort in round_.cohorts]
        self._answers: dict[str, list[CohortAnswer]] = {}  # by gateway, for each cohort it asked
        self._refusals: dict[int, rounds.Refusal] = {}  # of devices, by made-up ids
        self._ends: set[str] = set()  # how the round has ended at gateways, such as COMPLETE

    @property
    def number(self) -> int:
        return self._round.number

    # In a store

    def exchange(self, gateway: str, answer: bytes = b"") -> bytes:
        """Return a gateway's question and answer in this round, in the format of the store.

        That is the length of the question, the question, and the answer; b"" if there is none yet.
        """
        ask = self.asks[gateway].encode()
        return LENGTH.pack(len(ask)) + ask + answer

    @classmethod
    def stored(cls, round_: rounds.StoredRound, exchanges: Mapping[str, bytes], now: float) -> Self:
        """Return a round with the questions and answers that the store has of it.

        exchanges: by gateway, what `exchange` has returned. now: the time of the monotonic clock.
        Raises MessageError for data of another version.
        """
        asks: dict[str, Ask] = {}
        answers: dict[str, bytes] = {}
        for name, exchange in exchanges.items():
            (length,) = LENGTH.unpack_from(exchange)
            end_of_ask = LENGTH.size + length
            asks[name] = messages.decode_ask(exchange[LENGTH.size : end_of_ask])
            if len(exchange) > end_of_ask:
                answers[name] = exchange[end_of_ask:]

        restored = cls(round_, asks, now)
        for name, data in answers.items():
            answer = messages.decode(data)
            if not isinstance(answer, Answer):
                raise MessageError("this is not an answer of a gateway")
            restored.take(name, answer, check_answer(answer, asks[name]))
        return restored

    # Answers

    def take(self, gateway: str, answer: Answer, by_cohort: list[CohortAnswer]) -> None:
        """Count an answer that was checked and stored, unless the gateway's answer counts already.

        by_cohort: what `check_answer` has returned for it.
        """
        if gateway in self._answers:
            return
        self._answers[gateway] = by_cohort
        self._ends.add(answer.ended)
        first_made_up_id = len(self._refusals) + 1
        self._refusals |= without_names(self.number, answer.refusals, first_made_up_id)
        self.give_up(gateway)

    def give_up(self, gateway: str) -> None:
        """Wait no longer for the answer of a gateway, whose reports so far do not count."""
        self.outstanding.discard(gateway)
        self.under_way.pop(gateway, None)

    @property
    def reports(self) -> int:
        """The number of reports in the answers that count."""
        total = 0
        for by_cohort in self._answers.values():
            total += sum(answer.reports for answer in by_cohort)
        return total

    @property
    def so_far(self) -> int:
        """The number of reports in answers, and so far at gateways that have not answered yet."""
        return self.reports + sum(self.under_way.values())

    def ended(self, waiting: Iterable[str]) -> str | None:
        """Return how the round has ended (COMPLETE, QUORUM or DEADLINE), or None if it goes on.

        waiting: the gateways whose answers the host still waits for, if they are outstanding.
        """
        if self._round.quorum <= self.reports < self.asked:
            return rounds.QUORUM
        if self.outstanding.intersection(waiting):
            return None
        # If the round ended early at any gateway, it has ended in that way.
        for end in (rounds.DEADLINE, rounds.QUORUM):
            if end in self._ends:
                return end
        return rounds.COMPLETE

    def result(self, ended: str) -> rounds.RoundResult:
        """Return the result of the round: the sum of all answers that count.

        ended: how the round has ended, such as COMPLETE.
        """
        # For each cohort of the round, the parts of it at gateways, with their answers.
        parts_of_cohorts: list[list[tuple[rounds.StoredCohort, CohortAnswer]]] = []
        for _ in self._round.cohorts:
            parts_of_cohorts.append([])
        for name, by_cohort in self._answers.items():
            for part, answer in zip(self.asks[name].cohorts, by_cohort, strict=True):
                parts_of_cohorts[self._index_of(part)].append((part, answer))

        cohorts = []
        for whole_cohort, parts in zip(self._round.cohorts, parts_of_cohorts, strict=True):
            cohorts.append(_sum_of(whole_cohort, parts))
        return rounds.RoundResult(
            number=self.number,
            ended=ended,
            asked=self.asked,
            reports=self.reports,
            refusals=dict(self._refusals),
            cohorts=cohorts,
        )

    def _index_of(self, part: rounds.StoredCohort) -> int:
        """Return the index of the round's cohort to which a cohort of a gateway's question belongs.

        Two cohorts may have the same question, but never the same devices, so the first device
        tells them apart.
        """
        first_device = integers(part.devices[:1])
        for index, cohort in enumerate(self._round.cohorts):
            has_device = self._members[index].find(first_device)[0] >= 0
            if cohort.body == part.body and has_device:
                return index
        raise LookupError("a gateway was asked about a cohort that the round does not have")


def _sum_of(
    whole_cohort: rounds.StoredCohort, parts: Sequence[tuple[rounds.StoredCohort, CohortAnswer]]
) -> rounds.CohortCounts:
    """Return the result of a cohort: the sum of the answers of all gateways about it.

    A cohort is the devices that are asked the same question. Counts, sums of vectors and numbers of
    supporting reports are added up; results of single devices are put one behind the other.

    parts: for each gateway, its part of the cohort and its answer about that.
    """
    total = Cohort(whole_cohort.body, len(whole_cohort.devices))
    supports = None
    devices = []
    symbols = []
    for part, answer in parts:
        total.counts += answer.counts.reshape(-1)  # as one row, the form in which Cohort has them
        total.reports += answer.reports
        if answer.vectors is not None and total.vectors is not None:
            total.vectors += answer.vectors
        if answer.results is not None:
            # A gateway does not say whose results these are. Any of its devices may stand for them.
            devices.append(integers(part.devices)[: len(answer.results)])
            symbols.append(answer.results)
        if answer.supports is not None:
            if supports is None:
                supports = answer.supports
            else:
                supports = supports + answer.supports

    single_answers = None
    if symbols:
        single_answers = rounds.Answers(np.concatenate(devices), np.concatenate(symbols))
    return replace(total.result(), answers=single_answers, supports=supports)
