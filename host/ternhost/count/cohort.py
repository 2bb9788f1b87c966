"""The devices of an open round that get the same question, and the counts of their reports."""

import numpy as np

from tern import card as cards
from tern import frames, ledger
from ternhost import vectorised
from ternhost.count import batches
from ternhost.count.members import Integers
from ternhost.count.questions import cost_of, decode_body, question_of
from ternhost.count.rounds import CohortCounts, Counts


class Cohort:
    """The devices of an open round that get the same question, and the counts of their reports.

    A report has k symbols, each about one of d coordinates (values that a device may be asked
    for). Counts are a matrix of d x symbols: how often each symbol was reported for a coordinate.

    Reports of a projection are different: each has one symbol, which stands for a vector of d
    values. Then the matrix has one row, and these vectors are added up, too.
    """

    def __init__(self, body: bytes, device_count: int = 0) -> None:
        """Decode the question, and begin with counts of 0.

        body: the ROUND frame of the question between the device and the tag (wire.md).
        device_count: how many devices are asked.
        """
        request = decode_body(body)
        self.body = body
        self.device_count = device_count
        self.question = question_of(request)
        self.card = cards.decode(self.question.card)  # the table from which devices sample symbols
        self.k = request.k
        self.d = request.values
        self.cost_by_measure = {
            ledger.EPSILON: cost_of(request, ledger.EPSILON),
            ledger.RHO: cost_of(request, ledger.RHO),
        }
        self.reports = 0
        self._projects = self.card.shape == cards.PROJECTION

        # The matrix of counts, row after row, and the sum of the vectors of a projection.
        self.rows = self.d
        self.vectors: Counts | None = None
        if self._projects:
            self.rows = 1
            self.vectors = np.zeros(self.d, np.int64)
        self.size = self.rows * self.card.symbols
        self.counts: Counts = np.zeros(self.size, np.int64)

    @property
    def payload_bytes(self) -> int:
        """The number of bytes of the packed symbols of a report."""
        size: int = frames.packed_size(self.card.symbols, self.k)
        return size

    def unpack(self, packed: batches.Bytes) -> tuple[Integers, batches.Flags]:
        """Unpack the symbols of reports.

        packed: n x bytes. Return the symbols (n x k), and which reports are valid (n): none is if
        the number of bytes is wrong.
        """
        n = len(packed)
        if packed.shape[1] != self.payload_bytes:
            return np.zeros((n, self.k), np.int64), np.zeros(n, bool)
        return batches.unpack(packed, self.k, self.card.symbols)

    def increments(self, digests: batches.Bytes, symbols: Integers) -> Integers:
        """Return what each report adds to the counts; `count` then adds it.

        digests: of the requests (n x 32), from which the coordinates follow. symbols: n x k.

        Row i of the result lists the entries of the matrix of counts that report i increases by
        one: coordinate * symbols of the card + symbol (n x k). For a projection it has the only
        symbol, followed by the vector for which it stands (n x (1 + d)).
        """
        if self._projects:
            rotations = vectorised.projection.signs(
                self.card, digests
            )  # of the request's directions
            vectors = vectorised.projection.decode(self.card, rotations, symbols[:, 0], self.d)
            return np.concatenate([symbols, vectors], axis=1)
        coordinates = batches.choose(digests, self.d, self.k)
        return np.asarray(coordinates * np.int64(self.card.symbols) + symbols)

    def count(self, increments: Integers) -> None:
        """Add reports to the counts. increments: as the method `increments` returned them."""
        entries = increments
        if self.vectors is not None:
            entries = increments[:, :1]
            self.vectors += increments[:, 1:].sum(axis=0)
        self.counts += np.bincount(entries.reshape(-1), minlength=self.size)
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
