"""Gradients of softmax regression (classes x features), in integers.

Class by class they are computed as in tern.gradient. A record with the label y has the loss
-log p_y. The residual of class i, p_i - [y = i], is in Q1.14 and at most 1: a record adds at most
2**fine * 2**15 to an accumulator, 32 records with fine = 10 less than 2**31.
"""

from array import array

from tern.compat import const
from tern.gradient import Answerer as Gradients
from tern.gradient import Gradient, accumulate
from tern.inference import Classifier
from tern.wire import MAX_BATCH, MAX_EXPONENT

_ONE = const(16384)


class Batch(Gradient):
    """Mean gradient of a batch for classes x d weights, row by row: 2..128 classes.

    Only __init__ allocates.
    """

    def __init__(self, d, classes):
        super().__init__(d, classes)
        self.classes = classes
        # no weights yet: add() names them
        self._classifier = Classifier(self.totals, MAX_EXPONENT, classes)
        self._probabilities = array("h", bytes(2 * classes))
        totals = memoryview(self.totals)
        self._rows = [totals[i : i + d] for i in range(0, self.values, d)]

    def add(self, _, params, exponent, row):  # type: ignore[override]
        """Add a record: its d features in `row` (array('h')), then the number of its class.

        params: array('h') of classes x d mantissas; exponent: -30..-12. Raises ValueError as
        Gradient.add().
        """
        d = self.d
        if len(row) <= d or self.count >= MAX_BATCH:
            raise ValueError("no label, or more than 32 records in a batch")
        probabilities = self._probabilities
        self._classifier.use(params, exponent)
        self._classifier.probabilities(row, probabilities)
        for i in range(self.classes):
            residual = probabilities[i] - (_ONE if row[d] == i else 0)
            accumulate(row, 0, residual, self._rows[i], d, self._fine)
        self.count += 1


class Answerer(Gradients):
    """Computes what a client reports to a ROUND that asks for a gradient of softmax regression."""

    def room(self, d):
        """Allocate what a gradient of d features needs, for the classes of the request."""
        classes = self._request.classes
        self._gradient = None  # until there was memory for all
        self._row = array("h", bytes(2 * d + 2))
        self.result = array("h", bytes(2 * classes * d))
        self._gradient = Batch(d, classes)

    def _begin(self, client):
        """Begin a batch as gradients do, with new buffers if the number of classes changed."""
        if self._gradient and self._gradient.classes != self._request.classes:
            self._gradient = None
        return super()._begin(client)
