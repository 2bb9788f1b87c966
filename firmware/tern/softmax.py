"""Softmax regression: the gradient of classes x features parameters, in integers.

The loss of a record x with the label y, a number 0 .. classes - 1, is -log p_y, with the probabilities p of
tern.inference. The gradient of row i is (p_i - [y = i]) x: the residual is in Q1.14 and at most 1, and the rest is that
of tern.gradient, row by row.
"""

from array import array

from tern.compat import const
from tern.gradient import accumulate, batch_size, clear, fine_bits, mean, turn
from tern.inference import Classifier
from tern.sampler import sample

_ONE = const(16384)


class Answerer:
    """Computes what a client reports to a ROUND that asks for a gradient of softmax regression."""

    def __init__(self, request):
        """request: the frames.Round, whose fields change from round to round."""
        self._request = request
        self.draw = sample
        self._totals = array("i")
        self.result = array("h")  # of the last steps()

    def cost(self, card):
        """Return what a report costs: every coordinate, the card's epsilon."""
        return self._request.k * card.epsilon

    def values(self, client, records, _):
        """Return the mean gradient of the batch whose turn it is, scaled and clipped (array('h'), row by row)."""
        for _ in self.steps(client, records):
            pass
        return self.result

    def steps(self, client, records):
        """Compute what values() returns, record by record: a generator, for who has something else to do meanwhile."""
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
        fine = fine_bits(request.range)
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
