"""A cohort of an open round: devices with the same question, and the counts of their reports."""

import numpy as np

from tern import card as cards
from tern import frames, ledger
from ternhost import vectorised
from ternhost.count import batches
from ternhost.count.members import Integers
from ternhost.count.questions import cost_of, decode_body, question_of
from ternhost.count.rounds import CohortCounts, Counts


class Cohort:
    """The question to some devices of an open round, and how often each symbol was reported."""

    def __init__(self, body: bytes, device_count: int = 0) -> None:
        """Decode the question, and begin with counts of 0.

        body: the ROUND frame between the device and the tag (wire.md). device_count: how many
        devices are asked.
        """
        self.body = body
        self.device_count = device_count
        request = decode_body(body)
        self.question = question_of(request)
        self.card = cards.decode(self.question.card)
        self.k = request.k
        self.d = request.values
        self.cost_by_measure = {
            ledger.EPSILON: cost_of(request, ledger.EPSILON),
            ledger.RHO: cost_of(request, ledger.RHO),
        }
        self.reports = 0
        self._projects = self.card.shape == cards.PROJECTION
        self.rows = self.d  # of the matrix of counts
        self.vectors: Counts | None = None  # the sum of the vectors that symbols stand for
        if self._projects:
            self.rows = 1
            self.vectors = np.zeros(self.d, np.int64)
        self.size = self.rows * self.card.symbols
        self.counts: Counts = np.zeros(self.size, np.int64)

    @property
    def payload_bytes(self) -> int:
        """The length of the packed symbols of a report."""
        size: int = frames.packed_size(self.card.symbols, self.k)
        return size

    def unpack(self, packed: batches.Bytes) -> tuple[Integers, batches.Flags]:
        """Unpack the symbols of reports (n x bytes).

        Returns the symbols (n x k), and which reports are valid: none where their size is wrong.
        """
        if packed.shape[1] != self.payload_bytes:
            return np.zeros((len(packed), self.k), np.int64), np.zeros(len(packed), bool)
        return batches.unpack(packed, self.k, self.card.symbols)

    def increments(self, digests: batches.Bytes, symbols: Integers) -> Integers:
        """Find out what each report adds to the counts, for `count`.

        digests: of the requests (n x 32), which decide the coordinates. symbols: n x k. Usually the
        result has the cells (n x k) of the matrix of counts, coordinates x symbols, that grow by
        one. For a projection a row has the symbol, then the vector that it stands for (n x 1 + d).
        """
        if self._projects:
            rotations = vectorised.projection.signs(self.card, digests)
            vectors = vectorised.projection.decode(self.card, rotations, symbols[:, 0], self.d)
            return np.concatenate([symbols, vectors], axis=1)
        coordinates = batches.choose(digests, self.d, self.k)
        return np.asarray(coordinates * np.int64(self.card.symbols) + symbols)

    def count(self, increments: Integers) -> None:
        """Count reports, as `increments` returned them."""
        cells = increments
        if self.vectors is not None:
            cells = increments[:, :1]
            self.vectors += increments[:, 1:].sum(axis=0)
        self.counts += np.bincount(cells.reshape(-1), minlength=self.size)
        self.reports += len(increments)

    def result(self) -> CohortCounts:
        """Return a copy of the counts so far."""
        vectors = None
        if self.vectors is not None:
            vectors = self.vectors.copy()
        return CohortCounts(
            card=self.card,
            k=self.k,
            counts=self.counts.reshape(self.rows, self.card.symbols).copy(),
            reports=self.reports,
            question=self.question,
            asked=self.device_count,
            vectors=vectors,
        )
