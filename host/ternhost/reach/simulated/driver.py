"""Simulates the reports of up to millions of clients with NumPy.

The clients compute what the firmware computes, all of them at once, but without frames, keys and
ledgers. Their random bits come from a seeded generator, so that a run can be repeated. So they
protect nobody; that does not matter, since a simulation has all the data anyway.

In the shapes of arrays, n is the number of clients, d that of values of which each of them could
report some, and k that of the values that each of them reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from ternhost.datasets import Holdings, Indices
from ternhost.datasets.holdings import groups_of_equal
from ternhost.errors import RefusedError, UsageError
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import Devices, Driver, OnProgress, RoundKeeper, RoundProgress, is_label
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from ternhost.vectorised import ModelParameters, RandomLanes, random_bits

Fixed = npt.NDArray[np.int16]
Positions = npt.NDArray[np.integer]

# Clients are simulated together in parts, so that memory suffices whatever the size of the fleet:
# at most so many clients, and as many as need so many numbers.
_MOST_LANES = 1 << 17
_CHUNK = 1 << 21
# Gradients, which draw nothing, are computed of fewer clients together, so that all their numbers
# stay in the cache of a core.
_CHUNK_OF_GRADIENTS = 1 << 17


def lanes_at_a_time(width: int, chunk: int) -> int:
    """Return how many clients to simulate together.

    width: how many numbers each of them needs. chunk: how many all of them may need.
    """
    return max(1, min(_MOST_LANES, chunk // width))


def count(d: int, symbols: int, chosen: npt.NDArray[np.uint8], drawn: vectorised.Array) -> Counts:
    """Return how often each symbol was reported for each coordinate: an array d x symbols.

    A coordinate is one of the values of which a client reports some, such as one entry of a
    gradient. A symbol is the noisy number that stands for a value in a report.

    d: the number of coordinates. symbols: the number of different symbols. chosen, drawn: the
    coordinates and the symbols in the reports of n clients, of k values each; both are n x k.
    """
    # The position of (coordinate, symbol) in the flattened result is coordinate * symbols + symbol.
    positions = chosen.astype(np.intp)
    positions *= symbols
    positions += drawn
    flat_counts = np.bincount(positions.reshape(-1), minlength=d * symbols)
    return flat_counts.reshape(d, symbols)


def _check(question: Question, card: cards.Card) -> None:
    """Raise RefusedError if devices would refuse a question with this card.

    A card is the table from which devices draw the symbols of their reports, with the epsilon that
    it claims. It must fit the kind of question, and its epsilon must be certified.
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
    """Return whether devices may answer this kind of question with this card (wire.md).

    A card is the table from which devices draw the random symbols of their reports. Its shape says
    which mechanism it is of.
    """
    # The class of a record is reported by randomised response over all classes.
    if is_label(question):
        is_randomised_response = card.shape == cards.WINDOW and card.window == 1
        return is_randomised_response and card.symbols == question.classes

    # The probabilities of classes are reported with Laplace noise.
    if question.model == wire.SOFTMAX and card.shape != cards.LAPLACE:
        return False

    # A sum is over all records of a client, not over a batch of them.
    if card.shape == cards.SUM and question.batch:
        return False

    # A projection is of a whole gradient. Its symbols stand for the two directions of each axis.
    if card.shape == cards.PROJECTION:
        is_gradient = question.model in wire.SCALED and question.k == 1
        dimension = card.symbols // 2
        return is_gradient and values_of(question) <= dimension
    return True


def _ascending(devices: Devices) -> npt.NDArray[np.int64]:
    """Return ids of devices in ascending order, without sorting those that are in order already."""
    ids = integers(devices)
    is_ascending = np.all(ids[1:] > ids[:-1])
    if is_ascending:
        return ids
    return np.sort(ids)


def _weights(question: Question) -> npt.NDArray[np.int64]:
    """Return the parameters of a question as an array.

    They are the weights of its model, or flags that say which attributes are collected. The weights
    of a model with classes are classes x features.
    """
    parameters = np.asarray(question.parameters, np.int64)
    if question.model in wire.OF_CLASSES:
        return parameters.reshape(question.classes, -1)
    return parameters


def _few_at_a_time(sizes: Indices, numbers_of_record: int) -> Iterator[Positions]:
    """Yield positions of clients whose batches are of one size, as many as fit into the cache.

    sizes: the number of records in the batch of each client. numbers_of_record: how many numbers the
    work for one record needs.
    """
    for members in groups_of_equal(sizes):
        size = int(sizes[members[0]])
        step = lanes_at_a_time(size * numbers_of_record, _CHUNK_OF_GRADIENTS)
        for start in range(0, len(members), step):
            yield members[start : start + step]


def _by_group(
    groups: Iterable[Positions], compute: Callable[[Positions], vectorised.Array]
) -> vectorised.Array:
    """Compute rows for clients in groups; return all rows in the order of the clients.

    groups: positions of clients, each of them in one group. compute: returns a row for each client
    of a group.
    """
    positions, parts = [], []
    for members in groups:
        positions.append(members)
        parts.append(compute(members))
    if len(parts) == 1:  # its clients are in order
        return parts[0]
    rows = np.concatenate(parts)
    in_order = np.empty_like(rows)
    in_order[np.concatenate(positions)] = rows
    return in_order


class _CohortRound(NamedTuple):
    """A cohort in a round: clients that are asked the same question."""

    number: int  # of the round
    question: Question
    card: cards.Card  # the table from which the symbols of reports are drawn
    bits: np.random.BitGenerator  # the random bits of all its clients

    def lanes(self, clients: Positions) -> RandomLanes:
        """Return the next random bits for these clients, a lane for each of them."""
        return RandomLanes(self.bits, len(clients))


class SimulatedRounds(RoundKeeper):
    """Numbers the rounds of a run so that they differ from other rounds in a store."""

    def __init__(self, store: Store) -> None:
        """store: has the earlier rounds of this run and of others."""
        super().__init__()
        self._store = store

    def next_number(self, planned: int) -> int:
        return max(planned, last_number(self._store) + 1)


class SimulatedDriver(Driver):
    """Simulates clients with consecutive ids.

    The client with the id i + 1 has the records at the position i (from 0 on) of `holdings`.
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
        """Prepare to simulate clients.

        holdings: the records of each client. clients: how many clients there are; None for as many
        as have records of their own. seed: the seed of the generator from which they draw.
        individual: results contain the reports of single clients, too. first: the id of the first
        client. keeper: numbers the rounds.
        """
        # With the default terms, a round ends when all have answered.
        super().__init__(Terms(), keeper, individual=individual)
        self.holdings = holdings
        if clients is None:
            clients = holdings.clients
        self._clients = clients
        self._seed = seed
        self._first = first

    @property
    def devices(self) -> range:
        return range(self._first, self._first + self._clients)

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """Draw and count the reports of a round, and return its result; None after `stop`.

        The draws depend only on the seed, the round and the cohort. Of its records, a client uses
        those that a device would use in this round (wire.md).

        number: the number of the round. on_progress: is called after each part of the clients.
        Raises RefusedError for a card whose epsilon cannot be certified, and UsageError for a
        question that the clients cannot answer.
        """
        if self.stopped:
            return None
        cohorts = self.keeper.cohorts.pop(number)
        asked = sum(len(devices) for _question, devices in cohorts)
        reports = 0

        def add_reports(more_reports: int) -> None:
            """Count reports, and tell the caller of `collect`."""
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
        members = [_ascending(devices) for _question, devices in cohorts]
        return RoundResult(
            number=number,
            ended=COMPLETE,
            asked=asked,
            reports=reports,
            refusals={},  # simulated clients never refuse to report
            cohorts=results,
            unstored=members,  # no store has the devices of the cohorts
        )

    def _collect_cohort(
        self, cohort: _CohortRound, devices: Devices, add_reports: Callable[[int], None]
    ) -> CohortCounts:
        """Draw and count the reports of a cohort, as many clients at a time as fit into memory.

        cohort: what is asked. devices: the ids of the clients. add_reports: is called with the
        number of clients that have just reported.
        """
        question = cohort.question
        card = cohort.card
        values = values_of(question)
        vectors: Counts | None = None
        counts = np.zeros((values, card.symbols), np.int64)
        if card.shape == cards.PROJECTION:
            # A symbol is about all values at once: it stands for a vector. Besides counting the
            # symbols, as if they were of a single value, the vectors are added up.
            vectors = np.zeros(values, np.int64)
            counts = np.zeros((1, card.symbols), np.int64)
        symbols = []  # those of single clients, if they are wanted

        for part in self._parts(question, devices):
            clients = part - 1  # positions, from 0 on; ids begin with 1
            if vectors is None:
                chosen, drawn = self._answer(cohort, clients)
            else:
                drawn, vector_sum = self._project(cohort, clients)
                chosen = np.zeros(drawn.shape, np.uint8)  # there is only one row of counts
                vectors += vector_sum
            counts += count(len(counts), card.symbols, chosen, drawn)
            if self.individual:
                symbols.append(drawn.astype(np.int64))
            add_reports(len(part))

        answers = None
        if self.individual:
            answers = Answers(np.asarray(devices, np.int64), np.concatenate(symbols))
        return CohortCounts(
            card=card,
            k=question.k,
            counts=counts,
            reports=len(devices),
            question=question,
            answers=answers,
            asked=len(devices),
            vectors=vectors,
        )

    def _parts(self, question: Question, devices: Devices) -> Iterator[Positions]:
        """Yield the ids of the devices in parts, so that the numbers of a part fit into memory.

        question: what the clients are asked, which decides how much memory each of them needs.
        """
        # Each client needs memory for its records, and in local training for weights of its own.
        records = self.holdings.per_client
        uses_all_records = (
            question.model in wire.TRAININGS or cards.decode(question.card).shape == cards.SUM
        )
        if not uses_all_records:
            # All records of a client (batch 0) may be more, but they are computed on a few clients
            # at a time, see `_gradients`.
            records = min(records, wire.MAX_BATCH)
        width = records * self.holdings.width
        if question.model in wire.TRAININGS:
            width = max(width, values_of(question))
        step = lanes_at_a_time(width, _CHUNK)
        for start in range(0, len(devices), step):
            part = devices[start : start + step]
            if isinstance(part, range):
                yield np.arange(part.start, part.stop, part.step)  # quicker than id by id
            else:
                yield np.asarray(part, np.int64)

    def _answer(
        self, cohort: _CohortRound, clients: Positions
    ) -> tuple[npt.NDArray[np.uint8], vectorised.Array]:
        """Draw what each client reports: some of its values, and a random symbol for each of them.

        A client picks k of its d values at random (its coordinates), and reports a noisy symbol in
        place of each. Return the positions of these values and the symbols, both n x k.

        cohort: the question, and the table from which symbols are drawn (the card). clients: the
        positions of the n clients. Raises UsageError if their records do not fit the question.
        """
        question = cohort.question
        card = cohort.card
        try:
            lanes = cohort.lanes(clients)  # random bits for each client
            chosen = vectorised.choose(lanes, values_of(question), question.k)
            if card.shape == cards.SUM:
                return chosen, self._sums(cohort, clients, chosen)
            inputs = self._inputs(cohort, clients, chosen)
        except ValueError as error:
            raise UsageError(f"this round cannot be sent to devices: {error}") from error

        lanes = cohort.lanes(clients)  # further random bits, for the noise
        is_categorical = question.model == wire.CATEGORIES or is_label(question)
        if not is_categorical:
            return chosen, vectorised.sample(card, lanes, inputs)
        uses_hashing = question.range != 0  # of categories, `range` is not a range of values
        if uses_hashing:
            # Local hashing: each client reports a hash of its category, and has a hash function of
            # its own in each round.
            hashes = vectorised.hashes(clients + 1, cohort.number)
            inputs = vectorised.hashed(hashes, inputs, card.symbols)
        columns = []
        for column in inputs.T:  # one of the k values of all clients
            columns.append(vectorised.sample_categories(card, lanes, column))
        return chosen, np.stack(columns, axis=1)

    def _project(self, cohort: _CohortRound, clients: Positions) -> tuple[vectorised.Array, Counts]:
        """Draw the symbol that each client reports of its whole gradient.

        The client rotates its gradient at random, and reports a noisy direction along one axis of
        the rotated space. Such a symbol stands for a vector, which is the direction rotated back.
        Return the symbols (n x 1), and the sum of the vectors that they stand for (d values).
        clients: the positions of the n clients. Raises UsageError if their records do not fit.
        """
        card = cohort.card
        lanes = cohort.lanes(clients)  # random bits for each client
        rotations = vectorised.projection.random_signs(card, lanes)
        try:
            values = self._inputs(cohort, clients, chosen=None)
        except ValueError as error:
            raise UsageError(f"this round cannot be sent to devices: {error}") from error
        drawn = vectorised.projection.draw(card, lanes, values, rotations)
        dimension = values.shape[1]
        vectors = vectorised.projection.decode(card, rotations, drawn, dimension)
        return drawn.reshape(-1, 1), vectors.sum(axis=0, dtype=np.int64)

    def _sums(
        self, cohort: _CohortRound, clients: Positions, chosen: npt.NDArray[np.uint8]
    ) -> vectorised.Array:
        """Draw what each client reports of the sums over all its records: n x k symbols.

        A symbol is a sum with random noise, as a step of a grid. clients: the positions of the n
        clients. chosen: which of the sums each client reports, n x k.
        """
        question = cohort.question
        card = cohort.card
        parameters = ModelParameters(question.model, _weights(question), question.exponent)

        def totals_of(members: Positions) -> vectorised.Array:
            """Return the exact totals of clients that hold equally many records."""
            rows = self.holdings.rows(clients[members])  # members x records x columns
            return vectorised.sums.sums(
                card, parameters, rows, question.range, categories=question.classes
            )

        totals = _by_group(self.holdings.groups(clients), totals_of)  # the noise comes afterwards
        chosen_totals = np.take_along_axis(totals, chosen.astype(np.intp), axis=1)
        return vectorised.sums.symbols(card, cohort.lanes(clients), chosen_totals)

    def _inputs(
        self, cohort: _CohortRound, clients: Positions, chosen: npt.NDArray[np.uint8] | None
    ) -> Fixed:
        """Return the values of each client, without noise, from which it draws its symbols: n x k.

        What they are depends on the question: attributes, predictions, gradients, or how far
        weights have moved in training.

        clients: the positions of the n clients. chosen: which of its values each client reports,
        n x k; None for all. Raises ValueError if the clients' records do not fit the question.
        """
        question = cohort.question
        if question.model in wire.COLLECTIONS:
            return self._collected(cohort, clients, chosen)
        if question.model == wire.SOFTMAX:
            return self._predictions(cohort, clients)
        if question.model in wire.TRAININGS and chosen is not None:
            return self._training(question, clients, chosen)
        return self._gradients(cohort, clients, chosen)

    def _gradients(
        self, cohort: _CohortRound, clients: Positions, chosen: npt.NDArray[np.uint8] | None
    ) -> Fixed:
        """Return the mean gradient of each client over the batch whose turn it is: n x k.

        clients: the positions of the n clients. chosen: which of the values each of them reports,
        n x k; None for all. Raises ValueError for another model, or if records do not fit it.
        """
        question = cohort.question
        model = question.model
        is_binary = model <= wire.SVM  # the codes of models with one weight per feature
        if not is_binary and model != wire.SOFTMAX_GRADIENT:
            raise ValueError("no gradient of this model")
        weights = _weights(question)

        # As tern.gradient chooses them: batches follow each other, round by round, and begin again
        # after the last record of a client. Batch 0 has all its records.
        counts = self.holdings.counts(clients)
        sizes = counts
        if question.batch:
            sizes = np.minimum(counts, question.batch)
        firsts = (cohort.number - 1) % counts * sizes % counts

        def gradients_of(members: Positions) -> Fixed:
            """Return the gradients of clients whose batches are of one size."""
            size = int(sizes[members[0]])
            batches = self.holdings.batches(clients[members], firsts[members], size)
            records = batches.reshape(-1, self.holdings.width)
            coordinates = None
            if chosen is not None:
                coordinates = chosen[members]
            if is_binary:
                parameters = ModelParameters(model, weights, question.exponent)
                return vectorised.gradients(
                    parameters, records, coordinates, batch=size, range_=question.range
                )
            return vectorised.softmax_gradients(
                weights,
                question.exponent,
                records,
                batch=size,
                range_=question.range,
                chosen=coordinates,
            )

        numbers_of_record = max(self.holdings.width, question.k)
        return _by_group(_few_at_a_time(sizes, numbers_of_record), gradients_of)

    def _collected(
        self, cohort: _CohortRound, clients: Positions, chosen: npt.NDArray[np.uint8] | None
    ) -> Fixed:
        """Return the attributes of each client that the question collects: n x k.

        For example the answers to some questions of a survey. clients: the positions of the n
        clients. chosen: which of them each client reports, n x k; None for all of them.
        """
        question = cohort.question
        # The parameters of the question are flags, which say what columns of a record to collect.
        columns = np.flatnonzero(_weights(question))
        records = self.holdings.turns(clients, cohort.number)  # a single one of each client
        attributes = records[:, columns]
        if question.range and question.model == wire.VALUES:
            # Values up to 2**-range become values up to 1, and larger ones are clipped to 1.
            scaled = attributes.astype(np.int32) << question.range
            attributes = np.clip(scaled, -ONE, ONE).astype(np.int16)
        if question.exponent:  # the category of a number is its bin
            attributes = vectorised.bins(attributes, question.exponent)
        if chosen is None:
            return attributes
        return np.take_along_axis(attributes, chosen.astype(np.intp), axis=1)

    def _predictions(self, cohort: _CohortRound, clients: Positions) -> Fixed:
        """Predict the class of each client's record (n x 1), or the probabilities of all classes.

        The record of a client with several is the one whose turn it is.
        """
        question = cohort.question
        records = self.holdings.turns(clients, cohort.number)
        features = records[:, :-1]  # the last column is the label
        parameters = _weights(question)
        exponent = question.exponent
        if is_label(question):
            return vectorised.labels(parameters, exponent, features).reshape(-1, 1)
        return vectorised.probabilities(parameters, exponent, features, cohort.card.grid_bits)

    def _training(
        self, question: Question, clients: Positions, chosen: npt.NDArray[np.uint8]
    ) -> Fixed:
        """Train a model at each client, and return how far the chosen weights have moved: n x k.

        This is local training, as in federated averaging: each client makes some steps of gradient
        descent on its own records. The moves are in units of tau, the largest move that is
        reported. clients: the positions of the n clients. chosen: which weights each of them
        reports, n x k.
        """
        epochs, rate, tau = question.local  # the learning rate is 2**-rate
        parameters = ModelParameters(trained(question.model), _weights(question), question.exponent)

        def moved_of(members: Positions) -> vectorised.Array:
            """Return how far the weights of clients moved that hold equally many records."""
            rows = self.holdings.rows(clients[members])  # members x records x columns
            record_count = rows.shape[1]
            batch = min(question.batch or record_count, record_count, wire.MAX_BATCH)
            return vectorised.train_locally(parameters, rows, epochs, batch, rate)

        moved = _by_group(self.holdings.groups(clients), moved_of)
        tau_of_client = np.full(len(clients), tau)  # the same for all
        moves = vectorised.shares(moved, tau_of_client)
        return np.take_along_axis(moves, chosen.astype(np.intp), axis=1)
