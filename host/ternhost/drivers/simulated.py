"""A fleet of simulated clients: the vectorised twin of the firmware over a data set, for millions of them.

The clients answer rounds as devices do, with the same gradients, cards and coordinates, but there are no frames, keys
or ledgers: only the counts of symbols come out. Random bytes come from a seeded generator, so that a run can be
repeated. They protect nobody: a simulation holds all the data anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.wire import CATEGORIES, LOCAL, MAX_BATCH, SVM, VALUES
from ternhost import vectorised
from ternhost.aggregate import estimate
from ternhost.aggregate.aggregator import COMPLETE, CohortCounts, Counts, Question, RoundResult
from ternhost.algorithms.training import Settings, Trainer
from ternhost.datasets import Dataset
from ternhost.drivers.boards import Progress
from ternhost.errors import RefusedError, UsageError
from ternhost.mechanisms import certify
from ternhost.vectorised import RandomLanes, random_bits

Fixed = npt.NDArray[np.int16]
Positions = npt.NDArray[np.integer]

_CHUNK = 1 << 21  # numbers in hand at a time: that bounds the memory whatever the fleet's size
_MOST_LANES = 1 << 17


def lanes_at_a_time(width: int) -> int:
    """How many clients of `width` numbers each to handle together."""
    return max(1, min(_MOST_LANES, _CHUNK // width))


def draw(
    card: cards.Card, bits: np.random.BitGenerator, values: Fixed, k: int | None = None
) -> tuple[npt.NDArray[np.uint8], vectorised.Array]:
    """Every client (row of `values`, n x d) draws its k coordinates and a symbol for each: two arrays n x k.

    k None means all of the coordinates, in order.
    """
    n, d = values.shape
    chosen = vectorised.choose(RandomLanes(bits, n), d, d if k is None else k)
    if k is None or k == d:
        inputs = values
    elif k == 1:
        inputs = values[np.arange(n), chosen[:, 0]][:, None]
    else:
        inputs = np.take_along_axis(values, chosen.astype(np.intp), axis=1)
    return chosen, vectorised.sample(card, RandomLanes(bits, n), inputs)


def count(d: int, symbols: int, chosen: npt.NDArray[np.uint8], drawn: vectorised.Array) -> Counts:
    """The count matrix (d x symbols) of reports: coordinates and symbols, both n x k."""
    cells = chosen.astype(np.intp)
    cells *= symbols
    cells += drawn
    return np.bincount(cells.reshape(-1), minlength=d * symbols).reshape(d, symbols)


def collect_values(
    card: cards.Card,
    chunks: Iterable[Fixed],
    k: int | None = None,
    seed: int = 1,
    report: Callable[[int], None] = lambda clients: None,
) -> CohortCounts:
    """Collect a report of the values themselves (not of gradients) from every client: chunks of n x d, Q1.14.

    `report` hears how many clients have reported, a chunk at a time. Raises RefusedError as `SimulatedFleet.collect`,
    ValueError if there is no chunk.
    """
    _check(card)
    bits = random_bits(seed)
    counts: Counts | None = None
    reports = d = 0
    for chunk in chunks:
        d = chunk.shape[1]
        step = lanes_at_a_time(k or d)
        for start in range(0, len(chunk), step):
            part = chunk[start : start + step]
            new = count(d, card.symbols, *draw(card, bits, part, k))
            counts = new if counts is None else counts + new
            reports += len(part)
            report(reports)
    if counts is None:
        raise ValueError("no values")
    return CohortCounts(card, k or d, counts, reports)


def values_of(question: Question) -> int:
    """How many values a client computes for a question, of which it reports k (frames.Round)."""
    if question.model in (VALUES, CATEGORIES):
        return int(np.count_nonzero(question.parameters))
    return len(question.parameters)


def _check(card: cards.Card) -> None:
    if not cards.certify(card):
        raise RefusedError(
            "the simulated clients refuse: the card does not keep the epsilon that it claims",
            hint="see 'tern card certify'",
        )


class SimulatedFleet:
    """Clients that hold `each` rows of `records` (d features and a label, Q1.14), one client after the other."""

    def __init__(self, records: Fixed, seed: int = 1, each: int = 1) -> None:
        self.records = records
        self.seed = seed
        self._each = each

    def collect(
        self,
        number: int,
        cohorts: Sequence[tuple[Question, Positions]],
        report: Callable[[Progress], None] = lambda progress: None,
    ) -> RoundResult:
        """Ask each cohort's clients (counted from 0) its question and return what they told, as a real round would.

        The draws depend on the seed, the round and the cohort alone. A gradient is asked of clients of one record, so
        that any `batch` is that record; local training uses all of a client's.

        Raises RefusedError for a card that does not certify, UsageError for what no frame can carry.
        """
        asked = sum(len(clients) for _, clients in cohorts)
        done = 0
        results = []
        for index, (question, clients) in enumerate(cohorts):
            card = cards.decode(question.card)
            _check(card)
            counts = np.zeros((values_of(question), card.symbols), np.int64)
            bits = random_bits(self.seed, number, index)
            for part in self._parts(clients):
                counts += self._answer(question, card, bits, part)
                done += len(part)
                report(Progress(number, done, asked))
            results.append(CohortCounts(card, question.k, counts, len(clients)))
        return RoundResult(number, COMPLETE, asked, done, {}, results)

    @property
    def dimension(self) -> int:
        return int(self.records.shape[1]) - 1

    def _parts(self, clients: Positions) -> Iterator[Positions]:
        step = lanes_at_a_time(self._each * (self.dimension + 1))
        for start in range(0, len(clients), step):
            yield clients[start : start + step]

    def _answer(
        self, question: Question, card: cards.Card, bits: np.random.BitGenerator, clients: Positions
    ) -> Counts:
        try:
            values = values_of(question)
            chosen = vectorised.choose(RandomLanes(bits, len(clients)), values, question.k)
            inputs = self._inputs(question, clients, chosen)
        except ValueError as error:
            raise UsageError(f"this round cannot be asked: {error}") from error
        lanes = RandomLanes(bits, len(clients))
        if question.model == CATEGORIES:
            columns = [vectorised.sample_categories(card, lanes, column) for column in inputs.T]
            drawn = np.stack(columns, axis=1)
        else:
            drawn = vectorised.sample(card, lanes, inputs)
        return count(values, card.symbols, chosen, drawn)

    def _held(self, question: Question, clients: Positions, chosen: npt.NDArray[np.uint8]) -> Fixed:
        columns = np.flatnonzero(np.asarray(question.parameters))
        asked = self.records.reshape(-1, self._each, self.dimension + 1)[clients, 0][:, columns]
        return np.take_along_axis(asked, chosen.astype(np.intp), axis=1)

    def _inputs(self, question: Question, clients: Positions, chosen: npt.NDArray[np.uint8]) -> Fixed:
        parameters = np.asarray(question.parameters)
        if question.model <= SVM and self._each == 1:
            return vectorised.gradients(
                question.model, parameters, question.exponent, self.records[clients], chosen
            )
        if question.model in (VALUES, CATEGORIES):
            return self._held(question, clients, chosen)
        if not LOCAL < question.model <= LOCAL + SVM:
            raise ValueError("simulated clients train locally, or have one record each")
        epochs, rate, tau = question.local
        rows = self.records.reshape(-1, self._each, self.dimension + 1)[clients]
        batch = min(question.batch or self._each, self._each, MAX_BATCH)
        moved = vectorised.train_locally(
            question.model - LOCAL, parameters, question.exponent, rows, epochs, batch, rate
        )
        moves = vectorised.shares(moved, np.full(len(rows), tau))
        return np.take_along_axis(moves, chosen.astype(np.intp), axis=1)


def train(
    settings: Settings,
    dataset: Dataset,
    dealt: Sequence[Positions],
    card: cards.Card | Sequence[cards.Card],
    k: int,
    seed: int = 1,
    *,
    classes: Positions | None = None,
    after_round: Callable[[Trainer], None] | None = None,
) -> Trainer:
    """LDP-FedSGD over simulated clients, one a record: what `training.train_exactly` does, with private reports.

    With personalised budgets `card` is one card a class of clients, and `classes` the class of every record. The
    classes are combined by inverse variance (`estimate.combine`), which is unbiased since a client's class and its part
    in a round depend on no data. Raises RefusedError and UsageError as `SimulatedFleet.collect`.
    """
    of_class = [card] if isinstance(card, cards.Card) else list(card)
    clients = SimulatedFleet(dataset.records(np.arange(len(dataset.labels))), seed)
    trainer = Trainer(settings)
    while not trainer.stopped:
        group = dealt[trainer.round]
        parameters = trainer.question()
        parts = [group if classes is None else group[classes[group] == i] for i in range(len(of_class))]
        cohorts = [
            (Question(settings.model, parameters.mantissas, parameters.exponent, own.data, k), part)
            for own, part in zip(of_class, parts, strict=True)
            if len(part)
        ]
        result = clients.collect(trainer.round + 1, cohorts)
        means = estimate.combine([(cohort.card, cohort.counts) for cohort in result.cohorts])
        trainer.update(means.mean, means.reports)
        if after_round:
            after_round(trainer)
    return trainer


def combined_variance(of_class: Sequence[cards.Card], shares: Sequence[float]) -> float:
    """The variance, at input 0, of one report of a fleet with these shares of clients a class: for `training.plan`."""
    variances = [float(certify.moments(card).variance(Fraction(0))) for card in of_class]
    return 1 / sum(share / variance for share, variance in zip(shares, variances, strict=True))
