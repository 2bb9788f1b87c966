"""A fleet of up to millions of simulated clients.

They are the vectorised twin of the firmware over a data set, without frames, keys or ledgers.
Random bytes come from a seeded generator, so that a run can be repeated. They protect nobody: a
simulation holds all the data anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import wire
from tern.fixed import ONE
from tern.local import trained
from ternhost import vectorised
from ternhost.count.members import integers
from ternhost.count.questions import Question, values_of
from ternhost.count.rounds import COMPLETE, Answers, CohortCounts, Counts, RoundResult
from ternhost.datasets import Holdings
from ternhost.errors import RefusedError, UsageError
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import Devices, Driver, OnProgress, RoundKeeper, RoundProgress, is_label
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from ternhost.vectorised import RandomLanes, random_bits

Fixed = npt.NDArray[np.int16]
Positions = npt.NDArray[np.integer]

_CHUNK = 1 << 21  # numbers in memory at a time, whatever the fleet's size
_MOST_LANES = 1 << 17


def lanes_at_a_time(width: int) -> int:
    """Return how many clients to handle together, each of which needs `width` numbers."""
    return max(1, min(_MOST_LANES, _CHUNK // width))


def count(d: int, symbols: int, chosen: npt.NDArray[np.uint8], drawn: vectorised.Array) -> Counts:
    """Count how often each symbol was reported for each coordinate: d x symbols.

    chosen, drawn: the coordinates and the symbols of n reports of k values, both n x k.
    """
    # A cell of the result is coordinate * symbols + symbol.
    cells = chosen.astype(np.intp)
    cells *= symbols
    cells += drawn
    return np.bincount(cells.reshape(-1), minlength=d * symbols).reshape(d, symbols)


def _check(question: Question, card: cards.Card) -> None:
    """Raise RefusedError for a card that does not fit the model or does not keep its epsilon.

    Devices would refuse it, too.
    """
    if not _fits(question, card):
        raise RefusedError(
            "the simulated clients refuse: the card does not fit this model",
            hint="a label needs a window of 1 over the classes, their probabilities a laplace card, "
            "a sum batch 0, a projection a gradient of at most its size",
        )
    if not cards.certify(card):
        raise RefusedError(
            "the simulated clients refuse: the card does not keep the epsilon that it claims",
            hint="see 'tern card certify'",
        )


def _fits(question: Question, card: cards.Card) -> bool:
    """Return whether a card can be used for this kind of question (wire.md)."""
    if is_label(question):
        is_randomised_response = card.shape == cards.WINDOW and card.window == 1
        return is_randomised_response and card.symbols == question.classes
    if question.model == wire.SOFTMAX and card.shape != cards.LAPLACE:
        return False
    if card.shape == cards.SUM and question.batch:
        return False
    if card.shape == cards.PROJECTION:
        is_gradient = question.model in wire.SCALED and question.k == 1
        dimension = card.symbols // 2  # a symbol is a direction along an axis
        return is_gradient and values_of(question) <= dimension
    return True


def _ascending(devices: Devices) -> npt.NDArray[np.int64]:
    """Return device ids in ascending order; most are in order already."""
    ids = integers(devices)
    if np.all(ids[1:] > ids[:-1]):
        return ids
    return np.sort(ids)


def _weights(question: Question) -> npt.NDArray[np.int64]:
    """Return the parameters of a question: the weights of its model, or flags of a collection.

    Those of a model with classes are classes x features.
    """
    parameters = np.asarray(question.parameters, np.int64)
    if question.model in wire.OF_CLASSES:
        return parameters.reshape(question.classes, -1)
    return parameters


class _CohortRound(NamedTuple):
    """A cohort in a round: what it is asked, and the random bits of all its clients."""

    number: int  # of the round
    question: Question
    card: cards.Card
    bits: np.random.BitGenerator

    def lanes(self, clients: Positions) -> RandomLanes:
        """The next random bits of these clients."""
        return RandomLanes(self.bits, len(clients))


class SimulatedRounds(RoundKeeper):
    """Rounds of a run in a store, which may have rounds of other runs, too."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def next_number(self, planned: int) -> int:
        return max(planned, last_number(self._store) + 1)


class SimulatedDriver(Driver):
    """Simulated clients with consecutive ids.

    The client with id i + 1 has the records of client i (from 0 on) of `holdings`.
    """

    def __init__(
        self,
        holdings: Holdings,
        clients: int | None = None,
        seed: int = 1,
        *,
        individual: bool = False,
        first: int = 1,
        keeper: RoundKeeper | None = None,
    ) -> None:
        """clients: how many there are; None: as many as have records of their own.

        seed: of their draws. first: the id of the first client.
        """
        # A simulated round ends when all have answered.
        super().__init__(Terms(), keeper, individual=individual)
        self.holdings = holdings
        self._clients = holdings.clients if clients is None else clients
        self._seed = seed
        self._first = first

    @property
    def devices(self) -> range:
        return range(self._first, self._first + self._clients)

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """Draw and count the reports of a round, and return its result; None after `stop`.

        The draws depend only on the seed, the round and the cohort. Gradients need clients with
        one record; local training and sums use all records. Raises RefusedError for a card that
        does not certify, UsageError for a question that no frame can carry.
        """
        if self.stopped:
            return None
        cohorts = self.keeper.cohorts.pop(number)
        asked = sum(len(devices) for _question, devices in cohorts)
        reports = 0

        def add_reports(more_reports: int) -> None:
            nonlocal reports
            reports += more_reports
            on_progress(RoundProgress(number, reports, asked))

        results = []
        for index, (question, devices) in enumerate(cohorts):
            card = cards.decode(question.card)
            _check(question, card)
            bits = random_bits(self._seed, number, index)
            cohort = _CohortRound(number, question, card, bits)
            results.append(self._collect_cohort(cohort, devices, add_reports))
        unstored = [_ascending(devices) for _question, devices in cohorts]
        return RoundResult(
            number,
            ended=COMPLETE,
            asked=asked,
            reports=reports,
            refusals={},
            cohorts=results,
            unstored=unstored,
        )

    def _collect_cohort(
        self, cohort: _CohortRound, devices: Devices, add_reports: Callable[[int], None]
    ) -> CohortCounts:
        """Draw and count the reports of a cohort, as many clients at a time as fit into memory.

        add_reports: is called with the number of clients that have just reported.
        """
        question, card = cohort.question, cohort.card
        values = values_of(question)
        vectors: Counts | None = None
        counts = np.zeros((values, card.symbols), np.int64)
        if card.shape == cards.PROJECTION:
            # A symbol is about all values at once; the vectors that symbols stand for are added up.
            vectors = np.zeros(values, np.int64)
            counts = np.zeros((1, card.symbols), np.int64)
        symbols = []  # of single clients, where they are wanted
        for part in self._parts(question, devices):
            clients = part - 1  # ids begin with 1
            if vectors is None:
                chosen, drawn = self._answer(cohort, clients)
            else:
                drawn, vector_sum = self._project(cohort, clients)
                chosen = np.zeros(drawn.shape, np.uint8)
                vectors += vector_sum
            counts += count(len(counts), card.symbols, chosen, drawn)
            if self.individual:
                symbols.append(drawn.astype(np.int64))
            add_reports(len(part))
        answers = None
        if self.individual:
            answers = Answers(np.asarray(devices, np.int64), np.concatenate(symbols))
        return CohortCounts(
            card,
            question.k,
            counts,
            reports=len(devices),
            question=question,
            answers=answers,
            asked=len(devices),
            vectors=vectors,
        )

    def _parts(self, question: Question, devices: Devices) -> Iterator[Positions]:
        """Yield the ids of the devices in parts whose numbers fit into memory together."""
        width = self.holdings.each * self.holdings.width
        if question.model in wire.TRAININGS:  # every client has weights of its own
            width = max(width, values_of(question))
        step = lanes_at_a_time(width)
        for start in range(0, len(devices), step):
            part = devices[start : start + step]
            if isinstance(part, range):  # quicker than number by number
                yield np.arange(part.start, part.stop, part.step)
            else:
                yield np.asarray(part, np.int64)

    def _answer(
        self, cohort: _CohortRound, clients: Positions
    ) -> tuple[npt.NDArray[np.uint8], vectorised.Array]:
        """Draw what each client reports: its coordinates and their symbols, both clients x k.

        Raises UsageError if the question makes no sense for the clients' records.
        """
        question, card = cohort.question, cohort.card
        try:
            lanes = cohort.lanes(clients)
            chosen = vectorised.choose(lanes, values_of(question), question.k)
            if card.shape == cards.SUM:
                return chosen, self._sums(cohort, clients, chosen)
            inputs = self._inputs(question, card, clients, chosen)
        except ValueError as error:
            raise UsageError(f"this round cannot be asked: {error}") from error
        lanes = cohort.lanes(clients)
        if question.model == wire.CATEGORIES or is_label(question):
            if question.range:  # local hashing: each client has a hash of its own in each round
                hashes = vectorised.hashes(clients + 1, cohort.number)
                inputs = vectorised.hashed(hashes, inputs, card.symbols)
            columns = []
            for column in inputs.T:
                columns.append(vectorised.sample_categories(card, lanes, column))
            return chosen, np.stack(columns, axis=1)
        return chosen, vectorised.sample(card, lanes, inputs)

    def _project(self, cohort: _CohortRound, clients: Positions) -> tuple[vectorised.Array, Counts]:
        """Draw the symbol of each client for a projection of its gradient.

        Return the symbols (clients x 1), and the sum of the vectors that they stand for.
        """
        card = cohort.card
        lanes = cohort.lanes(clients)
        rotations = vectorised.projection.random_signs(card, lanes)
        try:
            values = self._inputs(cohort.question, card, clients, None)
        except ValueError as error:
            raise UsageError(f"this round cannot be asked: {error}") from error
        drawn = vectorised.projection.draw(card, lanes, values, rotations)
        vectors = vectorised.projection.decode(card, rotations, drawn, values.shape[1])
        return drawn.reshape(-1, 1), vectors.sum(axis=0, dtype=np.int64)

    def _sums(
        self, cohort: _CohortRound, clients: Positions, chosen: npt.NDArray[np.uint8]
    ) -> vectorised.Array:
        """Draw the symbols of the chosen sums over all records of each client: clients x k."""
        question, card = cohort.question, cohort.card
        rows = self.holdings.rows(clients)
        totals = vectorised.sums.sums(
            card,
            question.model,
            _weights(question),
            question.exponent,
            rows,
            question.range,
            categories=question.classes,
        )
        chosen_totals = np.take_along_axis(totals, chosen.astype(np.intp), axis=1)
        return vectorised.sums.symbols(card, cohort.lanes(clients), chosen_totals)

    def _inputs(
        self,
        question: Question,
        card: cards.Card,
        clients: Positions,
        chosen: npt.NDArray[np.uint8] | None,
    ) -> Fixed:
        """Return the values from which each client draws its symbols: clients x k.

        chosen: the coordinates of these values; None: all. Raises ValueError if the clients'
        records do not fit the question.
        """
        model = question.model
        if model in wire.COLLECTIONS:
            return self._collected(question, clients, chosen)
        if model == wire.SOFTMAX:
            return self._predictions(question, card, clients)
        if model in wire.TRAININGS and chosen is not None:
            return self._training(question, clients, chosen)
        is_binary = model <= wire.SVM
        if self.holdings.each != 1 or not (is_binary or model == wire.SOFTMAX_GRADIENT):
            raise ValueError("simulated clients train locally, or have one record each")
        records = self.holdings.rows(clients)[:, 0]
        parameters = _weights(question)
        if is_binary:
            return vectorised.gradients(
                model, parameters, question.exponent, records, chosen, range_=question.range
            )
        return vectorised.softmax_gradients(
            parameters, question.exponent, records, range_=question.range, chosen=chosen
        )

    def _collected(
        self, question: Question, clients: Positions, chosen: npt.NDArray[np.uint8] | None
    ) -> Fixed:
        """Return the attributes of each client that are collected, or those chosen among them.

        The parameters of the question are flags: which columns of a record are collected.
        """
        records = self.holdings.rows(clients)[:, 0]
        held = records[:, np.flatnonzero(_weights(question))]
        if question.range and question.model == wire.VALUES:  # values up to 2**-range are kept
            scaled = held.astype(np.int32) << question.range
            held = np.clip(scaled, -ONE, ONE).astype(np.int16)
        if chosen is None:
            return held
        return np.take_along_axis(held, chosen.astype(np.intp), axis=1)

    def _predictions(self, question: Question, card: cards.Card, clients: Positions) -> Fixed:
        """Predict the label of each client's record, or the probabilities of all classes."""
        records = self.holdings.rows(clients)[:, 0]
        features = records[:, :-1]
        parameters, exponent = _weights(question), question.exponent
        if is_label(question):
            return vectorised.labels(parameters, exponent, features).reshape(-1, 1)
        return vectorised.probabilities(parameters, exponent, features, card.grid_bits)

    def _training(
        self, question: Question, clients: Positions, chosen: npt.NDArray[np.uint8]
    ) -> Fixed:
        """Train each client's model, and return how far the chosen weights moved, in units of tau.

        The result is clients x k.
        """
        rows = self.holdings.rows(clients)
        epochs, rate, tau = question.local
        records_of_client = self.holdings.each
        batch = question.batch or records_of_client  # 0: all records at once
        batch = min(batch, records_of_client, wire.MAX_BATCH)
        moved = vectorised.train_locally(
            trained(question.model),
            _weights(question),
            question.exponent,
            rows,
            epochs,
            batch,
            rate,
        )
        moves = vectorised.shares(moved, np.full(len(rows), tau))
        return np.take_along_axis(moves, chosen.astype(np.intp), axis=1)
