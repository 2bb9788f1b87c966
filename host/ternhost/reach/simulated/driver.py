"""A fleet of up to millions of simulated clients: the vectorised twin of the firmware over a data
set, without frames, keys or ledgers. Random bytes come from a seeded generator, so that a run can
be repeated. They protect nobody: a simulation holds all the data anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from ternhost.reach.driver import Cohorts, Devices, Driver, OnProgress, RoundProgress, is_label
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from ternhost.vectorised import RandomLanes, random_bits

Fixed = npt.NDArray[np.int16]
Positions = npt.NDArray[np.integer]

_CHUNK = 1 << 21  # numbers in memory at a time, whatever the fleet's size
_MOST_LANES = 1 << 17


def lanes_at_a_time(width: int) -> int:
    """The number of clients, of `width` numbers each, to handle together."""
    return max(1, min(_MOST_LANES, _CHUNK // width))


def count(d: int, symbols: int, chosen: npt.NDArray[np.uint8], drawn: vectorised.Array) -> Counts:
    """The count matrix (d x symbols) of reports: coordinates and symbols, both n x k."""
    cells = chosen.astype(np.intp)
    cells *= symbols
    cells += drawn
    return np.bincount(cells.reshape(-1), minlength=d * symbols).reshape(d, symbols)


def _check(question: Question, card: cards.Card) -> None:
    if is_label(question):
        usable = (
            card.shape == cards.WINDOW and card.window == 1 and card.symbols == question.classes
        )
    else:
        usable = question.model != wire.SOFTMAX or card.shape == cards.LAPLACE
        usable &= card.shape != cards.SUM or not question.batch
        if card.shape == cards.PROJECTION:
            usable &= (
                question.model in wire.SCALED
                and question.k == 1
                and values_of(question) <= card.symbols // 2
            )
    if not usable:
        raise RefusedError(
            "the simulated clients refuse: the card does not fit this model",
            hint="a label needs a window of 1 over the classes, their probabilities a laplace card, a sum batch 0, a "
            "projection a gradient of at most its size",
        )
    if not cards.certify(card):
        raise RefusedError(
            "the simulated clients refuse: the card does not keep the epsilon that it claims",
            hint="see 'tern card certify'",
        )


def _ascending(devices: Devices) -> npt.NDArray[np.int64]:
    ids = integers(devices)
    return ids if np.all(ids[1:] > ids[:-1]) else np.sort(ids)


def _weights(question: Question) -> npt.NDArray[np.int64]:
    """The parameters of a question, of a model of classes in rows; or the flags of a collection."""
    parameters = np.asarray(question.parameters, np.int64)
    return (
        parameters.reshape(question.classes, -1)
        if question.model in wire.OF_CLASSES
        else parameters
    )


class SimulatedDriver(Driver):
    """Clients with consecutive ids: id i + 1 has the records of client i (from 0) of `holdings`."""

    def __init__(
        self,
        holdings: Holdings,
        clients: int | None = None,
        seed: int = 1,
        *,
        individual: bool = False,
        first: int = 1,
        store: Store | None = None,
    ) -> None:
        """clients: None for as many as have their own records. first: the id of the first client.
        store: of the run, whose earlier rounds may be those of other runs.
        """
        super().__init__(
            Terms(), individual=individual
        )  # a simulated round ends when all have answered
        self.holdings = holdings
        self._clients = holdings.clients if clients is None else clients
        self._seed = seed
        self._first = first
        self._store = store
        self._cohorts: dict[int, Cohorts] = {}

    @property
    def devices(self) -> range:
        return range(self._first, self._first + self._clients)

    def next_round(self, planned: int) -> int:
        return planned if self._store is None else max(planned, last_number(self._store) + 1)

    def open(self, number: int, cohorts: Cohorts) -> None:
        self._cohorts[number] = cohorts

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """The draws depend only on the seed, the round and the cohort.

        Gradients need clients with one record; local training and sums use all records. Raises
        RefusedError for a card that does not certify, UsageError for a question that no frame can
        carry.
        """
        if self.stopped:
            return None
        cohorts = self._cohorts.pop(number)
        asked = sum(len(devices) for _, devices in cohorts)
        done = 0
        results = []
        for index, (question, devices) in enumerate(cohorts):
            card = cards.decode(question.card)
            _check(question, card)
            d = values_of(question)
            vectors = np.zeros(d, np.int64) if card.shape == cards.PROJECTION else None
            counts = np.zeros((d if vectors is None else 1, card.symbols), np.int64)
            bits = random_bits(self._seed, number, index)
            symbols = []
            for part in self._parts(question, devices):
                if vectors is None:
                    chosen, drawn = self._answer(number, question, card, bits, part - 1)
                else:
                    drawn, stand_for = self._project(question, card, bits, part - 1)
                    chosen = np.zeros(drawn.shape, np.uint8)
                    vectors += stand_for
                counts += count(len(counts), card.symbols, chosen, drawn)
                if self.individual:
                    symbols.append(drawn.astype(np.int64))
                done += len(part)
                on_progress(RoundProgress(number, done, asked))
            n = len(devices)
            answers = None
            if self.individual:
                answers = Answers(np.asarray(devices, np.int64), np.concatenate(symbols))
            results.append(
                CohortCounts(card, question.k, counts, n, question, answers, n, vectors=vectors)
            )
        unstored = [_ascending(devices) for _, devices in cohorts]
        return RoundResult(number, COMPLETE, asked, done, {}, results, unstored)

    def _parts(self, question: Question, devices: Devices) -> Iterator[Positions]:
        held = self.holdings.each * self.holdings.width
        # in training every client has weights of its own
        step = lanes_at_a_time(
            max(held, values_of(question)) if question.model in wire.TRAININGS else held
        )
        for start in range(0, len(devices), step):
            part = devices[start : start + step]
            if isinstance(part, range):  # quicker than number by number
                yield np.arange(part.start, part.stop, part.step)
            else:
                yield np.asarray(part, np.int64)

    def _answer(
        self,
        number: int,
        question: Question,
        card: cards.Card,
        bits: np.random.BitGenerator,
        clients: Positions,
    ) -> tuple[npt.NDArray[np.uint8], vectorised.Array]:
        # The coordinates that each client reports, and the symbols.
        try:
            chosen = vectorised.choose(
                RandomLanes(bits, len(clients)), values_of(question), question.k
            )
            if card.shape == cards.SUM:
                return chosen, self._sums(question, card, bits, clients, chosen)
            inputs = self._inputs(question, card, clients, chosen)
        except ValueError as error:
            raise UsageError(f"this round cannot be asked: {error}") from error
        lanes = RandomLanes(bits, len(clients))
        if question.model == wire.CATEGORIES or is_label(question):
            if question.range:
                inputs = vectorised.hashed(
                    vectorised.hashes(clients + 1, number), inputs, card.symbols
                )
            columns = [vectorised.sample_categories(card, lanes, column) for column in inputs.T]
            return chosen, np.stack(columns, axis=1)
        return chosen, vectorised.sample(card, lanes, inputs)

    def _project(
        self, question: Question, card: cards.Card, bits: np.random.BitGenerator, clients: Positions
    ) -> tuple[vectorised.Array, Counts]:
        # The symbol of each client (n x 1), and the sum of the vectors that they stand for.
        lanes = RandomLanes(bits, len(clients))
        rotations = vectorised.projection.random_signs(card, lanes)
        try:
            values = self._inputs(question, card, clients, None)
        except ValueError as error:
            raise UsageError(f"this round cannot be asked: {error}") from error
        drawn = vectorised.projection.draw(card, lanes, values, rotations)
        vectors = vectorised.projection.decode(card, rotations, drawn, values.shape[1])
        return drawn[:, None], vectors.sum(axis=0, dtype=np.int64)

    def _sums(
        self,
        question: Question,
        card: cards.Card,
        bits: np.random.BitGenerator,
        clients: Positions,
        chosen: npt.NDArray[np.uint8],
    ) -> vectorised.Array:
        parameters = _weights(question)
        rows = self.holdings.rows(clients)
        totals = vectorised.sums.sums(
            card,
            question.model,
            parameters,
            question.exponent,
            rows,
            question.range,
            categories=question.classes,
        )
        wanted = np.take_along_axis(totals, chosen.astype(np.intp), axis=1)
        return vectorised.sums.symbols(card, RandomLanes(bits, len(rows)), wanted)

    def _inputs(
        self,
        question: Question,
        card: cards.Card,
        clients: Positions,
        chosen: npt.NDArray[np.uint8] | None,
    ) -> Fixed:
        # Those of the chosen values; None: of all.
        rows = self.holdings.rows(clients)
        first = rows[:, 0]
        parameters = _weights(question)
        range_, exponent = question.range, question.exponent
        if question.model <= wire.SVM and self.holdings.each == 1:
            return vectorised.gradients(
                question.model, parameters, exponent, first, chosen, range_=range_
            )
        if question.model in wire.COLLECTIONS:
            held = first[:, np.flatnonzero(parameters)]
            if range_ and question.model == wire.VALUES:
                held = np.clip(held.astype(np.int32) << range_, -ONE, ONE).astype(np.int16)
            if chosen is None:
                return held
            return np.take_along_axis(held, chosen.astype(np.intp), axis=1)
        if is_label(question):
            return vectorised.labels(parameters, exponent, first[:, :-1])[:, None]
        if question.model == wire.SOFTMAX:
            return vectorised.probabilities(parameters, exponent, first[:, :-1], card.grid_bits)
        if question.model == wire.SOFTMAX_GRADIENT and self.holdings.each == 1:
            return vectorised.softmax_gradients(
                parameters, exponent, first, range_=range_, chosen=chosen
            )
        if chosen is None or question.model not in wire.TRAININGS:
            raise ValueError("simulated clients train locally, or have one record each")
        epochs, rate, tau = question.local
        batch = min(question.batch or self.holdings.each, self.holdings.each, wire.MAX_BATCH)
        model = trained(question.model)
        moved = vectorised.train_locally(model, parameters, exponent, rows, epochs, batch, rate)
        moves = vectorised.shares(moved, np.full(len(rows), tau))
        return np.take_along_axis(moves, chosen.astype(np.intp), axis=1)
