"""Gradients of softmax regression (classes x features), in integers; row by row as in tern.gradient.

A record with the label y has the loss -log p_y. The residual of row i, p_i - [y = i], is in Q1.14 and at most 1.
"""

from array import array

from tern.compat import const
from tern.gradient import MAX_FINE, accumulate, batch_size, clear, mean, turn
from tern.gradient import Answerer as Gradients
from tern.inference import Classifier

_ONE = const(16384)


class Answerer(Gradients):
    """Computes what a client reports to a ROUND that asks for a gradient of softmax regression."""

    _totals = array("i")

    def values(self, client, records, _):
        for _ in self.steps(client, records):
            pass
        return self.result

    def steps(self, client, records):
        request = self._request
        d = request.d
        classes = request.classes
        n = classes * d
        if len(self._totals) != n:
            self._totals = array("i", (0 for _ in range(n)))
            self.result = array("h", (0 for _ in range(n)))
        totals = memoryview(self._totals)
        rows = [totals[i * d : i * d + d] for i in range(classes)]
        row = array("h", (0 for _ in range(d + 1)))
        probabilities = array("h", (0 for _ in range(classes)))
        classifier = Classifier(request.parameters, request.exponent, classes)
        fine = min(request.range, MAX_FINE)
        clear(self._totals, n)
        count = client.records
        batch = batch_size(request.batch, count)
        index = turn(request.round, batch, count)
        for _ in range(batch):
            records.read(client.start + index, row)
            classifier.probabilities(row, probabilities)
            for i in range(classes):
                residual = probabilities[i] - (_ONE if row[d] == i else 0)
                accumulate(row, 0, residual, rows[i], d, fine)
            index = (index + 1) % count
            yield
        mean(self._totals, batch, self.result, n, request.range - fine)
