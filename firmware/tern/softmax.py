"""Gradients of softmax regression (classes x features), in integers; row by row as in tern.gradient.

A record with the label y has the loss -log p_y. The residual of row i, p_i - [y = i], is in Q1.14 and at most 1.
"""

from array import array

from tern.compat import const
from tern.gradient import MAX_FINE, accumulate, batch_size, by_steps, clear, mean, turn
from tern.gradient import Answerer as Gradients
from tern.inference import Classifier

_ONE = const(16384)


class Rows:
    """Adds the gradients of records in `row` to `totals`, row by row."""

    def __init__(self, request, n):
        """n: classes x features."""
        self._request = request
        d = request.d
        self.totals = array("i", bytes(4 * n))
        self.row = array("h", bytes(2 * d + 2))
        totals = memoryview(self.totals)
        self._rows = [totals[i : i + d] for i in range(0, n, d)]
        self._probabilities = array("h", bytes(2 * request.classes))

    def begin(self):
        request = self._request
        self._classifier = Classifier(request.parameters, request.exponent, request.classes)

    def add(self):
        request = self._request
        row = self.row
        probabilities = self._probabilities
        self._classifier.probabilities(row, probabilities)
        for i in range(request.classes):
            residual = probabilities[i] - (_ONE if row[request.d] == i else 0)
            accumulate(row, 0, residual, self._rows[i], request.d, min(request.range, MAX_FINE))


class Answerer(Gradients):
    """Computes what a client reports to a ROUND that asks for a gradient of softmax regression."""

    _of = None  # what its arrays are for

    values = by_steps

    def steps(self, client, records):
        request = self._request
        n = request.classes * request.d
        if self._of != (request.classes, n):
            self._of = None  # until there was memory for all
            self._sums = Rows(request, n)
            self.result = array("h", bytes(2 * n))
            self._of = request.classes, n
        sums = self._sums
        sums.begin()
        clear(sums.totals, n)
        count = client.records
        batch = batch_size(request.batch, count)
        index = turn(request.round, batch, count)
        for _ in range(batch):
            records.read(client.start + index, sums.row)
            sums.add()
            index = (index + 1) % count
            yield
        mean(sums.totals, batch, self.result, n, max(0, request.range - MAX_FINE))
